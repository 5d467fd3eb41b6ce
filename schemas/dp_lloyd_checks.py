"""What algorithm dp_lloyd asks of the other sections of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from schemas.choices import Algorithm, Allocation, ClippingCenter, ClippingRule, LloydStart
from schemas.dp_lloyd_config import check_variant
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from schemas.config import FitConfig


def with_domain_clipping(data: object) -> object:
    """Plain data of a job whose clipping norm and center are those of its domain, unless it says otherwise."""
    if not isinstance(data, Mapping) or data.get("algorithm") != Algorithm.DP_LLOYD:
        return data
    clipping = data.get("clipping", {})
    if not isinstance(clipping, Mapping):
        return data
    by_domain = {"norm": ClippingRule.DOMAIN.value, "center": ClippingCenter.NONE.value}
    return {**data, "clipping": {**by_domain, **clipping}}


def check_dp_lloyd(config: FitConfig) -> None:
    """Refuses a `dp_lloyd` section without its algorithm, and settings that the algorithm does not have.

    Raises:
      ConfigError: in one sentence.
    """
    if config.algorithm is not Algorithm.DP_LLOYD:
        _check_absence(config)
        return
    if config.dp_lloyd is None:
        raise ConfigError("dp_lloyd must be given for algorithm dp_lloyd, got nothing; give a section with domain.")
    check_variant(config.dp_lloyd)
    _check_start(config, config.dp_lloyd.start)
    if config.chooses_clusters:
        raise ConfigError(
            "n_clusters must be an integer for algorithm dp_lloyd, got a choice; "
            "give the number, or use algorithm feddp_kmeans."
        )
    if config.quality is not None:
        raise ConfigError(
            "quality must be left out for algorithm dp_lloyd, got a section; "
            "judge its centers by the evaluate job in the trusted zone."
        )
    if config.lloyd.steps:
        raise ConfigError(
            f"lloyd.steps must be 0 for algorithm dp_lloyd, got {config.lloyd.steps}; use dp_lloyd.steps instead."
        )
    if config.privacy.allocation is not Allocation.TUNED:
        raise ConfigError(
            f"privacy.allocation must be tuned for algorithm dp_lloyd, got {str(config.privacy.allocation)!r}; "
            "leave it out: the variant decides how the budget is split."
        )


def _check_absence(config: FitConfig) -> None:
    """Refuses settings of dp_lloyd under another algorithm."""
    if config.dp_lloyd is not None:
        raise ConfigError(
            f"dp_lloyd must be left out for algorithm {config.algorithm}, got a section; use algorithm dp_lloyd."
        )
    if config.clipping.norm is ClippingRule.DOMAIN:
        raise ConfigError(
            f"clipping.norm must be server_radius, private or a number for algorithm {config.algorithm}, "
            "got 'domain'; use algorithm dp_lloyd, which has a domain."
        )


def _check_start(config: FitConfig, start: LloydStart) -> None:
    """Refuses clipping, shares and server data that do not fit the start."""
    by_server = start in (LloydStart.FEDDP_INIT, LloydStart.SERVER_KMEANSPP)
    if by_server and config.server_data is None:
        raise ConfigError(
            f"server_data must be given for dp_lloyd.init {start}, got none; "
            "give a server_data section, or use init best."
        )
    if config.clipping.norm is ClippingRule.PRIVATE:
        raise ConfigError(
            "clipping.norm must be domain or a number for algorithm dp_lloyd, got 'private'; "
            "leave it out: the domain bounds the rows."
        )
    if start is LloydStart.FEDDP_INIT:
        return
    if config.clipping.norm is ClippingRule.SERVER_RADIUS or config.clipping.center != "none":
        raise ConfigError(
            f"clipping.norm must be domain or a number, and clipping.center none, for dp_lloyd.init {start}, got "
            f"{str(config.clipping.norm)!r} and {str(config.clipping.center)!r}; leave them out: the domain bounds "
            "the rows."
        )
    if config.privacy.shares is not None:
        raise ConfigError(
            f"privacy.shares must be left out for dp_lloyd.init {start}, got a section; "
            "it splits the budget of FedDP-Init only."
        )
