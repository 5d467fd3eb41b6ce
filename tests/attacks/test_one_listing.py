"""A job reads the files that it listed, each once and as it was: nothing that appears, moves or changes meanwhile.

Files that arrived between two listings once made ten units of every client; a link in a lake counted rows twice.
"""

import ast
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import socket
from types import SimpleNamespace

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.command.main import JOBS
from dapple_dp.pipelines.run import round_driver
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.tables import client_staging, prepare, private_source
from dapple_dp.pipelines.tables.private_source import JobRows, grouped_source, staged_listing
from dapple_dp.schemas.errors import InputError, PrivacyFlowError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.prepared_layout import PreparedManifest
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.tables import prepared_files
from dapple_dp.transforms.tables.file_seal import FileSeal, open_sealed, seal_of
from dapple_dp.transforms.tables.listing import FileList, FoundFile, read_listing
from dapple_dp.transforms.tables.read import ListShards, _list_row_groups
from dapple_dp.transforms.tables.shard_rows import read_batches, read_columns
from dapple_dp.transforms.tables.source import Source
from tests.scenes import lake, tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTRACT = TableContract(features=(), feature_list="x", n_features=4)
BY_CLIENT = dataclasses.replace(CONTRACT, client_id="client_id", by_client=True)
N_CLIENTS = 30


def listed(path: object, **settings) -> Source:
    """The files of a job, which are listed now."""
    data = DataConfig(path=str(path), features="x", **settings)
    source = private_source.private_source(SimpleNamespace(data=data))
    assert source.listed.files
    return source


def names(source: Source) -> list[str]:
    return [each.path for each in source.listed.files]


def shards_of(source: Source) -> list[ShardRef]:
    return [shard for each in source.listed.files for shard in _list_row_groups(each, CONTRACT)]


def part(n_rows: int = 60, seed: int = 0) -> pa.Table:
    return lake.table_of(lake.mixture(n_rows, seed), np.arange(n_rows) % N_CLIENTS)


def plain_file(path: pathlib.Path, value: float, n_rows: int = 40) -> str:
    """A file whose size and footer do not depend on its values, last changed long ago.

    Times of files move on in steps of milliseconds, so that two changes in a row may have one time.
    """
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(np.full(4 * n_rows, value)), 4)})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    os.utime(path, (1e9 + value, 1e9 + value))
    return str(path)


@pytest.fixture
def place(tmp_path) -> pathlib.Path:
    lake.write_files(tmp_path / "lake", [part()])
    return tmp_path


def job_rows(place: pathlib.Path) -> JobRows:
    data = DataConfig(path=str(place / "lake"), features="x", client_id="client_id")
    source = private_source.private_source(SimpleNamespace(data=data))
    return JobRows(data=data, source=source, contract=BY_CLIENT)


def read_by_a_graph(source: Source, contract: TableContract, out: pathlib.Path) -> list[ShardRef]:
    """The shards that workers see."""

    def save(shards: list, path: str) -> None:
        pathlib.Path(path).write_text(json.dumps([dataclasses.asdict(each) for each in shards]))

    def build(root: beam.Pipeline) -> None:
        shards = root | ListShards(source=source, contract=contract)
        _ = shards | beam.combiners.ToList() | beam.Map(save, str(out))

    lake.run_unchecked(build, beam_options([]))
    return [shard for each in json.loads(out.read_text()) if (shard := ShardRef(**each)) != EMPTY_SHARD]


# --- finding A2: appended files


def test_files_that_arrive_after_the_check_of_clients_are_not_read(place, monkeypatch):
    """Ten files with the same clients, of which nine land when the first was found to hold clients whole."""
    honest = client_staging._any_split

    def and_then_an_append(*words):
        found = honest(*words)
        for index in range(9):
            pq.write_table(part(seed=index), place / "lake" / f"late-{index}.parquet")
        return found

    monkeypatch.setattr(client_staging, "_any_split", and_then_an_append)
    with client_staging.staged_by_client(job_rows(place), beam_options([]), "", str(place / "run")) as rows:
        found = read_by_a_graph(rows.source, rows.contract, place / "shards.json")
    assert sum(each.n_rows for each in found) == 60
    assert len(list((place / "lake").iterdir())) == 10


