"""Google's clustering of a private coreset, made by locality-sensitive hashing."""

TITLE = "google_lsh"
WHAT = (
    "`private_lsh_clustering` of google/differential-privacy; as it comes, with the radius of the box. k-means follows."
)
NEEDS = ("absl-py~=1.0", "numpy~=1.21", "scikit-learn==1.9.1", "scipy~=1.7", "dp-accounting==0.6.0")
REPOSITORY = ("https://github.com/google/differential-privacy", "b5b0286e313b64a692abfc8c528d54ef47d960a0", "learning")
CLAIM = "(epsilon, delta)"
_CALCULATED = {}


def _calculator(whole):
    """Its calibration, which asks for nothing private and takes half a second, done once for all fits."""

    def kept(*terms):
        if str(terms) not in _CALCULATED:
            _CALCULATED[str(terms)] = whole(*terms)
        return _CALCULATED[str(terms)]

    return kept


def fit(job, seed):
    import numpy as np
    from clustering import clustering_algorithm, clustering_params

    calculator = clustering_algorithm.privacy_calculator
    if not _CALCULATED:
        calculator.PrivacyCalculator = _calculator(calculator.PrivacyCalculator)
    radius = float(np.linalg.norm(np.full(job.rows.shape[1], job.bounds[1])))
    data = clustering_params.Data(job.rows, radius)
    budget = clustering_params.DifferentialPrivacyParam(epsilon=job.epsilon, delta=job.delta)
    # Labels and loss are said not to be private, so nobody publishes them.
    return {"centers": clustering_algorithm.private_lsh_clustering(job.k, data, budget).centers}
