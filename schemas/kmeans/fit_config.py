"""A `fit` job, one class per algorithm, from plain data or YAML."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from pydantic import Field

from schemas.choices import Algorithm, Allocation, ClippingCenter, ClippingRule, Preset, StartSpace
from schemas.errors import ConfigError
from schemas.kmeans import auto_choice
from schemas.kmeans.any_fit import AnyFit
from schemas.kmeans.lloyd_config import DPLloydFit
from schemas.kmeans.medians_config import DPMediansFit
from schemas.kmeans.sections.spherical_config import (
    MOST_CELLS,
    ClientPrivacyConfig,
    NamesConfig,
    SphericalConfig,
    UnitBallConfig,
)
from schemas.kmeans.tree_config import CentralTreeFit
from schemas.kmeans.windows_config import WindowsFit
from schemas.privacy.plan import PrivacyUnit
from schemas.settings import rejection, yaml_text
from schemas.tables.encoding import EncodingKind

if TYPE_CHECKING:
    from schemas.tables.terms_column import TermsColumn


PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "privacy": {"allocation": Allocation.PAPER},
    "feddp_kmeans": {"guards": False, "space": StartSpace.SUBSPACE},
    "clipping": {"norm": ClippingRule.SERVER_RADIUS, "center": ClippingCenter.NONE},
}
"""FedDP-KMeans as its paper prints it (Algorithms 1 and 2, appendix G.4), by section."""


class FedDPKMeansFit(AnyFit):
    """One `fit` job of algorithm feddp_kmeans."""

    algorithm: Literal[Algorithm.FEDDP_KMEANS] = Field(description="feddp_kmeans")
    preset: Preset | None = Field(
        default=None,
        exclude=True,
        description="published for the settings that Scott, Lampert, Saulpic 2025 print, or leave it out",
    )

    def _check_algorithm(self) -> None:
        if self.preset is not None:
            self._check_published()

    def _check_published(self) -> None:
        if self.server_data is None:
            raise ConfigError("server_data must be given for preset published, got none; give it, or leave out preset.")
        if self.clipping.norm is ClippingRule.PRIVATE:
            raise ConfigError(
                "clipping.norm must be server_radius or a number for preset published, got 'private'; leave it out, or "
                "leave out preset."
            )
        for section, settings in PUBLISHED.items():
            for name, value in settings.items():
                found = getattr(getattr(self, section), name)
                if found != value and name != "norm":
                    raise ConfigError(
                        f"{section}.{name} must be {str(value).lower()} for preset published, got "
                        f"{str(found).lower()}; leave it out, or leave out preset."
                    )

    def _check_warm_start(self) -> None:
        if self.lloyd.steps < 1:
            raise ConfigError(
                f"lloyd.steps must be at least 1 for a warm start, got {self.lloyd.steps}; these rounds spend its "
                "whole budget."
            )
        if self.feddp_kmeans.reduce_diameter is not None:
            raise ConfigError(
                "feddp_kmeans.reduce_diameter must be left out for a warm start, got a section; it moves the frame of "
                "every run."
            )


class ServerStartFit(AnyFit):
    """One `fit` job of a baseline, whose Lloyd rounds spend the whole budget."""

    algorithm: Literal[Algorithm.SERVER_KMEANSPP, Algorithm.SERVER_LLOYDS, Algorithm.SPHERE_PACKING] = Field(
        description="server_kmeanspp, server_lloyds or sphere_packing"
    )

    def _check_algorithm(self) -> None:
        if self.lloyd.steps < 1:
            raise ConfigError(
                f"lloyd.steps must be at least 1 for algorithm {self.algorithm}, got {self.lloyd.steps}; "
                "these rounds spend its whole budget."
            )
        self._check_given_count()
        if self.clipping.norm is ClippingRule.PRIVATE:
            raise ConfigError(
                f"clipping.norm must be server_radius or a number for algorithm {self.algorithm}, got 'private'; "
                "give the norm in feature units."
            )
        if self.server_data is None and self.algorithm is not Algorithm.SPHERE_PACKING:
            raise ConfigError(
                f"server_data must be given for algorithm {self.algorithm}, got none; "
                "give a server_data section, or use algorithm sphere_packing."
            )


class SphericalFit(AnyFit):
    """One `fit` job of algorithm spherical, whose privacy unit is the client unless the job says why not."""

    algorithm: Literal[Algorithm.SPHERICAL] = Field(description="spherical")
    privacy: ClientPrivacyConfig = Field(description="the section of the guarantee with epsilon and delta")
    clipping: UnitBallConfig = Field(
        default=UnitBallConfig(), description="the section of the contribution bounds with client_rows"
    )
    spherical: SphericalConfig = Field(
        default=SphericalConfig(), description="a section of options for algorithm spherical, or leave it out"
    )
    names: NamesConfig | None = Field(
        default=None, description="a section with column and vocabulary to give clusters names, or leave it out"
    )

    @property
    def terms(self) -> "TermsColumn | None":
        """The column of names, once the vocabulary is read."""
        if self.names is None or self.names.words is None:
            return None
        # Help and schema answer without pyarrow, which this imports.
        from schemas.tables.terms_column import TermsColumn

        return TermsColumn(column=self.names.column, vocabulary=self.names.words, most=self.names.most_per_row)

    def with_files(self, read: Callable[[str, str], str]) -> Self:
        """The job with the terms of its vocabulary; errors as of the section."""
        found = super().with_files(read)
        if found.names is None:
            return found
        found = found.model_copy(update={"names": found.names.with_words(read, "names")})
        found._check_cells()
        return found

    def _check_cells(self) -> None:
        n_terms = 0 if self.names is None or self.names.words is None else len(self.names.words)
        if n_terms * self.max_clusters > MOST_CELLS:
            raise ConfigError(
                f"n_clusters times the terms of names must be at most {MOST_CELLS}, got {self.max_clusters} times "
                f"{n_terms}; give a shorter vocabulary."
            )

    def _check_algorithm(self) -> None:
        self._check_given_count()
        if self.privacy.unit is PrivacyUnit.RECORD and "privacy.unit" not in self.justification:
            raise ConfigError(
                "privacy.unit must be client for algorithm spherical unless the job says why, got 'record' without a "
                "reason; people who write texts write many: leave it out, or write justification: {privacy.unit: WHY}."
            )
        if self.privacy.allocation is not Allocation.TUNED or self.privacy.shares is not None:
            raise ConfigError(
                "privacy must hold no more than unit, epsilon and delta for algorithm spherical, got an allocation or "
                "shares; leave them out: names.share splits the budget."
            )
        if self.quality is not None or self.lloyd.steps:
            got = "quality" if self.quality is not None else "lloyd.steps"
            raise ConfigError(
                f"{got} must be left out for algorithm spherical, got it; use spherical.steps, and judge the centers "
                "by the evaluate job in the trusted zone."
            )
        self._check_frame()
        self._check_names()

    def _check_frame(self) -> None:
        if self.clipping.center is not ClippingCenter.NONE:
            raise ConfigError(
                "clipping.center must be none for algorithm spherical, got 'server_mean'; leave it out: centers are "
                "directions from the origin."
            )

    def _check_names(self) -> None:
        if self.names is None:
            return
        data = self.data
        features = (data.features,) if isinstance(data.features, str) else data.features
        vectors = {column for column, each in self.encode.items() if each.kind is EncodingKind.TERMS}
        taken = {data.client_id, *features} - vectors
        if self.names.column in taken or data.has_patterns:
            got = "patterns in data.features" if data.has_patterns else repr(self.names.column)
            raise ConfigError(
                f"names.column must be another column than data.client_id and those that data.features names, got "
                f"{got}; name the column of terms, and list the features."
            )
        self._check_cells()


FitConfig = FedDPKMeansFit | CentralTreeFit | WindowsFit | SphericalFit | DPMediansFit | DPLloydFit | ServerStartFit
"""One `fit` job, distinguished by `algorithm`."""
FITS: Mapping[str, type[FitConfig]] = {
    Algorithm.FEDDP_KMEANS: FedDPKMeansFit,
    Algorithm.SERVER_KMEANSPP: ServerStartFit,
    Algorithm.SERVER_LLOYDS: ServerStartFit,
    Algorithm.SPHERE_PACKING: ServerStartFit,
    Algorithm.WINDOWS: WindowsFit,
    Algorithm.DP_MEDIANS: DPMediansFit,
    Algorithm.SPHERICAL: SphericalFit,
    Algorithm.DP_LLOYD: DPLloydFit,
    Algorithm.CENTRAL_TREE: CentralTreeFit,
}
OWN_SECTIONS: Mapping[str, str] = {
    name: algorithm for algorithm, fit in FITS.items() for name in fit.model_fields.keys() - AnyFit.model_fields.keys()
}
"""The algorithm of each section that not all have: of two with the same section the later one."""
SETTINGS = AnyFit.model_fields.keys() | OWN_SECTIONS.keys()
"""Names that a job may hold, whatever its algorithm."""


def validated(data: Mapping[str, object]) -> FitConfig:
    """A job from plain data.

    Args:
      data: the settings as YAML or JSON would give them, sections nested; those of other algorithms may be null.
        Algorithm `auto` becomes the one that `auto_choice` takes.

    Raises:
      ConfigError: one sentence about the first wrong setting.
    """
    settings = with_algorithm(data)
    algorithm = settings.get("algorithm")
    if not isinstance(algorithm, str) or algorithm not in FITS:
        # An algorithm that does not exist has no section of its own, and is refused itself.
        settings = {name: value for name, value in settings.items() if name not in OWN_SECTIONS}
        return cast(FitConfig, rejection.check_config(AnyFit, settings))
    for name, owner in OWN_SECTIONS.items():
        if name in settings and name not in FITS[algorithm].model_fields:
            raise ConfigError(
                f"{name} must be left out for algorithm {algorithm}, got a section; use algorithm {owner}."
            )
    return rejection.check_config(FITS[algorithm], settings)


def with_algorithm(data: Mapping[str, object]) -> dict[str, Any]:
    """The settings of a job, with the algorithm that they mean and without sections that are null; errors as above."""
    given = rejection.mapping(data, "algorithm, data, n_clusters, privacy and clipping")
    settings = {name: value for name, value in given.items() if value is not None or name not in OWN_SECTIONS}
    if settings.get("algorithm") == Algorithm.AUTO:
        settings = auto_choice.chosen(settings)
    if settings.get("algorithm") == Algorithm.FEDDP_KMEANS and settings.get("preset") == Preset.PUBLISHED:
        settings |= {name: {**PUBLISHED[name], **auto_choice.section_of(settings, name)} for name in PUBLISHED}
    return settings


def load_config(text: str) -> FitConfig:
    """A job from YAML text; raises ConfigError as `validated` does, or if the text is not YAML."""
    return validated(yaml_text.parse(text))  # type: ignore[arg-type]
