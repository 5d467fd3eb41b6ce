"""Training, clustering and budget of one client that runs DP-SGD."""

from dapple_dp.schemas.choices import Adjacency, SiloAccountant
from dapple_dp.schemas.clustered_fl.plan import SiloBudget
from dapple_dp.schemas.clustered_fl.records import ClusteringParams, TrainingParams


def training_params(rounds=200, batch_size=32, **changes):
    settings = {"local_epochs": 1, "learning_rate": 0.4, "clipping_norm": 1.0} | changes
    return TrainingParams(rounds=rounds, batch_size=batch_size, **settings)


def clustering_params(selections=0):
    return ClusteringParams(n_clusters=4, selection_rounds=selections)


def silo_budget(epsilon=5.0, accountant="rdp", **changes):
    settings = {"delta": 1e-4, "adjacency": Adjacency.ADD_REMOVE} | changes
    return SiloBudget(epsilon=epsilon, accountant=SiloAccountant(accountant), **settings)
