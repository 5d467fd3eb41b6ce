"""Jobs of algorithm dp_lloyd: Lloyd rounds on a public box, all of one implementation.

Diaa et al. is Diaa, Humphries, Kerschbaum (2025), "FastLloyd: Federated, accurate, secure, and tunable k-means
clustering with differential privacy".
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import pydantic
from pydantic import BeforeValidator, Field

from schemas.choices import (
    Algorithm,
    Allocation,
    Auto,
    CenterUpdate,
    ClippingCenter,
    ClippingRule,
    LloydStart,
    LloydVariant,
    PostProcess,
    RadiusRule,
    Trust,
)
from schemas.errors import ConfigError
from schemas.kmeans.any_fit import AnyFit
from schemas.privacy.plan import PrivacyUnit
from schemas.settings import rejection
from schemas.settings.section import Positive, Section, Share, auto_or_integer, python_scalar

_LARGEST = 1e100


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
    steps: Annotated[Auto | int, auto_or_integer(50)] = Field(
        default=Auto.AUTO,
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


class DPLloydFit(AnyFit):
    """One `fit` job of algorithm dp_lloyd."""

    algorithm: Literal[Algorithm.DP_LLOYD] = Field(description="dp_lloyd")
    dp_lloyd: DPLloydConfig = Field(description="a section with domain for algorithm dp_lloyd")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _domain_bounds_rows(cls, data: object) -> object:
        """Clipping norm and center are those of the domain, unless the job says otherwise."""
        if not isinstance(data, Mapping) or not isinstance(data.get("clipping", {}), Mapping):
            return data
        by_domain = {"norm": ClippingRule.DOMAIN.value, "center": ClippingCenter.NONE.value}
        return {**data, "clipping": {**by_domain, **data.get("clipping", {})}}

    def _check_algorithm(self) -> None:
        if self.dp_lloyd.variant is LloydVariant.LLOYD:
            raise ConfigError(
                "dp_lloyd.variant must be su, g or fast in a private fit, got 'lloyd', which adds no noise; "
                "leave out privacy for centers without it."
            )
        if self.dp_lloyd.variant is not LloydVariant.FAST:
            _check_absolute(self.dp_lloyd)
        self._check_start(self.dp_lloyd.start)
        self._check_given_count()
        self._check_unused()
        self._check_epoch()

    def _check_warm_start(self) -> None:
        """Every variant can start from centers."""

    def _check_epoch(self) -> None:
        """Refuses what a window of an epoch cannot have; its promise rests on each of these."""
        epoch = self.epoch
        if epoch is None:
            return
        data = self.data
        wanted = (
            ("dp_lloyd.variant", LloydVariant.FAST, self.dp_lloyd.variant),
            ("privacy.unit", PrivacyUnit.RECORD, self.privacy.unit),
            ("trust", Trust.CENTRAL, self.trust),
            ("data.table", None, data.table),
            ("data.max_rows_per_client", None, data.max_rows_per_client),
            ("data.disjoint_partitions", None, data.disjoint_partitions),
            ("server_data", None, self.server_data),
        )
        for setting, value, got in wanted:
            if got != value:
                rule = "be left out" if value is None else f"be {value}"
                raise ConfigError(
                    f"{setting} must {rule} for recurring.epoch, got another; change it, or leave epoch out."
                )
        if self.ledger is None:
            raise ConfigError(
                "ledger must be given for recurring.epoch, got nothing; it sees to it that no window is released twice."
            )
        if epoch.column in data.partitions:
            raise ConfigError(
                f"data.partitions must leave {epoch.column} to recurring.epoch, got it there; leave it out."
            )

    def _check_unused(self) -> None:
        """Refuses settings of other algorithms."""
        if self.quality is not None:
            raise ConfigError(
                "quality must be left out for algorithm dp_lloyd, got a section; "
                "judge its centers by the evaluate job in the trusted zone."
            )
        if self.lloyd.steps:
            raise ConfigError(
                f"lloyd.steps must be 0 for algorithm dp_lloyd, got {self.lloyd.steps}; use dp_lloyd.steps instead."
            )
        if self.privacy.allocation is not Allocation.TUNED:
            raise ConfigError(
                f"privacy.allocation must be tuned for algorithm dp_lloyd, got {str(self.privacy.allocation)!r}; "
                "leave it out: the variant decides how the budget is split."
            )

    def _check_start(self, start: LloydStart) -> None:
        """Refuses clipping, shares and server data that do not fit the start."""
        by_server = start in (LloydStart.FEDDP_INIT, LloydStart.SERVER_KMEANSPP)
        if by_server and self.server_data is None:
            raise ConfigError(
                f"server_data must be given for dp_lloyd.init {start}, got none; "
                "give a server_data section, or use init best."
            )
        if self.clipping.norm is ClippingRule.PRIVATE:
            raise ConfigError(
                "clipping.norm must be domain or a number for algorithm dp_lloyd, got 'private'; "
                "leave it out: the domain bounds the rows."
            )
        if start is LloydStart.FEDDP_INIT:
            return
        if self.clipping.norm is ClippingRule.SERVER_RADIUS or self.clipping.center != "none":
            raise ConfigError(
                f"clipping.norm must be domain or a number, and clipping.center none, for dp_lloyd.init {start}, got "
                f"{str(self.clipping.norm)!r} and {str(self.clipping.center)!r}; leave them out: the domain bounds "
                "the rows."
            )
        if self.privacy.shares is not None:
            raise ConfigError(
                f"privacy.shares must be left out for dp_lloyd.init {start}, got a section; "
                "it splits the budget of FedDP-Init only."
            )
