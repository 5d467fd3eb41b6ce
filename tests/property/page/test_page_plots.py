"""Plots of a page hold whatever a model holds: any names, any number of clusters and features, any sizes."""

from xml.etree import ElementTree

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.report import cluster_plots
from dapple_dp.pipelines.kmeans.report.center_summary import CenterSummary
from dapple_dp.pipelines.page.svg import inline_svg


def summary(n_clusters, n_features, sizes=None, names=()):
    rng = np.random.default_rng(0)
    sizes = rng.normal(100.0, 80.0, n_clusters) if sizes is None else np.asarray(sizes)
    return CenterSummary.of(rng.normal(size=(n_clusters, n_features)), sizes, names)


def svg(draw):
    return inline_svg(draw(), "plot", "A plot", "It holds whatever comes.")


@pytest.mark.parametrize(
    "name", ["<b>", "$x^2$", "a & b", "_hidden", "漢字", "line\nbreak", "null\0byte", "x" * 500, ""]
)
def test_any_feature_name_can_be_drawn(name):
    data = summary(3, 4, names=(name,) * 4)
    for draw in (cluster_plots.heat_map, cluster_plots.profile_dots):
        text = svg(lambda draw=draw: draw(data))
        assert len(ElementTree.fromstring(text).findall(".//text")) > 4


@pytest.mark.parametrize("n_clusters", [1, 2, 9, 150])
@pytest.mark.parametrize("n_features", [1, 3, 2000])
def test_any_number_of_clusters_and_features(n_clusters, n_features):
    data = summary(n_clusters, n_features)
    for draw in (cluster_plots.heat_map, cluster_plots.profile_dots, cluster_plots.center_map):
        assert len(svg(lambda draw=draw: draw(data))) < 150_000
    assert "var(--accent)" in svg(lambda: cluster_plots.size_bars(data, np.full(n_clusters, 10.0), "rows"))


@pytest.mark.parametrize("sizes", [[-5.0, -1.0], [0.0, 0.0], [1e300, 1.0], [1e-300, 0.0]])
def test_any_sizes(sizes):
    data = summary(2, 3, sizes)
    for draw in (
        lambda: cluster_plots.size_bars(data, np.full(2, 2.0), "rows"),
        lambda: cluster_plots.center_map(data),
    ):
        assert "nan" not in svg(draw)
