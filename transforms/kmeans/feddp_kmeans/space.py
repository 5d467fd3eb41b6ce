"""Which space the start of FedDP-KMeans clusters in, decided on public data before anything is spent."""

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import Assignment, StartSpace
from dapple_dp.schemas.core.plan import Allocation
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.transforms.numerics.kmeans.starts import spaces


def decided(config: FitConfig, server: NDArray[np.float64]) -> FitConfig:
    """The job with `subspace` or `full` in place of `auto`.

    Full space needs server data whose cross-validation prefers it. The method as printed, its optional parts, and a
    number of clusters that is still to be chosen keep the subspace.

    Args:
      config: a job of algorithm feddp_kmeans.
      server: shape (q, d), feature units: public points.
    """
    options = config.feddp_kmeans
    if options.space is not StartSpace.AUTO:
        return config
    plain = options.simplify is None and options.reduce_diameter is None and options.assignment is Assignment.NEAREST
    tuned = config.privacy.allocation is Allocation.TUNED and not config.chooses_clusters
    full = plain and tuned and config.server_data is not None
    full = full and spaces.prefers_full_space(server, config.max_clusters)
    space = StartSpace.FULL if full else StartSpace.SUBSPACE
    return config.model_copy(update={"feddp_kmeans": options.model_copy(update={"space": space})})
