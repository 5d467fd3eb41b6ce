"""The law of a report, computed and not sampled, whatever the point."""

import pytest

from tests.scenes.report_laws import HOSTILE, below_exp, law
from tests.scenes.reports import parameters


@pytest.mark.parametrize("radius", [1e-100, 1e100])
def test_every_radius_gives_an_order_of_all_indices(radius):
    public = parameters(privacy__epsilon=1.0, tree__radius=radius)
    for point in HOSTILE:
        assert sum(law(public, point, 5)) == 1


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("variant", ["leaves", "nested", "points"])
def test_every_index_is_at_most_e_epsilon_likelier_for_one_point_than_for_another(epsilon, variant):
    public = parameters(privacy__epsilon=epsilon, reports__variant=variant)
    for nonce in (0, 1, 2**64 - 1, 987654321):
        laws = [law(public, point, nonce) for point in HOSTILE]
        assert all(sum(chances) == 1 for chances in laws)
        ratios = {max(of_index) / min(of_index) for of_index in zip(*laws, strict=True)}
        assert all(below_exp(ratio, epsilon) for ratio in ratios)
    assert laws[1] != laws[2]
