"""FedDP-KMeans, the code of its authors, at the level of data points."""

TITLE = "feddp_kmeans"
WHAT = (
    "`FederatedClusterInitExact` of jonnyascott/fed-dp-kmeans, one client, shares .2 .2 .45 .15 of epsilon; "
    "bounds are the radius of the box. Without server data it gets 200 public uniform points."
)
NEEDS = ("pfl==0.6.0", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1", "dp-accounting==0.5.1", "h5py", "pyyaml")
REPOSITORY = ("https://github.com/jonnyascott/fed-dp-kmeans", "17bb6160b18b21a9544ec8841badc062290bac2d", ".")
CLAIM = "(epsilon, delta)"


def _settings(job, radius):
    from types import SimpleNamespace

    return SimpleNamespace(
        datapoint_privacy=True,
        outer_product_clipping_bound=radius,
        outer_product_epsilon=0.2 * job.epsilon,
        outer_product_delta=job.delta / 2,
        weighting_clipping_bound=1,
        weighting_epsilon=0.2 * job.epsilon,
        center_init_send_sums_and_counts=True,
        center_init_clipping_bound=radius,
        center_init_gaussian_epsilon=0.6 * job.epsilon,
        center_init_epsilon_split=0.75,
        center_init_delta=job.delta / 2,
        center_init_laplace_clipping_bound=1,
    )


def fit(job, seed):
    import algorithms
    import numpy as np
    from models import FedClusterInitModel, FedClusterInitModelHyperParams
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from privacy import get_mechanism

    radius = float(np.linalg.norm(np.full(job.rows.shape[1], job.bounds[1])))
    public = np.random.default_rng(0).uniform(*job.bounds, (200, job.rows.shape[1]))
    server = Dataset((public if job.server is None else job.server,))
    rows = Dataset((job.rows.copy(),))  # one for all steps, as theirs: the first clips it in place
    clients = FederatedDataset(lambda _: rows, get_user_sampler("minimize_reuse", [0]))
    wanted = (job.k, True, server, 1, 1, 1, 1.0, 0.0, 1, 0, True, radius)
    terms, params = algorithms.FederatedClusterInitHyperParams(*wanted), FedClusterInitModelHyperParams(K=job.k)
    model, steps = FedClusterInitModel(), {"outer_product": "FederatedOuterProduct"}
    steps |= {"point_weighting": "FederatedServerPointWeighting", "center_init": "FederatedInitFromProjectedCenters"}
    for name, algorithm in steps.items():
        backend = SimulatedBackend(clients, clients, [get_mechanism(_settings(job, radius), name)])
        model = getattr(algorithms, algorithm)().run(terms, backend, model, params, params)
    return {"centers": model.initial_centers}
