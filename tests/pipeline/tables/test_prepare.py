"""`prepare` and what `fit` does with it: the layout of the files, and the very same released bytes."""

import functools
import json
import logging
import os
import pathlib
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.jobs.run_job import run_job
from dapple_dp.pipelines.kmeans import fit as fit_job
from dapple_dp.pipelines.kmeans.plan import planned_fit
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.tables import prepare as prepare_job
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.errors import ConfigError, InputError, PrivacyFlowError, SchemaMismatchError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.prepared_layout import MANIFEST_FILE, RUNS_KEY
from dapple_dp.transforms.kmeans.lloyd import specs
from dapple_dp.transforms.tables import group_clients, prepared_files, shard_rows
from dapple_dp.transforms.tables.file_seal import open_parquet
from dapple_dp.transforms.tables.source import Source
from tests.scenes import lake

pytestmark = pytest.mark.slow

N_ROWS = 600
N_CLIENTS = 40


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Points and the client of each, clients all mixed up."""
    clients = np.random.default_rng(3).integers(0, N_CLIENTS, N_ROWS)
    return lake.mixture(N_ROWS, seed=5), clients


@pytest.fixture
def small_row_groups(monkeypatch) -> int:
    """Row groups of at most this many rows, so that clients outgrow them."""
    monkeypatch.setattr(prepared_files, "ROW_GROUP_ROWS", 32)
    monkeypatch.setattr(prepared_files, "_FEWEST_ROWS", 1)
    return 32


def write_lake(folder: pathlib.Path, points, clients, n_files: int = 3, row_group_size: int | None = None) -> str:
    """Rows in the given order, in several files."""
    parts = np.array_split(np.arange(len(points)), n_files)
    ids = clients if isinstance(clients, pa.Array) else pa.array(clients)
    tables = [lake.table_of(points[part], ids.take(pa.array(part))) for part in parts]
    return lake.write_files(folder, tables, row_group_size)


def write_sorted(folder: pathlib.Path, points, clients) -> str:
    """The lake that needs nothing: two files, one row group each, every client whole."""
    order = np.argsort(clients, kind="stable")
    cut = int(np.searchsorted(clients[order], N_CLIENTS // 2))
    return lake.write_files(folder, [lake.table_of(points[part], clients[part]) for part in (order[:cut], order[cut:])])


def save(path: pathlib.Path, settings: dict) -> str:
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return str(path)


def run_prepare(tmp_path: pathlib.Path, data: str, *flags: str, name: str = "prepared", **settings) -> pathlib.Path:
    """Output folder of a `prepare` job; `settings` go to its data section, `shards` to the other one."""
    shards = settings.pop("shards", 3)
    section = {"path": data, "features": "x", "client_id": "client_id"} | settings
    config = save(tmp_path / f"{name}.yaml", {"data": section, "prepare": {"shards": shards}})
    summary = run_job(prepare_job.JOB, ["--config", config, "--output", str(tmp_path / name), *flags])
    assert summary["output"] == str(tmp_path / name)
    return tmp_path / name


def run_fit(tmp_path: pathlib.Path, data: str, *flags: str, name: str, unit: str = "client", **settings) -> dict:
    """Released bytes of a `fit` job under a known key."""
    server = lake.write_server(tmp_path / "server.parquet")
    key = lake.write_key(tmp_path / f"{name}.key")
    config = save(tmp_path / f"{name}.yaml", lake.job(data, server, unit, key_uri=key, **settings))
    run_job(fit_job.JOB, ["--config", config, "--output", str(tmp_path / name), *flags])
    return lake.released(tmp_path / name)


def prepared_table(folder: pathlib.Path) -> pa.Table:
    tables = []
    for path in sorted(folder.glob("*.parquet")):
        with open_parquet(str(path)) as file:
            tables.append(file.read())
    return pa.concat_tables(tables)


def runs_of(path: pathlib.Path) -> list[int]:
    return json.loads(pq.read_metadata(path).metadata[RUNS_KEY])


def check_layout(folder: pathlib.Path, most_rows: int) -> None:
    """No client in two runs of row groups, and every run but those of one client is a row group."""
    seen: set = set()
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            first = 0
            for run in runs_of(path):
                table = file.read_row_groups(list(range(first, first + run)), columns=["client_id"])
                clients = set(table.column("client_id").to_pylist())
                assert not seen & clients
                assert run == 1 or len(clients) == 1
                seen |= clients
                first += run
            assert first == file.num_row_groups
            assert all(file.metadata.row_group(index).num_rows <= most_rows for index in range(first))


def sorted_rows(ids, points) -> list[tuple]:
    return sorted((client, *row) for client, row in zip(ids, np.asarray(points).tolist(), strict=True))


def as_rows(table: pa.Table) -> list[tuple]:
    return sorted_rows(table.column("client_id").to_pylist(), table.column("x").to_pylist())


def test_no_client_crosses_a_row_group_and_no_row_is_lost(tmp_path, rows, small_row_groups):
    points, clients = rows
    folder = run_prepare(tmp_path, write_lake(tmp_path / "lake", points, clients))
    check_layout(folder, small_row_groups)
    assert len(list(folder.glob("*.parquet"))) == 3
    assert as_rows(prepared_table(folder)) == sorted_rows(clients.tolist(), points)


def test_a_hot_client_has_a_run_of_row_groups_and_is_one_unit(tmp_path, rows, small_row_groups):
    points, clients = rows
    clients[np.random.default_rng(0).permutation(N_ROWS)[: int(0.3 * N_ROWS)]] = 7
    folder = run_prepare(tmp_path, write_lake(tmp_path / "lake", points, clients))
    check_layout(folder, small_row_groups)
    assert max(run for path in folder.glob("*.parquet") for run in runs_of(path)) >= 6
    expected = run_fit(tmp_path, write_sorted(tmp_path / "sorted", points, clients), name="sorted-fit")
    assert run_fit(tmp_path, str(folder), name="prepared-fit") == expected


def test_one_row_clients(tmp_path):
    points, clients = lake.mixture(10_000, seed=2), np.random.default_rng(0).permutation(10_000)
    folder = run_prepare(tmp_path, write_lake(tmp_path / "lake", points, clients), shards="auto")
    check_layout(folder, 1 << 16)
    table = prepared_table(folder)
    assert table.column("client_id").to_pylist() == list(range(10_000))
    np.testing.assert_array_equal(np.array(table.column("x").to_pylist()), points[np.argsort(clients)])


@pytest.fixture
def grouped(monkeypatch):
    """A list with an entry for each copy that jobs have grouped."""
    found, group = [], prepare_job.group
    monkeypatch.setattr(prepare_job, "group", lambda *args: (found.append(args), group(*args)))
    return found


def test_released_bytes_do_not_depend_on_the_layout(tmp_path, rows, caplog, grouped):
    points, clients = rows
    caplog.set_level(logging.INFO, logger="dapple_dp")
    expected = run_fit(tmp_path, write_sorted(tmp_path / "sorted", points, clients), name="sorted-fit")
    assert not grouped
    mixed = write_lake(tmp_path / "mixed", points, clients)
    assert run_fit(tmp_path, mixed, name="mixed-fit") == expected
    assert len(grouped) == 1
    # Whether rows were brought together is private: the log says the same of both.
    assert caplog.text.count("grouping rows by client where a client's rows are apart") == 2
    caplog.clear()
    assert run_fit(tmp_path, str(run_prepare(tmp_path, mixed)), name="prepared-fit") == expected
    assert "rows are apart" not in caplog.text
    order = np.random.default_rng(1).permutation(N_ROWS)
    shuffled = write_lake(tmp_path / "shuffled", points[order], clients[order], n_files=7, row_group_size=11)
    assert run_fit(tmp_path, shuffled, name="shuffled-fit") == expected
    few = run_prepare(tmp_path, shuffled, name="few", shards=1)
    assert run_fit(tmp_path, str(few), name="few-fit") == expected


def test_retried_bundles_change_nothing(tmp_path, rows):
    points, clients = rows
    data = write_lake(tmp_path / "lake", points, clients)
    once = run_prepare(tmp_path, data, name="once")
    twice = run_prepare(tmp_path, data, "--direct_runner_bundle_repeat=2", name="twice")
    assert sorted(os.listdir(once)) == sorted(os.listdir(twice))
    assert all((once / name).read_bytes() == (twice / name).read_bytes() for name in os.listdir(once))
    expected = run_fit(tmp_path, data, name="fit-once")
    assert run_fit(tmp_path, data, "--direct_runner_bundle_repeat=2", name="fit-twice") == expected


@pytest.mark.parametrize("part_bytes", [1, 3000])
def test_a_large_row_group_is_split_in_parts(tmp_path, rows, monkeypatch, part_bytes):
    points, clients = rows
    data = write_lake(tmp_path / "lake", points, clients, n_files=1)
    whole = run_prepare(tmp_path, data, name="whole")
    monkeypatch.setattr(group_clients, "SHARD_BYTES", part_bytes)
    monkeypatch.setattr(shard_rows, "_BATCH_ROWS", 37)
    parts = run_prepare(tmp_path, data, name="parts")
    assert sorted(os.listdir(whole)) == sorted(os.listdir(parts))
    assert all((whole / name).read_bytes() == (parts / name).read_bytes() for name in os.listdir(whole))


@pytest.mark.parametrize("spill", [False, True])
def test_rows_may_go_through_the_runner_or_through_files(tmp_path, rows, spill):
    points, clients = rows
    data = write_lake(tmp_path / "lake", points, clients)
    expected = run_prepare(tmp_path, data, name="expected")
    folder = tmp_path / "built"
    folder.mkdir()
    config = DataConfig(path=data, features="x", client_id="client_id")
    contract = TableContract.from_config(config, by_client=True)
    grouping = prepare_job.Grouping(contract=contract, folder=str(folder), n_shards=3, spill=spill)
    add = functools.partial(prepare_job.build, source=lake.staged(Source(path=data), tmp_path), grouping=grouping)
    run_graph(add, beam_options([]), TRUSTED_ZONE)
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    assert names == sorted(os.listdir(expected))
    assert all((folder / name).read_bytes() == (expected / name).read_bytes() for name in names)
    assert len(os.listdir(folder)) - len(names) == (3 if spill else 0)


def test_many_tiny_files_an_empty_one_and_an_empty_partition(tmp_path, rows):
    points, clients = rows
    data = pathlib.Path(write_lake(tmp_path / "lake", points, clients, n_files=200))
    schema = pq.read_schema(data / "part-00.parquet")
    pq.write_table(schema.empty_table(), data / "without-rows.parquet")
    pq.ParquetWriter(data / "without-row-groups.parquet", schema).close()
    (data / "dt=2026-01-01").mkdir()
    assert pq.read_metadata(data / "without-row-groups.parquet").num_row_groups == 0
    folder = run_prepare(tmp_path, str(data), shards="auto")
    assert [path.name for path in folder.glob("*.parquet")] == ["shard-0000000.parquet"]
    assert as_rows(prepared_table(folder)) == sorted_rows(clients.tolist(), points)


ID_TYPES = [
    lambda index: index - 20,
    lambda index: f"client {'é' * index}",
    lambda index: b"\xff" * (index % 9) + b"\0" * index,
]


@pytest.mark.parametrize("name_of", ID_TYPES, ids=["integers", "strings", "bytes"])
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
def test_client_ids_of_every_kind(tmp_path, rows, small_row_groups, name_of, encoded):
    points, clients = rows
    names = [name_of(index) for index in clients.tolist()]
    ids = pa.array(names)
    folder = run_prepare(tmp_path, write_lake(tmp_path / "lake", points, ids.dictionary_encode() if encoded else ids))
    check_layout(folder, small_row_groups)
    assert as_rows(prepared_table(folder)) == sorted_rows(names, points)


def test_integers_of_different_width_are_the_same_client(tmp_path, rows):
    points, clients = rows
    kinds = [pa.int8(), pa.uint64(), pa.int32()]
    parts = np.array_split(np.arange(N_ROWS), len(kinds))
    tables = [
        lake.table_of(points[part], pa.array(clients[part], kind)) for part, kind in zip(parts, kinds, strict=False)
    ]
    data = lake.write_files(tmp_path / "lake", tables)
    expected = run_fit(tmp_path, write_sorted(tmp_path / "sorted", points, clients), name="sorted-fit")
    assert run_fit(tmp_path, data, name="mixed-fit") == expected


@pytest.mark.parametrize("job", [run_prepare, lambda *arguments: run_fit(*arguments, name="fit")])
def test_ids_of_two_kinds_are_refused(tmp_path, rows, job):
    points, clients = rows
    tables = [lake.table_of(points[:50], clients[:50]), lake.table_of(points[50:], clients[50:].astype(str))]
    with pytest.raises(InputError, match="column 'client_id' must hold one type of client ids in all files, got int"):
        job(tmp_path, lake.write_files(tmp_path / "lake", tables))


def write_hive(root: pathlib.Path, points, clients) -> str:
    """One folder per client, two files in each; client 3's is the one Hive gives rows without a value."""
    for client in np.unique(clients).tolist():
        member = points[clients == client]
        folder = root / ("client_id=__HIVE_DEFAULT_PARTITION__" if client == 3 else f"client_id=silo%20{client}")
        lake.write_files(folder, [lake.table_of(part) for part in np.array_split(member, 2)])
    return str(root)


