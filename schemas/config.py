"""Job configs: frozen, validated, YAML in and out.

Field descriptions hold units and ranges; they complete the sentence "give ..." when a setting is rejected.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Self

import pydantic
from pydantic import BeforeValidator, Field

from schemas import rejection, yaml_text
from schemas.choices import (
    Algorithm,
    Allocation,
    Assignment,
    ClippingCenter,
    ClippingRule,
    ShardCount,
    Trust,
)
from schemas.cluster_choice import ClusterChoice, ClusterCount
from schemas.data_config import DataConfig, LedgerPath, OptionalServerData, check_named
from schemas.dp_lloyd_checks import check_dp_lloyd, with_domain_clipping
from schemas.dp_lloyd_config import DPLloydConfig
from schemas.encoding import Encodings, check_encodings
from schemas.errors import ConfigError
from schemas.feddp_config import FedDPOptions, LloydConfig, QualityConfig
from schemas.masked_config import MaskedConfig, check_masked
from schemas.plan import PrivacyUnit
from schemas.recurring_config import RecurringConfig, check_recurring
from schemas.section import Count, Positive, Scalar, Section, Share, Text, python_scalar
from schemas.tree_checks import check_central_tree, with_tree_clipping, with_tree_start
from schemas.tree_config import TreeConfig

CLIPPING_NORMS = (1e-60, 1e60)
"""Feature units: the fourth powers of clipping norms, variances of outer products, are far from float64's ends."""


def _clipping_norm(value: object) -> object:
    """`server_radius`, `private`, `domain` or a number among `CLIPPING_NORMS`."""
    value = python_scalar(value)
    if isinstance(value, str) and value in set(ClippingRule):
        return ClippingRule(value)
    rule = f"'server_radius', 'private' or a number from {CLIPPING_NORMS[0]:g} to {CLIPPING_NORMS[1]:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise rejection.broken_rule(rule)
    if not CLIPPING_NORMS[0] <= value <= CLIPPING_NORMS[1]:
        raise rejection.broken_rule(rule)
    return float(value)


def _shard_count(value: object) -> object:
    """`auto` or an integer from 1 to 2**20."""
    value = python_scalar(value)
    if value == ShardCount.AUTO:
        return ShardCount.AUTO
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 20:
        raise rejection.broken_rule("'auto' or an integer from 1 to 1048576")
    return value


class SharesConfig(Section):
    """Shares of the budget of FedDP-Init; only their ratios matter."""

    outer_product: Positive = Field(description="the share of the outer product, a finite number > 0")
    weights: Positive = Field(description="the share of the histogram of server points, a finite number > 0")
    sums: Positive = Field(description="the share of the sums per cluster, a finite number > 0")
    counts: Positive = Field(description="the share of the counts per cluster, a finite number > 0")


class PrivacyConfig(Section):
    """What the whole run may spend; there are no defaults for what decides the guarantee."""

    unit: PrivacyUnit = Field(description="record or client: what one neighbor adds or removes")
    epsilon: Positive = Field(description="the total epsilon of the run, a finite number > 0")
    delta: Share = Field(description="the total delta of the run, a number strictly between 0 and 1")
    allocation: Allocation = Field(
        default=Allocation.TUNED, description="tuned, or paper for the allocation of Scott, Lampert, Saulpic 2025"
    )
    shares: SharesConfig | None = Field(
        default=None, description="a section with outer_product, weights, sums and counts, or leave it out"
    )


class ClippingConfig(Section):
    """Public bounds on what one row, and one client, may contribute."""

    norm: Annotated[ClippingRule | float, BeforeValidator(_clipping_norm)] = Field(
        description="the largest L2 norm of a centered row, a number > 0 in feature units, "
        "server_radius for the radius of the server data, private for a noisy quantile of the rows' norms, or "
        "domain for half the diagonal of dp_lloyd.domain"
    )
    center: ClippingCenter = Field(
        default=ClippingCenter.SERVER_MEAN, description="server_mean to subtract the mean of the server data, or none"
    )
    quantile: Share = Field(
        default=0.95, description="the share of rows inside a private norm, strictly between 0 and 1"
    )
    share: Share = Field(
        default=0.05, description="the share of the budget that a private norm may spend, strictly between 0 and 1"
    )
    client_rows: Count | None = Field(
        default=None,
        description="the public typical number of rows of a client, an integer >= 1, for privacy unit client",
    )


class PrepareOptions(Section):
    """How rows are grouped by client; no matter for privacy."""

    shards: Annotated[ShardCount | int, BeforeValidator(_shard_count)] = Field(
        default=ShardCount.AUTO,
        description="the number of files to write, an integer from 1 to 1048576, or auto for about 64 MB each",
    )

    @property
    def n_shards(self) -> int | None:
        """Number of shards; None where it follows from the size of the data."""
        return None if self.shards is ShardCount.AUTO else int(self.shards)


