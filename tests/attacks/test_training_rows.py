"""One row of any magnitude moves what a client sends by its own bounded part, and no other row's part at all.

A row beyond 1.3e154 once made sums of gradients NaN, and one row more once moved the rounding of all others.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from threadpoolctl import threadpool_info, threadpool_limits

from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.config import TrainingConfig
from dapple_dp.schemas.clustered_fl.records import ClientRows, ModelShape
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import rejection
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bound_features, bounded_rows
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import Schedule, Sgd, model_of, train
from tests.scenes.federation import run_rounds, silo, terms
from tests.scenes.lake import run_command, write_files, write_key

LARGEST = float(np.finfo(np.float64).max)
ROWS = {
    "overflows when squared": [1e155, 0.3, -0.2, 0.1],
    "1e200": [1e200, 0.0, 0.0, 0.0],
    "placeholder": [LARGEST, 0.3, -0.2, 0.1],
    "negative placeholder": [-LARGEST, 0.3, -0.2, 0.1],
    "largest": [LARGEST, -LARGEST, LARGEST, -LARGEST],
    "saturated": [1e16, -1e16, 0.0, 1.0],
    "as long as rows may be": [128.0, 0.0, 0.0, 0.0],
    "-9999": [-9999.0, -9999.0, -9999.0, -9999.0],
    "subnormal": [5e-324, -5e-324, 1e-310, 0.0],
    "zero": [0.0, -0.0, 0.0, 0.0],
}
SHAPES = {
    "softmax": ModelShape(kind=ModelKind.SOFTMAX, n_features=4, n_classes=4),
    "mlp": ModelShape(kind=ModelKind.MLP, n_features=4, n_classes=4, n_hidden=8),
}


def _model(name):
    return model_of(SHAPES[name])


def _stream(key=0):
    return KeyStream(key.to_bytes(32, "big"), b"attack")


@pytest.mark.parametrize("scale", [0.0, 1.0, 2.0**20])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", SHAPES)
def test_an_extreme_row_adds_its_own_part(name, row, scale):
    model, random = _model(name), np.random.default_rng(3)
    parameters = random.normal(size=SHAPES[name].n_parameters) * scale
    others, labels = bound_features(random.normal(size=(40, 4))), random.integers(4, size=40)
    extreme = bound_features(np.array([ROWS[row]]))
    before = model.clipped_gradient_sum(parameters, others, labels, 1.0)
    # The predicted class, too, for which a residual of the softmax may be exactly 0.
    for label in range(4):
        own = model.clipped_gradient_sum(parameters, extreme, np.array([label]), 1.0)
        after = model.clipped_gradient_sum(
            parameters, np.concatenate([extreme, others]), np.concatenate([[label], labels]), 1.0
        )
        np.testing.assert_array_equal(after.values - before.values, own.values)
        assert np.linalg.norm(own.values * own.units) <= 1.0
        assert np.isfinite(own.units).all()


@pytest.mark.parametrize("row", ROWS)
def test_rows_are_bounded_whatever_their_magnitude(row):
    rows = bound_features(np.array([ROWS[row]]))
    assert (np.trunc(rows) == rows).all()
    assert (rows.astype(np.float64) ** 2).sum() <= 4.0**20


@pytest.mark.parametrize("rows", [[[0.5, 0.0]], [[2.0**21, 0.0]], [[np.inf, 0.0]], [[np.nan, 0.0]]])
def test_rows_that_are_not_bounded_cannot_be_trained_on(rows):
    with pytest.raises(ValueError, match="features must be float32 integers of bounded norm"):
        ClientRows.of(np.array(rows, dtype=np.float32), np.zeros(1))
    with pytest.raises(ValueError, match="features must be float32 integers of bounded norm"):
        ClientRows.of(np.array([[1.0, 2.0]]), np.zeros(1))


def test_noise_without_low_digits_is_refused():
    sgd = Sgd(schedule=Schedule(1, 1.0, 40.0), learning_rate=0.1, clipping_norm=1.0, noise_multiplier=1e4)
    with pytest.raises(ValueError, match="noise_multiplier must be at most 8192, got 10000"):
        train(_model("softmax"), np.zeros(20), bounded_rows(np.zeros((0, 4)), np.zeros(0)), sgd, _stream())


@pytest.mark.parametrize("learning_rate", [1e-300, 1e9])
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_parameters_stay_finite(name, learning_rate):
    model, random = _model(name), np.random.default_rng(4)
    rows = bounded_rows(random.normal(size=(60, 4)) * 1e155, random.integers(4, size=60))
    sgd = Sgd(Schedule(20, 1.0, 60.0), learning_rate, 1e9, noise_multiplier=8192.0)
    assert np.isfinite(train(model, model.start(_stream()), rows, sgd, _stream(1))).all()


# What one row more does to the parts of others. This many rows, features and classes made OpenBLAS take another kernel.
BLOCKS = [(784, 2, 637), (196, 10, 510), (784, 10, 127)]
LARGE = [(f, k, n, kind) for f, k, n in BLOCKS for kind in (ModelKind.SOFTMAX, ModelKind.MLP)]


def _large(n_features, n_classes, n_rows, kind):
    """A model at its random start, and rows of size 1e16 that are nearly orthogonal to the weights."""
    shape = ModelShape(kind=kind, n_features=n_features, n_classes=n_classes, n_hidden=16 * (kind is ModelKind.MLP))
    model, random = model_of(shape), np.random.default_rng([n_features, n_classes])
    parameters = model.start(_stream())
    rows = random.normal(size=(n_rows + 1, n_features))
    if kind is ModelKind.SOFTMAX:
        basis = np.linalg.qr(parameters[:-n_classes].reshape(n_features, n_classes))[0]
        rows -= rows @ basis @ basis.T
    return model, parameters, bound_features(1e16 * rows), random.integers(n_classes, size=n_rows + 1)


def _values(model, parameters, rows, labels):
    return model.clipped_gradient_sum(parameters, rows, labels, 1.0).values


@pytest.mark.parametrize(("n_features", "n_classes", "n_rows", "kind"), LARGE)
def test_one_row_more_does_not_move_the_others(n_features, n_classes, n_rows, kind):
    model, parameters, rows, labels = _large(n_features, n_classes, n_rows, kind)
    before = _values(model, parameters, rows[:-1], labels[:-1])
    own = _values(model, parameters, rows[-1:], labels[-1:])
    np.testing.assert_array_equal(_values(model, parameters, rows, labels) - before, own)


@pytest.mark.parametrize(("n_features", "n_classes", "n_rows", "kind"), LARGE)
def test_neither_order_nor_batches_nor_threads_matter(n_features, n_classes, n_rows, kind):
    model, parameters, rows, labels = _large(n_features, n_classes, n_rows, kind)
    whole = _values(model, parameters, rows, labels)
    order = np.random.default_rng(5).permutation(n_rows + 1)
    np.testing.assert_array_equal(_values(model, parameters, rows[order], labels[order]), whole)
    shifted = np.roll(np.arange(n_rows + 1), 3)
    np.testing.assert_array_equal(_values(model, parameters, rows[shifted], labels[shifted]), whole)
    for size in (1, 7, 32, 100):
        starts = range(0, n_rows + 1, size)
        parts = [_values(model, parameters, rows[i : i + size], labels[i : i + size]) for i in starts]
        np.testing.assert_array_equal(sum(parts), whole)
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            np.testing.assert_array_equal(_values(model, parameters, rows, labels), whole)


@pytest.mark.parametrize(("n_features", "n_classes", "n_rows", "kind"), LARGE)
def test_a_selection_counts_other_rows_as_before(n_features, n_classes, n_rows, kind):
    model, parameters, rows, _labels = _large(n_features, n_classes, n_rows, kind)
    whole = model.predictions(parameters, rows)
    np.testing.assert_array_equal(model.predictions(parameters, rows[:-1]), whole[:-1])
    np.testing.assert_array_equal(model.predictions(parameters, rows[::-1]), whole[::-1])
    single = [model.predictions(parameters, rows[[i]])[0] for i in range(0, n_rows, 20)]
    np.testing.assert_array_equal(single, whole[:n_rows:20])


def digests() -> dict[str, str]:
    """Digests of sums and predictions of all large cases, and the kernels of BLAS that made them."""
    found = hashlib.sha256()
    for case in LARGE:
        model, parameters, rows, labels = _large(*case)
        # The start and the rows are those of this process: kernels of `_large` itself may differ.
        rows = bound_features(np.random.default_rng(7).normal(size=rows.shape) * 1e16)
        found.update(_values(model, parameters, rows, labels).tobytes())
        found.update(model.predictions(parameters, rows).tobytes())
    kernels = sorted({each["architecture"] for each in threadpool_info() if each.get("internal_api") == "openblas"})
    return {"digest": found.hexdigest(), "kernels": " ".join(kernels)}


@pytest.mark.slow
def test_no_kernel_matters():
    features = pathlib.Path("/proc/cpuinfo").read_text() if pathlib.Path("/proc/cpuinfo").exists() else ""
    cores = ["Prescott"] + ["Haswell"] * ("avx2" in features) + ["SkylakeX"] * ("avx512f" in features)
    code = "import json; from tests.attacks.test_training_rows import digests; print(json.dumps(digests()))"
    here = digests()
    for core in cores:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"OPENBLAS_CORETYPE": core, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        )
        there = json.loads(done.stdout)
        assert there["digest"] == here["digest"], core
        assert there["kernels"] != here["kernels"] or core in here["kernels"]


# Whole runs, of the loop and of the command, on neighbors that differ in one such row.
RUN_ROWS = {"1e155": [1e155, 0.0, 0.0], "largest": [LARGEST, 0.0, 0.0], "all largest": [LARGEST, -LARGEST, LARGEST]}


def _clients(n_rows=200):
    """Features and labels of three clients."""
    random = np.random.default_rng(8)
    points = random.normal(size=(3, n_rows, 3))
    return points, (points[:, :, 0] > 0).astype(np.int64) + (points[:, :, 1] > 0)


def _federation(kind):
    shape = ModelShape(kind=kind, n_features=3, n_classes=3, n_hidden=4 * (kind is ModelKind.MLP))
    clients = [silo(f"c{index}", 200, 5.0, select_epsilon=0.03) for index in range(3)]
    training = {"rounds": 5, "batch_size": 50}
    return terms(shape, clients, training, n_clusters=2, selection_rounds=1)


@pytest.mark.parametrize("kind", [ModelKind.SOFTMAX, ModelKind.MLP])
def test_no_key_reveals_the_row(kind):
    federation, (points, labels) = _federation(kind), _clients()
    for key in range(20):
        row = list(RUN_ROWS.values())[key % len(RUN_ROWS)]
        rows = [bounded_rows(*each) for each in zip(points, labels, strict=True)]
        rows[0] = bounded_rows(np.concatenate([points[0], [row]]), np.append(labels[0], key % 3))
        models = run_rounds(federation, rows, _stream(key)).models
        assert np.abs(models).max() < 1e3


def _lake(folder, points, labels, extra=None, label=2):
    tables = []
    for client, (own, classes) in enumerate(zip(points, labels, strict=True)):
        if extra is not None and client == 0:
            own, classes = np.concatenate([own, [extra]]), np.append(classes, label)
        flat = pa.FixedSizeListArray.from_arrays(pa.array(own.ravel()), 3)
        names = pa.array([f"c{client}"] * len(own))
        tables.append(pa.table({"x": flat, "y": pa.array(classes), "who": names}))
    return write_files(folder, tables)


def _published(folder, data, model):
    """The largest parameter that a job publishes."""
    folder.mkdir()
    settings = {
        "experimental": True,
        "algorithm": "r_dpcfl",
        "data": {
            "path": data,
            "client_id": "who",
            "features": "x",
            "label": "y",
            "classes": 3,
            "public_rows": 200,
        },
        "n_clusters": 2,
        "privacy": {"epsilon": 1.0, "delta": 1e-4, "adjacency": "add_remove"},
        "training": {
            "model": model,
            "rounds": 4,
            "batch_size": 50,
            "learning_rate": 0.5,
            "clipping_norm": 1.0,
            "hidden_units": 8,
        },
        "key_uri": write_key(folder / "key"),
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(settings))
    outcome = run_command("clustered_fl", "--config", str(folder / "job.yaml"), "--output", str(folder / "out"))
    assert outcome.code == 0, outcome.err
    table = pq.read_table(folder / "out" / "models.parquet")
    return np.abs(np.stack(table["parameters"].to_numpy())).max()


@pytest.mark.slow
@pytest.mark.parametrize(("model", "row"), [("softmax", "largest"), ("mlp", "1e155"), ("softmax", "all largest")])
def test_the_command_publishes_models_as_before(tmp_path, model, row):
    points, labels = _clients()
    without = _published(tmp_path / "a", _lake(tmp_path / "lake-a", points, labels), model)
    neighbor = _lake(tmp_path / "lake-b", points, labels, RUN_ROWS[row])
    assert _published(tmp_path / "b", neighbor, model) < 3.0 * without


def test_extreme_settings_are_refused():
    good = {"model": "softmax", "rounds": 1, "batch_size": 5, "learning_rate": 0.5, "clipping_norm": 1.0}
    rejection.check_config(TrainingConfig, good | {"feature_norm": 1.0})
    for change in (
        {"clipping_norm": 1e300},
        {"clipping_norm": 5e-324},
        {"learning_rate": 1e300},
        {"feature_norm": 0.5},
        {"feature_norm": 1e10},
    ):
        (name,) = change
        with pytest.raises(ConfigError, match=name):
            rejection.check_config(TrainingConfig, good | change)
