"""The size of a Parquet file is known from its pages before anything is unpacked, whatever its footer says."""

import dataclasses
import io
import pathlib
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.formats import parquet_pages
from dapple_dp.transforms.files.formats.parquet_footer import Chunk, footer_of, row_groups
from dapple_dp.transforms.files.formats.parquet_pages import Pages, pages_of
from dapple_dp.transforms.files.untrusted import TableForm
from dapple_dp.transforms.tables import shard_rows
from dapple_dp.transforms.tables.file_seal import seal_of
from dapple_dp.transforms.tables.listing import ListedFile
from dapple_dp.transforms.tables.on_launcher import ServerFiles
from dapple_dp.transforms.tables.read import _list_row_groups

ROOT = pathlib.Path(__file__).resolve().parents[3]
BY_SIZE = TableForm.by_size()
REFUSAL = Refusal(kind=InputError, rule="it must be small", remedy="write it again")
SMALL = {"compression": "zstd", "store_schema": False, "write_statistics": False, "dictionary_pagesize_limit": 1 << 30}


def written(columns, **options) -> bytes:
    with io.BytesIO() as file:
        pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), file, **SMALL | options)
        return file.getvalue()


def chunks(content: bytes) -> list[Chunk]:
    return [chunk for group in row_groups(footer_of(io.BytesIO(content))) for chunk in group.chunks]


def pages(content: bytes, number: int = 0) -> Pages:
    (group,) = row_groups(footer_of(io.BytesIO(content)))
    return pages_of(lambda place, size: content[place : place + size], group.chunks[number], group.n_rows)


def repeated(value: bytes, n_rows: int, kind: pa.DataType | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n_rows, np.int32)), pa.array([value], kind or pa.binary()))


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def read(path: pathlib.Path, **settings) -> list:
    contract = TableContract(**settings)
    shards = list(_list_row_groups(ListedFile(str(path), str(path), seal_of(str(path)).text), contract))
    return [each for shard in shards for each in shard_rows.read_blocks(shard, contract)]


# --- a footer


@pytest.mark.parametrize(
    "options", [{}, {"data_page_version": "2.0"}, {"compression": "none"}, {"use_dictionary": False}]
)
def test_footers_and_pages_are_read_as_arrow_reads_them(options):
    n = 5000
    table = pa.table(
        {
            "a": pa.array([None if i % 7 == 0 else i / 3 for i in range(n)]),
            "s": pa.array([f"t{i % 50}" for i in range(n)]),
            "l": pa.array([[float(i)] * (i % 3) for i in range(n)]),
            "n": pa.array([{"x": i, "y": [{"z": "q"}]} for i in range(n)]),
            "f": pa.array([[1.0, 2.0]] * n, pa.list_(pa.float32(), 2)),
        }
    )
    content = written(table, row_group_size=2000, write_statistics=True, write_page_index=True, **options)
    metadata = pq.read_metadata(io.BytesIO(content))
    found = row_groups(footer_of(io.BytesIO(content)))
    assert [group.n_rows for group in found] == [2000, 2000, 1000]
    for index, group in enumerate(found):
        for number, chunk in enumerate(group.chunks):
            column = metadata.row_group(index).column(number)
            assert chunk.path == column.path_in_schema
            assert (chunk.n_values, chunk.n_bytes) == (column.num_values, column.total_compressed_size)
            start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
            assert chunk.start == start
            size = pages_of(lambda place, size: content[place : place + size], chunk, group.n_rows)
            assert size.held > 0
            assert size.n_bytes <= column.total_uncompressed_size
    repeats = {chunk.path: chunk.leaf.is_repeated for chunk in found[0].chunks}
    assert repeats == {"a": False, "s": False, "l.list.element": True, "n.x": False, "n.y.list.element.z": True} | {
        "f.list.element": True
    }
    assert {chunk.leaf.name for chunk in found[0].chunks} == {"a", "s", "l", "n", "f"}


def test_a_file_without_rows_and_one_without_pages():
    content = written({"a": pa.array([], pa.float64())})
    assert pages(content) == Pages()
    assert untrusted.table_of(content, REFUSAL, BY_SIZE, foreign=True).num_rows == 0
    (group,) = row_groups(footer_of(io.BytesIO(written({"a": [1.0]}))), ())
    assert group == (1, [])


def test_a_long_list_of_empty_structs_takes_no_memory():
    n = 1 << 18
    footer = bytes([0x99, 0xFC]) + varint(n) + bytes(n) + b"\0"
    with pytest.raises(MalformedError, match="without a schema"):
        row_groups(footer)


