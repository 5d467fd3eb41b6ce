"""Every round keeps its claim under the worst canary, and both auditors come close enough to see."""

import dataclasses
import functools

import numpy as np
import pytest

from dapple_dp.transforms.core.known_objects import name_of
from dapple_dp.transforms.core.stated_sensitivity import STATED
from tests.scenes import canaries

PRIVATE_NORM = {"clipping": {"norm": "private", "client_rows": canaries.CLIENT_ROWS}}
SAMPLED = {"data": {"max_rows_per_client": 1}}
QUALITY = {"quality": {"max_distance": 1.0}}
"""A cap that canaries reach: without one none moves the cost as far as it may go, and a bound is 0.47 of the claim."""
MAIN = {"outer_product": {}, "weights": {}, "centers": {}, "lloyd_00": canaries.EVERY_ROUND, "quality": QUALITY}
ROUNDS = MAIN | {"norms": PRIVATE_NORM}
ALLOCATIONS = ("tuned", "paper")


def tier(allocation, number):
    """Of the allocation of the paper, which is no supported one, every other case runs at night only."""
    return pytest.mark.nightly if allocation == "paper" and number % 2 else pytest.mark.slow


def tiers(cases, again):
    """Cases that run on every submission, and others of the same statistics that run at night."""
    marked = ((pytest.mark.slow, cases), (pytest.mark.nightly, again))
    return [pytest.param(*each, marks=mark) for mark, group in marked for each in group]


CASES = [
    pytest.param(unit, allocation, name, sections, marks=tier(allocation, row + number))
    for row, unit in enumerate(("record", "client"))
    for allocation in ALLOCATIONS
    for number, (name, sections) in enumerate(ROUNDS.items())
    if (allocation, name) != ("tuned", "lloyd_00")
]
FULL = {"feddp_kmeans": {"space": "full"}}
AGAIN = [("weights", FULL), ("centers", FULL), ("lloyd_00", canaries.EVERY_ROUND)]
CASES += tiers([], [(unit, "tuned", *each) for unit in ("record", "client") for each in AGAIN])


def bounds_and_claim(kind, unit, allocation, name, sections):
    job = canaries.config(unit, allocation, **sections)
    target = canaries.audited(job, name)
    found = canaries.lower_bounds(target, canaries.neighbors_of(kind, job, target))
    return found, target.claim


# A bound exceeds the true epsilon for one set of keys in 1,000 per case. Over nine sets bounds were 0.68 of the claim
# on average, with stddevs of about 0.05: below half of it for one set in 500, in the case of least power (client level,
# paper, centers: 0.57 with 0.03) for one in 50. Keys are fixed, so such a set is not met by chance.
@pytest.mark.parametrize(("unit", "allocation", "name", "sections"), CASES)
def test_a_round_keeps_its_claim(unit, allocation, name, sections):
    found, claim = bounds_and_claim(unit, unit, allocation, name, sections)
    assert 0.5 * claim <= min(found) <= max(found) <= claim


# So few clients open no node for a second round of splits; its statistic is that of the first.
TREE = [(unit, name) for unit in ("record", "client") for name in ("shape", "leaves")]
TREE += [("record", "splits_01"), ("client", "splits_00")]


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "name"), TREE)
def test_a_round_of_the_central_tree_keeps_its_claim(unit, name):
    target = canaries.audited(canaries.tree_config(unit), name)
    found = canaries.lower_bounds(target, canaries.neighbors_of(unit, canaries.tree_config(unit), target))
    assert 0.5 * target.claim <= min(found) <= max(found) <= target.claim


