import dataclasses

import numpy as np
import pytest

from dapple_dp.schemas.reports.parameters import WORD, SubsetChoice
from dapple_dp.transforms.numerics.reports import codebook
from dapple_dp.transforms.numerics.reports.decoding import decode_leaves, decode_points, decode_tree
from dapple_dp.transforms.numerics.reports.decoding.decode_tree import Leaf
from dapple_dp.transforms.numerics.reports.sums import ReportSums, codewords
from tests.scenes.report_batches import clusters, encoded
from tests.scenes.reports import KEY, parameters


def test_node_sums_are_the_sums_of_the_nodes_when_sums_by_mask_are_exact():
    depth, rng = 4, np.random.default_rng(0)
    codes, vectors = rng.integers(0, 16, 50), rng.normal(size=(50, 3))
    signs = (-1.0) ** np.bitwise_count(np.arange(16)[:, None] & codes)
    masks = signs @ vectors
    for level in range(depth + 1):
        prefixes = codes & ((1 << level) - 1)
        wanted = np.stack([vectors[prefixes == node].sum(axis=0) for node in range(1 << level)])
        np.testing.assert_allclose(decode_tree.node_sums(masks, level), wanted, atol=1e-12)


def test_sums_by_mask_are_those_of_the_reports_one_by_one():
    public = parameters(tree__depth=3)
    reports = encoded(public, clusters(40))
    starts = codebook.roots(public.key, reports.nonces)
    vectors, masks = codewords(reports, public), codebook.draw_subsets(starts, 3)
    sums = ReportSums.of(reports, public)
    for mask in range(8):
        np.testing.assert_array_equal(sums.cells[mask], vectors[masks == mask].sum(axis=0))
    np.testing.assert_array_equal(sums.moments, vectors.T @ vectors)
    assert sums.n_reports == 40


@pytest.mark.parametrize("leaves", [[Leaf(0, 0)], [Leaf(3, 5)], [Leaf(2, 1), Leaf(3, 2)], [Leaf(1, 0), Leaf(1, 1)]])
def test_the_noise_of_a_union_of_leaves_is_that_of_its_signed_masks(leaves):
    depth, shares = 3, codebook.subset_shares(3)
    inside = np.array([any(code & ((1 << leaf.level) - 1) == leaf.code for leaf in leaves) for code in range(8)])
    weights = [np.mean([inside[code] * (-1) ** (mask & code).bit_count() for code in range(8)]) for mask in range(8)]
    assert decode_tree._union_variance(leaves, depth) == pytest.approx(sum(np.square(weights) / shares))


def test_every_node_has_about_the_same_noise():
    variances = [decode_tree._union_variance([Leaf(level, 0)], 6) for level in range(1, 7)]
    assert max(variances) <= 3.0
    assert min(variances) >= 2.0


def test_soft_sums_merge_exactly():
    public = parameters(reports__variant="points")
    reports = encoded(public, clusters(500))
    directions = decode_points.principal_directions(ReportSums.of(reports, public), public)
    mixture = decode_points.fit_mixture(decode_points.project(reports, public, directions), public, 0)
    whole = decode_points.SoftSums.of(reports, public, directions, mixture)
    parts = [
        decode_points.SoftSums.of(reports.take(rows), public, directions, mixture)
        for rows in (slice(0, 123), slice(123, None))
    ]
    for one, two in zip(whole, parts[0].merge(parts[1]), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("n_reports", [1, 2, 5])
@pytest.mark.parametrize("variant", ["leaves", "nested", "paper", "points"])
def test_a_few_reports_give_some_centers_in_the_ball(n_reports, variant):
    public = parameters(reports__variant=variant)
    reports = encoded(public, clusters(n_reports))
    sums = ReportSums.of(reports, public)
    if public.depth:
        centers = decode_leaves.decode(sums, public, 0).centers
    else:
        directions = decode_points.principal_directions(sums, public)
        mixture = decode_points.fit_mixture(decode_points.project(reports, public, directions), public, 0)
        centers = decode_points.SoftSums.of(reports, public, directions, mixture).centers(public, n_reports).centers
    assert centers.shape == (3, 4)
    assert (np.linalg.norm(centers, axis=1) <= 1.0 + 1e-12).all()


def test_a_node_is_split_from_one_and_a_half_clusters_on():
    counts = [np.zeros(1), np.array([74.0, 26.0]), np.array([74.0, 26.0, 0.0, 0.0])]
    assert decode_tree.find_leaves(counts, 100, 2) == [Leaf(1, 0), Leaf(1, 1)]
    counts[1] = np.array([75.0, 25.0])
    assert decode_tree.find_leaves(counts, 100, 2) == [Leaf(1, 1), Leaf(2, 0), Leaf(2, 2)]
    assert decode_tree.find_leaves(counts[:1], 100, 2) == [Leaf(0, 0)]


def test_the_spectrum_of_noise_alone_has_no_directions():
    public = parameters(10, privacy__epsilon=1.0)
    flat = dataclasses.replace(public, choices=((SubsetChoice(size=64, near=18, threshold=WORD * 18 // 64), 1.0),))
    sums = ReportSums.of(encoded(flat, np.random.default_rng(0).normal(size=(3000, 10))), flat)
    spectrum = decode_tree.Spectrum.of(sums, public)
    assert len(spectrum.powers) <= 1
    assert spectrum.powers.sum() + spectrum.rest * (12 - len(spectrum.powers)) == pytest.approx(1.0)
    assert public.key == KEY
