"""The line above: k-means without privacy."""

TITLE = "not_private"
WHAT = "scikit-learn's `KMeans`, the best of three starts; it claims nothing."
NEEDS = ()
REPOSITORY = None
CLAIM = None


def fit(job, seed):
    from sklearn.cluster import KMeans

    return {"centers": KMeans(job.k, n_init=3, random_state=seed).fit(job.rows).cluster_centers_}
