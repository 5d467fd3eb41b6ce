"""The choices that configs offer, each a closed list of words, with the tier of those that are not supported."""

import enum
from typing import Any


class Tier(enum.StrEnum):
    """How far others may rely on a command, an algorithm, a setting, a value of one, or a runner.

    SUPPORTED: tested beside everything else, and kept by the rules of docs/reference/stability.md.
    EXPERIMENTAL: its guarantee is that of every run; what it releases may be worse, and it may change at any time.
    PAPER_ONLY: there so that a published method or figure can be repeated.
    """

    SUPPORTED = "supported"
    EXPERIMENTAL = "experimental"
    PAPER_ONLY = "paper only"


TIER_KEY, TIERS_KEY = "x-tier", "x-tiers"
"""In a JSON Schema: the tier of a setting or a job, and those of values by value; what is supported has none."""


class Choice(enum.StrEnum):
    """A closed list of words; a member is its word, with its tier behind it unless it is supported."""

    tier: Tier

    def __new__(cls, word: str, tier: Tier = Tier.SUPPORTED) -> "Choice":
        """The word itself, which knows its tier."""
        found = str.__new__(cls, word)
        found._value_ = word
        found.tier = tier
        return found

    @classmethod
    def tiers(cls) -> dict[str, str]:
        """Tiers of the words that are not supported."""
        return {str(each): str(each.tier) for each in cls if each.tier is not Tier.SUPPORTED}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        """The list of words, and their tiers."""
        found = handler(core)
        if cls.tiers():
            handler.resolve_ref_schema(found)[TIERS_KEY] = cls.tiers()
        return found


class Algorithm(Choice):
    """What `fit` runs with noise; a job that was checked has another one than `auto`."""

    AUTO = "auto"
    FEDDP_KMEANS = "feddp_kmeans"
    SERVER_KMEANSPP = "server_kmeanspp", Tier.PAPER_ONLY
    SERVER_LLOYDS = "server_lloyds", Tier.PAPER_ONLY
    SPHERE_PACKING = "sphere_packing", Tier.PAPER_ONLY
    DP_LLOYD = "dp_lloyd"
    DP_MEDIANS = "dp_medians", Tier.EXPERIMENTAL
    CENTRAL_TREE = "central_tree"
    WINDOWS = "windows"
    SPHERICAL = "spherical"


class PooledAlgorithm(Choice):
    """What `fit` runs without noise, for comparison."""

    K_FED = "k_fed", Tier.PAPER_ONLY
    OPTIMAL = "optimal"
    DP_LLOYD = "dp_lloyd"


class ClusterRule(Choice):
    """How the number of clusters is chosen."""

    ELBOW = "elbow"


