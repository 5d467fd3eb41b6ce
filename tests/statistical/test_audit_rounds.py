"""Every round keeps its claim under the worst canary, and the audit comes close enough to see."""

import pytest

from tests.scenes import canaries

PRIVATE_NORM = {"clipping": {"norm": "private", "client_rows": canaries.CLIENT_ROWS}}
SAMPLED = {"data": {"max_rows_per_client": 1}}
QUALITY = {"quality": {"max_distance": 1.0}}
"""A cap that canaries reach: without one none moves the cost as far as it may go, and a bound is 0.47 of the claim."""
MAIN = {"outer_product": {}, "weights": {}, "centers": {}, "lloyd_00": canaries.EVERY_ROUND, "quality": QUALITY}
TUNED = MAIN | {"diameter": canaries.EVERY_ROUND, "simplify_00": canaries.EVERY_ROUND, "norms": PRIVATE_NORM}
PAPER = MAIN | {"norms": PRIVATE_NORM}
CASES = [
    (unit, allocation, name, sections)
    for unit in ("record", "client")
    for allocation, rounds in (("tuned", TUNED), ("paper", PAPER))
    for name, sections in rounds.items()
]


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
@pytest.mark.parametrize(
    ("unit", "name"),
    [(unit, name) for unit in ("record", "client") for name in ("shape", "leaves")]
    + [("record", "splits_01"), ("client", "splits_00")],
)
def test_a_round_of_the_central_tree_keeps_its_claim(unit, name):
    job = canaries.tree_config(unit)
    target = canaries.audited(job, name)
    found = canaries.lower_bounds(target, canaries.neighbors_of(unit, job, target))
    assert 0.5 * target.claim <= min(found) <= max(found) <= target.claim


@pytest.mark.parametrize("allocation", ["tuned", "paper"])
@pytest.mark.parametrize(
    ("name", "part"), [("outer_product", 0.5), ("weights", 0.5), ("centers", 0.25), ("quality", 0.2)]
)
def test_a_round_of_sampled_rows_keeps_its_claim(allocation, name, part):
    # No pair of rows moves the sums by twice the clipping norm and leaves its cluster too, so centers have slack: over
    # nine sets of keys the bound was 0.37 of the claim with a stddev of 0.03 in the paper's allocation. Nor does any
    # pair move the cost by its bound and leave its cluster too.
    found, claim = bounds_and_claim("sampled", "record", allocation, name, SAMPLED | {"quality": {}})
    assert part * claim <= min(found) <= max(found) <= claim
