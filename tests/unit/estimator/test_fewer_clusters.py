"""A cut merges released clusters, and is a function of what was released."""

import pickle
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from scipy.cluster import hierarchy
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dapple_dp import ConfigError, DPKMeans, DPTopics, PrivacyWarning
from tests.scenes import lake

CENTERS = np.array([[20.0, 2.0], [80.0, 2.0], [80.0, 8.0]])


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    return np.concatenate([random.normal(center, (1.5, 0.15), (1500, 2)) for center in CENTERS])


@pytest.fixture(scope="module")
def model(rows):
    """Nine clusters of three groups of rows, in columns with bounds of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return DPKMeans(9, epsilon=20.0, delta=1e-6, domain=[(0, 100), (0, 10)]).fit(rows)


def test_the_tree_is_one_that_scipy_draws_and_cuts(model):
    assert hierarchy.is_valid_linkage(model.tree_)
    assert len(hierarchy.dendrogram(model.tree_, no_plot=True)["leaves"]) == 9
    # The same groups as SciPy's, whatever their numbers.
    ours, theirs = model.cut(3)._groups.groups, hierarchy.fcluster(model.tree_, 3, "maxclust")
    assert len(set(zip(ours, theirs, strict=True))) == 3


def test_a_cut_finds_the_groups_that_the_rows_have(model, rows):
    cut = model.cut(3)
    order = np.lexsort(np.rint(cut.cluster_centers_).T[::-1])
    np.testing.assert_allclose(cut.cluster_centers_[order], CENTERS, rtol=0.05)
    np.testing.assert_allclose(cut.noisy_sizes_, 1500, atol=60)
    assert sorted(np.bincount(cut.predict(rows))) == [1500, 1500, 1500]
    assert hierarchy.is_valid_linkage(cut.tree_)
    assert cut.tree_.shape == (2, 4)


@pytest.mark.parametrize("n_clusters", range(1, 10))
def test_every_cut_adds_up(model, rows, n_clusters):
    cut = model.cut(n_clusters)
    assert cut.cluster_centers_.shape == (n_clusters, 2)
    assert cut.n_clusters == n_clusters
    assert cut.noisy_sizes_.sum() == pytest.approx(model.noisy_sizes_.sum())
    np.testing.assert_array_equal(cut.transform(rows).argmin(axis=1), cut.predict(rows))
    assert cut.score(rows) == model.score(rows)
    groups = dict(zip(model.predict(rows), cut.predict(rows), strict=True))
    np.testing.assert_array_equal(cut.predict(rows), [groups[label] for label in model.predict(rows)])


def test_a_cut_in_all_clusters_is_the_model(model, rows):
    cut = model.cut(9)
    np.testing.assert_allclose(cut.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(cut.predict(rows), model.predict(rows))


def test_a_cut_leaves_the_model_alone_and_cuts_again(model, rows):
    before = pickle.dumps((model.cluster_centers_, model.noisy_sizes_, model.tree_, model.get_params()))
    again = model.cut(3).cut(5)
    np.testing.assert_array_equal(again.predict(rows), model.cut(5).predict(rows))
    assert pickle.dumps((model.cluster_centers_, model.noisy_sizes_, model.tree_, model.get_params())) == before


def test_a_cut_groups_rows_as_assign_does(model, rows, tmp_path):
    model.save(tmp_path / "model")
    job = {"model": str(tmp_path / "model"), "data": {"path": str(tmp_path / "rows.csv"), "features": ["x0", "x1"]}}
    np.savetxt(tmp_path / "rows.csv", rows[::10], fmt="%.17g", delimiter=",", header="x0,x1", comments="")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job | {"assign": {"level": 3}}))
    words = ("--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "out"))
    outcome = lake.run_command("assign", *words)
    assert outcome.code == 0, outcome.err
    labels = pq.read_table(tmp_path / "out" / "assignments.parquet")["cluster"].to_pylist()
    pairs = set(zip(labels, model.cut(3).predict(rows[::10]), strict=True))
    assert len(pairs) == len({label for label, _ in pairs}) == len({label for _, label in pairs}) == 3


def test_a_cut_is_an_estimator(model, rows):
    cut = pickle.loads(pickle.dumps(model.cut(3)))
    np.testing.assert_array_equal(cut.predict(rows), model.cut(3).predict(rows))
    assert len(cut.get_feature_names_out()) == 3
    with pytest.raises(NotFittedError):
        clone(cut).cut(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        again = cut.fit(rows)
    assert len(again.cluster_centers_) == 3
    assert again.cut(3).n_clusters == 3


def test_a_cut_is_not_saved_as_what_a_fit_released(model, tmp_path):
    with pytest.raises(ConfigError, match=r"save the model that you cut, and cut it again after load"):
        model.cut(3).save(tmp_path / "model")
    model.save(tmp_path / "model")
    loaded = DPKMeans.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.cut(3).cluster_centers_, model.cut(3).cluster_centers_)


@pytest.mark.parametrize("n_clusters", [0, 10, -1, 2.0, "3", True, None, [3]])
def test_another_number_is_refused(model, n_clusters):
    with pytest.raises(ConfigError, match="n_clusters must be a whole number from 1 to 9, the clusters of the fit"):
        model.cut(n_clusters)


def test_a_merged_topic_has_the_names_of_its_topics():
    words = ["tax", "vote", "goal", "team"]
    random = np.random.default_rng(1)
    terms = [[words[2 * (i % 2) + int(j)] for j in random.integers(0, 2, 2)] for i in range(4000)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        topics = DPTopics(4, epsilon=20.0, delta=1e-6, vocabulary=words, width=16, unit="record", reason="a test")
        topics.fit(None, terms=terms)
    names = sorted(name for topic in topics.names_ for name in topic)
    assert names
    one = topics.cut(1)
    assert sorted(one.names_[0]) == sorted(set(names))
    largest = int(np.argmax(topics.noisy_sizes_))
    assert one.names_[0][: len(topics.names_[largest])] == topics.names_[largest]
    assert one.cut(4).names_ == topics.names_
