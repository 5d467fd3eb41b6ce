"""The type of all `fit` jobs, for their JSON Schema; jobs load their own class alone, by `fit_config.FITS`."""

from dapple_dp.schemas.kmeans.fit_config import FedDPKMeansFit, ServerStartFit
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit, DPMediansFit
from dapple_dp.schemas.kmeans.spherical_config import SphericalFit
from dapple_dp.schemas.kmeans.tree_config import CentralTreeFit
from dapple_dp.schemas.kmeans.windows_config import WindowsFit

FitConfig = FedDPKMeansFit | CentralTreeFit | WindowsFit | SphericalFit | DPMediansFit | DPLloydFit | ServerStartFit
"""One `fit` job, distinguished by `algorithm`."""
