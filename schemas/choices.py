"""Enumerations of the words that settings accept; words that aren't supported carry a tier."""

import enum
from typing import Any


class Tier(enum.StrEnum):
    """Degree to which users may rely on a command, an algorithm, a setting, a value of one, or a runner.

    SUPPORTED: tested with everything else, and kept by the rules of docs/reference/stability.md.
    EXPERIMENTAL: same guarantee as any run; results may be worse, and it may change at any time.
    PAPER_ONLY: kept to reproduce a published method or figure.
    """

    SUPPORTED = "supported"
    EXPERIMENTAL = "experimental"
    PAPER_ONLY = "paper only"


TIER_KEY, TIERS_KEY = "x-tier", "x-tiers"
"""JSON Schema keys: the tier of a setting or a job, and tiers by value; supported ones have no entry."""


class Choice(enum.StrEnum):
    """Base of the enumerations; a member is its word and has a tier, `SUPPORTED` by default."""

    tier: Tier

    def __new__(cls, word: str, tier: Tier = Tier.SUPPORTED) -> "Choice":
        """Creates a member that equals `word` and has a tier."""
        result = str.__new__(cls, word)
        result._value_ = word
        result.tier = tier
        return result

    @classmethod
    def tiers(cls) -> dict[str, str]:
        """Tiers of the words that aren't supported, by word."""
        return {str(choice): str(choice.tier) for choice in cls if choice.tier is not Tier.SUPPORTED}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        """Returns the JSON Schema of the words, with their tiers under `TIERS_KEY`."""
        result = handler(core)
        if cls.tiers():
            handler.resolve_ref_schema(result)[TIERS_KEY] = cls.tiers()
        return result


class Algorithm(Choice):
    """Private algorithms of `fit`; validation replaces `auto` with one of the others."""

    AUTO = "auto"
    FEDDP_KMEANS = "feddp_kmeans"
    DP_LLOYD = "dp_lloyd"
    DP_MEDIANS = "dp_medians", Tier.EXPERIMENTAL
    CENTRAL_TREE = "central_tree"
    SPHERICAL = "spherical"
    K_PROTOTYPES = "k_prototypes", Tier.EXPERIMENTAL


class PooledAlgorithm(Choice):
    """Algorithms of `fit` without noise, for comparison."""

    OPTIMAL = "optimal"


class ClusterRule(Choice):
    """Rules that choose the number of clusters."""

    ELBOW = "elbow"


class TableFormat(Choice):
    """Table formats with a log that lists the files of a table."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class InvalidRows(Choice):
    """Handling of rows with a null or non-finite value."""

    FAIL = "fail"
    DROP = "drop"


class Preset(Choice):
    """Named groups of settings."""

    PUBLISHED = "published", Tier.PAPER_ONLY


class ClippingRule(Choice):
    """Sources of a clipping norm that isn't given as a number."""

    SERVER_RADIUS = "server_radius"
    PRIVATE = "private"
    DOMAIN = "domain"


class ClippingCenter(Choice):
    """Public offset that is subtracted from every row before clipping."""

    SERVER_MEAN = "server_mean"
    NONE = "none"


class Trust(Choice):
    """Aggregation modes; they determine who may see the contributions of clients."""

    CENTRAL = "central"
    MASKED = "masked"


class ReportMode(Choice):
    """Trust models of private reports: no trusted party, or a shuffler that discards who sent which report."""

    LOCAL = "local"
    SHUFFLE = "shuffle"


class MaskScheme(Choice):
    """Sources of masks."""

    SHARED_SECRET = "shared_secret"
    PAIRWISE = "pairwise"


class NoiseBy(Choice):
    """Parties that add the noise of a masked sum."""

    AGGREGATOR = "aggregator"
    BOTH = "both"
    CLIENTS = "clients"


class Auto(Choice):
    """Placeholder for a number of rounds, shards or levels, or for budget shares, that the job chooses itself."""

    AUTO = "auto"


class LloydStart(Choice):
    """Methods that choose the initial centers of DP-Lloyd."""

    BEST = "best"
    SPHERE_PACKING = "sphere_packing"
    FEDDP_INIT = "feddp_init", Tier.EXPERIMENTAL
    CENTRAL_TREE = "central_tree", Tier.EXPERIMENTAL
    CANDIDATES = "candidates"


class StartSpace(Choice):
    """Space in which FedDP-Init clusters the server points: a released subspace, or all coordinates."""

    AUTO = "auto"
    SUBSPACE = "subspace"
    FULL = "full"


class FederatedAlgorithm(Choice):
    """Algorithms for federated training."""

    R_DPCFL = "r_dpcfl", Tier.EXPERIMENTAL


class ModelKind(Choice):
    """Classifiers that clients train: softmax regression, or a hidden layer of tanh units before it."""

    SOFTMAX = "softmax"
    MLP = "mlp"


class WhenScarce(Choice):
    """Fallbacks of R-DPCFL for data with too few rows to show clusters in the first updates.

    AUTO: chooses `CLUSTER` or `APART` by a simulation on public numbers, before any budget is spent.
    CLUSTER: a full first batch; continues as `APART` if its clusters are not credible.
    APART: each client trains its own model, with ordinary batches, until clusters of the models are credible.
    ONE_MODEL: a full first batch; continues with one model for all clients if its clusters are not credible.
    """

    AUTO = "auto"
    CLUSTER = "cluster"
    APART = "apart"
    ONE_MODEL = "one_model"


class SelectionScore(Choice):
    """Scores by which clients compare models: correctly classified rows, or the loss, clipped at a bound."""

    ACCURACY = "accuracy"
    LOSS = "loss"


class Adjacency(Choice):
    """Neighboring data sets of a client: one row added or removed, or one row replaced."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"


class SiloAccountant(Choice):
    """Accountants that compose a client's events."""

    RDP = "rdp"
    PLD = "pld"


class ClusterSearch(Choice):
    """Methods that choose the number of clusters of clients."""

    MSS = "mss"


class Runner(Choice):
    """Tested Beam runners, and the runner without Beam; all other runners are experimental."""

    FN_API = "FnApiRunner"
    DIRECT = "DirectRunner"
    PRISM = "PrismRunner"
    FLINK = "FlinkRunner"
    PORTABLE = "PortableRunner"
    DATAFLOW = "DataflowRunner", Tier.EXPERIMENTAL
    IN_PROCESS = "InProcess"
