"""Centers are found among many reports; coins follow from keys that are fixed."""

import numpy as np
import pytest

from dapple_dp.transforms.numerics.reports.decoding import decode_leaves, decode_points
from dapple_dp.transforms.numerics.reports.sums import ReportSums
from tests.scenes.report_batches import MEANS, clusters, encoded, farthest
from tests.scenes.reports import parameters


@pytest.mark.parametrize("variant", ["leaves", "nested", "privunit"])
def test_centers_are_found_among_many_reports(variant):
    public = parameters(privacy__epsilon=4.0, reports__variant=variant, tree__depth=4)
    points = clusters(6000)
    decoded = decode_leaves.decode(ReportSums.of(encoded(public, points), public), public, 0)
    # One cluster is 2,000 reports; noise moves its center by about 0.07 radii. Seeded.
    assert farthest(decoded.centers) < 0.25
    assert np.abs(decoded.sizes - 2000.0).max() < 600.0


def test_the_papers_reports_find_centers_too():
    public = parameters(privacy__epsilon=8.0, reports__variant="paper", tree__depth=3)
    sums = ReportSums.of(encoded(public, clusters(12_000)), public)
    assert farthest(decode_leaves.decode(sums, public, 0).centers) < 0.35


def test_points_find_centers_closer_than_a_tree_does():
    public = parameters(privacy__epsilon=4.0, reports__variant="points")
    reports = encoded(public, clusters(6000))
    directions = decode_points.principal_directions(ReportSums.of(reports, public), public)
    mixture = decode_points.fit_mixture(decode_points.project(reports, public, directions), public, 0)
    decoded = decode_points.SoftSums.of(reports, public, directions, mixture).centers(public, 6000)
    assert farthest(decoded.centers) < 0.1
    assert np.abs(decoded.sizes - 2000.0).max() < 200.0


def test_all_reports_of_one_point_and_one_cluster():
    public = parameters(n_clusters=1, privacy__epsilon=8.0)
    sums = ReportSums.of(encoded(public, np.tile(MEANS[:1], (2000, 1))), public)
    decoded = decode_leaves.decode(sums, public, 0)
    np.testing.assert_allclose(decoded.centers, MEANS[:1] / 10.0, atol=0.1)
