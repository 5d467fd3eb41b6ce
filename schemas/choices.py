"""The choices that configs offer, each a closed list of words."""

import enum


class Algorithm(enum.StrEnum):
    """What `fit` runs with noise."""

    FEDDP_KMEANS = "feddp_kmeans"
    SERVER_KMEANSPP = "server_kmeanspp"
    SERVER_LLOYDS = "server_lloyds"
    SPHERE_PACKING = "sphere_packing"


class PooledAlgorithm(enum.StrEnum):
    """What `fit` runs without noise, for comparison."""

    K_FED = "k_fed"
    OPTIMAL = "optimal"


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


class Allocation(enum.StrEnum):
    """How the budget is split: Gaussian noise everywhere and shrinkage, or as Scott et al. do."""

    TUNED = "tuned"
    PAPER = "paper"


class ClippingRule(enum.StrEnum):
    """Where a clipping norm comes from that is not given as a number."""

    SERVER_RADIUS = "server_radius"
    PRIVATE = "private"


class ClippingCenter(enum.StrEnum):
    """Public offset that is subtracted from every row before clipping."""

    SERVER_MEAN = "server_mean"
    NONE = "none"


class Assignment(enum.StrEnum):
    """Which rows count for a center: all that are nearest to it, or only those clearly so."""

    NEAREST = "nearest"
    ONE_THIRD = "one_third"


class RoundCount(enum.StrEnum):
    """A number of rounds that is not given as an integer."""

    AUTO = "auto"


class ShardCount(enum.StrEnum):
    """A number of shards that is not given as an integer."""

    AUTO = "auto"


class TreeLevels(enum.StrEnum):
    """A number of levels that is not given as an integer."""

    AUTO = "auto"
