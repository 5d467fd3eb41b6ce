"""Public randomness and codewords of reports have the law that the decoder assumes."""

import itertools

import numpy as np
import pytest

from dapple_dp.transforms.numerics.reports import codebook, published_protocol
from dapple_dp.transforms.numerics.reports import encoder as report_encoder
from dapple_dp.transforms.numerics.reports.mechanism import codeword_moments
from tests.scenes.reports import KEY, parameters


def starts_of(n_reports: int) -> np.ndarray:
    return codebook.roots(KEY, np.arange(n_reports, dtype=np.uint64))


@pytest.mark.parametrize("depth", [1, 4, 9])
def test_subsets_have_their_shares(depth):
    drawn = np.bincount(codebook.draw_subsets(starts_of(200_000), depth), minlength=1 << depth) / 200_000
    shares = codebook.subset_shares(depth)
    np.testing.assert_allclose(shares.sum(), 1.0)
    # Six stddevs: fails once in five million draws of public randomness, which is fixed.
    np.testing.assert_array_less(np.abs(drawn - shares), 6.0 * np.sqrt(shares / 200_000))


@pytest.mark.parametrize(("epsilon", "n_features"), [(1.0, 1), (1.0, 100), (4.0, 2), (8.0, 3), (8.0, 100)])
def test_codewords_have_the_mean_and_second_moment_that_the_decoder_assumes(epsilon, n_features):
    public = parameters(n_features, privacy__epsilon=epsilon, reports__variant="points")
    rng = np.random.default_rng(3)
    points = rng.normal(size=(4000, n_features))
    points *= 10.0 * rng.random((4000, 1)) / np.linalg.norm(points, axis=1, keepdims=True)
    nonces = rng.integers(0, 2**63, 4000).astype(np.uint64)
    from dapple_dp.transforms.numerics.reports.coins import KeyedCoins
    from dapple_dp.transforms.numerics.reports.sums import codewords

    coins = KeyedCoins([index.to_bytes(8, "little") for index in range(4000)])
    reports = report_encoder.encode(points, public, nonces, coins)
    lifted = report_encoder.lift(report_encoder.lattice_points(points, 10.0))
    lifted /= np.linalg.norm(lifted, axis=1, keepdims=True)
    width = codebook.code_width(n_features + 2)
    along = (codewords(reports, public) / np.sqrt(width) * lifted).sum(axis=1)
    moments = codeword_moments(public.choices[0][0])
    # Four stddevs of sampling (seeded: it fails or not for good) and the 1.5% that codes of 64 signs may be off.
    assert abs(along.mean() - moments.mean) < 4.0 * along.std() / np.sqrt(4000) + 0.015 * moments.mean
    squared = along**2
    slack = 4.0 * squared.std() / np.sqrt(4000) + 0.03 * (1.0 + moments.excess)
    assert abs(squared.mean() - 1.0 - moments.excess) < slack


def test_signs_of_two_nodes_of_a_level_are_independent_in_the_papers_cells():
    cells = published_protocol.draw_cells(starts_of(60_000), 3)
    assert set(cells.tolist()) == set(range(2, 16))
    deepest = cells[cells >= 8] - 8
    for one, two in itertools.combinations(range(8), 2):
        products = (-1.0) ** np.bitwise_count(deepest & one) * (-1.0) ** np.bitwise_count(deepest & two)
        assert abs(products.mean()) < 5.0 / np.sqrt(len(deepest))