def test_clients_may_be_hive_partitions(tmp_path, rows):
    points, clients = rows
    kept = clients != 3
    points, clients = points[kept], clients[kept]
    data = write_hive(tmp_path / "hive", points, clients)
    folder = run_prepare(tmp_path, data)
    assert as_rows(prepared_table(folder)) == sorted_rows([f"silo {client}" for client in clients], points)
    expected = run_fit(tmp_path, write_sorted(tmp_path / "sorted", points, clients), name="sorted-fit")
    assert run_fit(tmp_path, data, name="hive-fit") == expected


def test_whole_hive_clients_stay_where_they_are(tmp_path, rows, grouped):
    points, clients = rows
    for client in np.unique(clients).tolist():
        lake.write_files(tmp_path / "hive" / f"client_id={client}", [lake.table_of(points[clients == client])])
    expected = run_fit(tmp_path, write_sorted(tmp_path / "sorted", points, clients), name="sorted-fit")
    assert run_fit(tmp_path, str(tmp_path / "hive"), name="hive-fit") == expected
    assert not grouped


def test_rows_without_a_client_stop_the_job_or_are_left_out(tmp_path, rows):
    points, clients = rows
    data = write_hive(tmp_path / "hive", points, clients)
    with pytest.raises(InputError, match=r"column 'client_id' of .* must name a client in every row, got a null"):
        run_prepare(tmp_path, data)
    assert not (tmp_path / "prepared").exists()
    folder = run_prepare(tmp_path, data, name="dropped", on_invalid_rows="drop")
    assert len(prepared_table(folder)) == (clients != 3).sum()
    ids = pa.array([None if client == 3 else client for client in clients.tolist()])
    mixed = write_lake(tmp_path / "mixed", points, ids)
    with pytest.raises(InputError, match="must name a client in every row"):
        run_fit(tmp_path, mixed, name="failed")
    kept = clients != 3
    expected = run_fit(tmp_path, write_sorted(tmp_path / "sorted", points[kept], clients[kept]), name="sorted-fit")
    assert run_fit(tmp_path, mixed, name="kept", data__on_invalid_rows="drop") == expected