class TableFormat(Choice):
    """Formats whose own log says which files make a table."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class InvalidRows(Choice):
    """What becomes of rows with a null or non-finite value."""

    FAIL = "fail"
    DROP = "drop"


class Preset(Choice):
    """Settings that go together."""

    PUBLISHED = "published", Tier.PAPER_ONLY


class ClippingRule(Choice):
    """Where a clipping norm comes from that is not given as a number."""

    SERVER_RADIUS = "server_radius"
    PRIVATE = "private"
    DOMAIN = "domain"


class ClippingCenter(Choice):
    """Public offset that is subtracted from every row before clipping."""

    SERVER_MEAN = "server_mean"
    NONE = "none"


class Trust(Choice):
    """Who may see what clients contribute."""

    CENTRAL = "central"
    MASKED = "masked"


class ReportMode(Choice):
    """Who is trusted with private reports: nobody, or a shuffler that forgets who sent what."""

    LOCAL = "local"
    SHUFFLE = "shuffle"


class MaskScheme(Choice):
    """Where masks come from."""

    SHARED_SECRET = "shared_secret"
    PAIRWISE = "pairwise"


class NoiseBy(Choice):
    """Who adds the noise of a masked sum."""

    AGGREGATOR = "aggregator"
    BOTH = "both"
    CLIENTS = "clients"


class Auto(Choice):
    """A number of rounds, shards or levels, or shares of the budget, that the job leaves open."""

    AUTO = "auto"


class LloydVariant(Choice):
    """What the rounds of DP-Lloyd sum and which noise they add."""

    LLOYD = "lloyd"
    SU = "su", Tier.PAPER_ONLY
    G = "g", Tier.PAPER_ONLY
    FAST = "fast"


class LloydStart(Choice):
    """Where the centers of DP-Lloyd start."""

    BEST = "best"
    SPHERE_PACKING = "sphere_packing"
    SERVER_KMEANSPP = "server_kmeanspp", Tier.PAPER_ONLY
    FEDDP_INIT = "feddp_init", Tier.EXPERIMENTAL
    CENTRAL_TREE = "central_tree", Tier.EXPERIMENTAL
    CANDIDATES = "candidates"


class StartSpace(Choice):
    """Where FedDP-Init clusters the server points: in the subspace of a released outer product, or as they are."""

    AUTO = "auto"
    SUBSPACE = "subspace"
    FULL = "full"


class CenterUpdate(Choice):
    """How a center moves by its noisy sum and count."""

    PLAIN = "plain"
    SHRUNKEN = "shrunken"


class FederatedAlgorithm(Choice):
    """How clients that train models share them."""

    R_DPCFL = "r_dpcfl", Tier.EXPERIMENTAL
    GLOBAL = "global", Tier.PAPER_ONLY
    LOCAL = "local", Tier.PAPER_ONLY
    IFCA = "ifca", Tier.PAPER_ONLY
    MR_MTL = "mr_mtl", Tier.PAPER_ONLY
    ORACLE = "oracle", Tier.PAPER_ONLY


class ModelKind(Choice):
    """Classifiers that clients train: softmax regression, a hidden layer of tanh units before it, or convolutions.

    `RESNET` is ResNet18 with group norms.
    """

    SOFTMAX = "softmax"
    MLP = "mlp"
    CNN = "cnn", Tier.PAPER_ONLY
    RESNET = "resnet", Tier.PAPER_ONLY


class UpdateView(Choice):
    """What of the first updates is clustered: n_clusters - 1 or two principal components, or all coordinates.

    `TWO_PC_SCALED` stretches both components to ranges of the same length, as the published code of R-DPCFL does.
    """

    PCA = "pca"
    TWO_PC = "two_pc", Tier.PAPER_ONLY
    TWO_PC_SCALED = "two_pc_scaled", Tier.PAPER_ONLY
    RAW = "raw", Tier.PAPER_ONLY


class WhenScarce(Choice):
    """What R-DPCFL does where rows are too scarce for clusters to be seen in the first updates.

    AUTO: what a simulation on public numbers says, before anything is spent: `CLUSTER` or `APART`.
    CLUSTER: a full first batch; if its clusters are not believed, then as `APART` from there on.
    APART: clients train models of their own, with ordinary batches, until clusters of these are believed.
    ONE_MODEL: a full first batch; if its clusters are not believed, then one model for all.
    """

    AUTO = "auto"
    CLUSTER = "cluster"
    APART = "apart"
    ONE_MODEL = "one_model"


class SelectionScore(Choice):
    """What clients compare models by: the rows that a model classifies correctly, or its loss, cut off at a bound."""

    ACCURACY = "accuracy"
    LOSS = "loss"


class ModelStart(Choice):
    """Whether the models of all clusters start alike."""

    IDENTICAL = "identical"
    RANDOM = "random"


class Adjacency(Choice):
    """Neighbors of a client's rows: one row more or less, or one row replaced."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"


class SiloAccountant(Choice):
    """How the events of a client are composed; paper_code repeats the published code's old conversion."""

    RDP = "rdp"
    PLD = "pld"
    PAPER_CODE = "paper_code", Tier.PAPER_ONLY


class ClusterSearch(Choice):
    """How the number of clusters of clients is found."""

    MSS = "mss"


class Runner(Choice):
    """Runners of Beam on which jobs have been run, and the one without Beam; any other one is experimental, too."""

    FN_API = "FnApiRunner"
    DIRECT = "DirectRunner"
    PRISM = "PrismRunner"
    FLINK = "FlinkRunner"
    PORTABLE = "PortableRunner"
    DATAFLOW = "DataflowRunner", Tier.EXPERIMENTAL
    IN_PROCESS = "InProcess"
