"""A `fit` job, one class per algorithm, from plain data or YAML."""

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field

from schemas.choices import Algorithm, ClippingRule, FedDPStart
from schemas.errors import ConfigError
from schemas.kmeans import auto_choice
from schemas.kmeans.any_fit import AnyFit
from schemas.kmeans.lloyd_config import DPLloydFit
from schemas.kmeans.medians_config import DPMediansFit
from schemas.kmeans.tree_config import CentralTreeFit
from schemas.kmeans.windows_config import WindowsFit
from schemas.settings import rejection, yaml_text


class FedDPKMeansFit(AnyFit):
    """One `fit` job of algorithm feddp_kmeans."""

    algorithm: Literal[Algorithm.FEDDP_KMEANS] = Field(description="feddp_kmeans")

    def _check_algorithm(self) -> None:
        if self.feddp_kmeans.init is not FedDPStart.FEDDP_INIT:
            raise ConfigError(
                f"feddp_kmeans.init must be feddp_init in a FedDPKMeansFit, got {str(self.feddp_kmeans.init)!r}; "
                "make a CentralTreeFit."
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


FitConfig = FedDPKMeansFit | CentralTreeFit | WindowsFit | DPMediansFit | DPLloydFit | ServerStartFit
"""One `fit` job, told apart by `algorithm`."""
FITS: Mapping[str, type[FitConfig]] = {
    Algorithm.FEDDP_KMEANS: FedDPKMeansFit,
    Algorithm.SERVER_KMEANSPP: ServerStartFit,
    Algorithm.SERVER_LLOYDS: ServerStartFit,
    Algorithm.SPHERE_PACKING: ServerStartFit,
    Algorithm.WINDOWS: WindowsFit,
    Algorithm.DP_MEDIANS: DPMediansFit,
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
    settings = settled(data)
    algorithm = settings.get("algorithm")
    if not isinstance(algorithm, str) or algorithm not in FITS:
        # An algorithm that does not exist has no section of its own, and is refused itself.
        settings = {name: value for name, value in settings.items() if name not in OWN_SECTIONS}
        return cast(FitConfig, rejection.checked(AnyFit, settings))
    for name, owner in OWN_SECTIONS.items():
        if name in settings and name not in FITS[algorithm].model_fields:
            raise ConfigError(
                f"{name} must be left out for algorithm {algorithm}, got a section; use algorithm {owner}."
            )
    return rejection.checked(FITS[algorithm], settings)


def settled(data: Mapping[str, object]) -> dict[str, Any]:
    """The settings of a job, with the algorithm that they mean and without sections that are null; errors as above."""
    given = rejection.mapping(data, "algorithm, data, n_clusters, privacy and clipping")
    settings = {name: value for name, value in given.items() if value is not None or name not in OWN_SECTIONS}
    if settings.get("algorithm") == Algorithm.AUTO:
        settings = auto_choice.chosen(settings)
    return settings | ({"algorithm": Algorithm.CENTRAL_TREE} if _starts_with_tree(settings) else {})


def _starts_with_tree(settings: Mapping[str, object]) -> bool:
    """Whether it is FedDP-Lloyds after the tree, which is algorithm central_tree with Lloyd rounds."""
    options = settings.get("feddp_kmeans")
    start = options.get("init") if isinstance(options, Mapping) else getattr(options, "init", None)
    return settings.get("algorithm") == Algorithm.FEDDP_KMEANS and start == FedDPStart.CENTRAL_TREE


def load_config(text: str) -> FitConfig:
    """A job from YAML text; raises ConfigError as `validated` does, or if the text is not YAML."""
    return validated(yaml_text.parse(text))  # type: ignore[arg-type]
