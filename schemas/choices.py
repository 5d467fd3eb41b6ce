"""The choices that configs offer, each a closed list of words."""

import enum


class Algorithm(enum.StrEnum):
    """What `fit` runs with noise; a job that was checked has another one than `auto`."""

    AUTO = "auto"
    FEDDP_KMEANS = "feddp_kmeans"
    SERVER_KMEANSPP = "server_kmeanspp"
    SERVER_LLOYDS = "server_lloyds"
    SPHERE_PACKING = "sphere_packing"
    DP_LLOYD = "dp_lloyd"
    DP_MEDIANS = "dp_medians"
    CENTRAL_TREE = "central_tree"
    WINDOWS = "windows"
    SPHERICAL = "spherical"


class PooledAlgorithm(enum.StrEnum):
    """What `fit` runs without noise, for comparison."""

    K_FED = "k_fed"
    OPTIMAL = "optimal"
    DP_LLOYD = "dp_lloyd"


class ClusterRule(enum.StrEnum):
    """How the number of clusters is chosen."""

    ELBOW = "elbow"


class TableFormat(enum.StrEnum):
    """Formats whose own log says which files make a table."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class InvalidRows(enum.StrEnum):
    """What becomes of rows with a null or non-finite value."""

    FAIL = "fail"
    DROP = "drop"


class Preset(enum.StrEnum):
    """Settings that go together."""

    PUBLISHED = "published"


class Allocation(enum.StrEnum):
    """How the budget is split: Gaussian noise everywhere and shrinkage, or as Scott et al. do."""

    TUNED = "tuned"
    PAPER = "paper"


class ClippingRule(enum.StrEnum):
    """Where a clipping norm comes from that is not given as a number."""

    SERVER_RADIUS = "server_radius"
    PRIVATE = "private"
    DOMAIN = "domain"


class ClippingCenter(enum.StrEnum):
    """Public offset that is subtracted from every row before clipping."""

    SERVER_MEAN = "server_mean"
    NONE = "none"


class Assignment(enum.StrEnum):
    """Which rows count for a center: all that are nearest to it, or only those clearly so."""

    NEAREST = "nearest"
    ONE_THIRD = "one_third"


class Trust(enum.StrEnum):
    """Who may see what clients contribute."""

    CENTRAL = "central"
    MASKED = "masked"


class ReportMode(enum.StrEnum):
    """Who is trusted with private reports: nobody, or a shuffler that forgets who sent what."""

    LOCAL = "local"
    SHUFFLE = "shuffle"


class MaskScheme(enum.StrEnum):
    """Where masks come from."""

    SHARED_SECRET = "shared_secret"
    PAIRWISE = "pairwise"


class NoiseBy(enum.StrEnum):
    """Who adds the noise of a masked sum."""

    AGGREGATOR = "aggregator"
    BOTH = "both"
    CLIENTS = "clients"


class Auto(enum.StrEnum):
    """A number of rounds, shards or levels, or shares of the budget, that the job leaves open."""

    AUTO = "auto"


class LloydVariant(enum.StrEnum):
    """What the rounds of DP-Lloyd sum and which noise they add."""

    LLOYD = "lloyd"
    SU = "su"
    G = "g"
    FAST = "fast"


class LloydStart(enum.StrEnum):
    """Where the centers of DP-Lloyd start."""

    BEST = "best"
    SPHERE_PACKING = "sphere_packing"
    SERVER_KMEANSPP = "server_kmeanspp"
    FEDDP_INIT = "feddp_init"
    CENTRAL_TREE = "central_tree"
    CANDIDATES = "candidates"


class FedDPStart(enum.StrEnum):
    """Where the centers of FedDP-Lloyds start."""

    FEDDP_INIT = "feddp_init"
    CENTRAL_TREE = "central_tree"


class StartSpace(enum.StrEnum):
    """Where FedDP-Init clusters the server points: in the subspace of a released outer product, or as they are."""

    AUTO = "auto"
    SUBSPACE = "subspace"
    FULL = "full"


class RadiusRule(enum.StrEnum):
    """How far from its center a row may be: the same in every round, or farther in the first."""

    STEP = "step"
    CONSTANT = "constant"


class PostProcess(enum.StrEnum):
    """What becomes of a center outside the domain."""

    FOLD = "fold"
    TRUNCATE = "truncate"
    NONE = "none"


class CenterUpdate(enum.StrEnum):
    """How a center moves by its noisy sum and count."""

    PLAIN = "plain"
    SHRUNKEN = "shrunken"


class TreeDirections(enum.StrEnum):
    """Normals of the half-spaces that divide the data."""

    SUBSPACE = "subspace"
    RANDOM = "random"


class FederatedAlgorithm(enum.StrEnum):
    """How clients that train models share them."""

    R_DPCFL = "r_dpcfl"
    GLOBAL = "global"
    LOCAL = "local"
    IFCA = "ifca"
    MR_MTL = "mr_mtl"
    ORACLE = "oracle"


class ModelKind(enum.StrEnum):
    """Classifiers that clients train: softmax regression, a hidden layer of tanh units before it, or convolutions.

    `RESNET` is ResNet18 with group norms.
    """

    SOFTMAX = "softmax"
    MLP = "mlp"
    CNN = "cnn"
    RESNET = "resnet"


class UpdateView(enum.StrEnum):
    """What of the first updates is clustered: n_clusters - 1 or two principal components, or all coordinates.

    `TWO_PC_SCALED` stretches both components to ranges of the same length, as the published code of R-DPCFL does.
    """

    PCA = "pca"
    TWO_PC = "two_pc"
    TWO_PC_SCALED = "two_pc_scaled"
    RAW = "raw"


class WhenScarce(enum.StrEnum):
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


class SelectionScore(enum.StrEnum):
    """What clients compare models by: the rows that a model classifies correctly, or its loss, cut off at a bound."""

    ACCURACY = "accuracy"
    LOSS = "loss"


class ModelStart(enum.StrEnum):
    """Whether the models of all clusters start alike."""

    IDENTICAL = "identical"
    RANDOM = "random"


class Adjacency(enum.StrEnum):
    """Neighbors of a client's rows: one row more or less, or one row replaced."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"


class SiloAccountant(enum.StrEnum):
    """How the events of a client are composed; paper_code repeats the published code's old conversion."""

    RDP = "rdp"
    PLD = "pld"
    PAPER_CODE = "paper_code"


class ClusterSearch(enum.StrEnum):
    """How the number of clusters of clients is found."""

    MSS = "mss"
