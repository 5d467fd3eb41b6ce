"""Our noise has the law of another library's: OpenDP's exact probabilities, and what its own samplers draw.

OpenDP says by which integer a draw is exceeded with a given probability at most. Bisection turns that into the exact
probability of every integer, with no formula of ours. OpenDP's draws come from the system's entropy, so that no key
fixes them; a right law is rejected once in 1e10 runs.
"""

import functools

import numpy as np
import opendp.prelude as opendp
import pytest
from opendp.accuracy import discrete_gaussian_scale_to_accuracy, discrete_laplacian_scale_to_accuracy
from scipy import stats

from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.core.noise import discrete_gaussian, discrete_laplace

KEY = bytes(range(32))
ACCEPT = 1e-6
"""A right law is rejected once in 1e6 keys per test; our keys are fixed."""
FRESH = 1e-10
"""The same where the other library draws, again in every run."""
REJECT = 1e-9
"""A law 10% off must have a smaller p-value."""
LAWS = {
    "gaussian": (discrete_gaussian, discrete_gaussian_scale_to_accuracy, opendp.m.make_gaussian, opendp.l2_distance),
    "laplace": (discrete_laplace, discrete_laplacian_scale_to_accuracy, opendp.m.make_laplace, opendp.l1_distance),
}


def ours(law, scale, n_draws):
    label = encode_label("others", law, scale)
    return LAWS[law][0](KeyStream(KEY, label), scale, n_draws)


@functools.cache
def reached(law, scale, least):
    """OpenDP's probability that the magnitude of a draw is `least` or more."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        enough = middle > 0.0 and LAWS[law][1](float(scale), middle) <= least
        low, high = (low, middle) if enough else (middle, high)
    return high


def p_value(draws, law, scale, edges):
    """Chi-square of the signed draws, in cells that end at the edges, against OpenDP's probabilities."""
    tails = np.array([1.0, *(reached(law, scale, int(edge)) for edge in edges)])
    cells = tails - np.append(tails[1:], 0.0)
    expected = len(draws) * np.concatenate([cells[:0:-1] / 2.0, cells[:1], cells[1:] / 2.0])
    places = np.sign(draws) * np.searchsorted(edges, np.abs(draws), side="right")
    observed = np.bincount(places + len(edges), minlength=len(expected))
    return stats.chisquare(observed, expected).pvalue


def narrow_edges(scale):
    """Every integer of three scales; 200,000 draws reach what lies beyond 10 times or more on either side."""
    return np.arange(1, 2 + int(3.0 * scale))


@pytest.mark.parametrize(("law", "scale"), [("gaussian", 0.7), ("gaussian", 1.3), ("gaussian", 4.7), ("laplace", 3)])
def test_probabilities_of_integers(law, scale):
    draws = ours(law, scale, 200_000)
    assert p_value(draws, law, scale, narrow_edges(scale)) > ACCEPT
    assert p_value(draws, law, 1.1 * scale, narrow_edges(scale)) < REJECT
    assert p_value(draws, law, scale / 1.1, narrow_edges(scale)) < REJECT


@pytest.mark.parametrize(("law", "scale"), [("gaussian", 2.0**10), ("gaussian", 1234.5), ("laplace", 1 << 10)])
def test_probabilities_at_the_smallest_scale_of_a_release(law, scale):
    edges = (scale * np.array([0.01, 0.1, 0.3, 0.5, 0.8, 1.0, 1.3, 1.6, 2.0, 2.5, 3.0])).astype(np.int64)
    draws = ours(law, scale, 200_000)
    assert p_value(draws, law, scale, edges) > ACCEPT
    assert p_value(draws, law, 1.1 * scale, edges) < REJECT


def theirs(law, scale, n_draws):
    _, _, measurement, distance = LAWS[law]
    opendp.enable_features("contrib")
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"), size=n_draws)
    metric = distance(T="f64" if law == "gaussian" else "i64")
    return np.array(measurement(domain, metric, scale=float(scale))([0] * n_draws))


def difference(draws, others, scale):
    """Chi-square of two samples in cells a quarter of the scale wide, but of one integer at least."""
    edges = np.unique(np.ceil(scale * np.arange(-2.5, 2.75, 0.25)))
    counts = [np.bincount(np.digitize(each, edges), minlength=len(edges) + 1) for each in (draws, others)]
    return stats.chi2_contingency(counts).pvalue


@pytest.mark.parametrize(("law", "scale"), [("gaussian", 1.3), ("gaussian", 5 * 2.0**20), ("laplace", 5)])
def test_draws_of_both_libraries_cannot_be_distinguished(law, scale):
    n_draws = 60_000
    others = theirs(law, scale, n_draws)
    assert difference(ours(law, scale, n_draws), others, scale) > FRESH
    # Scales 20% apart change cells by many of their standard deviations: power 1 - 1e-20 or better.
    assert difference(ours(law, round(1.2 * scale, 2) if law == "gaussian" else 6, n_draws), others, scale) < REJECT
