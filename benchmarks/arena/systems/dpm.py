"""DPM (clustering through separation), the code of its authors at the University of Lübeck."""

TITLE = "dpm"
WHAT = (
    "`DPM` of UzL-PrivSec/dp-mondrian-clustering; as it comes, on rows times 100 as in its demo. It chooses how many "
    "clusters there are: where these are more than k, k-means of its centers by its noisy counts follows."
)
NEEDS = ("numpy==2.4.6", "fast-histogram==0.14", "diffprivlib==0.6.6", "scikit-learn==1.6.1", "scipy==1.17.1")
REPOSITORY = (
    "https://github.com/UzL-PrivSec/dp-mondrian-clustering",
    "ad44c01f7b8dfc126fbe73fcc53f9bb951912dee",
    ".",
)
CLAIM = "(epsilon, delta)"
_SCALE = 100.0


def fit(job, seed):
    import numpy as np
    from dpm import DPM
    from sklearn.cluster import KMeans

    found = DPM(_SCALE * job.rows, tuple(_SCALE * each for each in job.bounds), job.epsilon, job.delta)
    centers, counts = found.perform_clustering()[0] / _SCALE, np.maximum(found.cluster_noisy_count, 1.0)
    if len(centers) > job.k:
        centers = KMeans(job.k, n_init=3, random_state=0).fit(centers, sample_weight=counts).cluster_centers_
    return {"centers": centers, "n_clusters": len(counts)}
