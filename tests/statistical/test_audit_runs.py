"""A whole fit, each round fed by the releases of the last, keeps the epsilon that it prints."""

import dataclasses

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import RoundSpec
from dapple_dp.transforms.core import accounting, loop
from dapple_dp.transforms.core.round import measure
from dapple_dp.transforms.numerics.kmeans import bounds
from tests.scenes import audit
from tests.scenes.canaries import CLIENT_ROWS, FAR, Neighbors
from tests.scenes.lake import MEANS, chain, job, mixture, planned, write_lake, write_server

pytestmark = pytest.mark.slow

N_RUNS = 1500
ROWS = mixture(90)


@pytest.fixture(autouse=True)
def quick_server(monkeypatch):
    """Makes public work short, which costs no privacy: bounds are coarse."""
    monkeypatch.setattr(bounds, "PSEUDO_CLIENTS", 20)


def fit_of(folder, unit, allocation):
    privacy = {"unit": unit, "epsilon": audit.EPSILON, "delta": audit.DELTA, "allocation": allocation}
    clients = np.arange(len(ROWS)) // CLIENT_ROWS
    data = write_lake(folder / "lake", ROWS, clients)
    server = write_server(folder / "server.parquet", mixture(24, seed=99))
    fit = planned(job(data, server, unit, privacy=privacy, lloyd={"steps": 1}))
    # Restarts are post-processing too.
    settings = dataclasses.replace(fit.initial.settings, restarts=1)
    return dataclasses.replace(fit, initial=dataclasses.replace(fit.initial, settings=settings))


def neighbors(unit):
    """One more row, or one more client with rows in every cluster; all of them far outside the clipping ball."""
    far = 100.0 * FAR * (MEANS - MEANS.mean(axis=0))
    extra = far[:1] if unit == "record" else np.repeat(far, CLIENT_ROWS, axis=0)
    points = np.concatenate([ROWS, extra])
    if unit == "record":
        return Neighbors(ClientBlock(ROWS), ClientBlock(points))
    offsets = np.arange(0, len(ROWS) + 1, CLIENT_ROWS)
    return Neighbors(ClientBlock(ROWS, offsets), ClientBlock(points, np.append(offsets, len(points))))


def run(fit, pair, side, key):
    """Runs on one of the neighbors: its releases, and the sums of either of them in the rounds of that run."""
    *before, last = loop.simulate(fit.initial, fit.rounds, [pair[side]], key).states
    rounds = list(zip(fit.rounds, before, strict=True))
    sums = [np.concatenate([measure(each, block, state.broadcast()) for each, state in rounds]) for block in pair]
    return audit.flat(last.releases), *sums


def lower_bounds(fit, pair):
    releases = [release for each in fit.rounds for release in each.plan.releases]
    found = []
    for side in (0, 1):
        runs = [run(fit, pair, side, audit.key_of(1 + side * N_RUNS + index)) for index in range(N_RUNS)]
        found.append(audit.scores(releases, *map(np.stack, zip(*runs, strict=True))))
    return audit.both_bounds(*found)


def test_audited_runs_are_runs(tmp_path):
    fit, pair = fit_of(tmp_path, "record", "tuned"), neighbors("record")
    released, *_ = run(fit, pair, 1, audit.key_of(7))
    np.testing.assert_array_equal(released, audit.flat(chain(fit, pair.with_canary, audit.key_of(7)).releases))


# A bound exceeds the true epsilon for one set of keys in 1,000. Over eleven sets bounds were 0.58 (record) and 0.51
# (client) of the claim, with stddevs of 0.08 and 0.05: below 0.4 of it for one set in 50.
@pytest.mark.parametrize(("unit", "allocation"), [("record", "tuned"), ("client", "paper")])
def test_a_run_keeps_its_claim(tmp_path, unit, allocation):
    fit = fit_of(tmp_path, unit, allocation)
    found = lower_bounds(fit, neighbors(unit))
    assert 0.4 * fit.plan.epsilon <= min(found) <= max(found) <= fit.plan.epsilon


# Over eleven sets of keys the bound was 3.5 with a stddev of 0.22: below the claim for one set in 100,000.
def test_rounds_that_are_not_composed_are_caught(tmp_path):
    fit = fit_of(tmp_path, "record", "tuned")
    alone = []
    for each in fit.rounds:
        spec = RoundSpec(path=each.plan.path, releases=tuple(plan.spec for plan in each.plan.releases))
        plan = accounting.calibrate(fit.plan.unit, (spec,), audit.EPSILON, audit.DELTA, fit.config.privacy.allocation)
        alone.append(each._replace(plan=plan.rounds[0]))
    found = lower_bounds(dataclasses.replace(fit, rounds=tuple(alone)), neighbors("record"))
    assert min(found) > fit.plan.epsilon