def test_a_lake_without_valid_rows_becomes_one_empty_file(tmp_path):
    points = np.full((20, lake.MEANS.shape[1]), np.nan)
    data = write_lake(tmp_path / "lake", points, np.arange(20) % 2)
    folder = run_prepare(tmp_path, data, on_invalid_rows="drop")
    assert len(prepared_table(folder)) == 0
    assert prepared_table(folder).schema.field("x").type.list_size == lake.MEANS.shape[1]
    run_fit(tmp_path, data, name="fit", data__on_invalid_rows="drop")


@pytest.mark.parametrize(
    ("second", "match"),
    [
        ({"a": pa.array([1.0])}, "column 'b' not found in .*part-01.parquet"),
        ({"a": pa.array([1.0]), "b": pa.array(["1"])}, "column 'b' of .*part-01.parquet must be numeric, got string"),
    ],
)
def test_drift_of_features_is_refused_and_names_the_file(tmp_path, second, match):
    first = {"a": pa.array([1.0]), "b": pa.array([2]), "client_id": pa.array([1])}
    tables = [pa.table(first), pa.table(second | {"client_id": pa.array([1])})]
    data = lake.write_files(tmp_path / "lake", tables)
    with pytest.raises(SchemaMismatchError, match=match):
        run_prepare(tmp_path, data, features=["a", "b"])


