"""The evaluate job against NumPy and scikit-learn on the same rows, in any layout, and what it refuses."""

import hashlib
import json

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that
from sklearn import metrics

from dapple_dp import api
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.trusted_zone.job_configs import EvaluateConfig
from dapple_dp.schemas.trusted_zone.metrics import Metrics
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.numerics.trusted_zone.clustering_sums import model_cost
from dapple_dp.transforms.tables.read import ListShards
from dapple_dp.transforms.tables.source import Source
from dapple_dp.transforms.trusted_zone.evaluate_models import EvaluateModels
from tests.scenes import lake
from tests.scenes.models import run_model_job, write_model

CENTERS = np.concatenate([lake.MEANS + 0.2, np.full((1, 4), 400.0)])
TELLTALE = 31.41592653
REPLAY = ("--direct_runner_bundle_repeat=2",)
THREADS = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")


class Desk:
    """A model, rows with classes, and their lake."""

    def __init__(self, folder):
        self.folder = folder
        self.points = lake.mixture(900, seed=1) + 0.4
        self.classes = np.where(np.arange(900) % 7 == 0, 5, np.arange(900) % 3)
        self.model = write_model(folder / "fit", CENTERS)
        self.path = lake.write_files(folder / "lake", self.tables(3), row_group_size=130)

    def tables(self, n_files):
        parts = np.array_split(np.arange(len(self.points)), n_files)
        return [
            lake.table_of(self.points[part]).append_column("y", pa.array(self.classes[part].tolist())) for part in parts
        ]

    def settings(self, path=None, **options):
        data = {"path": path or self.path, "features": "x"}
        return {"model": self.model, "data": data, "evaluate": options}

    def metrics(self, *flags, path=None, **options):
        config = EvaluateConfig.model_validate(self.settings(path, **options))
        return api.evaluate(config, beam_options(flags))


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("evaluate"))


@pytest.fixture(scope="module")
def found(desk):
    return desk.metrics(label="y", silhouette_rows=1000, reference=desk.model)


def labels_of(points):
    return ((points[:, None] - CENTERS[None]) ** 2).sum(axis=2).argmin(axis=1)


def test_cost_and_sizes(desk, found):
    labels = labels_of(desk.points)
    np.testing.assert_allclose(found.cost, ((desk.points - CENTERS[labels]) ** 2).sum(axis=1).mean(), rtol=1e-6)
    assert found.nicv == found.cost
    assert found.n_rows == 900
    assert found.cluster_sizes == tuple(np.bincount(labels, minlength=4).tolist())


def test_scores_agree_with_scikit_learn(desk, found):
    labels, apart = labels_of(desk.points), found.separation
    np.testing.assert_allclose(apart.davies_bouldin, metrics.davies_bouldin_score(desk.points, labels), rtol=1e-6)
    np.testing.assert_allclose(apart.calinski_harabasz, metrics.calinski_harabasz_score(desk.points, labels), rtol=1e-6)
    np.testing.assert_allclose(apart.silhouette, metrics.silhouette_score(desk.points, labels), rtol=1e-6)
    assert apart.silhouette_rows == 900
    agreement = found.classes
    np.testing.assert_allclose(agreement.adjusted_rand, metrics.adjusted_rand_score(desk.classes, labels))
    np.testing.assert_allclose(agreement.fowlkes_mallows, metrics.fowlkes_mallows_score(desk.classes, labels))
    assert agreement.labelled_rows == 900
    assert (found.reference.centroid_mse, found.reference.matched_centers) == (0.0, 4)


@pytest.mark.parametrize("flags", [REPLAY, THREADS])
def test_bundles_do_not_matter(desk, found, flags):
    assert desk.metrics(*flags, label="y", silhouette_rows=1000, reference=desk.model) == found


@pytest.mark.parametrize(("n_files", "row_group_size"), [(1, None), (5, 11)])
def test_layout_does_not_matter(desk, found, tmp_path, n_files, row_group_size):
    path = lake.write_files(tmp_path / "lake", desk.tables(n_files), row_group_size)
    assert desk.metrics(path=path, label="y", silhouette_rows=1000, reference=desk.model) == found


def test_a_sample_is_scored_as_scikit_learn_does(desk):
    found = desk.metrics(silhouette_rows=50)
    assert found.separation.silhouette_rows == 50
    assert desk.metrics(silhouette_rows=50) == found
    full = metrics.silhouette_score(desk.points, labels_of(desk.points))
    assert 0 < abs(found.separation.silhouette - full) < 0.1
    none = desk.metrics(silhouette_rows=0).separation
    assert (none.silhouette, none.silhouette_rows) == (None, 0)


