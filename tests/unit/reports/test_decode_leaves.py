"""Centers from leaves: what is estimated is unbiased, and what cannot be distinguished from noise is not reported."""

import numpy as np
import pytest

from dapple_dp.transforms.numerics.reports import codebook
from dapple_dp.transforms.numerics.reports.decoding import decode_leaves, decode_tree
from dapple_dp.transforms.numerics.reports.decoding.decode_leaves import LeafView
from dapple_dp.transforms.numerics.reports.encoder import lattice_points, lift, tree_codes
from dapple_dp.transforms.numerics.reports.sums import ReportSums
from tests.scenes.report_batches import clusters, encoded
from tests.scenes.reports import parameters


def _view(n_leaves=8, counts=(600.0, 400.0), variance=1.0, precision=1e6):
    """Two clusters along coordinates 0 and 1, each in a leaf of its own, all of it exact."""
    directions = np.eye(2, 5)
    sums = np.zeros((n_leaves, 5))
    sums[[2, 5]] = np.array(counts)[:, None] * directions
    shares = np.array(counts) / sum(counts)
    return LeafView(sums, variance, (directions.T * shares) @ directions, precision, int(sum(counts)))


def test_even_subsets_are_all_alike():
    starts = codebook.roots(bytes(16), np.arange(40_000, dtype=np.uint64))
    found = np.bincount(codebook.draw_subsets(starts, 3, even=True), minlength=8) / 40_000
    # Five stddevs of a share.
    np.testing.assert_allclose(found, codebook.subset_shares(3, even=True), atol=5 * np.sqrt(0.125 * 0.875 / 40_000))
    assert codebook.subset_shares(3, even=True).tolist() == [0.125] * 8


def test_exact_leaves_give_exact_directions_and_sizes():
    view = _view()
    fit = decode_leaves._fitted(view, decode_leaves._start(view, 2, 0))
    order = np.argsort(-fit.sizes)
    np.testing.assert_allclose(fit.sizes[order], [600.0, 400.0], rtol=1e-6)
    np.testing.assert_allclose(fit.directions[order], np.eye(2, 5), atol=1e-6)


def test_second_moments_sharpen_noisy_leaves():
    noise = np.random.default_rng(1).normal(scale=40.0, size=(8, 5))
    exact = _view(variance=1600.0)
    errors = []
    for precision in (0.0, 1e4):
        view = exact._replace(sums=exact.sums + noise, precision=precision)
        fit = decode_leaves._fitted(view, np.eye(2, 5))
        errors.append(float(((fit.directions - np.eye(2, 5)) ** 2).sum()))
    assert errors[1] < 0.5 * errors[0]


def test_a_cluster_cut_by_a_plane_is_one():
    view = _view()
    sums = view.sums.copy()
    sums[2] *= 0.5
    sums[3] = sums[2]
    fit = decode_leaves._fitted(view._replace(sums=sums), decode_leaves._start(view._replace(sums=sums), 2, 0))
    np.testing.assert_allclose(np.sort(fit.sizes), [400.0, 600.0], rtol=1e-6)


@pytest.mark.parametrize(("found", "shrunk"), [(0.9, 1.0), (1.0, 1.0), (1.5, 0.5), (3.0, 0.0)])
def test_centers_shrink_when_more_reports_are_found_than_there_are(found, shrunk):
    view = _view()
    fit = decode_leaves._Fit(np.eye(2, 5), np.array([600.0, 400.0]) * found, np.full(2, 1e12))
    exact = decode_tree.features_of(np.eye(2, 5) * shrunk)
    decoded = decode_leaves._centers(view, fit)
    np.testing.assert_allclose(decoded.centers, exact, atol=1e-5)
    np.testing.assert_allclose(decoded.sizes, [600.0, 400.0])


def test_leaf_sums_and_second_moments_are_those_of_the_points():
    public = parameters(privacy__epsilon=8.0, tree__depth=2, reports__variant="leaves")
    points = clusters(30_000)
    view = LeafView.of(ReportSums.of(encoded(public, points), public), public)
    lattice = lattice_points(points, public.radius)
    lifted, codes = lift(lattice), tree_codes(lattice, public)
    lifted = lifted / np.linalg.norm(lifted, axis=1, keepdims=True)
    wanted = np.stack([lifted[codes == leaf].sum(axis=0) for leaf in range(4)])
    # Six stddevs, and a percent for codewords of signs in place of Gaussian ones. Seeded.
    assert (np.abs(view.sums - wanted) < 6 * np.sqrt(view.variance) + 0.02 * 30_000).all()
    np.testing.assert_allclose(view.second, lifted.T @ lifted / 30_000, atol=6 / np.sqrt(view.precision) + 0.03)


def test_spread_points_are_left_to_the_tree(monkeypatch):
    public = parameters(tree__depth=4, reports__variant="leaves")
    sums = ReportSums.of(encoded(public, clusters(500)), public)
    tree = decode_tree.decode_tree(sums, public, 0)
    assert not np.array_equal(decode_leaves.decode(sums, public, 0).centers, tree.centers)
    monkeypatch.setattr(decode_leaves, "_ENOUGH", 1e9)
    np.testing.assert_array_equal(decode_leaves.decode(sums, public, 0).centers, tree.centers)


def test_nested_reports_are_decoded_as_before():
    public = parameters(reports__variant="nested")
    sums = ReportSums.of(encoded(public, clusters(500)), public)
    for one, two in zip(decode_leaves.decode(sums, public, 0), decode_tree.decode_tree(sums, public, 0), strict=True):
        np.testing.assert_array_equal(one, two)
