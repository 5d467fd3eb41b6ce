"""Data of awkward shapes, and every option once from end to end."""

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp import api
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.numerics.kmeans.norms import noisy_quantile
from dapple_dp.transforms.tables.source import list_files
from tests.scenes import lake

pytestmark = pytest.mark.slow

LARGE_EPSILON = 20.0


class Place:
    """A folder with public data and a key, where jobs run."""

    def __init__(self, folder):
        self.folder = folder
        self.server = lake.write_server(folder / "server.parquet")
        self.key_uri = lake.write_key(folder / "key")

    def job(self, points, clients=None, unit="record", *, n_files=1, **settings):
        path = lake.write_lake(self.folder / "lake", points, clients, n_files=n_files)
        return lake.job(path, self.server, unit, key_uri=self.key_uri, **settings)

    def fit(self, *arguments, **settings):
        return lake.run_fit(self.job(*arguments, **settings), self.folder / "run").model

    def released(self):
        return lake.released(self.folder / "run")


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def assert_full(model, n_clusters=3, n_features=4):
    """Everything is there, finite, and noisy."""
    assert model.centers.shape == (n_clusters, n_features)
    assert model.noisy_sizes.shape == (n_clusters,)
    assert np.isfinite(model.centers).all()
    assert np.isfinite(model.noisy_sizes).all()
    for release in model.releases:
        assert release.values.shape == release.plan.spec.shape
        assert np.count_nonzero(release.values)


def gaps(centers, means):
    """Returns how far each mean is from the nearest center, shape (len(means),)."""
    return np.linalg.norm(means[:, None, :] - centers[None, :, :], axis=2).min(axis=1)


def ten_each(points):
    return np.arange(len(points)) // 10


def test_one_row(place):
    assert_full(place.fit(lake.mixture(1), lloyd={"steps": 1}))


def test_one_client(place):
    points = lake.mixture(7)
    assert_full(place.fit(points, np.zeros(7, dtype=np.int64), "client", privacy__allocation="paper"))


def test_more_clusters_than_rows(place):
    assert_full(place.fit(lake.mixture(2), n_clusters=20), n_clusters=20)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_only_invalid_rows_release_noise(place, unit):
    """All rows dropped: releases as complete as before, equal to those of an exact sum of zero."""
    points = np.full((30, 4), np.nan)
    clients = ten_each(points) if unit == "client" else None
    settings = place.job(points, clients, unit, data__on_invalid_rows="drop")
    model = lake.run_fit(settings, place.folder / "run").model
    assert_full(model)
    offsets = np.zeros(1, dtype=np.int64) if unit == "client" else None
    expected = lake.chain(lake.planned(settings), ClientBlock(np.zeros((0, 4)), offsets)).model()
    for release, other in zip(model.releases, expected.releases, strict=True):
        np.testing.assert_array_equal(release.values, other.values)


def test_one_client_with_most_rows_counts_like_any_other(place):
    """A client that holds nine in ten rows, all in one place, does not pull the centers there."""
    hot = np.tile([[-6.0, -6.0, -6.0, -6.0]], (3600, 1))
    points = np.vstack([lake.mixture(400), hot])
    clients = np.concatenate([ten_each(points[:400]), np.full(3600, 40)])
    model = place.fit(points, clients, "client", n_files=2, privacy__epsilon=LARGE_EPSILON, lloyd={"steps": 1})
    assert_full(model)
    assert gaps(model.centers, lake.MEANS).max() < 1.0


def test_clients_of_one_to_five_thousand_rows(place):
    sizes = [1, 2, 3, 10, 150, 2047, 2048, 2049, 5000]
    clients = np.random.default_rng(3).permutation(np.repeat(np.arange(len(sizes)), sizes))
    points = lake.mixture(len(clients))
    settings = place.job(points, clients, "client", n_files=3, privacy__epsilon=LARGE_EPSILON)
    model = lake.run_fit(settings, place.folder / "run").model
    order = np.argsort(clients, kind="stable")
    block = ClientBlock(points[order], np.concatenate([[0], np.cumsum(sizes)]))
    np.testing.assert_array_equal(model.centers, lake.chain(lake.planned(settings), block).model().centers)
    assert gaps(model.centers, lake.MEANS).max() < 1.0


def test_no_server_data(place):
    points = lake.mixture(2000)
    place.server = None
    settings = place.job(points, privacy__epsilon=LARGE_EPSILON, lloyd={"steps": 2})
    result = api.fit(validated(settings))
    assert_full(result.model)
    assert result.privacy.epsilon <= LARGE_EPSILON
    assert gaps(result.model.centers, lake.MEANS).max() < 1.0