def test_other_columns_and_other_numeric_types_are_no_matter(tmp_path):
    first = {"a": pa.array([1.5], pa.float32()), "b": pa.array([2], pa.int8()), "client_id": pa.array([1])}
    second = {"note": pa.array(["x"]), "client_id": pa.array([1]), "b": pa.array([True]), "a": pa.array([0.1])}
    data = lake.write_files(tmp_path / "lake", [pa.table(first), pa.table(second)])
    folder = run_prepare(tmp_path, data, features=["a", "b"])
    assert prepared_table(folder).to_pydict() == {"client_id": [1, 1], "a": [1.5, 0.1], "b": [2.0, 1.0]}


def test_lists_of_different_width_are_refused(tmp_path):
    tables = [lake.table_of(np.ones((5, width)), [1] * 5) for width in (3, 4)]
    with pytest.raises(InputError, match=r"part-01.parquet must have width 3 as in .*part-00.parquet, got 4"):
        run_prepare(tmp_path, lake.write_files(tmp_path / "lake", tables))


def test_single_precision_stays(tmp_path, rows):
    points, clients = rows
    folder = run_prepare(tmp_path, write_lake(tmp_path / "lake", points.astype(np.float32), clients))
    assert prepared_table(folder).schema.field("x").type.value_type == pa.float32()


