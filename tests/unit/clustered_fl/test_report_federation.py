"""The report of clustered_fl says what was released and labels what was not."""

import dataclasses

import numpy as np

from dapple_dp.pipelines.clustered_fl import models_page as report_federation
from dapple_dp.pipelines.clustered_fl.models_page import FederationView, Judged
from dapple_dp.schemas.choices import Adjacency
from dapple_dp.schemas.clustered_fl.config import ClusteredFLConfig
from dapple_dp.schemas.clustered_fl.plan import SiloStatement
from dapple_dp.schemas.clustered_fl.records import FederatedState
from dapple_dp.schemas.settings import rejection
from tests.scenes import federation

STATE = FederatedState(
    round_number=6,
    models=np.zeros((2, 18)),
    assignments=np.array([0, 1, 0, 1, 0, 1]),
    responsibilities=np.eye(2)[[0, 1, 0, 1, 0, 1]],
    separation=12.5,
    switch_round=3,
    em_iterations=4,
    offers=np.zeros((0, 18)),
    offered=np.full(6, -1),
)


def view(judged: tuple[Judged, ...] = (), groups: str = "", **state: object):
    adjacency = Adjacency.ADD_REMOVE
    statement = SiloStatement(adjacency=adjacency, epsilon=7.9, delta=1e-3, accountant="rdp", events=())
    return FederationView(
        config=rejection.check_config(ClusteredFLConfig, federation.job("lake")),
        federation=federation.federation(),
        state=dataclasses.replace(STATE, **state),
        groups=tuple(groups) or ("",) * federation.N_CLIENTS,
        statement=statement,
        judged=judged,
    )


def test_clusters_and_guarantee_are_shown():
    page = report_federation.render(view()).html
    assert "6 clients trained 2 models by R-DPCFL" in page
    assert "per-silo DP-SGD" in page
    assert "12.5" in page
    assert "Accuracy by group" not in page


def test_clusters_that_were_not_found_are_a_warning():
    page = report_federation.render(view(models=np.zeros((1, 18)), assignments=np.zeros(6, dtype=np.int64))).html
    assert "No clusters stood out from the noise" in page


def test_accuracy_is_that_of_the_rows_of_a_group():
    judged = (Judged("silo-0", 8, 10), Judged("silo-1", 3, 30), Judged("silo-2", 10, 10))
    page = report_federation.render(view(judged=judged, groups="ababab")).html
    assert "90.0%" in page
    assert "80.0%" in page
    assert "42.0%" in page
    assert page.count("evaluation (not private)") >= 2


def test_clients_without_groups_are_judged_by_cluster():
    page = report_federation.render(view(judged=(Judged("silo-1", 1, 2),))).html
    assert "cluster 1" in page
    assert "cluster 0" not in page