class FitConfig(Section):
    """One `fit` job."""

    algorithm: Algorithm = Field(
        description="the algorithm to run, feddp_kmeans, central_tree, dp_lloyd, or the baseline server_kmeanspp, "
        "server_lloyds or sphere_packing"
    )
    data: DataConfig = Field(description="the section of the private table with path and features")
    server_data: OptionalServerData = Field(
        default=None, description="the section of the public table with path, or none"
    )
    n_clusters: ClusterCount = Field(
        description="the number of centers, an integer >= 1, or a section of max and choose: elbow"
    )
    privacy: PrivacyConfig = Field(description="the section of the guarantee with unit, epsilon and delta")
    clipping: ClippingConfig = Field(description="the section of the contribution bounds with norm")
    encode: Encodings = Field(
        default_factory=dict,
        description="a mapping of columns of data.features to a section with kind, or leave it out",
    )
    lloyd: LloydConfig = Field(default=LloydConfig(), description="a section with steps, or leave it out")
    quality: QualityConfig | None = Field(
        default=None,
        description="a section with share to release the noisy cost of the centers and the noisy sizes of their "
        "clusters, or leave it out",
    )
    feddp_kmeans: FedDPOptions = Field(default=FedDPOptions(), description="a section of options, or leave it out")
    dp_lloyd: DPLloydConfig | None = Field(
        default=None, description="a section with domain for algorithm dp_lloyd, or leave it out"
    )
    tree: TreeConfig | None = Field(
        default=None, description="a section with radius for algorithm central_tree, or leave it out"
    )
    recurring: RecurringConfig | None = Field(
        default=None, description="a section with previous to follow an earlier fit, or leave it out"
    )
    prepare: PrepareOptions = Field(default=PrepareOptions(), description="a section with shards, or leave it out")
    trust: Trust = Field(
        default=Trust.CENTRAL,
        description="central where the pipeline is the trusted aggregator, or masked where it adds up masked messages",
    )
    masked: MaskedConfig = Field(
        default=MaskedConfig(), description="a section of trust masked with scheme or secret_uri, or leave it out"
    )
    keep_staging: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="true to keep the private copy of the data that was grouped by client, or false"
    )
    key_uri: Text | None = Field(
        default=None,
        description="the place of the noise key on any Beam filesystem, or leave it out for a key of the run",
    )
    ledger: LedgerPath = None
    seed: Annotated[int, Field(strict=True, ge=0), Scalar] | None = Field(
        default=None, description="the seed of public randomness (never of noise), an integer >= 0, or leave it out"
    )

    @property
    def max_clusters(self) -> int:
        """The number of centers, or the largest that may be chosen."""
        return self.n_clusters.max if isinstance(self.n_clusters, ClusterChoice) else self.n_clusters

    @property
    def chooses_clusters(self) -> bool:
        """Whether the run chooses the number of centers."""
        return isinstance(self.n_clusters, ClusterChoice)

    @property
    def lloyd_options(self) -> DPLloydConfig:
        """The section of algorithm dp_lloyd; raises ValueError for the other algorithms."""
        if self.dp_lloyd is None:
            raise ValueError("lloyd_options must be asked for algorithm dp_lloyd only; check the algorithm first.")
        return self.dp_lloyd

    @property
    def tree_options(self) -> TreeConfig:
        """The section of algorithm central_tree; raises ValueError for jobs without it."""
        if self.tree is None:
            raise ValueError("tree_options must be asked for algorithm central_tree only; check the algorithm first.")
        return self.tree

    @property
    def buys_its_start(self) -> bool:
        """Whether the centers before the Lloyd rounds come from private data, for a part of the budget."""
        return self.algorithm in (Algorithm.FEDDP_KMEANS, Algorithm.CENTRAL_TREE)

    @property
    def starts_warm(self) -> bool:
        """Whether the Lloyd rounds start from the centers of an earlier fit."""
        return self.recurring is not None and self.recurring.warm_start

    @pydantic.model_validator(mode="before")
    @classmethod
    def _public_sets_bound_rows(cls, data: object) -> object:
        """The domain of dp_lloyd, or the ball of central_tree, is the clipping norm unless the job says otherwise."""
        return with_tree_clipping(with_tree_start(with_domain_clipping(data)))

    @pydantic.model_validator(mode="after")
    def _sections_belong_to_their_algorithms(self) -> Self:
        check_dp_lloyd(self)
        check_central_tree(self)
        check_recurring(self)
        return self

    @pydantic.model_validator(mode="after")
    def _baselines_are_server_starts_and_lloyd(self) -> Self:
        if self.buys_its_start or self.algorithm is Algorithm.DP_LLOYD:
            return self
        if self.lloyd.steps < 1:
            raise ConfigError(
                f"lloyd.steps must be at least 1 for algorithm {self.algorithm}, got {self.lloyd.steps}; "
                "these rounds spend its whole budget."
            )
        if self.chooses_clusters:
            raise ConfigError(
                f"n_clusters must be an integer for algorithm {self.algorithm}, got a choice; "
                "give the number, or use algorithm feddp_kmeans."
            )
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
        return self

    @pydantic.model_validator(mode="after")
    def _options_belong_to_the_algorithm(self) -> Self:
        options = self.feddp_kmeans
        plain = options.simplify is None and options.reduce_diameter is None
        if self.algorithm is Algorithm.FEDDP_KMEANS or (plain and options.assignment is Assignment.NEAREST):
            return self
        raise ConfigError(
            f"feddp_kmeans must hold no more than restarts for algorithm {self.algorithm}, got other options; "
            "remove them, or use algorithm feddp_kmeans."
        )

    @pydantic.model_validator(mode="after")
    def _masks_are_asked_for(self) -> Self:
        check_masked(self.trust, self.masked, self.key_uri)
        return self

    @pydantic.model_validator(mode="after")
    def _ledger_knows_the_data(self) -> Self:
        check_named(self.ledger, self.data)
        return self

    @pydantic.model_validator(mode="after")
    def _client_unit_knows_clients(self) -> Self:
        needed = {"data.client_id": self.data.client_id, "clipping.client_rows": self.clipping.client_rows}
        for name, value in needed.items():
            if self.privacy.unit is PrivacyUnit.CLIENT and value is None:
                raise ConfigError(
                    f"{name} must be given for privacy.unit client, got nothing; "
                    f"give {rejection.description(name, FitConfig)}."
                )
        return self

    @pydantic.model_validator(mode="after")
    def _clipping_has_its_server_data(self) -> Self:
        if self.server_data is not None:
            return self
        if self.clipping.norm is ClippingRule.SERVER_RADIUS:
            raise ConfigError(
                "clipping.norm must be a number or private where there is no server_data, got 'server_radius'; "
                "give the norm in feature units, private, or a server_data section."
            )
        if self.clipping.center is not ClippingCenter.NONE:
            raise ConfigError(
                f"clipping.center must be 'none' where there is no server_data, got {str(self.clipping.center)!r}; "
                "write center: none or give a server_data section."
            )
        return self

    @pydantic.model_validator(mode="after")
    def _encodings_fit_the_data(self) -> Self:
        check_encodings(self.encode, self.data.features, has_server=self.server_data is not None)
        return self

    @pydantic.model_validator(mode="after")
    def _shares_leave_something(self) -> Self:
        options = self.feddp_kmeans
        shares = {
            "lloyd.share": self.lloyd.share if self.lloyd.steps and self.buys_its_start else 0.0,
            "quality.share": self.quality.share if self.quality else 0.0,
            "clipping.share": self.clipping.share if self.clipping.norm is ClippingRule.PRIVATE else 0.0,
            "feddp_kmeans.simplify.share": options.simplify.share if options.simplify else 0.0,
            "feddp_kmeans.reduce_diameter.share": options.reduce_diameter.share if options.reduce_diameter else 0.0,
        }
        taken = {name: share for name, share in shares.items() if share}
        total = math.fsum(taken.values())
        if total >= 1.0:
            raise ConfigError(
                f"the sum of {', '.join(taken)} must be less than 1, got {total:.6g}; "
                "lower them so that the start keeps some of the budget."
            )
        return self


def validated(data: Mapping[str, object]) -> FitConfig:
    """A job from plain data.

    Args:
      data: the settings as YAML or JSON would give them, sections nested.

    Raises:
      ConfigError: one sentence about the first wrong setting.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"the job must be a mapping of settings, got {type(data).__name__}; "
            "start with algorithm, data, n_clusters, privacy and clipping."
        )
    return rejection.checked(FitConfig, data)


def load_config(text: str) -> FitConfig:
    """A job from YAML text; raises ConfigError as `validated` does, or if the text is not YAML."""
    return validated(yaml_text.parse(text))  # type: ignore[arg-type]


def dump_config(config: FitConfig) -> str:
    """YAML text with every setting, defaults included; `load_config` reads it back as an equal config."""
    return yaml_text.render(config.model_dump(mode="json"))


def config_digest(config: pydantic.BaseModel) -> str:
    """SHA-256, 64 hex digits, of the config as canonical JSON; equal configs have equal digests."""
    canonical = json.dumps(config.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
