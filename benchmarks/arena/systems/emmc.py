"""EMMC (exponential mechanism and maximum cover), as implemented at the University of Lübeck."""

TITLE = "emmc"
WHAT = "`EMMC` of UzL-PrivSec/dp-kmeans-max-cover; `diameter` is the diagonal of the box."
NEEDS = ("numpy==2.4.6", "scikit-learn==1.9.1")
REPOSITORY = (
    "https://github.com/UzL-PrivSec/dp-kmeans-max-cover",
    "9798611a4e922d66cbc4f104be7ddf22432c9936",
    ".",
)
CLAIM = "(epsilon, delta)"


def fit(job, seed):
    import numpy as np
    from emmc import EMMC

    diameter = float(job.bounds[1] - job.bounds[0]) * np.sqrt(job.rows.shape[1])
    return {"centers": EMMC().cluster(job.rows, diameter, job.k, job.epsilon, job.delta)}
