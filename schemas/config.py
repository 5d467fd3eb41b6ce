"""Job configs: frozen, validated, YAML in and out.

Field descriptions hold units and ranges; they complete the sentence "give ..." when a setting is rejected.
Scott et al. is Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with
server-side data".
"""

import collections
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
    ClusterRule,
    InvalidRows,
    RoundCount,
    ShardCount,
)
from schemas.encoding import Encodings, check_encodings
from schemas.errors import ConfigError
from schemas.plan import PrivacyUnit
from schemas.section import Count, Positive, Share, Text
from schemas.section import Scalar as _Scalar
from schemas.section import Section as _Section
from schemas.section import python_scalar as _python_scalar
from schemas.snapshot import TableConfig


def _feature_names(value: object) -> object:
    """One column name, or a tuple of distinct ones."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise rejection.broken_rule("a column name or a non-empty list of column names")
    repeated = [name for name, times in collections.Counter(names).items() if times > 1]
    if repeated:
        raise rejection.broken_rule("a list without duplicates", got=f"{repeated[0]!r} more than once")
    return value if isinstance(value, str) else tuple(names)


def _partition_value(value: object) -> object:
    """A string or an integer, as Hive writes them into folder names."""
    value = _python_scalar(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise rejection.broken_rule("a string or an integer (quote it if it is text)")
    return value


def _clipping_norm(value: object) -> object:
    """`server_radius`, `private` or a number whose square and reciprocal are far from the ends of float64."""
    value = _python_scalar(value)
    if isinstance(value, str) and value in set(ClippingRule):
        return ClippingRule(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-100 <= value <= 1e100:
        raise rejection.broken_rule("'server_radius', 'private' or a number from 1e-100 to 1e100")
    return float(value)


def _round_count(value: object) -> object:
    """`auto` or an integer from 1 to 200."""
    value = _python_scalar(value)
    if value == RoundCount.AUTO:
        return RoundCount.AUTO
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 200:
        raise rejection.broken_rule("'auto' or an integer from 1 to 200")
    return value


def _shard_count(value: object) -> object:
    """`auto` or an integer from 1 to 2**20."""
    value = _python_scalar(value)
    if value == ShardCount.AUTO:
        return ShardCount.AUTO
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 20:
        raise rejection.broken_rule("'auto' or an integer from 1 to 1048576")
    return value


def _cluster_count(value: object) -> object:
    """An integer >= 1, or a section with `max` and `choose`."""
    value = _python_scalar(value)
    if isinstance(value, ClusterChoice):
        return value
    if isinstance(value, Mapping):
        return _cluster_choice(dict(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise rejection.broken_rule("an integer")
    if value < 1:
        raise rejection.broken_rule("at least 1")
    return value


def _cluster_choice(section: dict[object, object]) -> "ClusterChoice":
    """The section as a record."""
    most, rule = _python_scalar(section.get("max")), section.get("choose")
    if set(section) != {"max", "choose"} or rule not in set(ClusterRule):
        raise rejection.broken_rule("an integer, or a section of max and choose: elbow")
    if isinstance(most, bool) or not isinstance(most, int) or most < 2:
        raise rejection.broken_rule("a section whose max is an integer of at least 2")
    return ClusterChoice(max=most, choose=ClusterRule(str(rule)))


def _section_or_none(value: object) -> object:
    """The word `none` stands for a section that is absent on purpose."""
    return None if value == "none" else value


MinimalWeight = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False), _Scalar]


class DataConfig(_Section):
    """The private table, and what may be said of it in public."""

    path: Text = Field(description="the path of a Parquet file, a glob or a Hive-partitioned folder")
    table: TableConfig | None = Field(
        default=None,
        description="a section with format if the path is that of a Delta or Iceberg table, or leave it out",
    )
    partitions: dict[Text, Annotated[str | int, BeforeValidator(_partition_value)]] = Field(
        default_factory=dict,
        description="a mapping of Hive partition columns to the value that is kept, a string or an integer",
    )
    client_id: Text | None = Field(
        default=None,
        description="the column (or Hive partition column) that names the client, needed by privacy unit client",
    )
    features: Annotated[str | tuple[str, ...], BeforeValidator(_feature_names)] = Field(
        description="a list of numeric columns, or the name of one fixed-size-list column"
    )
    on_invalid_rows: InvalidRows = Field(
        default=InvalidRows.FAIL,
        description="fail to stop at a null or non-finite value, or drop to leave such rows out",
    )
    name: Text | None = Field(default=None, description="the name of the data set, a non-empty string")
    public_rows: Count | None = Field(
        default=None,
        description="the number of rows (privacy unit client: of clients), an integer >= 1, if it is public, "
        "or leave it out",
    )

    max_rows_per_client: Count | None = Field(
        default=None,
        description="the largest number of rows that one client may contribute, an integer >= 1, or leave it out",
    )

    def partition_values(self) -> dict[str, str]:
        """`partitions` as Hive writes them into folder names."""
        return {column: str(value) for column, value in self.partitions.items()}

    @pydantic.model_validator(mode="after")
    def _client_id_is_no_feature(self) -> Self:
        names = (self.features,) if isinstance(self.features, str) else self.features
        if self.client_id in names:
            raise ConfigError(
                f"data.features must be other columns than data.client_id, got {self.client_id!r} in both; "
                "remove it from data.features."
            )
        return self

    @pydantic.model_validator(mode="after")
    def _bounded_clients_have_ids(self) -> Self:
        if self.max_rows_per_client is not None and self.client_id is None:
            raise ConfigError(
                "data.client_id must be given for data.max_rows_per_client, got nothing; "
                "name the column that names the client."
            )
        return self


class ClusterChoice(_Section):
    """A number of clusters that the run chooses itself, at no further privacy cost."""

    max: Annotated[int, Field(strict=True, ge=2)] = Field(description="the largest number of centers, an integer >= 2")
    choose: ClusterRule = Field(description="elbow: where the cost of the weighted server points stops falling fast")


class ServerDataConfig(_Section):
    """The public table: same features, no client ids."""

    path: Text = Field(description="the path of a Parquet file, a glob or a folder of public rows")


class SharesConfig(_Section):
    """Shares of the budget of FedDP-Init; only their ratios matter."""

    outer_product: Positive = Field(description="the share of the outer product, a finite number > 0")
    weights: Positive = Field(description="the share of the histogram of server points, a finite number > 0")
    sums: Positive = Field(description="the share of the sums per cluster, a finite number > 0")
    counts: Positive = Field(description="the share of the counts per cluster, a finite number > 0")


class PrivacyConfig(_Section):
    """What the whole run may spend; there are no defaults for what decides the guarantee."""

    unit: PrivacyUnit = Field(description="record or client: what one neighbor adds or removes")
    epsilon: Positive = Field(description="the total epsilon of the run, a finite number > 0")
    delta: Share = Field(description="the total delta of the run, a number strictly between 0 and 1")
    allocation: Allocation = Field(
        default=Allocation.TUNED, description="tuned, or paper for the allocation of Scott et al. 2025"
    )
    shares: SharesConfig | None = Field(
        default=None, description="a section with outer_product, weights, sums and counts, or leave it out"
    )


class ClippingConfig(_Section):
    """Public bounds on what one row, and one client, may contribute."""

    norm: Annotated[ClippingRule | float, BeforeValidator(_clipping_norm)] = Field(
        description="the largest L2 norm of a centered row, a number > 0 in feature units, "
        "server_radius for the radius of the server data, or private for a noisy quantile of the rows' norms"
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


class LloydConfig(_Section):
    """FedDP-Lloyds: rounds of sums and counts after the start (Scott et al., Algorithm 2)."""

    steps: Annotated[int, Field(strict=True, ge=0, le=50), _Scalar] = Field(
        default=0, description="the number of Lloyd rounds, an integer from 0 to 50 (0 to 2 are best in practice)"
    )
    share: Share = Field(
        default=0.25, description="the share of the budget for all Lloyd rounds, strictly between 0 and 1"
    )


class SimplifyConfig(_Section):
    """Thinning of the server data by histogram rounds (Scott et al., Algorithm 4)."""

    w_min: MinimalWeight = Field(description="the smallest weight of a cluster, a fraction of the rows in (0, 1]")
    rounds: Annotated[RoundCount | int, BeforeValidator(_round_count)] = Field(
        default=RoundCount.AUTO,
        description="the number of histogram rounds, from 1 to 200, or auto for that of Algorithm 4",
    )
    share: Share = Field(
        default=0.1, description="the share of the budget for all these rounds, strictly between 0 and 1"
    )


class DiameterConfig(_Section):
    """Reduction of the diameter of the data by one histogram round (Scott et al., Lemma 16)."""

    w_min: MinimalWeight = Field(description="the smallest weight of a cluster, a fraction of the rows in (0, 1]")
    sigma_max: Positive = Field(
        description="the largest standard deviation of a cluster in any direction, > 0, in feature units"
    )
    share: Share = Field(default=0.1, description="the share of the budget for this round, strictly between 0 and 1")


class FedDPOptions(_Section):
    """Options of algorithm feddp_kmeans (Scott et al., Algorithm 1)."""

    restarts: Annotated[int, Field(strict=True, ge=20, le=1000), _Scalar] = Field(
        default=50, description="the number of restarts of k-means on the server, an integer from 20 to 1000"
    )
    assignment: Assignment = Field(
        default=Assignment.NEAREST,
        description="nearest, or one_third to keep only rows whose distance to their center is at most a third "
        "of that to every other (Scott et al. 2025, Algorithm 5, Part 2)",
    )
    simplify: SimplifyConfig | None = Field(
        default=None,
        description="a section with w_min to thin the server data (Scott et al. 2025, Algorithm 4), or leave it out",
    )
    reduce_diameter: DiameterConfig | None = Field(
        default=None,
        description="a section with w_min and sigma_max to move far components together "
        "(Scott et al. 2025, Lemma 16), or leave it out",
    )


class PrepareOptions(_Section):
    """How rows are grouped by client; no matter for privacy."""

    shards: Annotated[ShardCount | int, BeforeValidator(_shard_count)] = Field(
        default=ShardCount.AUTO,
        description="the number of files to write, an integer from 1 to 1048576, or auto for about 64 MB each",
    )

    @property
    def n_shards(self) -> int | None:
        """Number of shards; None where it follows from the size of the data."""
        return None if self.shards is ShardCount.AUTO else int(self.shards)


class FitConfig(_Section):
    """One `fit` job."""

    algorithm: Algorithm = Field(
        description="the algorithm to run, feddp_kmeans, or the baseline server_kmeanspp, server_lloyds or "
        "sphere_packing"
    )
    data: DataConfig = Field(description="the section of the private table with path and features")
    server_data: Annotated[ServerDataConfig | None, BeforeValidator(_section_or_none)] = Field(
        default=None, description="the section of the public table with path, or none"
    )
    n_clusters: Annotated[int | ClusterChoice, BeforeValidator(_cluster_count)] = Field(
        description="the number of centers, an integer >= 1, or a section of max and choose: elbow"
    )
    privacy: PrivacyConfig = Field(description="the section of the guarantee with unit, epsilon and delta")
    clipping: ClippingConfig = Field(description="the section of the contribution bounds with norm")
    encode: Encodings = Field(
        default_factory=dict,
        description="a mapping of columns of data.features to a section with kind, or leave it out",
    )
    lloyd: LloydConfig = Field(default=LloydConfig(), description="a section with steps, or leave it out")
    feddp_kmeans: FedDPOptions = Field(default=FedDPOptions(), description="a section of options, or leave it out")
    prepare: PrepareOptions = Field(default=PrepareOptions(), description="a section with shards, or leave it out")
    keep_staging: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="true to keep the private copy of the data that was grouped by client, or false"
    )
    key_uri: Text | None = Field(
        default=None,
        description="the place of the noise key on any Beam filesystem, or leave it out for a key of the run",
    )
    seed: Annotated[int, Field(strict=True, ge=0), _Scalar] | None = Field(
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

    @pydantic.model_validator(mode="after")
    def _baselines_are_server_starts_and_lloyd(self) -> Self:
        if self.algorithm is Algorithm.FEDDP_KMEANS:
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
        starts = self.algorithm is Algorithm.FEDDP_KMEANS
        shares = {
            "lloyd.share": self.lloyd.share if self.lloyd.steps and starts else 0.0,
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
    try:
        return FitConfig.model_validate(dict(data))
    except pydantic.ValidationError as error:
        raise ConfigError(rejection.sentence(error, FitConfig)) from error


def load_config(text: str) -> FitConfig:
    """A job from YAML text; raises ConfigError as `validated` does, or if the text is not YAML."""
    return validated(yaml_text.parse(text))  # type: ignore[arg-type]


def dump_config(config: FitConfig) -> str:
    """YAML text with every setting, defaults included; `load_config` reads it back as an equal config."""
    return yaml_text.render(config.model_dump(mode="json"))


def config_digest(config: FitConfig) -> str:
    """SHA-256, 64 hex digits, of the config as canonical JSON; equal configs have equal digests."""
    canonical = json.dumps(config.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