LLOYD = [
    (unit, name, part, options)
    for unit in ("record", "client")
    for name, part, options in (
        ("mean", 0.5, {}),
        ("scatter", 0.5, {}),
        ("grid", 0.5, {"public_rows": 90}),
        ("lloyd_00", 0.5, {"init": "candidates"}),
        ("directions", 0.5, {"init": "candidates"}),
        ("candidates_02", 0.5, {"init": "candidates"}),
        ("fine_00", 0.5, {"init": "candidates", "steps": 2}),
        ("median_00", 0.5, {"algorithm": "dp_medians", "init": "best"}),
    )
]
LLOYD += [("record", "spread", 0.2, {"init": "candidates", "steps": 2})]
LLOYD += [("record", "rows", 0.5, {})]
LLOYD_AGAIN = [
    (unit, name, 0.5, options)
    for unit in ("record", "client")
    for name, options in (
        ("lloyd_00", {}),
        ("lloyd_00", {"init": "sphere_packing"}),
        ("median_00", {"algorithm": "dp_medians", "init": "sphere_packing"}),
    )
]
LLOYD_AGAIN += [("record", "candidates_00", 0.5, {"init": "candidates", "served": True})]


@pytest.mark.parametrize(("unit", "name", "part", "options"), tiers(LLOYD, LLOYD_AGAIN))
def test_a_round_of_dp_lloyd_keeps_its_claim(unit, name, part, options):
    job = canaries.lloyd_config(unit, **options)
    target = canaries.audited(job, name)
    found = canaries.lower_bounds(target, canaries.neighbors_of(unit, job, target))
    assert part * target.claim <= min(found) <= max(found) <= target.claim


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_comparison_with_server_rows_keeps_its_claim(unit):
    job = canaries.lloyd_config(unit, init="candidates", served=True)
    target = canaries.audited(job, "server")
    (state,) = target.states
    found, _ = np.split(state.alternatives, 2)
    # Where both sides are in the same places, no row distinguishes them.
    target = target._replace(states=(dataclasses.replace(state, alternatives=np.concatenate([found, -found])),))
    bounds = canaries.lower_bounds(target, canaries.neighbors_of(unit, job, target))
    assert 0.5 * target.claim <= min(bounds) <= max(bounds) <= target.claim


OF_FIXED_SHARES = (
    *((canaries.sphere_config, name) for name in ("sums_00", "names")),
    (canaries.prototypes_config, "step_00"),
)
FIXED_AGAIN = (
    (canaries.sphere_config, "sums_01"),
    *((canaries.prototypes_config, name) for name in ("first", "fine_00")),
)


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize(("config", "name"), tiers(OF_FIXED_SHARES, FIXED_AGAIN))
def test_a_round_on_the_sphere_and_of_prototypes_keeps_its_claim(unit, config, name):
    job = config(unit)
    target = canaries.audited(job, name)
    found = canaries.lower_bounds(target, canaries.neighbors_of(unit, job, target))
    assert 0.5 * target.claim <= min(found) <= max(found) <= target.claim


@pytest.mark.slow
def test_cells_that_pay_for_one_column_of_codes_are_caught():
    """A row is in a cell of each of two columns: noise for less than the root of 2 of one is too little."""
    job = canaries.prototypes_config()
    target = canaries.audited(job, "step_00")
    pair = canaries.neighbors_of("record", job, target)
    assert max(canaries.lower_bounds(canaries.with_sensitivity(target, 0.5), pair)) > target.claim


@pytest.mark.parametrize(
    ("allocation", "name", "part"),
    [
        pytest.param(allocation, name, part, marks=tier(allocation, number))
        for allocation in ALLOCATIONS
        for number, (name, part) in enumerate(
            (("outer_product", 0.5), ("weights", 0.5), ("centers", 0.25), ("quality", 0.2))
        )
    ],
)
def test_a_round_of_sampled_rows_keeps_its_claim(allocation, name, part):
    # No pair of rows moves the sums by twice the clipping norm and leaves its cluster too, so centers have slack: over
    # nine sets of keys the bound was 0.37 of the claim with a stddev of 0.03 in the paper's allocation. Nor does any
    # pair move the cost by its bound and leave its cluster too.
    found, claim = bounds_and_claim("sampled", "record", allocation, name, SAMPLED | {"quality": {}})
    assert part * claim <= min(found) <= max(found) <= claim


