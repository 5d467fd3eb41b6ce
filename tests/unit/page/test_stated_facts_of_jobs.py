"""Registry entries and labels of profiles, reports and clustered_fl state what this run did, and nothing else."""

import re

import numpy as np
import pytest
import yaml

from dapple_dp.pipelines.clustered_fl import job as federated
from dapple_dp.pipelines.kmeans.report import drift_plots
from dapple_dp.pipelines.profile import job as profile_job
from dapple_dp.pipelines.profile import profile_page
from dapple_dp.pipelines.reports import outputs
from dapple_dp.schemas.choices import Adjacency
from dapple_dp.schemas.clustered_fl.plan import SiloStatement
from dapple_dp.schemas.kmeans.recurring.drift import Drift
from dapple_dp.schemas.profile.plan import PROFILE_SCHEMA
from dapple_dp.transforms.profile.accounting import calibrate
from tests.scenes.profiles import config
from tests.scenes.reports import parameters

LEDGER = {"ledger": "x.sqlite"}


def words(entry):
    return re.sub(r"\s+", " ", yaml.safe_load(entry).__repr__())


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("means", [True, False])
def test_a_profile(unit, named, means):
    more = {"categorical": {"job": {}} if named else {"sex": {"values": ["f", "m"]}}}
    settings = config(unit, **more | ({} if means else {"numeric": {}}))
    plan = calibrate(settings, 3)
    entry = words(profile_job.deployment_yaml(settings, plan))
    assert ("each client's rows" in entry) is (unit == "client")
    assert ("odds of naming a value of one unit" in entry) is named
    assert ("A mean is the noisy sum" in entry) is means
    assert ("sampling is not counted on" in entry) is (plan.rate < 1.0)
    assert "on the same data is unknown" in entry
    assert "the random generator of PipelineDP" in entry
    assert "ChaCha20" not in entry
    view = profile_page.ProfileView(config=settings, plan=plan, table=PROFILE_SCHEMA.empty_table())
    label = dict(profile_page._label(view).pairs)
    assert label["Trust"] == "central: the pipeline is the trusted aggregator"
    assert ("Sampling rate" in label) is (plan.rate < 1.0)
    assert ("Rows of one client" in label) is (unit == "client")


def test_a_profile_under_a_ledger():
    settings = config().model_copy(update=LEDGER)
    entry = words(profile_job.deployment_yaml(settings, calibrate(settings, 3)))
    assert "counted together by a ledger" in entry
    assert "on the same data is unknown" not in entry


def test_reports_whose_clients_trust_nobody_and_those_that_trust_a_shuffler():
    local = words(outputs.deployment_yaml(parameters(privacy__epsilon=1.0), 10))
    shuffled = parameters(privacy__epsilon=1.0, privacy__delta=1e-6, reports__mode="shuffle")
    shuffler = words(outputs.deployment_yaml(shuffled, 1000))
    assert "Nobody but the client's own device is trusted." in local
    assert "shuffler" not in local
    assert "Privacy losses of a report's choices add up." in local
    assert "The shuffler is trusted" in shuffler
    assert "Nobody but" not in shuffler
    for entry in (local, shuffler):
        assert "the random generator of each client's operating system" in entry
        assert "tree or mixture" not in entry


@pytest.mark.parametrize(
    ("names", "said", "silent"),
    [
        (["steps"], ["(DP-SGD)"], ["exponential", "comparison"]),
        (["first_round_steps", "steps", "selections"], ["(DP-SGD)", "exponential"], ["comparison"]),
        (["steps", "choices"], ["(DP-SGD)", "comparison of two models"], ["exponential"]),
    ],
)
def test_mechanisms_of_a_federation_are_those_of_its_events(names, said, silent):
    events = tuple({"client_id": "a", "name": name, "count": 1} for name in names)
    adjacency = Adjacency.ADD_REMOVE
    statement = SiloStatement(adjacency=adjacency, epsilon=1.0, delta=1e-3, accountant="rdp", events=events)
    found = "; ".join(federated._mechanisms(statement))
    assert all(word in found for word in said)
    assert not any(word in found for word in silent)


@pytest.mark.parametrize(
    ("scores", "size_scores", "new", "said"),
    [
        ([0.1, 0.2], [0.1, 0.3], False, ["good: No center and no size moved by more than 3 noise stddevs."]),
        ([0.1, np.nan], [0.1, np.nan], True, ["good: No center and no size moved by more than 3 noise stddevs."]),
        (
            [0.1, 0.2],
            [np.nan, np.nan],
            False,
            ["note: No center moved by more than 3 noise stddevs.", "note: Whether sizes moved is not visible here."],
        ),
        (
            [0.1, np.nan],
            [0.1, 0.2],
            False,
            [
                "note: No size moved by more than 3 noise stddevs.",
                "note: Whether 1 of the centers moved is not visible here.",
            ],
        ),
        ([9.0, 0.1], [0.1, 0.1], False, ["good: No size moved by more than 3 noise stddevs."]),
    ],
)
def test_calm_is_said_of_what_has_a_score(scores, size_scores, new, said):
    found = Drift(
        previous_run="a",
        previous_digest="0",
        rows=(0, 1),
        numbers=(0, 1),
        next_number=2,
        gone=(),
        movements=np.array([0.1, np.nan if new else 0.1]),
        noise=np.ones(2),
        scores=np.array(scores),
        sizes=np.ones((2, 2)),
        size_stddevs=(1.0, 1.0),
        size_scores=np.array(size_scores),
    )
    assert [f"{each.level}: {each.text}" for each in drift_plots._calm(found)] == said