def test_bytes_of_a_prepared_file_that_were_changed_are_noticed(place):
    """Size, footer and time of change are those of before, but a client's rows may be in another file now."""
    folder = place / "prepared"
    os.makedirs(folder)
    grouping = prepare.Grouping(contract=BY_CLIENT, folder=str(folder))
    prepare.group(lake.staged(Source(path=str(place / "lake")), place), beam_options([]), grouping)
    source = listed(folder)
    first = next(iter(source.listed.files))
    assert len(FileSeal.of_text(first.seal).content) == 64
    shards = list(_list_row_groups(first, BY_CLIENT))
    assert all(not FileSeal.of_text(shard.seal).content for shard in shards)
    before = os.stat(first.file)
    with open(first.file, "r+b") as file:
        file.seek(before.st_size // 4)
        byte = file.read(1)[0]
        file.seek(before.st_size // 4)
        file.write(bytes([byte ^ 1]))
    os.utime(first.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    for found in (first, next(iter(listed(folder).listed.files))):
        with pytest.raises(InputError, match=r"was changed after prepare wrote it; run prepare again"):
            list(_list_row_groups(found, BY_CLIENT))


def test_copies_in_a_prepared_folder_are_not_read(place, monkeypatch):
    config = prepare.load_prepare_config(
        json.dumps({"data": {"path": str(place / "lake"), "features": "x", "client_id": "client_id"}})
    )
    assert config.data.client_id
    folder = place / "prepared"
    folder.mkdir()
    grouping = prepare.Grouping(contract=BY_CLIENT, folder=str(folder))
    prepare.group(lake.staged(Source(path=str(place / "lake")), place), beam_options([]), grouping)
    honest = prepared_files.read_manifest

    def and_then_copies(path):
        found = honest(path)
        for index in range(4):
            shutil.copy(folder / "shard-0000000.parquet", folder / f"copy-{index}.parquet")
        return found

    monkeypatch.setattr(private_source, "read_manifest", and_then_copies)
    source = listed(folder)
    assert names(source) == [str(folder / "shard-0000000.parquet")]
    assert source.listed.files.manifest is not None


def test_what_a_killed_attempt_left_in_the_copy_is_not_read(place):
    """Finding A10: shards of an earlier attempt are where the copy goes, and one more is put there afterwards."""
    with client_staging.staged_by_client(job_rows(place), beam_options([]), "", str(place / "run")):
        pass
    copy = place / "run.clients"
    copy.mkdir()
    lake.write_files(copy, [part(), part()])
    pq.write_table(part(), place / "lake" / "part-01.parquet")
    with client_staging.staged_by_client(job_rows(place), beam_options([]), "", str(place / "run")) as rows:
        assert rows.counted
        pq.write_table(part(), copy / "late.parquet")
        assert [each.path for each in read_listing(rows.source.listing)] == [str(copy / "shard-0000000.parquet")]
    assert not copy.exists()


# --- finding A4: two names of one file


def soft(target: pathlib.Path, link: pathlib.Path) -> None:
    link.symlink_to(target)


def hard(target: pathlib.Path, link: pathlib.Path) -> None:
    link.hardlink_to(target)


def relative(target: pathlib.Path, link: pathlib.Path) -> None:
    link.symlink_to(os.path.relpath(target, link.parent))


def chain(target: pathlib.Path, link: pathlib.Path) -> None:
    between = link.parent.parent / "between"
    between.symlink_to(target)
    link.symlink_to(between)


@pytest.mark.parametrize("make", [soft, hard, relative, chain], ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", ["latest.parquet", "deeper/dt=1/latest.parquet"])
def test_a_second_name_of_a_file_is_refused(place, make, name):
    link = place / "lake" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    make(place / "lake" / "part-00.parquet", link)
    with pytest.raises(InputError, match=r"data\.path names one file twice, as .*latest\.parquet.*remove one"):
        listed(place / "lake")


def test_the_command_refuses_a_second_name_and_writes_nothing(place):
    (place / "lake" / "latest.parquet").symlink_to("part-00.parquet")
    server = lake.write_server(place / "server.parquet")
    outcome = lake.run_job(lake.job(str(place / "lake"), server), place)
    assert (outcome.code, outcome.out) == (2, "")
    assert "names one file twice" in outcome.lines[-1]
    assert not list(place.glob("out*"))


def test_a_log_that_names_a_file_by_two_paths_is_refused(tmp_path):
    root = tables.write_delta(tmp_path / "t", [part()])
    actions = tables.delta_actions(root)
    add = next(each["add"] for each in actions if "add" in each)
    other = tmp_path / "other.parquet"
    other.hardlink_to(pathlib.Path(root) / add["path"])
    tables.rewrite_delta(root, [*actions, {"add": add | {"path": str(other)}}])
    with pytest.raises(InputError, match=r"data\.path names one file twice"):
        listed(root, table={"format": "delta"})


# --- finding A5: partitions


@pytest.fixture
def exports(tmp_path) -> pathlib.Path:
    """A lake that is itself in a folder of a date, with folders of three dates."""
    root = tmp_path / "exports" / "dt=2026-11-20" / "visits"
    for day in (18, 19, 20):
        lake.write_files(root / f"dt=2026-11-{day}", [part()])
    return root


def test_a_folder_above_the_data_is_no_partition(exports):
    found = names(listed(exports, partitions={"dt": "2026-11-20"}))
    assert found == [str(exports / "dt=2026-11-20" / "part-00.parquet")]
    with pytest.raises(InputError, match=r"No Parquet or CSV file found at .*\(data\.path\)"):
        listed(exports / "dt=2026-11-19", partitions={"dt": "2026-11-20"})


def test_the_innermost_folder_is_the_partition(exports):
    nested = lake.write_files(exports / "dt=2026-11-20" / "dt=2026-11-18", [part()])
    found = names(listed(exports, partitions={"dt": "2026-11-20"}))
    assert found == [str(exports / "dt=2026-11-20" / "part-00.parquet")]
    assert f"{nested}/part-00.parquet" in names(listed(exports, partitions={"dt": "2026-11-18"}))


def test_a_file_called_like_a_folder_and_a_glob(exports):
    pq.write_table(part(), exports / "dt=2026-11-19" / "dt=2026-11-20.parquet")
    expected = [str(exports / "dt=2026-11-20" / "part-00.parquet")]
    assert names(listed(f"{exports}/*/*.parquet", partitions={"dt": "2026-11-20"})) == expected
    assert names(listed(f"{exports}/dt=*/*", partitions={"dt": "2026-11-20"})) == expected


# --- finding F16: what is no file


def test_pipes_and_sockets_are_refused_at_once(place):
    os.mkfifo(place / "lake" / "p.parquet")
    with pytest.raises(InputError, match=r"data\.path must name regular files, and .*p\.parquet is a pipe"):
        listed(place / "lake")
    with pytest.raises(InputError, match=r"regular files"):
        listed(place / "lake" / "p.parquet")
    (place / "lake" / "p.parquet").unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place / "lake" / "s.parquet"))
        with pytest.raises(InputError, match=r"regular files"):
            listed(place / "lake")


def test_a_device_behind_a_link_is_refused(place):
    (place / "lake" / "zero.parquet").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"regular files, and .*zero\.parquet"):
        listed(place / "lake")


def test_a_pipe_that_takes_the_place_of_a_file_does_not_keep_a_worker_waiting(place):
    (shard,) = shards_of(listed(place / "lake"))
    os.unlink(shard.file)
    os.mkfifo(shard.file)
    with pytest.raises(InputError, match=r"regular files"):
        read_columns(shard, {"x": pa.float64()})


# --- files that change


def swap(path: str, other: str) -> None:
    os.replace(other, path)


def touch(path: str, other: str) -> None:
    os.utime(path)


def in_place(path: str, other: str) -> None:
    """Other values under the same footer, in the same file."""
    assert seal_of(path).footer == seal_of(other).footer
    with open(path, "r+b") as file:
        file.write(pathlib.Path(other).read_bytes())


def other_footer_same_times(path: str, other: str) -> None:
    """Another file of the same size with the same time of change."""
    before = os.stat(path)
    table = pq.read_table(path)
    pq.write_table(table.rename_columns(["y"]), other, compression="none", use_dictionary=False, write_statistics=False)
    assert os.stat(other).st_size == before.st_size
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(other, path)


@pytest.mark.parametrize("change", [swap, touch, in_place, other_footer_same_times], ids=lambda change: change.__name__)
def test_a_listed_file_that_changed_is_refused_wherever_it_is_opened(tmp_path, change):
    (tmp_path / "lake").mkdir()
    path, other = plain_file(tmp_path / "lake" / "a.parquet", 1.0), plain_file(tmp_path / "b.parquet", 2.0)
    source = listed(tmp_path / "lake")
    (shard,) = shards_of(source)
    change(path, other)
    for read in (
        lambda: shards_of(source),
        lambda: read_columns(shard, {"x": pa.float64()}),
        lambda: list(read_batches(shard, {"x": pa.float64()})),
    ):
        with pytest.raises(InputError, match=r"a\.parquet was changed after the job listed it"):
            read()


def test_a_swap_and_back_is_seen_while_it_lasts(tmp_path):
    """A at the listing, B when the rows are read, A again at the end: a comparison at the end alone sees nothing."""
    (tmp_path / "lake").mkdir()
    path, other = plain_file(tmp_path / "lake" / "a.parquet", 1.0), plain_file(tmp_path / "b.parquet", 2.0)
    (shard,) = shards_of(listed(tmp_path / "lake"))
    away = tmp_path / "away"
    os.rename(path, away)
    os.rename(other, path)
    with pytest.raises(InputError, match=r"was changed after the job listed it"):
        read_columns(shard, {"x": pa.float64()})
    os.rename(away, path)
    assert read_columns(shard, {"x": pa.float64()}).num_rows == 40


def test_a_change_while_a_file_is_read_is_seen(tmp_path):
    (tmp_path / "lake").mkdir()
    path = plain_file(tmp_path / "lake" / "a.parquet", 1.0, 20_000)
    (shard,) = shards_of(listed(tmp_path / "lake"))
    batches = read_batches(shard, {"x": pa.float64()})
    next(batches)
    in_place(path, plain_file(tmp_path / "b.parquet", 2.0, 20_000))
    with pytest.raises(InputError, match=r"was changed after the job listed it"):
        list(batches)


def test_a_shard_without_a_seal_is_not_read(place):
    path = str(place / "lake" / "part-00.parquet")
    for seal in ("", "garbage", f"{os.stat(path).st_size}", FileSeal(os.stat(path).st_size, "").text):
        with pytest.raises(InputError, match=r"was changed after the job listed it"):
            read_columns(ShardRef(path, 0, 60, file=path, seal=seal), {"x": pa.float64()})


def test_a_lake_that_changes_before_the_graph_runs_ends_the_job_with_nothing_written(place, monkeypatch):
    """The last round must not be drawn from rows that the first did not see."""
    honest = round_driver.run_graph

    def after_a_change(*words):
        pq.write_table(part(seed=1), place / "lake" / "part-00.parquet")
        return honest(*words)

    monkeypatch.setattr(round_driver, "run_graph", after_a_change)
    outcome = lake.run_job(lake.job(str(place / "lake"), lake.write_server(place / "server.parquet")), place)
    assert (outcome.code, outcome.out) == (2, "")
    assert "was changed after the job listed it" in outcome.lines[-1]
    assert not list(place.glob("out*"))


# --- links that are pinned


def test_a_mounted_volume_that_is_renewed_is_read_as_it_was(tmp_path):
    """Kubernetes mounts are links of links: NAME -> ..data/NAME, ..data -> ..2026_11_20."""
    for day, seed in (("..2026_11_20", 0), ("..2026_11_21", 1)):
        lake.write_files(tmp_path / "mount" / day, [part(seed=seed)])
    (tmp_path / "mount" / "..data").symlink_to("..2026_11_20")
    (tmp_path / "mount" / "part-00.parquet").symlink_to("..data/part-00.parquet")
    (tmp_path / "mount" / "..next").symlink_to("..2026_11_21")
    source = listed(tmp_path / "mount")
    assert names(source) == [str(tmp_path / "mount" / "part-00.parquet")]
    expected = read_columns(shards_of(source)[0], {"x": pa.float64()})
    os.replace(tmp_path / "mount" / "..next", tmp_path / "mount" / "..data")
    assert read_columns(shards_of(source)[0], {"x": pa.float64()}) == expected
    shutil.rmtree(tmp_path / "mount" / "..2026_11_20")
    with pytest.raises(InputError, match=r"part-00\.parquet\) could not be read"):
        read_columns(
            ShardRef(names(source)[0], 0, 60, file=source.listed.files.first.file, seal="1 1 1"), {"x": pa.float64()}
        )


# --- the listing itself


def test_a_listing_that_was_changed_is_refused(place):
    lake.write_files(place / "lake" / "more", [part()])
    source = lake.staged(listed(place / "lake"), place / "staging")
    path = pathlib.Path(source.listing.path)
    lines = path.read_bytes().splitlines(keepends=True)
    for content in (b"", lines[0], lines[0] * 2, b"".join([*lines, lines[0]]), b"[" * 9, b"".join(lines)[:-1]):
        path.write_bytes(content)
        with pytest.raises(
            InputError, match=r"The list of input files in the staging folder is missing or was changed"
        ):
            list(read_listing(source.listing))
    path.unlink()
    with pytest.raises(InputError, match=r"list of input files"):
        list(read_listing(source.listing))


def test_a_graph_does_not_grow_with_the_number_of_files(place):
    """Nor does it hold the name of one."""

    def graph() -> bytes:
        root = beam.Pipeline(options=beam_options([]))
        with staged_listing(listed(place / "lake"), str(place)) as source:
            _ = root | ListShards(source=source, contract=CONTRACT)
        return bytes(root.to_runner_api().SerializeToString())

    one = graph()
    for index in range(300):
        shutil.copy(place / "lake" / "part-00.parquet", place / "lake" / f"copy-{index}.parquet")
    many = graph()
    assert abs(len(many) - len(one)) < 100
    assert b"part-00" not in many


def test_a_listing_goes_before_anything_is_published(place):
    source = listed(place / "lake")
    with staged_listing(source, str(place)) as staged:
        assert pathlib.Path(staged.listing.path).exists()
    assert not pathlib.Path(staged.listing.path).exists()


def test_files_of_a_store_are_distinguished_by_their_names():
    found = [FoundFile("gs://lake/a.parquet", 5, "1.0"), FoundFile("gs://lake/./a.parquet", 5, "1.0")]
    with pytest.raises(InputError, match=r"names one file twice"):
        FileList.of(found, "data.path")
    assert len(FileList.of([found[0], found[0]], "data.path")) == 1


def test_a_manifest_that_names_files_elsewhere_is_refused(place):
    folder = place / "prepared"
    folder.mkdir()
    grouping = prepare.Grouping(contract=BY_CLIENT, folder=str(folder))
    prepare.group(lake.staged(Source(path=str(place / "lake")), place), beam_options([]), grouping)
    path = folder / "manifest.json"
    manifest = PreparedManifest.from_json(path.read_text(), str(path))
    outside = manifest.files[0]._replace(name="../lake/part-00.parquet")
    for files in ((outside,), (manifest.files[0]._replace(name="./shard-0000000.parquet"),)):
        path.write_text(manifest.model_copy(update={"files": files}).to_json())
        with pytest.raises(
            InputError, match=r"must (be a manifest that prepare wrote|hold the files that its manifest lists)"
        ):
            _ = grouped_source(str(folder)).listed.files


def test_files_are_listed_once_and_not_before_they_are_asked_for(place):
    source = private_source.private_source(SimpleNamespace(data=DataConfig(path=str(place / "lake"), features="x")))
    pq.write_table(part(), place / "lake" / "part-01.parquet")
    assert len(source.listed.files) == 2
    pq.write_table(part(), place / "lake" / "part-02.parquet")
    assert len(source.listed.files) == 2


# --- structure: no job goes around


def test_a_graph_without_a_listing_is_refused(place):
    for source in (Source(path=str(place / "lake")), Source(path="", files=(str(place / "lake"),)), listed(place)):
        with pytest.raises(PrivacyFlowError, match=r"A job must list its files"):
            _ = beam.Pipeline(options=beam_options([])) | ListShards(source=source, contract=CONTRACT)


FINDS_FILES = {"resolve", "find_files", "list_files", "list_snapshot", "FileList", "read_manifest", "Source"}
"""Names by which a module could find private files, or a source without a listing."""
ALLOWED = {
    "pipelines/tables/private_source.py": FINDS_FILES,
    # Types, and what was written just now.
    "pipelines/tables/prepare.py": {"Source", "read_manifest"},
    "pipelines/tables/client_staging.py": {"Source"},
    # A type: files that `PrivateSource` has listed, whose bytes are hashed.
    "pipelines/kmeans/plan/fingerprint.py": {"Source", "FileList"},
    "pipelines/kmeans/plan/file_digests.py": {"FileList"},
    # Reports, which are private on their own.
    "pipelines/reports/source.py": {"find_files", "list_files"},
}
READS_ROWS = {"ListShards", "first_schema", "first_look", "open_sealed"}


def imported(path: pathlib.Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


def called(path: pathlib.Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


SOURCES = [path for floor in ("pipelines", "dapple_dp") for path in sorted((ROOT / floor).rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_only_the_gate_finds_private_files(path):
    name = str(path.relative_to(ROOT))
    found = imported(path) & FINDS_FILES
    if "Source" in found and "Source" not in called(path):
        found.remove("Source")
    assert found <= ALLOWED.get(name, set()), f"{name} must get its files from pipelines/tables/private_source.py"


def test_every_job_that_reads_rows_passes_the_gate():
    gates = {"private_source", "staged_by_client", "planned_role", "prepare", "pooled_fit", "evaluation_source"}
    # ClientsRole.staged passes staged_by_client, run_on_rows passes private_source.
    gates |= {"ClientsRole", "run_on_rows"}
    readers = {str(path.relative_to(ROOT)) for path in SOURCES if imported(path) & READS_ROWS}
    # The rounds of a fit are given one that is planned.
    given = {"fingerprint.py", "client_staging.py", "fit_rounds.py", "private_source.py", "public_facts.py"}
    for name in {each for each in readers if pathlib.Path(each).name not in given}:
        assert imported(ROOT / name) & gates, name
    assert len(readers) >= 10
    assert set(JOBS) == {
        *("fit", "prepare", "assign", "evaluate", "profile", "sweep", "upload", "encode", "clustered_fl"),
        *("aggregate", "unmask", "shuffle", "decode"),
        "topics",  # a fit with names
        "stream",  # a fit for each window
    }, "a new job that reads private rows must pass private_source; say here that it was looked at"


def test_a_file_is_opened_by_its_real_name(place):
    opened = functools.partial(open_sealed, name="x")
    real = str(place / "lake" / "part-00.parquet")
    with opened(real, seal_of(real).text) as (file, seal):
        assert (file.metadata.num_rows, seal) == (60, seal_of(real))
