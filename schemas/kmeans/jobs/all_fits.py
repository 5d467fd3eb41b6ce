"""The type of all `fit` jobs, for their JSON Schema; jobs load their own class alone."""

import functools
import operator

from dapple_dp.schemas.kmeans.fit_config import FITS

FitConfig = functools.reduce(operator.or_, dict.fromkeys(FITS.values()))
"""One `fit` job, distinguished by `algorithm`."""
