"""OpenDP's tree-based `KMeans`, of a branch that no release has."""

TITLE = "opendp"
WHAT = (
    "`KMeans` of OpenDP's branch clustering-exploration over the library of 0.16.0; depth 6, zCDP, a quarter of the "
    "budget in one DP Lloyd step, the tree's weighted coreset."
)
NEEDS = ("opendp==0.16.0", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1")
REPOSITORY = ("https://github.com/opendp/opendp", "0879987dcdf89d14e45c8ae55b4d78c975832bf9", "python/src")
OVERLAY = ("opendp/extras",)
CLAIM = "(epsilon, delta)"
_MADE = {}
"""Its measurements, which ask for nothing private and are made slowly, once for all fits."""


def _measured(job, scale):
    import numpy as np
    import opendp.prelude as dp
    from opendp.extras.sklearn.cluster import KMeans

    dp.enable_features("contrib", "floating-point", "honest-but-curious")
    n_features = job.rows.shape[1]
    corners = {"lower": np.full(n_features, job.bounds[0]), "upper": np.full(n_features, job.bounds[1])}
    terms = {"max_depth": 6, "refinement": "dp_lloyd", "refinement_fraction": 0.25, "init_solver": "weighted_coreset"}
    return KMeans(n_features, job.k, scale=scale, output_measure=dp.zero_concentrated_divergence(), **corners, **terms)


def _scale(job):
    """The scale at which zCDP gives the epsilon at this delta."""
    import opendp.prelude as dp
    from opendp.extras.sklearn.cluster import _noise_scale_for_budget

    dp.enable_features("contrib", "floating-point", "honest-but-curious")
    space, low, high = (dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)), 1e-3, 1e6
    for _ in range(40):
        middle = (low * high) ** 0.5
        spent = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=middle)).map(1.0).epsilon(job.delta)
        low, high = (middle, high) if spent > job.epsilon else (low, middle)
    return _noise_scale_for_budget(dp.zero_concentrated_divergence(), 0.5 / high**2)


def fit(job, seed):
    import opendp.prelude as dp

    terms = (job.rows.shape[1], job.k, job.epsilon, job.delta, *job.bounds)
    if terms not in _MADE:
        _MADE[terms] = _measured(job, _scale(job))
    found = _MADE[terms]
    spent = dp.c.make_zCDP_to_approxDP(found.measurement_).map(1).epsilon(job.delta)
    assert spent <= 1.01 * job.epsilon, spent
    found.fit(job.rows)
    return {"centers": found.cluster_centers_, "inertia": found.inertia_}
