"""One row more, less or another moves what selections add up by its own integers, within bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.records import ModelShape
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl import exact_layer
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bound_features
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import model_of
from dapple_dp.transforms.numerics.clustered_fl.exact_layer import GAIN_BITS, LARGEST_LOSS, gains_of
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


def test_the_largest_exponential_is_exact():
    assert (exact_layer._powers(np.array([[3.0, 1.0], [-5.0, -5.0]])).max(axis=1) == 2.0**36).all()