def test_sections_that_are_not_asked_for_are_left_out(desk):
    found = desk.metrics()
    assert found.classes is None
    assert found.reference is None
    assert Metrics.from_json(found.to_json()) == found


def test_single_precision_outliers_and_a_file_without_rows(desk, tmp_path):
    points = desk.points.astype(np.float32)
    points[::100] *= 1e12
    tables = [lake.table_of(points[:500]), lake.table_of(points[:0]), lake.table_of(points[500:])]
    found = desk.metrics(path=lake.write_files(tmp_path / "lake", tables))
    wide = points.astype(np.float64)
    squared = ((wide[:, None] - CENTERS[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.cost, squared.min(axis=1).mean(), rtol=1e-6)
    assert found.cluster_sizes == tuple(np.bincount(squared.argmin(axis=1), minlength=4).tolist())


def test_rows_past_the_range_of_squares(desk, tmp_path):
    points = desk.points.copy()
    points[3] = 1e200
    found = desk.metrics(path=lake.write_lake(tmp_path / "lake", points))
    assert found.cost is None
    assert sum(found.cluster_sizes) == 900


def test_one_row(desk, tmp_path):
    found = desk.metrics(path=lake.write_lake(tmp_path / "lake", desk.points[:1]))
    np.testing.assert_allclose(found.cost, ((desk.points[0] - CENTERS[0]) ** 2).sum(), rtol=1e-6)
    assert found.separation.davies_bouldin is None
    assert found.separation.silhouette is None


def test_invalid_rows_are_dropped_on_request(desk, tmp_path):
    points, dropped = desk.points.copy(), np.array([0, 130, 899])
    points[dropped, 1] = np.nan
    table = lake.table_of(points).append_column(
        "y", pa.array([None if row == 5 else f"c{row % 2}" for row in range(900)])
    )
    settings = desk.settings(lake.write_files(tmp_path / "lake", [table], 200), label="y")
    settings["data"]["on_invalid_rows"] = "drop"
    found = api.evaluate(EvaluateConfig.model_validate(settings))
    kept = np.delete(np.arange(900), dropped)
    squared = ((points[kept, None] - CENTERS[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.cost, squared.min(axis=1).mean(), rtol=1e-6)
    labelled = kept[kept != 5]
    expected = metrics.adjusted_rand_score(labelled % 2, labels_of(points[labelled]))
    np.testing.assert_allclose(found.classes.adjusted_rand, expected)
    assert (found.n_rows, found.classes.labelled_rows) == (897, 896)


def test_classes_may_be_a_partition_folder(desk, tmp_path):
    for name, part in {"a": desk.points[:300], "b": desk.points[300:]}.items():
        lake.write_files(tmp_path / "lake" / f"kind={name}", [lake.table_of(part)])
    found = desk.metrics(path=str(tmp_path / "lake"), label="kind")
    expected = metrics.adjusted_rand_score(np.arange(900) < 300, labels_of(desk.points))
    np.testing.assert_allclose(found.classes.adjusted_rand, expected)


def test_many_models_in_one_pass(desk):
    rng = np.random.default_rng(3)
    models = {("run", index): rng.normal(size=(index + 1, 4)) * 5 for index in range(5)}
    contract = TableContract.from_config(DataConfig(path=desk.path, features="x"), n_features=4)

    def check(costs):
        assert dict(costs).keys() == models.keys()
        for key, cost in costs:
            expected = model_cost(desk.points, NearestCenters.of(models[key]))
            np.testing.assert_array_equal(cost.sizes, expected.sizes)
            assert cost.cost == expected.cost

    source = lake.staged(Source(path=desk.path), desk.folder / "listings")

    def build(root):
        shards = root | ListShards(source=source, contract=contract)
        created = root | "Models" >> beam.Create(list(models.items()))
        assert_that(shards | EvaluateModels(models=created, contract=contract), check)

    lake.run_unchecked(build, beam_options(REPLAY))


@pytest.fixture(scope="module")
def done(desk):
    return run_model_job("evaluate", desk.settings(label="y"), desk.folder, "--run_id", "one")


def test_the_command_writes_a_marked_folder(desk, done):
    output = desk.folder / "evaluate"
    assert done.code == 0
    assert json.loads(done.out) == {"run_id": "one", "output": str(output), "epsilon": None, "delta": None}
    assert {path.name for path in output.iterdir()} == {"metrics.json", "run.json"}
    assert done.lines[0] == "dapple: run one: evaluation (not private)"
    assert done.lines[-1] == f"dapple: done: {output}/metrics.json; it is as private as the input"
    for name in ("metrics.json", "run.json"):
        content = json.loads((output / name).read_text())
        assert (content["private"], content["label"]) == (False, "evaluation (not private)")
    manifest = json.loads((output / "run.json").read_text())
    digest = hashlib.sha256((desk.folder / "fit" / "centers.parquet").read_bytes()).hexdigest()
    assert manifest["model"] == {"folder": desk.model, "digest": digest}
    assert manifest["files"]["metrics.json"] == hashlib.sha256((output / "metrics.json").read_bytes()).hexdigest()
    assert Metrics.from_json((output / "metrics.json").read_text()) == desk.metrics(label="y")


def test_no_score_is_logged(desk, done):
    content = json.loads((desk.folder / "evaluate" / "metrics.json").read_text())
    assert f"{content['cost']:.4g}" not in done.err + done.out


@pytest.mark.parametrize("below", ["evaluation", "a/b"])
def test_released_outputs_are_kept_apart(desk, tmp_path, below):
    model = write_model(tmp_path / "fit", CENTERS)
    output = ("--output", f"{model}/{below}")
    refused = run_model_job("evaluate", desk.settings(), tmp_path, *output)
    assert refused.code == 2
    assert refused.lines == [
        f"dapple: --output must be a folder outside of released outputs, got {model}/{below} with centers.parquet in "
        f"{model}; choose another one or set evaluate.beside_released to true."
    ]
    assert run_model_job("evaluate", desk.settings(beside_released=True), tmp_path, *output).code == 0
    assert (tmp_path / "fit" / below / "metrics.json").exists()


def test_a_relative_output_is_looked_up_from_where_it_lies(desk, tmp_path, monkeypatch):
    monkeypatch.chdir(write_model(tmp_path / "fit", CENTERS))
    assert "outside of released outputs" in run_model_job("evaluate", desk.settings(), tmp_path, "--output", "here").err


def private_tables(value=None, **columns):
    points = np.full((40, 4), TELLTALE)
    points[7, 2] = TELLTALE if value is None else value
    table = lake.table_of(points)
    return [pa.table({name: table[name] for name in table.column_names} | columns)]


@pytest.mark.parametrize(
    ("tables", "options", "start"),
    [
        (private_tables(np.nan), {}, "column 'x' of {lake}/part-00.parquet, row group 0 must hold finite numbers only"),
        (private_tables(), {"label": "y"}, "column 'y' not found in {lake}/part-00.parquet, row group 0;"),
        (
            private_tables(y=[TELLTALE] * 40),
            {"label": "y"},
            "column 'y' of {lake}/part-00.parquet, row group 0 must hold strings, integers or booleans, got double",
        ),
        (
            private_tables(y=pa.nulls(40, pa.string())),
            {"label": "y"},
            "evaluate.label names a column that is null in all rows",
        ),
        ([lake.table_of(np.zeros((0, 4)))], {}, "The data have no valid row; check data.path"),
        (
            [lake.table_of(np.full((5, 3), TELLTALE))],
            {},
            "column 'x' of {lake}/part-00.parquet must have width 4, got 3",
        ),
        (private_tables(), {"reference": "{lake}/none"}, "evaluate.reference must be a Parquet file or the output"),
        (
            private_tables(),
            {"reference": "{lake}/part-00.parquet"},
            "evaluate.reference must have a list column",
        ),
    ],
)
def test_unusable_input_is_refused_in_one_sentence(desk, tmp_path, tables, options, start):
    path = lake.write_files(tmp_path / "lake", tables)
    options = {name: value.format(lake=path) for name, value in options.items()}
    refused = run_model_job("evaluate", desk.settings(path, **options), tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert refused.lines[-1].startswith("dapple: " + start.format(lake=path))
    assert len(refused.lines) <= 2
    assert "31.41" not in refused.err
    assert not (tmp_path / "evaluate").exists()


def test_all_rows_dropped(desk, tmp_path):
    settings = desk.settings(lake.write_lake(tmp_path / "lake", np.full((5, 4), np.nan)))
    settings["data"]["on_invalid_rows"] = "drop"
    refused = run_model_job("evaluate", settings, tmp_path)
    assert refused.lines[-1].startswith("dapple: The data have no valid row; check data.path")


def test_a_reference_may_be_a_file_of_lists(desk, tmp_path):
    pq.write_table(pa.table({"center": (CENTERS[[2, 0]] + [1.0, 0.0, 0.0, 0.0]).tolist()}), tmp_path / "means.parquet")
    found = desk.metrics(reference=str(tmp_path / "means.parquet")).reference
    np.testing.assert_allclose(found.centroid_mse, 1.0)
    assert found.matched_centers == 2
