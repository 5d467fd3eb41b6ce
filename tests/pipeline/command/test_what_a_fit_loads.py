"""A plain `dapple fit` loads no optional feature that its job does not have, and nothing grows unseen."""

import json
import pathlib

import pytest

from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.kmeans.fit_config import FITS
from tests import ratchet

OF_A_PLAIN_FIT = {"schemas.kmeans.fit_config", "schemas.kmeans.lloyd_config"}
OPTIONAL = (
    *("transforms.masked", "transforms.numerics.masked", "pipelines.masked", "schemas.masked.coalitions"),
    *("pipelines.ledger.store", "pipelines.ledger.command_line", "transforms.privacy.ledger_filter"),
    *("pipelines.kmeans.account", "pipelines.kmeans.plan.previous_run", "pipelines.kmeans.plan.recurrence"),
    *(
        "pipelines.kmeans.plan.simulated_shares",
        "transforms.kmeans.simulated_fit",
        "transforms.numerics.kmeans.recurring",
    ),
    *("pipelines.tables.prepare", "pipelines.tables.epoch_clients", "transforms.tables.snapshots"),
    *("transforms.tables.counted_clients", "pipelines.jobs.lineage", "pipelines.run.on_flink", "pipelines.plan"),
    *("pipelines.profile", "schemas.profile", "schemas.reports", "schemas.clustered_fl", "schemas.trusted_zone"),
    *(f"transforms.kmeans.{name}" for name in (*Algorithm, "windows") if name is not Algorithm.DP_LLOYD),
    *({each.__module__.removeprefix("dapple_dp.") for each in FITS.values()} - OF_A_PLAIN_FIT),
    *("schemas.kmeans.jobs", "schemas.kmeans.windows_config"),
)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    return ratchet.traced_fit(tmp_path_factory.mktemp("fit"))


def test_a_plain_fit_loads_no_optional_feature(traced):
    loaded = [name.removeprefix("dapple_dp.") for name in traced["modules"]]
    optional = tuple(f"{name}." for name in OPTIONAL)
    assert [name for name in loaded if f"{name}.".startswith(optional)] == []
    assert len(loaded) > 100


def test_nothing_is_larger_than_its_limit(traced):
    assert ratchet.broken(ratchet.counts(traced), json.loads(ratchet.LIMITS.read_text())) == []


def test_a_limit_follows_its_count_down_and_never_up():
    limits = {"files": {"most": 100}}
    assert ratchet.broken({"files": 100}, limits) == ratchet.broken({"files": 98}, limits) == []
    assert ratchet.broken({"files": 101}, limits) == ["files: 101, at most 100"]
    assert "far below" in ratchet.broken({"files": 97}, limits)[0]
    assert ratchet.broken({"files": 1, "words": 1}, {"files": {"most": 1}}) == ["words has no limit"]


def test_a_limit_was_raised_for_a_user():
    limits = json.loads(ratchet.LIMITS.read_text())
    assert {name: set(limit) - {"most", "because"} for name, limit in limits.items()} == {
        name: set() for name in limits
    }
    assert all(len(limit.get("because", "a user needs it")) > 10 for limit in limits.values())


def test_links_to_packages_are_not_counted_twice():
    assert (ratchet.ROOT / "dapple_dp" / "schemas").is_symlink()
    files = [path for path in (pathlib.Path(ratchet.ROOT) / "dapple_dp").rglob("*.py") if not ratchet._is_link(path)]
    assert 10 < len(files) < 60
