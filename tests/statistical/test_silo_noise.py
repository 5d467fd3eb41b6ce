"""Laws of what clients draw: right ones are accepted, those 10% off rejected. All keys are fixed."""

import math

import numpy as np
import pytest
from scipy import stats

from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.records import ModelShape
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bounded_rows
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import Schedule, Sgd, model_of, train
from dapple_dp.transforms.numerics.clustered_fl.normal import gumbels, normals, sampled_positions, uniforms
from dapple_dp.transforms.numerics.clustered_fl.private_selection import select

ACCEPT = 1e-6
"""A right law is rejected once in 1e6 keys per test."""
REJECT = 1e-9
SHAPE = ModelShape(kind=ModelKind.SOFTMAX, n_features=999, n_classes=10)


def _stream(*label):
    return KeyStream(bytes(range(32)), encode_label(*label))


def _noise(n_steps, multiplier, clipping_norm):
    """Returns what steps without rows do to the model, in units of the summed gradient."""
    sgd = Sgd(
        schedule=Schedule(n_steps, 0.1, 20.0),
        learning_rate=0.5,
        clipping_norm=clipping_norm,
        noise_multiplier=multiplier,
    )
    rows = bounded_rows(np.zeros((0, 999)), np.zeros(0))
    moved = train(model_of(SHAPE), np.zeros(SHAPE.n_parameters), rows, sgd, _stream("train", n_steps, clipping_norm))
    return moved * 20.0 / 0.5


@pytest.mark.parametrize("clipping_norm", [1.0, 0.25])
@pytest.mark.parametrize("n_steps", [1, 40])
def test_noise_of_steps(n_steps, clipping_norm):
    noise = _noise(n_steps, 1.7, clipping_norm) / (1.7 * clipping_norm * math.sqrt(n_steps))
    # 10,000 draws: a variance 21% off is 15 of its stddevs away, power 1 - 1e-15.
    total = float((noise**2).sum())
    assert ACCEPT < stats.chi2.cdf(total, len(noise)) < 1.0 - ACCEPT
    assert stats.kstest(noise, "norm").pvalue > ACCEPT
    assert stats.chi2.cdf(total / 1.1**2, len(noise)) < REJECT
    assert stats.chi2.sf(total * 1.1**2, len(noise)) < REJECT


def test_steps_do_not_share_noise():
    two, one = _noise(2, 1.0, 1.0), _noise(1, 1.0, 1.0)
    assert abs(np.corrcoef(two, one)[0, 1]) < 0.05


def test_normals():
    draws = normals(_stream("normals"), 200_001)
    assert draws.shape == (200_001,)
    assert stats.kstest(draws, "norm").pvalue > ACCEPT
    assert stats.kstest(draws * 1.1, "norm").pvalue < REJECT
    # The two halves come from the same uniforms.
    assert abs(np.corrcoef(draws[:100_000], draws[100_001:])[0, 1]) < 0.016
    assert abs(np.corrcoef(draws[:100_000] ** 2, draws[100_001:] ** 2)[0, 1]) < 0.016


def test_gumbels():
    draws = gumbels(_stream("gumbels"), 100_000)
    assert stats.kstest(draws, "gumbel_r").pvalue > ACCEPT
    assert stats.kstest(1.1 * draws, "gumbel_r").pvalue < REJECT


def test_uniforms_never_vanish():
    draws = uniforms(_stream("uniforms"), 100_000)
    assert draws.min() > 0.0
    assert draws.max() <= 1.0
    assert stats.kstest(draws, "uniform").pvalue > ACCEPT


@pytest.mark.parametrize("rate", [0.003, 0.05, 0.7])
def test_sampling_rate(rate):
    n = 3_000_000
    positions = sampled_positions(_stream("rate", rate), rate, n)
    assert (np.diff(positions) > 0).all()
    assert 0 <= positions[0] <= positions[-1] < n
    assert stats.binomtest(len(positions), n, rate).pvalue > ACCEPT
    assert stats.binomtest(len(positions), n, 1.1 * rate).pvalue < REJECT
    assert stats.binomtest(len(positions), n, rate / 1.1).pvalue < REJECT
    # Equal parts hold numbers of the binomial law, so positions are independent, not spread evenly.
    counts = np.bincount(positions // 1000, minlength=3000)
    spread = float(((counts - 1000 * rate) ** 2).sum() / (1000 * rate * (1 - rate)))
    assert ACCEPT < stats.chi2.cdf(spread, 3000) < 1.0 - ACCEPT


def test_every_position_is_as_likely():
    taken = np.zeros(50)
    for trial in range(4000):
        taken[sampled_positions(_stream("places", trial), 0.2, 50)] += 1
    assert stats.chisquare(taken).pvalue > ACCEPT


def test_sampling_edges():
    assert sampled_positions(_stream(), 1.0, 5).tolist() == [0, 1, 2, 3, 4]
    assert sampled_positions(_stream(), 0.5, 0).size == 0
    assert sampled_positions(_stream(), 1e-12, 1000).size == 0


def test_law_of_selections():
    counts, epsilon = np.array([40, 43, 30, 43]), 0.4
    drawn = np.bincount([select(counts, epsilon, _stream("select", trial)) for trial in range(20_000)], minlength=4)

    def expected(at_epsilon):
        weights = np.exp(at_epsilon * counts / 2.0)
        return 20_000 * weights / weights.sum()

    assert stats.chisquare(drawn, expected(epsilon)).pvalue > ACCEPT
    # Half or double the epsilon moves the rarest cell by far more than ten of its stddevs.
    assert stats.chisquare(drawn, expected(0.5 * epsilon)).pvalue < REJECT
    assert stats.chisquare(drawn, expected(2.0 * epsilon)).pvalue < REJECT


def test_selection_without_privacy_is_the_maximum():
    assert select(np.array([3, 7, 7]), math.inf, _stream()) == 1
