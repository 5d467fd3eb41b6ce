import numpy as np
import pytest

from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.lattice import Lattice


def unit_ball(n_features: int) -> Lattice:
    return Lattice(np.zeros(n_features), 1.0)


def test_rows_inside_are_centered_scaled_and_truncated_toward_zero():
    frame = Lattice(np.array([1.0, -1.0]), 2.0)
    points = np.array([[1.0, -1.0], [2.0, -1.7], [0.3, -0.01]])
    # (0, 0), (1.0, -0.7) and (-0.7, 0.99) times 16 / 2, truncated
    np.testing.assert_array_equal(lattice.quantize(points, frame, 4), [[0, 0], [8, -5], [-5, 7]])


def test_rows_outside_land_on_the_sphere_in_their_direction():
    rows = lattice.quantize(np.array([[30.0, 40.0], [-3e200, 4e200]]), unit_ball(2), 20)
    np.testing.assert_allclose(rows / 2**20, [[0.6, 0.8], [-0.6, 0.8]], atol=1e-5)
    assert (lattice.squared_norms(rows) <= 4.0**20).all()


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-200, 1.0, 1e15, 1e308, -1.7976931348623157e308])
def test_any_finite_magnitude_keeps_the_bound(value):
    frame = Lattice(np.array([1e3, -1e308, 0.0]), 0.1)
    rows = lattice.quantize(np.full((1, 3), value), frame, 20)
    assert np.isfinite(rows).all()
    assert lattice.squared_norms(rows)[0] <= 4.0**20


def test_a_row_does_not_depend_on_its_block_or_memory_layout():
    points = np.random.default_rng(0).normal(size=(300, 7)) * 3.0
    whole = lattice.quantize(points, unit_ball(7), 20)
    strided = np.asfortranarray(np.concatenate([points, points], axis=1))[:, :7]
    np.testing.assert_array_equal(whole, lattice.quantize(strided, unit_ball(7), 20))
    np.testing.assert_array_equal(whole, np.concatenate([lattice.quantize(p[None], unit_ball(7), 20) for p in points]))


def test_float32_rows_are_cast_before_anything_else():
    points = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        lattice.quantize(points, unit_ball(3), 20), lattice.quantize(points.astype(np.float64), unit_ball(3), 20)
    )


def test_limits_are_named():
    with pytest.raises(LatticeOverflowError, match=r"n_features must be at most 8192 .*got 8193; project"):
        lattice.check_features(8193, 20)
    lattice.check_features(8192, 20)
    with pytest.raises(LatticeOverflowError, match="there are more than 2147483647"):
        lattice.check_rows(2**31)
    lattice.check_rows(2**31 - 1)
    with pytest.raises(LatticeOverflowError, match=r"below 2\*\*53"):
        lattice.check_product(2.0**27, 2.0**26)
    lattice.check_product(2.0**26, 2.0**26)


def test_no_row_limit_lets_a_sum_of_outer_products_reach_the_end_of_int64():
    assert lattice.MAX_ROWS * lattice.OUTER_UNITS**2 < 2**63
    assert lattice.MAX_ROWS * lattice.SUM_UNITS < 2**63
    assert lattice.BLOCK_ROWS * lattice.OUTER_UNITS**2 < 2**53


def test_clip_l2_and_l1_stretch_to_the_limit_and_hold_it():
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [300.0, 400.0]])
    np.testing.assert_array_equal(lattice.clip_l2(vectors, 10.0), [[3, 4], [0, 0], [6, 8]])
    np.testing.assert_array_equal(lattice.clip_l2(vectors, 10.0, rescale=np.inf), [[6, 8], [0, 0], [6, 8]])
    np.testing.assert_array_equal(lattice.clip_l1(vectors, 7.0), [[3, 4], [0, 0], [3, 4]])


def test_scale_until_shrinks_even_to_zero():
    scaled = lattice.scale_until(np.array([[8.0]]), np.array([1.0]), lambda some: (some == 0).all(axis=1))
    np.testing.assert_array_equal(scaled, [[0.0]])


def test_a_search_for_a_factor_ends_where_no_factor_is_small_enough():
    vectors = np.ones((2, 3))
    with pytest.raises(LatticeOverflowError, match="clipping bounds must be finite numbers above 0"):
        lattice.clip_l2(vectors, 4.0, rescale=np.array([1.0, np.nan]))
    with pytest.raises(LatticeOverflowError, match="clipping bounds must be finite numbers above 0"):
        lattice.scale_until(vectors, np.ones(2), lambda some: np.zeros(len(some), dtype=np.bool_))


@pytest.mark.parametrize("last", [1, 2, 1000, 1024, 1448])
def test_a_row_a_hair_outside_of_the_ball_is_brought_inside(last):
    """Its norm passes the bound by less than one unit."""
    found = lattice.quantize(np.array([[1.0, last * 2.0**-20]]), Lattice(np.zeros(2), 1.0), 20)
    assert lattice.squared_norms(found)[0] <= 4.0**20


@pytest.mark.parametrize(("clip", "over"), [(lattice.clip_l1, [3.0, -3.0]), (lattice.clip_l2, [4.0, -4.0])])
def test_the_last_check_of_clipping_is_the_limit_itself(monkeypatch, clip, over):
    """Factors before it keep the limit up to rounding; whatever they are, the integers must."""
    checks = []
    monkeypatch.setattr(lattice, "scale_until", lambda vectors, factors, holds: checks.append(holds))
    clip(np.ones((1, 2)), 5.0)
    assert checks[0](np.array([[5.0, 0.0], [-5.0, 0.0], over, [6.0, 0.0]])).tolist() == [True, True, False, False]


def test_a_row_past_half_of_the_exact_range_is_scaled_by_a_power_of_two_first():
    """Its squared norm may have been rounded; the second coordinate is below one unit of the coarser lattice."""
    frame, last = Lattice(np.zeros(2), 1.0), 100.0
    below, beyond = 2.0**26 - 1.0, 2.0**26 + 1.0
    assert below**2 + last**2 < lattice.EXACT_LIMIT / 2.0 < beyond**2 + last**2 < lattice.EXACT_LIMIT
    found = lattice.quantize(np.array([[below, last], [beyond, last]]) * 2.0**-20, frame, 20)
    assert found[:, 1].tolist() == [1.0, 0.0]
    assert (lattice.squared_norms(found) <= 4.0**20).all()


def test_a_search_ends_only_where_a_factor_of_zero_was_too_large():
    lattice.check_shrinking(0.0, pending=False)
    lattice.check_shrinking(5e-324, pending=True)
    with pytest.raises(LatticeOverflowError, match="that no vector meets"):
        lattice.check_shrinking(0.0, pending=True)


def test_each_pass_of_a_search_takes_the_rows_that_are_left_with_smaller_factors():
    seen = []

    def holds(some):
        seen.append(some[:, 0].tolist())
        return some[:, 0] < 2.0**20 - 5.0 if len(seen) > 1 else np.array([True, False])

    found = lattice.scale_until(np.full((2, 1), 2.0**20), np.ones(2), holds)
    assert seen == [[2.0**20, 2.0**20], [2.0**20 - 1.0], [2.0**20 - 3.0], [2.0**20 - 7.0]]
    assert found[:, 0].tolist() == [2.0**20, 2.0**20 - 7.0]
