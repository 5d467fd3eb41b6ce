"""Stated intervals hold their truths about as often as they say, and intervals by another law do not.

Each bound on a share states its odds of failing where the law holds; keys and rows are fixed, so a run is never red by
chance.
"""

import functools

import numpy as np
import pytest
import scipy.stats

from benchmarks import coverage_clusters, coverage_kinds
from dapple_dp.pipelines.kmeans.report import report_warnings
from dapple_dp.pipelines.page.page import Level
from dapple_dp.schemas.core.block import ClientBlock

RUNS = 40
ODDS = 1e-4
"""Of a share so far off where two stddevs hold 95.4%, if clusters of a run were independent."""
NOMINAL = 0.9545


def tally(kind):
    """Counts intervals of sizes and centers that hold their truths, and all, by all runs."""
    found = {"sizes": [0, 0], "centers": [0, 0]}
    for seed in range(RUNS):
        for claim, (hits, made) in kind(seed).items():
            if claim in found:
                found[claim][0] += hits
                found[claim][1] += made
    return found


def likely(hits, made):
    """Returns whether this many hits of this many are likely by the law."""
    return scipy.stats.binomtest(hits, made, NOMINAL).pvalue > ODDS


KINDS = {
    "record": lambda seed: coverage_kinds.fitted("dp_lloyd", seed),
    "windows": coverage_kinds.of_windows,
}


@pytest.mark.parametrize("name", KINDS)
def test_intervals_hold_what_they_say(name):
    found = tally(KINDS[name])
    assert all(likely(*each) for each in found.values()), found


@pytest.mark.parametrize("stddevs", [1.4, 3.0])
def test_intervals_of_another_noise_are_detected(stddevs):
    """The noise is stated too small, or too large."""
    found = tally(functools.partial(coverage_kinds.of_windows, stddevs=stddevs))
    assert not likely(*found["centers"]), found


def test_rows_without_clusters_are_noticed_and_clusters_are_not_denied():
    told = [coverage_clusters.of_one_cloud(name, seed) for name in ("round", "uniform") for seed in (1, 3, 5)]
    assert sum(hits for each in told for hits, _ in each.values()) == len(told)
    job = coverage_kinds.job_of("dp_lloyd")
    denied = 0
    for seed in range(10):
        _, model = coverage_kinds.of_rows(job, coverage_kinds.mixture(seed), coverage_kinds.key_of("clear", seed))
        denied += bool(coverage_clusters.assumptions.of_clouds(job.view(model)))
    assert denied == 0


def test_a_page_warns_of_a_start_that_failed_and_of_no_other():
    """Fits at small epsilons: where the centers cost half as much again as the best ones, some warning says so."""
    found = [coverage_clusters.of_starts(seed) for seed in range(30)]
    told = [each["failed starts reported"][0] for each in found if "failed starts reported" in each]
    assert sum(told) == len(told) > 10
    denied = [each["clusters denied"][0] for each in found if "clusters denied" in each]
    assert sum(denied) == 0 < len(denied)


@pytest.mark.parametrize("name", ["record", "client", "warm"])
def test_where_no_release_shows_the_spread_the_page_says_so(name):
    more, clients = {}, None
    if name == "client":
        data = {"path": "none", "features": [f"x{each}" for each in range(6)], "client_id": "client"}
        more = {"privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-6}, "data": data}
        more["clipping"], clients = {"client_rows": 10}, np.arange(401) * 10
    config = coverage_kinds.settings("dp_lloyd", **more)
    job = coverage_kinds.Job.of(config, coverage_kinds.MEANS if name == "warm" else None)
    _, model, _ = job.run(ClientBlock(coverage_kinds.mixture(1), clients), coverage_kinds.key_of("spread"))
    view = job.view(model)
    found = report_warnings.warnings(view, report_warnings.run_checks(view))
    said = [each for each in found if "whether the data has clusters" in each.text]
    assert len(said) == (name != "record")
    assert all(each.level is Level.NOTE for each in said)
    assert all("did not release the spread of the rows" in each.text for each in said)


def test_words_on_clusters_are_not_false():
    false = [coverage_kinds.fitted("dp_lloyd", seed)["false features"] for seed in range(10)]
    assert sum(hits for hits, _ in false) == 0 < sum(made for _, made in false)
    names = [coverage_clusters.of_names(seed)["false names"] for seed in range(10)]
    assert sum(hits for hits, _ in names) == 0 < sum(made for _, made in names)


def test_intervals_are_two_stddevs():
    assert abs(scipy.stats.norm.cdf(2.0) - scipy.stats.norm.cdf(-2.0) - NOMINAL) < 1e-4
