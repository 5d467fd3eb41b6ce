"""PE-means, private evolution of centers; above 32 features its variant that projects them."""

TITLE = "pe_means"
WHAT = (
    "`pe_means`, above 32 features `hdpe_means`, of t3humphries/PE-means with the settings of its `run_ours` and "
    "`run_ours_HD`; `radius` is half the diagonal of the box. Its loss, which is not private, is left out."
)
NEEDS = ("faiss-cpu==1.13.2", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1")
REPOSITORY = ("https://github.com/t3humphries/PE-means", "e67d0516a7e91be3af38f216de26429f9b568f52", ".")
CLAIM = "(epsilon, delta)"


def _clustering():
    """Stands in for the two records of Google's library that its module imports."""
    import collections
    import sys
    import types

    params, algorithm = types.ModuleType("clustering_params"), types.ModuleType("clustering_algorithm")
    params.Data = collections.namedtuple("Data", "datapoints radius")
    params.Data.dim = property(lambda data: data.datapoints.shape[1])
    params.DifferentialPrivacyParam = collections.namedtuple("DifferentialPrivacyParam", "epsilon delta")
    algorithm.ClusteringResult = lambda data, centers: types.SimpleNamespace(loss=0.0)
    package = types.ModuleType("clustering")
    package.clustering_params, package.clustering_algorithm = params, algorithm
    sys.modules["clustering"] = package
    return params


def fit(job, seed):
    import numpy as np

    params = _clustering()
    from src import helpers, pe_means_main

    n_rows, n_features = job.rows.shape
    rounds = int(4 * np.sqrt(n_features))
    settings = dict(helpers.PE_PARAMS, run_id=seed, L=int(max(n_rows / (5 * job.k), 4)))
    settings["num_gen"] = max(int(rounds * max(job.epsilon, 1.0)), 1)
    data = params.Data(job.rows, float(np.linalg.norm(np.full(n_features, job.bounds[1]))))
    budget = params.DifferentialPrivacyParam(job.epsilon, job.delta)
    run = pe_means_main.hdpe_means if n_features > 32 else pe_means_main.pe_means
    return {"centers": np.asarray(run(job.k, data, settings, budget, visualize=False)[1])}