@pytest.mark.parametrize(
    "footer",
    [
        b"\x19\x0c\x19\x0c\x00",
        b"\x29\x0c\x09\x02\x0c\x00",
        b"\x25\x04\x25\x04\x00",
        b"\x29\xfc\xff\xff\xff\xff\x7f",
        b"\x29" * 50,
        b"",
    ],
)
def test_other_footers_are_refused(footer):
    with pytest.raises((MalformedError, LookupError)):
        row_groups(footer)


def test_a_footer_of_more_than_16_mebibytes_is_refused():
    content = b"PAR1" + bytes((1 << 24) + 1) + ((1 << 24) + 1).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(InputError, match="got a footer of more than 16 MiB"):
        untrusted.table_of(content, REFUSAL, BY_SIZE)
    with pytest.raises(InputError, match="got a footer of more than 16 MiB"):
        untrusted.parquet_of(pa.BufferReader(content), REFUSAL)


def test_long_statistics_do_no_harm(tmp_path):
    table = pa.table({"a": [1.0, 2.0], "s": ["x" * 40_000, "y" * 40_000]})
    content = written(table, write_statistics=True, use_dictionary=False)
    assert len(footer_of(io.BytesIO(content))) > 1000 or pages(content, 1)
    assert pages(content, 1).n_bytes > 80_000
    (tmp_path / "x.parquet").write_bytes(content)
    assert len(read(tmp_path / "x.parquet", features=("a",), n_features=1)) == 1


def test_row_groups_that_are_one_place_of_the_file_are_refused(tmp_path):
    content = written({"a": np.arange(64.0)}, use_dictionary=False)
    (chunk,) = chunks(content)
    with pytest.raises(MalformedError, match="several in one place"):
        parquet_pages.check_apart([chunk, chunk], len(content))
    with pytest.raises(MalformedError, match="not in it"):
        parquet_pages.check_apart([chunk._replace(start=chunk.start + 1 << 20)], len(content))
    parquet_pages.check_apart([chunk, chunk._replace(n_values=0)], len(content))


# --- pages


def test_the_size_of_a_dictionary_and_of_pages():
    size = pages(written({"a": repeated(b"x" * 1000, 5000)}))
    assert size.longest == 1004
    assert 1004 < size.held < 2000
    assert size.n_bytes < 1000
    assert pages(written({"a": np.zeros(1 << 20)}, use_dictionary=False)).n_bytes >= 8 << 20
    assert pages(written({"a": repeated(b"x" * 16, 50, pa.binary(16))})).longest == 16


def test_a_value_that_begins_like_the_one_before_may_be_as_long_as_its_page():
    texts = ["x" * 5000 + str(i) for i in range(100)]
    size = pages(written({"a": texts}, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"}))
    assert size.is_front_coded
    assert size.longest >= 5000


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        (b"\x15", 1 << 33, "too large for its place"),
        (b"\x15", -5, "not in its column"),
        (b"\x16", 4, "another type"),
    ],
)
def test_headers_that_two_readers_could_understand_differently(field, value, fault):
    header = b"\x15\x00" + field + varint(value << 1 if value >= 0 else -2 * value - 1) + b"\x15\x04"
    header += b"\x2c\x15\x02\x15\x00\x00\x00"
    (chunk,) = chunks(written({"a": [1.0]}, use_dictionary=False))
    with pytest.raises(MalformedError, match=fault):
        pages_of(lambda place, size: header[place : place + size], chunk._replace(start=0), 1)


def test_a_header_that_says_a_thing_twice_is_refused():
    (chunk,) = chunks(written({"a": [1.0]}, use_dictionary=False))
    twice = b"\x15\x00\x15\x04\x15\x04\x05\x04\x06"
    with pytest.raises(MalformedError, match="twice"):
        pages_of(lambda place, size: twice[place : place + size], chunk._replace(start=0), 1)


def test_pages_that_hold_other_values_than_the_footer_counts_are_refused():
    content = written({"a": np.arange(100.0)}, use_dictionary=False)
    (chunk,) = chunks(content)
    read = lambda place, size: content[place : place + size]  # noqa: E731
    for other, n_rows in ((chunk._replace(n_values=99), 99), (chunk._replace(n_values=101), 101), (chunk, 99)):
        with pytest.raises(MalformedError, match="another number of values"):
            pages_of(read, other, n_rows)


