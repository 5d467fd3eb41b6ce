"""Tools behind the papers' figures: files of publishers, scores, rates of EM."""

import gzip
import hashlib
import io
import tarfile

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_score

from benchmarks import data, data_files
from benchmarks.papers import fastlloyd, fastlloyd_messages, fastlloyd_real, mixture_rate
from benchmarks.papers.fastlloyd import scaled


def test_features_are_read_from_tables_of_words(tmp_path):
    (tmp_path / "breast.data").write_text("id,a,b\n1000025,5,1,1,1,2,1,3,1,1,2\n1,8,4,5,1,2,?,7,3,1,4\n")
    np.testing.assert_array_equal(
        data_files.breast(tmp_path / "breast.data")["X"],
        [[5, 1, 1, 1, 2, 1, 3, 1, 1], [8, 4, 5, 1, 2, data_files.UNKNOWN, 7, 3, 1]],
    )
    named = "ADT1_YEAST  0.58  0.61  0.47  0.13  0.50  0.00  0.48  0.22  MIT\n"
    (tmp_path / "yeast.data").write_text(named)
    (tmp_path / "yeast.gz").write_bytes(gzip.compress(" ".join(named.split()[1:9]).encode()))
    for name in ("yeast.data", "yeast.gz"):
        assert data_files.yeast(tmp_path / name)["X"].tolist() == [[0.58, 0.61, 0.47, 0.13, 0.5, 0.0, 0.48, 0.22]]


def test_random_rows_of_birch2_are_always_the_same(tmp_path):
    (tmp_path / "birch2.txt").write_text("".join(f"{row} {2 * row}\n" for row in range(100_000)))
    rows = data_files.birch2(tmp_path / "birch2.txt")["X"]
    assert rows.shape == data.SETS["birch2"].shape
    np.testing.assert_array_equal(rows, data_files.birch2(tmp_path / "birch2.txt")["X"])
    assert (np.diff(rows[:, 0]) > 0).all()


def test_images_of_another_file_are_refused(tmp_path):
    for name in data_files.FASHION_SHA256:
        (tmp_path / name).write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x02\x07\x09"))
    with pytest.raises(
        ValueError, match=r"train-images-idx3-ubyte\.gz must have the SHA-256 of what is in it c59f468a2f672dc815687f"
    ):
        data_files.fashion_mnist(tmp_path)
    with pytest.raises(ValueError, match=f"must have the MD5 {data_files.CIFAR10_MD5}"):
        data_files.cifar10(tmp_path / "t10k-labels-idx1-ubyte.gz")


def test_images_are_read_as_their_formats_say(tmp_path, monkeypatch):
    found = data_files._idx(b"\0\0\x08\x03" + bytes([0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]) + b"abcd")
    np.testing.assert_array_equal(found, [[[97, 98]], [[99, 100]]])
    with pytest.raises(ValueError, match="an idx file of bytes must begin"):
        data_files._idx(b"\0\0\x0d\x01\0\0\0\0")
    path = tmp_path / "cifar.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for index, name in enumerate(data_files.CIFAR10_PARTS):
            content = (bytes([index]) + bytes([index + 1]) * 3072) * 2
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    monkeypatch.setattr(data_files, "CIFAR10_MD5", hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest())
    monkeypatch.setattr(data_files, "CIFAR10_BATCH", 2)
    arrays = data_files.cifar10(path)
    assert {name: each.shape for name, each in arrays.items()} == {
        "x_train": (10, 3, 32, 32),
        "y_train": (10,),
        "x_test": (2, 3, 32, 32),
        "y_test": (2,),
    }
    assert (arrays["y_test"] == 5).all()
    assert (arrays["x_test"] == 6).all()


def test_a_feature_that_never_changes_lies_in_the_middle():
    np.testing.assert_array_equal(scaled(np.array([[1.0, 7.0], [3.0, 7.0]])), [[-1.0, 0.0], [1.0, 0.0]])


@pytest.mark.parametrize("n_clusters", [2, 5])
def test_silhouettes_of_known_distances_are_those_of_scikit_learn(n_clusters):
    random = np.random.default_rng(n_clusters)
    points, labels = random.normal(size=(60, 3)), random.integers(n_clusters, size=60)
    labels[labels == 3] = 4
    labels[0] = n_clusters - 2 if n_clusters == 5 else labels[0]
    distances = cdist(points, points).astype(np.float32)
    found = fastlloyd_real.silhouette(distances, labels, n_clusters)
    assert found == pytest.approx(silhouette_score(points, labels), abs=1e-5)
    assert fastlloyd_real.silhouette(distances, np.zeros(60, dtype=np.int64), n_clusters) == -1.0


def test_an_iteration_takes_its_sends_and_more():
    found = fastlloyd_messages.milliseconds(200, 2, 2, repeats=2)
    assert found.mean > fastlloyd_messages.SENDS * fastlloyd_messages.SEND_MS


def test_em_is_faster_where_components_overlap_less():
    rates = [mixture_rate.rate(mixture_rate.errors(distance, 2_000, 0)) for distance in (3.0, 4.0, 6.0)]
    assert rates[0] > 1.5 * rates[1] > 3.0 * rates[2]


def test_shrunken_moves_of_fastlloyd_are_those_that_a_setting_once_asked_for():
    """On Iris at epsilon 1 they release the centers that `dp_lloyd.update: shrunken` released after the same start."""
    rows = scaled(data.rows("iris"))
    method = fastlloyd.METHODS["FastLloyd, shrunken moves"]
    centers = fastlloyd.released_centers(rows, fastlloyd.lloyd_job(rows, 3, method, 1.0, 0), "iris 1.0")
    np.testing.assert_allclose(centers[0, :2], [-0.22929001, -0.54038811], atol=1e-8)
