"""Links in a folder of data: those to folders are followed, and none is left out in silence."""

import os
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.errors import InputError
from dapple_dp.transforms.tables.listing import FileList
from dapple_dp.transforms.tables.source import find_files

TABLE = pa.table({"a": [1.0, 2.0]})


@pytest.fixture
def place(tmp_path) -> pathlib.Path:
    """A lake of two days, and a disk beside it with a third one."""
    for folder in ("lake/day=1", "lake/day=2", "disk/day=3"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(TABLE, tmp_path / folder / "x.parquet")
    return tmp_path


def found(path, partitions=None) -> list[str]:
    files = FileList.of(find_files(str(path), partitions or {}), "data.path")
    return [os.path.relpath(each.path, path) for each in files]


def refusal(path, partitions=None) -> str:
    with pytest.raises(InputError) as caught:
        found(path, partitions)
    return str(caught.value)


def test_a_link_to_a_folder_is_followed_and_its_files_are_pinned(place):
    (place / "lake/day=3").symlink_to(place / "disk/day=3")
    assert found(place / "lake") == [f"day={day}/x.parquet" for day in (1, 2, 3)]
    assert found(place / "lake", {"day": "3"}) == ["day=3/x.parquet"]
    files = FileList.of(find_files(str(place / "lake"), {"day": "3"}), "data.path")
    assert files.first.file == str(place / "disk/day=3/x.parquet")
    listed = FileList.of(find_files(f"{place}/lake/*/*.parquet", {}), "data.path")
    assert len(listed) == 3


def test_a_link_to_a_link_and_a_link_inside_of_a_linked_folder(place):
    (place / "second").symlink_to(place / "disk")
    (place / "lake/more").symlink_to(place / "second")
    (place / "elsewhere").mkdir()
    pq.write_table(TABLE, place / "elsewhere/y.parquet")
    (place / "disk/day=4").symlink_to("../elsewhere")
    assert found(place / "lake")[-2:] == ["more/day=3/x.parquet", "more/day=4/y.parquet"]


def test_data_path_may_be_a_link_itself(place):
    (place / "now").symlink_to("lake")
    assert found(place / "now") == ["day=1/x.parquet", "day=2/x.parquet"]


@pytest.mark.parametrize("target", ["..", ".", "../../lake", "../../now"])
def test_a_loop_is_refused_by_name(place, target):
    (place / "now").symlink_to("lake")
    (place / "lake/day=2/again").symlink_to(target)
    assert "day=2/again is a link to a folder that contains it" in refusal(place / "lake")
    assert "day=2/again" in refusal(place / "now")


def test_a_loop_where_the_pattern_does_not_look_does_no_harm(place):
    pq.write_table(TABLE, place / "lake/top.parquet")
    (place / "lake/day=2/again").symlink_to("..")
    assert len(FileList.of(find_files(f"{place}/lake/*.parquet", {}), "data.path")) == 1
    assert len(FileList.of(find_files(f"{place}/lake/day=[1-9]/*.parquet", {}), "data.path")) == 2


def test_two_folders_that_link_to_each_other_are_refused(place):
    (place / "lake/day=1/b").symlink_to("../day=2")
    (place / "lake/day=2/a").symlink_to("../day=1")
    assert "is a link to a folder that contains it" in refusal(place / "lake")


def test_a_folder_under_two_names_would_count_twice(place):
    (place / "lake/copy").symlink_to("day=2")
    assert "names one file twice" in refusal(place / "lake")
    (place / "lake/copy").unlink()
    for name in ("one", "two"):
        (place / f"lake/{name}").symlink_to(place / "disk")
    assert "names one file twice" in refusal(place / "lake")


@pytest.mark.parametrize("name", ["day=3", "day=3.5", "more", "x.parquet", "x.csv.gz", "day=1/y.pq"])
def test_a_link_that_leads_nowhere_is_refused_by_name(place, name):
    (place / "lake" / name).symlink_to(place / "gone")
    assert f"{name} is a link to a file or folder that doesn't exist" in refusal(place / "lake")


def test_a_link_that_leads_to_itself_is_refused_by_name(place):
    (place / "lake/day=3").symlink_to("day=3")
    assert "day=3 is a link to a file or folder that doesn't exist" in refusal(place / "lake")


@pytest.mark.parametrize("name", ["_day=3", ".more", "README.txt", "_temporary", "day=1/.x.parquet"])
def test_a_link_that_leads_nowhere_and_is_no_data_does_no_harm(place, name):
    (place / "lake" / name).symlink_to(place / "gone")
    assert len(found(place / "lake")) == 2


def test_a_hidden_loop_does_no_harm(place):
    (place / "lake/.snapshot").symlink_to(".")
    assert len(found(place / "lake")) == 2


def test_a_link_that_leads_nowhere_counts_only_where_it_could_match(place):
    (place / "lake/day=3").symlink_to(place / "gone")
    assert found(place / "lake", {"day": "2"}) == ["day=2/x.parquet"]
    assert "day=3 is a link" in refusal(place / "lake", {"day": "3"})
    windows = find_files(str(place / "lake"), {}, one_of=("day", ("1", "2")))
    assert len(FileList.of(windows, "data.path")) == 2
    assert len(FileList.of(find_files(f"{place}/lake/day=[12]/*.parquet", {}), "data.path")) == 2
    with pytest.raises(InputError, match="day=3 is a link"):
        FileList.of(find_files(f"{place}/lake/*/*.parquet", {}), "data.path")


@pytest.mark.skipif(os.geteuid() == 0, reason="root opens every folder")
def test_a_folder_that_is_shut_is_refused_by_name(place):
    (place / "lake/day=2").chmod(0)
    try:
        assert "day=2 can't be opened" in refusal(place / "lake")
        assert found(place / "lake", {"day": "1"}) == ["day=1/x.parquet"]
    finally:
        (place / "lake/day=2").chmod(0o700)


def test_a_linked_folder_of_a_table_is_refused(place):
    (place / "table/_delta_log").mkdir(parents=True)
    (place / "table/_delta_log/00000000000000000000.json").write_text("{}")
    (place / "table/day=3").mkdir()
    pq.write_table(TABLE, place / "table/day=3/x.parquet")
    (place / "lake/day=3").symlink_to(place / "table/day=3")
    assert "names files of the table" in refusal(place / "lake")


def test_names_with_the_letters_of_patterns_are_names(place):
    (place / "disk/[a]*").mkdir()
    pq.write_table(TABLE, place / "disk/[a]*/z.parquet")
    (place / "lake/li[n]k").symlink_to(place / "disk/[a]*")
    assert "li[n]k/z.parquet" in found(place / "lake")