# --- readers


BOMBS = {
    "texts": lambda: {"a": repeated(b"x" * 50_000, 2000)},
    "texts of one width": lambda: {"a": pa.array([b"x" * 5000] * 2000, pa.binary(5000))},
    "texts in lists": lambda: {"a": [["x" * 5000] * 20] * 100},
    "texts of one encoding": lambda: {"a": ["x" * 5000] * 2000},
    "numbers": lambda: {"a": pa.repeat(pa.scalar(1.0), 1_000_000)},
    "numbers in one list": lambda: {"a": pa.ListArray.from_arrays([0, 1_000_000], pa.repeat(1.0, 1_000_000))},
    "nothing": lambda: {"a": pa.nulls(1_000_000, pa.float64())},
}


@pytest.mark.parametrize("name", BOMBS)
def test_few_bytes_of_a_table_that_would_fill_the_memory_are_refused(name, monkeypatch):
    monkeypatch.setattr(untrusted, "_LEAST_TABLE_BYTES", 1 << 20)
    options = {}
    if name == "texts of one encoding":
        options = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}
    content = written(BOMBS[name](), **options)
    assert len(content) < 1 << 14
    with pytest.raises(InputError, match="more values than such a file can hold"):
        untrusted.table_of(content, REFUSAL, TableForm.by_size(), foreign=True)


def test_columns_of_another_schema_are_refused_before_they_are_read(monkeypatch):
    monkeypatch.setattr(untrusted, "_bounded_table", lambda *_: pytest.fail("read"))
    content = written({"a": repeated(b"x", 4)})
    with pytest.raises(InputError, match="got other columns"):
        untrusted.table_of(content, REFUSAL, TableForm(schema=pa.schema([("a", pa.float64())])), foreign=True)


def test_ordinary_tables_are_read():
    n = 100_000
    table = pa.table({"a": np.zeros(n), "s": ["x"] * n, "l": [[1.0]] * n, "n": pa.nulls(n), "e": [[]] * n})
    for options in ({}, {"use_dictionary": False, "compression": "none"}, {"data_page_version": "2.0"}):
        found = untrusted.table_of(written(table, **options), REFUSAL, BY_SIZE, foreign=True)
        assert found.num_rows == n


def test_clients_of_long_names_that_repeat_are_read_in_parts(tmp_path, monkeypatch):
    """The longest text of a dictionary counts, and not the dictionary."""
    ids = [f"client {i:06d}" for i in range(20_000)]
    (tmp_path / "x.parquet").write_bytes(written({"a": np.arange(20_000.0), "id": ids}))
    settings = {"features": ("a",), "n_features": 1, "client_id": "id", "by_client": True}
    contract = TableContract(**settings)
    path = str(tmp_path / "x.parquet")
    (shard,) = _list_row_groups(ListedFile(path, path, seal_of(path).text), contract)
    assert shard.widest == len(ids[0])
    (whole,) = read(tmp_path / "x.parquet", **settings)
    monkeypatch.setattr(shard_rows, "_TEXT_BYTES", 1 << 16)
    (parts,) = read(tmp_path / "x.parquet", **settings)
    assert (whole.points == parts.points).all()
    monkeypatch.setattr(shard_rows, "_MOST_TEXT_BYTES", 1 << 10)
    with pytest.raises(InputError, match="holds texts of more than"):
        shard_rows._bounded_columns(opened(path), dataclasses.replace(shard, n_bytes=0), contract.types)


@pytest.mark.parametrize("reader", ["listing", "server", "reports"])
def test_few_bytes_of_a_row_group_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch, reader):
    monkeypatch.setattr(untrusted, "_MOST_GROUP_BYTES", 1 << 22)
    monkeypatch.setattr("dapple_dp.transforms.tables.read._BOMB_BYTES", 1 << 22)
    path = tmp_path / "x.parquet"
    path.write_bytes(written({"a": np.zeros(1 << 20)}, use_dictionary=False))
    contract = TableContract(features=("a",), n_features=1)
    actions = {
        "listing": lambda: read(path, features=("a",), n_features=1),
        "server": lambda: ServerFiles.at(str(path)).points(contract),
        "reports": lambda: shard_rows.read_row_group(opened(path), 0, "a file", ["a"]),
    }
    with pytest.raises(InputError, match=r"few bytes that unpack|times its size on disk"):
        actions[reader]()


def opened(path):
    return untrusted.parquet_of(pa.OSFile(str(path)), REFUSAL)