def test_the_manifest_lists_what_is_there(tmp_path, rows):
    points, clients = rows
    folder = run_prepare(tmp_path, write_lake(tmp_path / "lake", points, clients))
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    assert sorted(os.listdir(folder)) == sorted([*(each["name"] for each in manifest["files"]), MANIFEST_FILE])
    assert sum(each["n_rows"] for each in manifest["files"]) == N_ROWS


def test_a_folder_that_is_not_what_its_manifest_says_is_refused(tmp_path, rows):
    points, clients = rows
    folder = run_prepare(tmp_path, write_lake(tmp_path / "lake", points, clients))
    pq.write_table(lake.table_of(points, clients), folder / "more.parquet")
    with pytest.raises(InputError, match="must hold the files that its manifest lists"):
        run_fit(tmp_path, str(folder), name="more")
    (folder / "more.parquet").unlink()
    text = (folder / MANIFEST_FILE).read_text()
    (folder / MANIFEST_FILE).write_text(text.replace('"n_rows": ', '"n_rows": 1'))
    with pytest.raises(InputError, match="was changed, or its layout"):
        run_fit(tmp_path, str(folder), name="changed")
    (folder / MANIFEST_FILE).write_text("{}")
    with pytest.raises(InputError, match="must be a manifest that prepare wrote"):
        run_fit(tmp_path, str(folder), name="broken")


def test_the_private_copy_goes_when_the_run_does(tmp_path, rows):
    points, clients = rows
    data = write_lake(tmp_path / "lake", points, clients)
    run_fit(tmp_path, data, "--run_id=r", name="fit")
    assert [path.name for path in tmp_path.iterdir() if ".partial-" in path.name] == []


