"""Jobs of algorithm feddp_kmeans, and of its baselines: FedDP-Lloyds after a start that reads no private data."""

from typing import Literal

from pydantic import Field

from schemas.choices import Algorithm, ClippingRule, FedDPStart
from schemas.errors import ConfigError
from schemas.kmeans.any_fit import AnyFit


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
