"""One row more, less or another moves what selections and copied images add up by its own integers, within bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.records import ModelShape
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl import exact_layer
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bound_features, bounded_rows
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import Schedule, Sgd, _gradient_sum, _stddev, model_of, train
from dapple_dp.transforms.numerics.clustered_fl.exact_layer import GAIN_BITS, LARGEST_LOSS, gains_of
from dapple_dp.transforms.numerics.clustered_fl.moved_images import MOVES, check_images, moved_images
from dapple_dp.transforms.numerics.clustered_fl.private_selection import select

MOST = 1 << GAIN_BITS
SHAPE = ModelShape(kind=ModelKind.SOFTMAX, n_features=9, n_classes=3)
MODEL = model_of(SHAPE)


def _case(seed, n_rows, row_scale, weight_scale):
    random = np.random.default_rng(seed)
    rows = bound_features(random.normal(size=(n_rows, 9)) * row_scale)
    return random.normal(size=SHAPE.n_parameters) * weight_scale, rows, random.integers(3, size=n_rows)


@given(
    seed=st.integers(0, 2**32),
    n_rows=st.integers(1, 1500),
    row_scale=st.sampled_from([1e-6, 1.0, 1e4, 1e307]),
    weight_scale=st.sampled_from([0.0, 0.1, 1.0, 10.0, 2.0**20, 2.0**55]),
)
@settings(max_examples=60, deadline=None)
def test_a_row_moves_what_losses_leave_by_its_own_bounded_integer(seed, n_rows, row_scale, weight_scale):
    parameters, rows, labels = _case(seed, n_rows, row_scale, weight_scale)
    place = seed % n_rows
    whole = MODEL.gains(parameters, rows, labels)
    fewer = MODEL.gains(parameters, np.delete(rows, place, axis=0), np.delete(labels, place))
    own = MODEL.gains(parameters, rows[[place]], labels[[place]])
    np.testing.assert_array_equal(np.delete(whole, place), fewer)
    np.testing.assert_array_equal(whole[[place]], own)
    assert 0 <= whole.min() <= whole.max() <= MOST


@pytest.mark.parametrize(
    "logits",
    [
        [0.0, 0.0, 0.0],
        [1e300, -1e300, 0.0],
        [np.inf, 0.0, 0.0],
        [np.nan, 0.0, 0.0],
        [-np.inf, -np.inf, -np.inf],
        [-1e308, 1e308, 1e308],
    ],
)
def test_no_row_leaves_more_than_its_bound(logits):
    with np.errstate(all="ignore"):
        found = gains_of(np.array([logits] * 3), np.arange(3))
    assert ((found >= 0) & (found <= MOST)).all()


def test_the_rest_is_that_of_the_cross_entropy():
    logits = np.random.default_rng(0).normal(size=(200, 5)) * 3.0
    labels = np.random.default_rng(1).integers(5, size=200)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(200), labels]
    expected = np.maximum(MOST * (1.0 - losses / LARGEST_LOSS), 0.0)
    assert (np.abs(gains_of(logits, labels) - expected) <= 1.0).all()
    assert gains_of(np.array([[50.0, 0.0]]), np.array([0])) == MOST
    assert gains_of(np.array([[50.0, 0.0]]), np.array([1])) == 0


def test_law_of_selections_by_loss():
    scores, epsilon = MOST * np.array([40, 43, 30, 43]), 0.4
    stream = KeyStream(bytes(32), b"select")
    each = (select(scores, epsilon, stream.substream(encode_label("trial", n)), MOST) for n in range(20_000))
    drawn = np.bincount(list(each), minlength=4)

    def expected(factor):
        weights = np.exp(factor * epsilon * (scores / MOST - 43) / 2.0)
        return 20_000 * weights / weights.sum()

    assert stats.chisquare(drawn, expected(1.0)).pvalue > 1e-4
    # As if a row counted for one unit, or for twice as many as it may.
    assert stats.chisquare(drawn, expected(2.0)).pvalue < 1e-9
    assert stats.chisquare(drawn, expected(0.5)).pvalue < 1e-9


@given(seed=st.integers(0, 2**32), n_rows=st.integers(1, 300), copies=st.integers(1, len(MOVES)))
@settings(max_examples=40, deadline=None)
def test_a_row_moves_sums_of_copies_by_at_most_their_number(seed, n_rows, copies):
    parameters, rows, labels = _case(seed, n_rows, 1e4, 1.0)
    sgd = Sgd(Schedule(1, 1.0, float(n_rows)), 0.1, 0.5, 1.0, copies=copies)
    place = seed % n_rows
    whole = _gradient_sum(MODEL, parameters, rows, labels, sgd)
    own = _gradient_sum(MODEL, parameters, rows[[place]], labels[[place]], sgd)
    fewer = _gradient_sum(MODEL, parameters, np.delete(rows, place, axis=0), np.delete(labels, place), sgd)
    np.testing.assert_array_equal(whole.values - fewer.values, own.values)
    assert np.linalg.norm(own.values * own.units) <= copies * 0.5
    assert _stddev(MODEL, sgd) == copies * 0.5


def test_copies_of_one_dark_image_use_the_bound():
    # Zeros stay zeros wherever they move, so all copies have the same gradient: that of the intercepts.
    sgd = Sgd(Schedule(1, 1.0, 1.0), 0.1, 0.5, 1.0, copies=9)
    own = _gradient_sum(MODEL, np.zeros(SHAPE.n_parameters), bound_features(np.zeros((1, 9))), np.array([0]), sgd)
    assert np.linalg.norm(own.values * own.units) == pytest.approx(9 * 0.5, rel=1e-6)


@pytest.mark.parametrize("copy", range(len(MOVES)))
def test_images_move_by_a_pixel_and_grow_no_longer(copy):
    rows = bound_features(np.arange(1.0, 19.0).reshape(2, 9))
    moved = moved_images(rows, copy)
    assert moved.dtype == rows.dtype
    assert ((moved.astype(np.float64) ** 2).sum(axis=1) <= (rows.astype(np.float64) ** 2).sum(axis=1)).all()
    down, right = MOVES[copy]
    np.testing.assert_array_equal(
        np.pad(rows[0].reshape(3, 3), 1)[1 - down : 4 - down, 1 - right : 4 - right].ravel(), moved[0]
    )


def test_rows_that_are_no_images_have_no_copies():
    check_images(196)
    with pytest.raises(ConfigError, match=r"the number of features must be a square for training\.first_copies, got 6"):
        check_images(6)


def test_noise_grows_with_the_copies():
    rows = bounded_rows(np.zeros((0, 9)), np.zeros(0))
    stream = KeyStream(bytes(32), b"noise")
    start = MODEL.start(None)
    one, nine = (
        train(MODEL, start, rows, Sgd(Schedule(4, 1.0, 10.0), 0.1, 1.0, 2.0, copies=n), stream) for n in (1, 9)
    )
    # Nine times the noise over nine times the batch: the same law for an empty client, up to the units of the sum.
    np.testing.assert_allclose(nine, one, atol=1e-6)
    with pytest.raises(ValueError, match="noise_multiplier must be at most 8192, got 9000"):
        train(MODEL, start, rows, Sgd(Schedule(1, 1.0, 10.0), 0.1, 1.0, 1000.0, copies=9), stream)


def test_the_largest_exponential_is_exact():
    assert (exact_layer._powers(np.array([[3.0, 1.0], [-5.0, -5.0]])).max(axis=1) == 2.0**36).all()
