"""Parsing of `fit` jobs from plain data or YAML, with a class for each algorithm."""

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from pydantic import Field

from dapple_dp.schemas.choices import (
    Algorithm,
    ClippingCenter,
    ClippingRule,
    PooledAlgorithm,
    Preset,
    StartSpace,
)
from dapple_dp.schemas.core.plan import Allocation
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.any_fit import AnyFit
from dapple_dp.schemas.settings import rejection, yaml_text

if TYPE_CHECKING:
    from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
    from dapple_dp.schemas.kmeans.medians_config import DPMediansFit
    from dapple_dp.schemas.kmeans.prototypes_config import KPrototypesFit
    from dapple_dp.schemas.kmeans.spherical_config import SphericalFit
    from dapple_dp.schemas.kmeans.tree_config import CentralTreeFit

    FitConfig: TypeAlias = "FedDPKMeansFit | CentralTreeFit | SphericalFit | KPrototypesFit | DPMediansFit | DPLloydFit"
else:
    FitConfig = AnyFit

_Fit = TypeVar("_Fit", bound=AnyFit)

PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "privacy": {"allocation": Allocation.PAPER},
    "feddp_kmeans": {"space": StartSpace.SUBSPACE},
    "clipping": {"norm": ClippingRule.SERVER_RADIUS, "center": ClippingCenter.NONE},
}
"""FedDP-KMeans as printed in its paper (Algorithms 1 and 2, appendix G.4), by section."""


class FedDPKMeansFit(AnyFit):
    """One `fit` job of algorithm feddp_kmeans."""

    algorithm: Literal[Algorithm.FEDDP_KMEANS] = Field(description="feddp_kmeans")
    preset: Preset | None = Field(
        default=None,
        description="published for the settings that Scott, Lampert, Saulpic 2025 print, or leave it out",
    )

    @property
    def as_printed(self) -> bool:
        """True with `preset: published`: weights, means and the noise of the outer product are those of the paper."""
        return self.preset is not None

    def _check_algorithm(self) -> None:
        if self.preset is not None:
            self._check_published()

    def _check_published(self) -> None:
        if self.server_data is None:
            raise ConfigError(
                "server_data is required for preset published; give a server_data section, or leave out preset."
            )
        if self.clipping.norm is ClippingRule.PRIVATE:
            raise ConfigError(
                "clipping.norm must be server_radius or a number for preset published, got 'private'; leave it out, or "
                "leave out preset."
            )
        for section, settings in PUBLISHED.items():
            for name, value in settings.items():
                given = getattr(getattr(self, section), name)
                if given != value and name != "norm":
                    raise ConfigError(
                        f"{section}.{name} must be {str(value).lower()} for preset published, got "
                        f"{str(given).lower()}; leave it out, or leave out preset."
                    )

    def _check_warm_start(self) -> None:
        if self.lloyd.steps < 1:
            raise ConfigError(
                f"lloyd.steps must be at least 1 for a warm start, got {self.lloyd.steps}; these rounds spend its "
                "whole budget."
            )


class _Fits(Mapping[str, type[AnyFit]]):
    """Class of the jobs of each algorithm, imported on first use."""

    _PLACES: ClassVar[Mapping[str, str]] = {
        Algorithm.FEDDP_KMEANS: "fit_config:FedDPKMeansFit",
        Algorithm.CENTRAL_TREE: "tree_config:CentralTreeFit",
        Algorithm.SPHERICAL: "spherical_config:SphericalFit",
        Algorithm.K_PROTOTYPES: "prototypes_config:KPrototypesFit",
        Algorithm.DP_MEDIANS: "medians_config:DPMediansFit",
        Algorithm.DP_LLOYD: "lloyd_config:DPLloydFit",
    }

    def __getitem__(self, algorithm: str) -> "type[FitConfig]":
        module, _, name = self._PLACES[algorithm].partition(":")
        result: type[FitConfig] = getattr(importlib.import_module(f"dapple_dp.schemas.kmeans.{module}"), name)
        return result

    def __iter__(self) -> Iterator[str]:
        return iter(self._PLACES)

    def __len__(self) -> int:
        return len(self._PLACES)


FITS = _Fits()
OWN_SECTIONS: Mapping[str, str] = {
    "preset": Algorithm.FEDDP_KMEANS,
    "dp_lloyd": Algorithm.DP_LLOYD,
    "spherical": Algorithm.SPHERICAL,
    "names": Algorithm.SPHERICAL,
    "k_prototypes": Algorithm.K_PROTOTYPES,
    "tree": Algorithm.CENTRAL_TREE,
}
"""Algorithm of each section that isn't common to all; the main one, if several have it."""
SETTINGS = AnyFit.model_fields.keys() | OWN_SECTIONS.keys()
"""Names of all settings of any algorithm."""


def validated(data: Mapping[str, object]) -> FitConfig:
    """Validates plain data and returns the job.

    Args:
      data: the settings, as parsed from YAML or JSON, sections nested; sections of other algorithms may be null.
        Algorithm `auto` is replaced by the choice of `auto_choice`.

    Raises:
      ConfigError: one sentence about the first wrong setting.
    """
    settings = with_algorithm(data)
    algorithm = settings.get("algorithm")
    if not isinstance(algorithm, str) or algorithm not in FITS:
        # An unknown algorithm has no sections, and AnyFit refuses the algorithm itself.
        settings = {name: value for name, value in settings.items() if name not in OWN_SECTIONS}
        return cast(FitConfig, rejection.check_config(AnyFit, settings))
    return of_kind(FITS[algorithm], settings)


def of_kind(kind: type[_Fit], settings: Mapping[str, Any]) -> _Fit:
    """Validates the settings of an algorithm by its class, and returns the job; raises ConfigError like `validated`."""
    for name, owner in OWN_SECTIONS.items():
        if name in settings and name not in kind.model_fields:
            raise ConfigError(
                f"{name} isn't supported for algorithm {settings['algorithm']}; remove it, or use algorithm {owner}."
            )
    return rejection.check_config(kind, settings)


def with_algorithm(data: Mapping[str, object]) -> dict[str, Any]:
    """Returns the settings with `auto` resolved and null sections removed; raises ConfigError like `validated`."""
    given = rejection.mapping(data, "algorithm, data, n_clusters, privacy and clipping")
    settings = {name: value for name, value in given.items() if value is not None or name not in OWN_SECTIONS}
    if settings.get("algorithm") == Algorithm.AUTO:
        from dapple_dp.schemas.kmeans import auto_choice

        settings = auto_choice.chosen(settings)
    if settings.get("algorithm") == Algorithm.FEDDP_KMEANS and settings.get("preset") == Preset.PUBLISHED:
        from dapple_dp.schemas.kmeans import auto_choice

        settings |= {name: {**PUBLISHED[name], **auto_choice.section_of(settings, name)} for name in PUBLISHED}
    return settings


def load_config(text: str) -> FitConfig:
    """Parses and validates YAML text; raises ConfigError like `validated`, or if it isn't YAML."""
    return validated(yaml_text.parse(text))  # type: ignore[arg-type]


def is_pooled(settings: object) -> bool:
    """Returns whether plain data use an algorithm without privacy."""
    return isinstance(settings, Mapping) and settings.get("algorithm") in tuple(PooledAlgorithm)