@pytest.mark.slow
def test_an_epoch_keeps_its_claim():
    """A row of one window takes part in three releases, which are scored together."""
    target, job = canaries.epoch_audited(), canaries.lloyd_config()
    found = canaries.lower_bounds(target, canaries.neighbors_of("record", job, target))
    assert 0.5 * target.claim <= min(found) <= max(found) <= target.claim


@pytest.mark.slow
def test_an_epoch_that_pays_for_one_window_is_caught():
    """Weights 16, 6 and 3, and noise for half of their norm."""
    target, job = canaries.epoch_audited(), canaries.lloyd_config()
    pair = canaries.neighbors_of("record", job, target)
    assert max(canaries.lower_bounds(canaries.with_sensitivity(target, 0.5), pair)) > target.claim


@pytest.mark.slow
def test_an_epoch_of_clients_keeps_its_claim():
    """A client that counts in two windows in a row takes part in four releases, in two of them by both windows."""
    target, job = canaries.epoch_audited("client"), canaries.lloyd_config("client")
    assert [each.statistic.keywords["weights"] for each in target.rounds] == [(16, 22, 9, 3)] * 4
    found = canaries.lower_bounds(target, canaries.neighbors_of("client", job, target))
    assert 0.5 * target.claim <= min(found) <= max(found) <= target.claim


@pytest.mark.slow
def test_an_epoch_that_pays_for_fewer_windows_than_a_client_has_is_caught():
    """Noise for half of what two windows move: planned for one window, or with a client list that nobody asks."""
    target, job = canaries.epoch_audited("client"), canaries.lloyd_config("client")
    pair = canaries.neighbors_of("client", job, target)
    assert max(canaries.lower_bounds(canaries.with_sensitivity(target, 0.5), pair)) > target.claim


def audited(mark, lloyd, fixed):
    """The statistic, unit and laws of noise of each round of some of the lists above."""
    marked = [each.values for each in CASES if mark in each.marks]
    marked = [each for each in marked if mark == pytest.mark.slow or each[1] == "tuned"]
    jobs = [(canaries.config(unit, allocation, **sections), name) for unit, allocation, name, sections in marked]
    jobs += [(canaries.lloyd_config(unit, **options), name) for unit, name, _, options in lloyd]
    jobs += [(config(unit), name) for config, name in fixed for unit in ("record", "client")]
    if mark == pytest.mark.slow:
        jobs += [(canaries.tree_config(unit), name) for unit, name in TREE]
        jobs += [(canaries.lloyd_config("record", init="candidates", served=True), "server")]
    for job, name in jobs:
        (found,) = (each for path, each in canaries.bound(job).items() if path.endswith("/" + name))
        partial = isinstance(found.statistic, functools.partial)
        laws = tuple((each.spec.mechanism, each.spec.geometry) for each in found.plan.releases)
        yield name_of(found.statistic.func if partial else found.statistic), job.privacy.unit, laws


@pytest.mark.slow
def test_no_statistic_of_a_round_goes_without_an_audit():
    found = {statistic for statistic, *_ in audited(pytest.mark.slow, LLOYD, OF_FIXED_SHARES)}
    assert found | {name_of(canaries.epoch_audited().rounds[0].statistic.func)} == set(STATED)


@pytest.mark.slow
def test_what_is_audited_again_at_night_is_audited_on_every_submission():
    """A round of the same statistic, unit and noise; the allocation of the paper is no supported one."""
    again = {*audited(pytest.mark.nightly, LLOYD_AGAIN, FIXED_AGAIN)}
    assert len(again) >= 10
    assert again <= {*audited(pytest.mark.slow, LLOYD, OF_FIXED_SHARES)}
