import json

import numpy as np
import pytest

from dapple_dp.transforms.numerics.reports import codebook, published_protocol
from dapple_dp.transforms.numerics.reports import encoder as report_encoder
from tests.scenes.reports import KEY, VECTORS_FILE, vectors


def starts_of(n_reports: int) -> np.ndarray:
    return codebook.roots(KEY, np.arange(n_reports, dtype=np.uint64))


def test_the_test_vectors_of_the_format_have_not_changed():
    assert json.loads(VECTORS_FILE.read_text()) == json.loads(json.dumps(vectors()))


def test_words_are_those_of_the_published_generator():
    # SplitMix64 from seed 0 gives 16294208416658607535 first and 7960286522194355700 next.
    words = codebook.words(np.zeros(1, dtype=np.uint64), np.arange(2, dtype=np.uint64))
    assert words.tolist() == [16294208416658607535, 7960286522194355700]


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


def test_the_vector_estimate_of_the_paper_is_unbiased():
    # E |u_1| on the sphere of 3 dimensions is 1 / 2, and of 2 dimensions 2 / pi.
    assert published_protocol.sphere_norm(50.0, 3) == pytest.approx(2.0)
    assert published_protocol.sphere_norm(50.0, 2) == pytest.approx(np.pi / 2.0)
    assert published_protocol.sphere_norm(1.0, 3) == pytest.approx(2.0 * (np.e + 1.0) / (np.e - 1.0))