def test_a_job_without_clients_cannot_be_prepared(tmp_path, rows):
    points, clients = rows
    with pytest.raises(ConfigError, match=r"data.client_id is required for prepare"):
        run_prepare(tmp_path, write_lake(tmp_path / "lake", points, clients), client_id=None)


def test_a_fit_job_can_be_prepared_as_it_is(tmp_path, rows):
    points, clients = rows
    data = write_lake(tmp_path / "lake", points, clients)
    config = save(tmp_path / "job.yaml", lake.job(data, None, "client"))
    run_job(prepare_job.JOB, ["--config", config, "--output", str(tmp_path / "out")])
    assert len(prepared_table(tmp_path / "out")) == N_ROWS


def test_a_bound_on_the_rows_of_a_client_holds(tmp_path, rows):
    points, clients = rows
    folder = run_prepare(tmp_path, write_lake(tmp_path / "lake", points, clients), max_rows_per_client=10)
    assert "run.key" not in os.listdir(folder)
    counts = np.bincount(prepared_table(folder).column("client_id").to_numpy(), minlength=N_CLIENTS)
    np.testing.assert_array_equal(counts, np.minimum(np.bincount(clients, minlength=N_CLIENTS), 10))
    assert set(as_rows(prepared_table(folder))) <= set(sorted_rows(clients.tolist(), points))


@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_sample_depends_on_the_key_and_not_on_the_order(tmp_path, rows, unit):
    points, clients = rows
    bound = {"unit": unit, "data__max_rows_per_client": 10, "data__client_id": "client_id"}
    expected = run_fit(tmp_path, write_sorted(tmp_path / "sorted", points, clients), name="sorted-fit", **bound)
    order = np.random.default_rng(1).permutation(N_ROWS)
    mixed = write_lake(tmp_path / "mixed", points[order], clients[order], row_group_size=17)
    assert run_fit(tmp_path, mixed, "--direct_runner_bundle_repeat=2", name="mixed-fit", **bound) == expected
    assert [path for path in tmp_path.iterdir() if ".partial-" in path.name] == []


def test_a_bounded_folder_asks_for_its_bound(tmp_path, rows, caplog):
    points, clients = rows
    folder = str(run_prepare(tmp_path, write_lake(tmp_path / "lake", points, clients), max_rows_per_client=10))
    with pytest.raises(ConfigError, match=r"data.path was prepared with 10; set data.max_rows_per_client"):
        run_fit(tmp_path, folder, name="unbounded", unit="record")
    caplog.set_level(logging.INFO, logger="dapple_dp")
    bound = {"unit": "record", "data__client_id": "client_id"}
    run_fit(tmp_path, folder, name="same", data__max_rows_per_client=10, **bound)
    assert "rows are apart" not in caplog.text
    run_fit(tmp_path, folder, name="tighter", data__max_rows_per_client=4, **bound)
    assert "rows are apart" in caplog.text


@pytest.mark.parametrize("engine", [[], ["--runner=InProcess"]])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_plan_that_forgets_the_sampling_is_refused(tmp_path, rows, monkeypatch, engine, prepared):
    """The copy says that rows of clients were left out: one row may take the place of another."""
    points, clients = rows
    folder = write_lake(tmp_path / "lake", points, clients)
    if prepared:
        folder = str(run_prepare(tmp_path, folder, max_rows_per_client=10))
    bound = {"unit": "record", "data__client_id": "client_id", "data__max_rows_per_client": 10}
    run_fit(tmp_path, folder, *engine, name="planned", **bound)
    monkeypatch.setattr(planned_fit, "samples_rows", lambda config: False)
    monkeypatch.setattr(specs, "samples_rows", lambda config: False)
    with pytest.raises(PrivacyFlowError, match="must plan for rows of which one may take the place of another"):
        run_fit(tmp_path, folder, *engine, name="forgot", **bound)
