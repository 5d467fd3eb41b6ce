import itertools
import json

import numpy as np
import pytest

from tests.reports import KEY, VECTORS_FILE, parameters, vectors
from transforms.numerics import paper_reports, report_encoder
from transforms.numerics import report_codebook as codebook
from transforms.numerics.report_mechanism import codeword_moments


def starts_of(n_reports: int) -> np.ndarray:
    return codebook.roots(KEY, np.arange(n_reports, dtype=np.uint64))


def test_the_test_vectors_of_the_format_have_not_changed():
    assert json.loads(VECTORS_FILE.read_text()) == json.loads(json.dumps(vectors()))


def test_words_are_those_of_the_published_generator():
    # SplitMix64 from seed 0 gives 16294208416658607535 first and 7960286522194355700 next.
    words = codebook.words(np.zeros(1, dtype=np.uint64), np.arange(2, dtype=np.uint64))
    assert words.tolist() == [16294208416658607535, 7960286522194355700]


@pytest.mark.parametrize("depth", [1, 4, 9])
def test_subsets_have_their_shares(depth):
    drawn = np.bincount(codebook.draw_subsets(starts_of(200_000), depth), minlength=1 << depth) / 200_000
    shares = codebook.subset_shares(depth)
    np.testing.assert_allclose(shares.sum(), 1.0)
    # Six stddevs: fails once in five million draws of public randomness, which is fixed.
    np.testing.assert_array_less(np.abs(drawn - shares), 6.0 * np.sqrt(shares / 200_000))


def test_a_tree_without_levels_has_the_empty_subset_only():
    assert codebook.draw_subsets(starts_of(100), 0).tolist() == [0] * 100
    assert codebook.subset_shares(0).tolist() == [1.0]


@pytest.mark.parametrize("width", [2, 64, 256, 1024])
def test_the_transform_is_sylvesters_matrix(width):
    rows = np.random.default_rng(0).integers(-9, 9, (3, width)).astype(np.float64)
    index = np.arange(width)
    signs = np.array([[(-1) ** int(one & two).bit_count() for two in index] for one in index])
    np.testing.assert_array_equal(codebook.walsh_hadamard(rows), rows @ signs)


def test_scores_of_the_encoder_are_products_with_the_decoders_codewords():
    rng, starts = np.random.default_rng(1), starts_of(5)
    vectors_ = rng.integers(-(2**20), 2**20, (5, 70)).astype(np.float64)
    width = codebook.code_width(70)
    signs = codebook.rotation_signs(starts, width)
    bits = codebook.codeword_bits(starts, np.arange(8)[None], width)
    seen = (1.0 - 2.0 * bits) @ codebook.rotate(vectors_, signs)[:, :, None]
    for index in range(8):
        codewords = codebook.rotated(bits[:, index], signs, 70)
        np.testing.assert_array_equal((codewords * vectors_).sum(axis=1), seen[:, index, 0])


def test_the_index_at_rank_zero_is_the_nearest_codeword_ties_to_the_lowest():
    bits = np.zeros((1, 4, 64), dtype=np.uint8)
    bits[0, 1, 0] = bits[0, 3, 0] = 1
    rotated = np.zeros((1, 64))
    rotated[0, 0] = -3.0
    order = [int(report_encoder._at_rank(rotated, bits, np.array([rank]))[0]) for rank in range(4)]
    assert order == [1, 3, 0, 2]


@pytest.mark.parametrize(("epsilon", "n_features"), [(1.0, 1), (1.0, 100), (4.0, 2), (8.0, 3), (8.0, 100)])
def test_codewords_have_the_mean_and_second_moment_that_the_decoder_assumes(epsilon, n_features):
    public = parameters(n_features, privacy__epsilon=epsilon, reports__variant="points")
    rng = np.random.default_rng(3)
    points = rng.normal(size=(4000, n_features))
    points *= 10.0 * rng.random((4000, 1)) / np.linalg.norm(points, axis=1, keepdims=True)
    nonces = rng.integers(0, 2**63, 4000).astype(np.uint64)
    from transforms.numerics.report_coins import KeyedCoins
    from transforms.numerics.report_sums import codewords

    coins = KeyedCoins([index.to_bytes(8, "little") for index in range(4000)])
    reports = report_encoder.encode(points, public, nonces, coins)
    lifted = report_encoder.lift(report_encoder.lattice_points(points, 10.0))
    lifted /= np.linalg.norm(lifted, axis=1, keepdims=True)
    width = codebook.code_width(n_features + 2)
    along = (codewords(reports, public, codebook.roots(KEY, nonces)) / np.sqrt(width) * lifted).sum(axis=1)
    moments = codeword_moments(public.choices[0][0])
    # Four stddevs of sampling (seeded: it fails or not for good) and the 1.5% that codes of 64 signs may be off.
    assert abs(along.mean() - moments.mean) < 4.0 * along.std() / np.sqrt(4000) + 0.015 * moments.mean
    squared = along**2
    slack = 4.0 * squared.std() / np.sqrt(4000) + 0.03 * (1.0 + moments.excess)
    assert abs(squared.mean() - 1.0 - moments.excess) < slack


def test_signs_of_two_nodes_of_a_level_are_independent_in_the_papers_cells():
    cells = paper_reports.draw_cells(starts_of(60_000), 3)
    assert set(cells.tolist()) == set(range(2, 16))
    deepest = cells[cells >= 8] - 8
    for one, two in itertools.combinations(range(8), 2):
        products = (-1.0) ** np.bitwise_count(deepest & one) * (-1.0) ** np.bitwise_count(deepest & two)
        assert abs(products.mean()) < 5.0 / np.sqrt(len(deepest))


def test_the_vector_estimate_of_the_paper_is_unbiased():
    # E |u_1| on the sphere of 3 dimensions is 1 / 2, and of 2 dimensions 2 / pi.
    assert paper_reports.sphere_norm(50.0, 3) == pytest.approx(2.0)
    assert paper_reports.sphere_norm(50.0, 2) == pytest.approx(np.pi / 2.0)
    assert paper_reports.sphere_norm(1.0, 3) == pytest.approx(2.0 * (np.e + 1.0) / (np.e - 1.0))
