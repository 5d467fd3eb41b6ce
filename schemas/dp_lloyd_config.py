"""Options of algorithm dp_lloyd: Lloyd rounds on a public box, all of one implementation.

Diaa et al. is Diaa, Humphries, Kerschbaum (2025), "FastLloyd: Federated, accurate, secure, and tunable k-means
clustering with differential privacy".
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from schemas import rejection
from schemas.choices import CenterUpdate, LloydStart, LloydVariant, PostProcess, RadiusRule, RoundCount
from schemas.errors import ConfigError
from schemas.section import Positive, Section, Share, python_scalar

_LARGEST = 1e100


def _step_count(value: object) -> object:
    """`auto` or an integer from 1 to 50."""
    value = python_scalar(value)
    if value == RoundCount.AUTO:
        return RoundCount.AUTO
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 50:
        raise rejection.broken_rule("'auto' or an integer from 1 to 50")
    return value


def _interval(value: object) -> object:
    """Two finite numbers, the first one smaller."""
    ends = [python_scalar(end) for end in value] if isinstance(value, list | tuple) else []
    numbers = [float(end) for end in ends if isinstance(end, int | float) and not isinstance(end, bool)]
    if len(ends) != 2 or len(numbers) != 2:
        raise rejection.broken_rule("a list of two numbers")
    low, high = numbers
    if not (-_LARGEST <= low < high <= _LARGEST and high - low > 1e-9 * max(abs(low), abs(high))):
        raise rejection.broken_rule("two finite numbers, the smaller one first and clearly apart")
    return low, high


class DPLloydConfig(Section):
    """DP-Lloyd: rounds of noisy sums and counts per cluster (Diaa et al., Algorithm 1)."""

    variant: LloydVariant = Field(
        default=LloydVariant.FAST,
        description="fast for sums relative to the last centers inside a radius, g for Gaussian or su for Laplace "
        "noise on absolute sums, or lloyd for absolute sums without noise (and without privacy)",
    )
    init: LloydStart | None = Field(
        default=None,
        description="best, sphere_packing, server_kmeanspp, feddp_init or central_tree, or leave it out for best "
        "(variant fast) or sphere_packing (all others)",
    )
    domain: Annotated[tuple[float, float], BeforeValidator(_interval)] = Field(
        description="the public interval of every feature, a list of two numbers in feature units; rows outside are "
        "clipped to it"
    )
    steps: Annotated[RoundCount | int, BeforeValidator(_step_count)] = Field(
        default=RoundCount.AUTO,
        description="the number of Lloyd rounds, an integer from 1 to 50, or auto for the error analysis of the "
        "variant (which needs data.public_rows; without it the least that analysis gives, 2, or 1 after a private "
        "start)",
    )
    radius: RadiusRule = Field(
        default=RadiusRule.STEP,
        description="step for half the diagonal of the domain in the first round and the radius afterwards, or "
        "constant",
    )
    radius_factor: Positive = Field(
        default=0.8, description="the radius in units of that of a cube with 1/k of the domain's volume, > 0"
    )
    post_process: PostProcess = Field(
        default=PostProcess.FOLD,
        description="fold to reflect centers outside the domain at its sides, truncate to move them to the sides, "
        "or none",
    )
    update: CenterUpdate | None = Field(
        default=None,
        description="plain for noisy sum / noisy count, shrunken to shrink a move by its known noise, or leave it out "
        "for shrunken after a private start and plain otherwise",
    )
    start_share: Share = Field(
        default=0.5, description="the share of the budget for a private start, strictly between 0 and 1"
    )
    client_radius: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] = Field(
        default=0.5,
        description="the largest norm of the stacked relative sums of a client, divided by its rows, in units of the "
        "radius, in (0, 1]; for privacy unit client",
    )

    @property
    def start(self) -> LloydStart:
        """Where the centers start."""
        if self.init is not None:
            return self.init
        return LloydStart.BEST if self.variant is LloydVariant.FAST else LloydStart.SPHERE_PACKING

    @property
    def starts_privately(self) -> bool:
        """Whether part of the budget buys the start."""
        return self.start in (LloydStart.BEST, LloydStart.FEDDP_INIT, LloydStart.CENTRAL_TREE)

    @property
    def shrinks(self) -> bool:
        """Whether moves are shrunken by their known noise."""
        if self.update is None:
            return self.starts_privately
        return self.update is CenterUpdate.SHRUNKEN


def check_variant(options: DPLloydConfig) -> None:
    """Refuses settings of one section that contradict each other.

    Raises:
      ConfigError: in one sentence.
    """
    if options.variant is LloydVariant.LLOYD:
        raise ConfigError(
            "dp_lloyd.variant must be su, g or fast in a private fit, got 'lloyd', which adds no noise; "
            "leave out privacy for centers without it."
        )
    if options.variant is not LloydVariant.FAST:
        _check_absolute(options)


def check_public_start(options: DPLloydConfig, *, has_server: bool) -> None:
    """Refuses settings of variant lloyd that a run without privacy cannot have.

    Raises:
      ConfigError: in one sentence.
    """
    _check_absolute(options)
    if options.start is LloydStart.SERVER_KMEANSPP and not has_server:
        raise ConfigError(
            "server_data must be given for dp_lloyd.init server_kmeanspp, got none; give a server_data section."
        )


def _check_absolute(options: DPLloydConfig) -> None:
    """Refuses what goes with relative sums only."""
    if options.starts_privately:
        raise ConfigError(
            f"dp_lloyd.init must be sphere_packing or server_kmeanspp for dp_lloyd.variant {options.variant}, "
            f"got {str(options.start)!r}; use variant fast for a private start."
        )
    if options.update is CenterUpdate.SHRUNKEN:
        raise ConfigError(
            f"dp_lloyd.update must be plain for dp_lloyd.variant {options.variant}, got 'shrunken'; "
            "use variant fast, whose sums are relative to a center that a move can be shrunken to."
        )
