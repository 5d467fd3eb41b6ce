"""CEDSKMeans of Lawrence Berkeley National Laboratory: colored noise on the centers."""

TITLE = "cedskmeans"
WHAT = "`DPKMeans` of lbnl-cybersecurity/CEDSKMeans; as it comes."
NEEDS = ("numpy==1.26.4", "scikit-learn==1.3.2", "scipy==1.11.4", "sympy==1.14.0")
REPOSITORY = ("https://github.com/lbnl-cybersecurity/CEDSKMeans", "9a476e0b449373cdbbcb9c76bd7b722eab644625", "src")
CLAIM = "(epsilon, delta)"


def _package():
    """The package without its `__init__`, which needs Ray and Spark."""
    import sys
    import types
    from pathlib import Path

    if "cedskmeans" not in sys.modules:
        package = types.ModuleType("cedskmeans")
        package.__path__ = [str(Path.cwd() / "cedskmeans")]
        sys.modules["cedskmeans"] = package


def fit(job, seed):
    _package()
    from cedskmeans._dpkmeans import DPKMeans

    found = DPKMeans(n_clusters=job.k, dp_epsilon=job.epsilon, dp_delta=job.delta, random_state=seed).fit(job.rows)
    return {"centers": found.cluster_centers_, "inertia": found.inertia_, "n_iter": found.n_iter_} | {
        "true_centers": found.true_cluster_centers_
    }