class Plain:
    """A run of sixty rows in one file with one list column; other ways to name the same rows release the same."""

    def __init__(self, folder):
        self.place = Place(folder)
        self.points = np.trunc(4.0 * lake.mixture(60))
        self.points[:, 3] = np.arange(60) % 2
        self.server = np.trunc(4.0 * lake.mixture(60, seed=99))
        self.server[:, 3] = 1.0
        lake.write_server(folder / "server.parquet", self.server)
        self.place.fit(self.points)

    def check(self, path, folder, **settings):
        job = lake.job(str(path), self.place.server, key_uri=self.place.key_uri) | settings.pop("whole", {})
        job["data"] |= settings
        lake.run_fit(job, folder / "run")
        assert lake.released(folder / "run") == self.place.released()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return Plain(tmp_path_factory.mktemp("plain"))


def test_columns_of_several_types_equal_one_list_column(plain, tmp_path):
    kinds = {"a": pa.int32(), "b": pa.float32(), "c": pa.float64(), "d": pa.bool_()}

    def scalars(rows):
        columns = zip(kinds.items(), rows.T, strict=True)
        return pa.table({name: pa.array(column).cast(kind) for (name, kind), column in columns})

    path = lake.write_files(tmp_path / "columns", [scalars(plain.points)])
    server = lake.write_files(tmp_path / "server", [scalars(plain.server)])
    plain.check(path, tmp_path, features=list(kinds), whole={"server_data": {"path": server}})


def test_partitions(plain, tmp_path):
    points, hive = plain.points, tmp_path / "hive"
    for site, day, rows in (("a", 19, points[:9]), ("a", 20, points[:30]), ("b", 20, points[30:])):
        lake.write_lake(hive / f"dt=2026-11-{day}" / f"site={site}", rows)
    plain.check(hive, tmp_path, partitions={"dt": "2026-11-20"})


def test_a_partition_that_is_not_there(plain, tmp_path):
    lake.write_lake(tmp_path / "hive" / "dt=2026-11-20", plain.points)
    settings = lake.job(str(tmp_path / "hive"), plain.place.server, data__partitions={"dt": "2026-11-21"})
    with pytest.raises(InputError, match=r"No Parquet or CSV file found at .*hive \(data\.path\); check"):
        lake.run_fit(settings, tmp_path / "run")


def test_a_glob(plain, tmp_path):
    half = plain.points[:30], plain.points[30:], plain.points
    lake.write_files(tmp_path / "lake", [lake.table_of(points) for points in half])
    plain.check(tmp_path / "lake" / "part-0[01].parquet", tmp_path)


def test_a_folder_with_brackets_in_its_name_is_found(tmp_path):
    points = lake.mixture(60)
    folder = tmp_path / "odd[1]"
    lake.write_lake(folder, points)
    assert list_files(str(folder), {}) == sorted(map(str, folder.rglob("*.parquet")))


@pytest.mark.parametrize(("unit", "allocation"), [("record", "tuned"), ("client", "paper")])
def test_private_norm_finds_the_scale_of_the_data(place, unit, allocation):
    """Data 1,000 times as wide as the server's radius would say nothing if clipped to it."""
    points = 1000.0 * lake.mixture(600)
    clients = ten_each(points) if unit == "client" else None
    model = place.fit(
        points,
        clients,
        unit,
        clipping__norm="private",
        privacy__epsilon=LARGE_EPSILON,
        privacy__allocation=allocation,
    )
    released = model.releases[0]
    assert released.path == "feddp_kmeans/norms/histogram"
    norm = noisy_quantile(released.decoded, released.stddev, 0.95)
    radius = np.linalg.norm(points - lake.mixture(60, seed=99).mean(axis=0), axis=1)
    assert (radius <= norm).mean() >= 0.9
    assert norm <= 1.2 * radius.max()
    if unit == "record":
        sums = next(each for each in model.releases if each.path.endswith("centers/sums"))
        assert sums.plan.spec.sensitivity * sums.lattice_unit == norm
        assert np.abs(model.centers).max() > 1000.0


def test_private_norm_needs_no_server_data(place):
    place.server = None
    settings = place.job(lake.mixture(2000), clipping__norm="private", privacy__epsilon=50.0, lloyd={"steps": 2})
    model = lake.run_fit(settings, place.folder / "run").model
    assert_full(model)
    assert gaps(model.centers, lake.MEANS).max() < 1.0
