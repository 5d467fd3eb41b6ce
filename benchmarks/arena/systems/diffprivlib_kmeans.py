"""`KMeans` of diffprivlib."""

TITLE = "diffprivlib"
WHAT = "`KMeans` of IBM's diffprivlib 0.6.6; as it comes, with `bounds`. With scikit-learn 1.9 it does not import."
NEEDS = ("diffprivlib==0.6.6", "scikit-learn==1.6.1", "numpy==2.4.6", "scipy==1.17.1")
REPOSITORY = None
CLAIM = "pure epsilon"


def fit(job, seed):
    from diffprivlib.models import KMeans

    found = KMeans(job.k, epsilon=job.epsilon, bounds=tuple(job.bounds), random_state=seed).fit(job.rows)
    return {"centers": found.cluster_centers_, "inertia": found.inertia_, "n_iter": found.n_iter_}
