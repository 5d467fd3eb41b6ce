"""Union of all `fit` jobs, for the JSON Schema; jobs import just their own class."""

import functools
import operator

from dapple_dp.schemas.kmeans.fit_config import FITS

FitConfig = functools.reduce(operator.or_, dict.fromkeys(FITS.values()))
"""A `fit` job; `algorithm` selects the class."""
