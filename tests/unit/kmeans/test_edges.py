"""Which released centers lie at an end of the bounds of rows, worked out by hand."""

import numpy as np
import pytest

from dapple_dp.transforms.numerics.kmeans.edges import Bounds, at_ends, at_sphere

BOX = Bounds(np.array([0.0, -np.inf]), np.array([100.0, np.inf]))


@pytest.mark.parametrize(
    ("center", "noise", "judged", "lower", "upper"),
    [
        (99.0, 0.0, True, False, True),
        (98.9, 0.0, True, False, False),
        (97.0, 1.0, True, False, True),
        (103.0, 1.0, True, False, True),
        (1.0, 0.0, True, True, False),
        (-50.0, 0.0, True, True, False),
        (50.0, 2.0, True, False, False),
        (100.0, 2.1, False, False, False),
        (100.0, np.nan, False, False, False),
    ],
)
def test_a_center_at_an_end_is_noticed_unless_noise_is_too_large(center, noise, judged, lower, upper):
    found = at_ends(np.array([[center, center]]), BOX, np.array([noise]))
    assert [found.judged[0, 0], found.lower[0, 0], found.upper[0, 0]] == [judged, lower, upper]
    assert not found.judged[0, 1]


def test_noise_makes_a_center_longer_by_what_is_taken_off():
    """Noise .02 in each of 100 coordinates alone has length .2: a center of length 1 is one of .98."""
    offset = np.full((1, 100), 0.1)
    (judged,), (there,) = at_sphere(offset, 1.0, np.array([0.0]))
    assert (judged, there) == (True, True)
    assert at_sphere(offset, 1.0, np.array([0.02]))[1][0]
    assert not at_sphere(0.9 * offset, 1.0, np.array([0.02]))[1][0]
    assert not at_sphere(offset, 1.0, np.array([0.021]))[0][0]
    assert not at_sphere(offset, 1.0, np.array([np.nan]))[0][0]


def test_two_bounds_hold_at_once():
    found = BOX.inside(Bounds(np.array([10.0, -1.0]), np.array([200.0, 1.0])))
    assert found.lower.tolist() == [10.0, -1.0]
    assert found.upper.tolist() == [100.0, 1.0]
