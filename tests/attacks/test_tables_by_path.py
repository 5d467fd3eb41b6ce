"""The files of a Delta or Iceberg table are not read as if they were a lake: deleted people may be among them."""

import pathlib

import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.errors import InputError
from dapple_dp.transforms.tables.source import find_files, list_files
from tests.scenes import lake, tables


def rows():
    return tables.columns_of(lake.mixture(40))


@pytest.fixture
def delta(tmp_path) -> pathlib.Path:
    return pathlib.Path(tables.write_delta(tmp_path / "lake" / "visits", [rows(), rows()]))


@pytest.fixture
def iceberg(tmp_path) -> pathlib.Path:
    table = tables.write_iceberg(tmp_path / "warehouse", [rows()])
    return pathlib.Path(tables.metadata_path(table)).parent.parent


def refused(path) -> None:
    with pytest.raises(InputError, match=r"data\.path names files of the table whose log is"):
        list(find_files(str(path), {}))


def data_file(root) -> pathlib.Path:
    return next(path for path in sorted(root.rglob("*.parquet")) if "_delta_log" not in str(path))


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
@pytest.mark.parametrize(
    "spelled",
    [
        pytest.param(lambda root: root, id="root"),
        pytest.param(lambda root: f"{root}/", id="slash"),
        pytest.param(lambda root: root.parent, id="above"),
        pytest.param(lambda root: f"{root}/../{root.name}", id="dots"),
        pytest.param(lambda root: data_file(root), id="one file"),
        pytest.param(lambda root: f"{data_file(root).parent}/*.parquet", id="glob"),
        pytest.param(lambda root: f"{root.parent}/*/**", id="glob above"),
    ],
)
def test_a_table_by_path_is_refused(request, format_, spelled):
    refused(spelled(request.getfixturevalue(format_)))


def test_a_partition_of_a_table_is_refused(tmp_path):
    table = rows().append_column("night", [["a", "b"] * 20])
    root = pathlib.Path(tables.write_delta(tmp_path / "visits", [table], "night"))
    refused(root / "night=a")


def test_a_link_to_a_table_is_refused(delta, tmp_path):
    (tmp_path / "linked").symlink_to(delta)
    refused(tmp_path / "linked")


def test_a_link_to_a_file_of_a_table_is_refused(delta, tmp_path):
    place = tmp_path / "other"
    place.mkdir()
    (place / "latest.parquet").symlink_to(data_file(delta))
    refused(place)


@pytest.mark.parametrize("name", ["checkpoint.parquet", "checkpoint.0a1b.json", "checkpoint.0001.0002.parquet"])
def test_a_checkpoint_alone_reveals_a_table(delta, name):
    for log in (delta / "_delta_log").iterdir():
        log.unlink()
    (delta / "_delta_log" / f"{10:020d}.{name}").write_bytes(b"{}")
    refused(delta)


@pytest.mark.parametrize("spelled", [".", "./", "*.parquet"])
def test_a_path_within_the_working_folder_is_reported(delta, monkeypatch, spelled):
    monkeypatch.chdir(delta)
    refused(spelled)


def test_server_data_that_are_a_link_into_a_table(delta, tmp_path):
    (tmp_path / "server.parquet").symlink_to(data_file(delta))
    with pytest.raises(InputError, match=r"server_data\.path names files of the table"):
        list(find_files(str(tmp_path / "server.parquet"), {}, "server_data.path"))


def test_server_data_are_no_table_either(delta):
    with pytest.raises(InputError, match=r"server_data\.path names files of the table"):
        list(find_files(str(delta), {}, "server_data.path"))


def test_a_command_refuses_it_in_one_sentence(delta, tmp_path):
    settings = lake.job(str(delta), tables.write_server(tmp_path), data__features=tables.NAMES)
    done = lake.run_job(settings, tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "name the table itself, with a section table" in done.err
    assert not (tmp_path / "out").exists()


def test_a_folder_beside_a_table_is_a_lake(delta, tmp_path):
    """A folder called metadata, or a log of something else, makes no table."""
    place = tmp_path / "other"
    (place / "metadata").mkdir(parents=True)
    (place / "metadata" / "notes.json").write_text("{}")
    (place / "_delta_log").mkdir()
    (place / "_delta_log" / "notes.txt").write_text("mine")
    pq.write_table(rows(), place / "rows.parquet")
    assert list_files(str(place), {}) == [str(place / "rows.parquet")]