def test_a_list_that_has_more_numbers_than_its_footer_says(tmp_path):
    """Nothing but the header of its page says how long it is."""
    content = written({"x": pa.ListArray.from_arrays([0, 60], np.arange(60.0))}, use_dictionary=False)
    start = len(content) - 8 - len(footer_of(io.BytesIO(content)))
    assert content[start:].count(bytes([0x16, 120])) == 1
    lie = content[:start] + content[start:].replace(bytes([0x16, 120]), bytes([0x16, 8]))
    (tmp_path / "x.parquet").write_bytes(lie)
    with pytest.raises(InputError, match="pages with another number of values"):
        read(tmp_path / "x.parquet", feature_list="x")


def test_columns_that_nobody_reads_are_not_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "_MOST_GROUP_BYTES", 1 << 20)
    path = tmp_path / "x.parquet"
    path.write_bytes(written({"a": np.zeros(1000), "b": repeated(b"x" * (8 << 20), 1000)}))
    (block,) = read(path, features=("a",), n_features=1)
    assert len(block.points) == 1000
    contract = TableContract(features=("a",), n_features=1)
    listed = ListedFile(str(path), str(path), seal_of(str(path)).text)
    with pytest.raises(InputError, match="few bytes that unpack"):
        list(_list_row_groups(listed, contract, ("b",)))


def test_the_memory_of_a_bomb_is_bounded(tmp_path):
    (tmp_path / "x.parquet").write_bytes(written({"a": repeated(b"\0" * (8 << 20), 1 << 10)}))
    code = (
        "import resource, sys\nfrom dapple_dp.schemas.errors import InputError\n"
        "from dapple_dp.schemas.settings.refusal import Refusal\n"
        "from dapple_dp.transforms.files import untrusted\nresource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))\n"
        "try: untrusted.table_of(open(sys.argv[1], 'rb').read(), Refusal(kind=InputError, rule='a', remedy='b'), "
        "untrusted.TableForm.by_size())\n"
        "except InputError: print(next(each for each in open('/proc/self/status') if each.startswith('VmHWM')))\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "x.parquet")]
    found = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120, check=True)
    assert int(found.stdout.split()[1]) < 1 << 20  # Not ru_maxrss: a child's starts with its parent's


# --- what a file is


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PARE" + bytes(40) + (20).to_bytes(4, "little") + b"PARE", "an encrypted Parquet file"),
        (b"\x1f\x8b" + bytes(60), "packed by gzip as a whole"),
        (b"\x28\xb5\x2f\xfd" + bytes(60), "packed by zstd as a whole"),
        (b"PK\x03\x04" + bytes(60), "a zip archive or a spreadsheet"),
        (b"ORC" + bytes(60), "an ORC file"),
        (b"ARROW1" + bytes(60), "an Arrow or Feather file"),
        (b"Obj\x01" + bytes(60), "an Avro file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        (b"PAR1" + bytes(60), "the beginning of a Parquet file that was cut off"),
        (b"a,b\n1,2\n" * 9, "something else"),
        (b"", "something else"),
    ],
)
def test_a_message_says_what_the_file_is(tmp_path, content, kind):
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(InputError, match=f"x.parquet must be a readable Parquet file, got .*{kind}"):
        read(tmp_path / "x.parquet", features=("a",), n_features=1)


@pytest.mark.parametrize("codec", ["snappy", "gzip", "brotli", "zstd", "lz4", "none"])
def test_codecs_that_can_be_read(tmp_path, codec):
    (tmp_path / "x.parquet").write_bytes(written({"a": np.arange(100.0)}, compression=codec))
    (block,) = read(tmp_path / "x.parquet", features=("a",), n_features=1)
    assert block.points[:, 0].tolist() == list(range(100))


@pytest.mark.parametrize(("codec", "name"), [(3, "lzo"), (9, "an unknown codec"), (40, "an unknown codec")])
def test_a_codec_that_cannot_be_read_is_named(codec, name):
    (chunk,) = chunks(written({"a": [1.0]}))
    with pytest.raises(MalformedError, match=f"column 'a' compressed by {name}"):
        parquet_pages.check_readable(chunk._replace(codec=codec))


def test_an_encrypted_column_is_named():
    (chunk,) = chunks(written({"a": [1.0]}))
    with pytest.raises(MalformedError, match="column 'a' encrypted"):
        parquet_pages.check_readable(chunk._replace(is_encrypted=True))
