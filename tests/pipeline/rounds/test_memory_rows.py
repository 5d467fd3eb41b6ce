"""Rows in memory come in the very blocks in which a reader finds them in a file, each once in an iteration."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.errors import InputError, LatticeOverflowError
from dapple_dp.schemas.tables.columns import group_by_client
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.encoded_column import BoundedColumn
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.rounds import memory_rows
from dapple_dp.transforms.rounds.memory_rows import GROUP_ROWS, Columns, MemoryRows
from dapple_dp.transforms.tables.listing import FileList
from dapple_dp.transforms.tables.read import _list_row_groups
from dapple_dp.transforms.tables.shard_rows import read_blocks
from dapple_dp.transforms.tables.source import find_files

LIST = TableContract(feature_list="point", n_features=3)
NAMED = TableContract(features=("a", "b", "c"), n_features=3)
ENCODER = Encoder(columns=tuple(BoundedColumn(column=each, lower=-2.0, upper=4.0, low=-1.0) for each in "abc"))
ENCODED = dataclasses.replace(NAMED, encoder=ENCODER)


def by_client(contract):
    return dataclasses.replace(contract, client_id="client", by_client=True)


def write(path, points, contract, clients=None):
    """The rows as a file has them in which no client is in several row groups."""
    order, offsets = np.arange(len(points)), np.arange(len(points) + 1)
    if clients is not None:
        order, offsets, _ = group_by_client(clients)
    columns = {"point": pa.FixedSizeListArray.from_arrays(pa.array(points[order].ravel()), points.shape[1])}
    if contract.feature_list is None:
        columns = dict(zip(contract.features, map(pa.array, points[order].T.copy()), strict=True))
    if clients is not None:
        columns["client"] = pa.array(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
    table = pa.table(columns)
    cuts = [offsets[np.searchsorted(offsets, start)] for start in range(0, len(points), GROUP_ROWS)]
    with pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
        for start, stop in itertools.pairwise(sorted({*map(int, cuts), len(points)})):
            writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)


def read(path, contract):
    for listed in FileList.of(find_files(str(path), {}), "data.path"):
        for shard in _list_row_groups(listed, contract):
            yield from read_blocks(shard, contract)


def rows(n_rows, d=3, dtype=float):
    return np.random.default_rng(n_rows).normal(size=(n_rows, d)).astype(dtype)


def grouped(sizes):
    """An id for each row: clients of these sizes, in no order."""
    ids = np.repeat([f"client-{index}" for index in range(len(sizes))], sizes)
    return pa.chunked_array([pa.array(np.random.default_rng(0).permutation(ids))])


CASES = {
    **{str(n): (rows(n), LIST, None) for n in (1, 8191, 8192, 8193, GROUP_ROWS + 9000)},
    "float32": (rows(8193, dtype=np.float32), LIST, None),
    "columns first": (np.asfortranarray(rows(8193)), LIST, None),
    "named": (rows(8193), NAMED, None),
    "named float32": (rows(8193, dtype=np.float32), NAMED, None),
    "encoded": (rows(8193), ENCODED, None),
    "wide": (rows(500, 30_000), TableContract(feature_list="point", n_features=30_000), None),
    "clients": (rows(90_000), by_client(LIST), grouped([30] * 3000)),
    "a large client": (rows(101_000), by_client(NAMED), grouped([*[1] * 500, 100_000, *[1] * 500])),
    "encoded clients": (rows(900), by_client(ENCODED), grouped([9] * 100)),
}


@pytest.mark.parametrize("case", CASES)
def test_blocks_are_those_of_a_file(tmp_path, case):
    points, contract, clients = CASES[case]
    write(tmp_path / "rows.parquet", points, contract, clients)
    source = MemoryRows(Columns(points, clients), contract)
    expected = list(read(tmp_path / "rows.parquet", contract))
    for _ in range(2):
        for found, block in zip(source, expected, strict=True):
            assert (found.points.dtype, found.points.shape) == (block.points.dtype, block.points.shape)
            assert found.points.tobytes() == block.points.tobytes()
            assert found.points.flags.c_contiguous
            assert (found.offsets is None) == (block.offsets is None)
            np.testing.assert_array_equal(found.offsets or [], block.offsets or []) if clients is None else (
                np.testing.assert_array_equal(found.offsets, block.offsets)
            )


def test_clients_come_in_the_order_of_their_first_row():
    points, ids = np.array([[1.0], [2.0], [3.0], [4.0]]), pa.chunked_array([["b", "a"], ["b", "c"]])
    (block,) = MemoryRows(Columns(points, ids), by_client(TableContract(features=("x",), n_features=1)))
    assert block.points.ravel().tolist() == [1.0, 3.0, 2.0, 4.0]
    assert block.offsets.tolist() == [0, 2, 3, 4]


def test_no_rows_and_too_many_are_refused(monkeypatch):
    with pytest.raises(InputError, match="at least one row"):
        MemoryRows(Columns(rows(0)), LIST)
    monkeypatch.setattr(memory_rows.lattice, "MAX_ROWS", 9)
    with pytest.raises(LatticeOverflowError):
        MemoryRows(Columns(rows(10)), LIST)


def changed():
    """The same rows, and others that differ in one thing each."""
    points = rows(20)
    ids, others = pa.chunked_array([pa.array([1, 2] * 10)]), pa.chunked_array([pa.array([1, 3] * 10)])
    terms = {"terms": pa.array([["a", "b"]] * 20)}
    yield Columns(points)
    yield Columns(points.astype(np.float32))
    yield Columns(points.reshape(30, 2))
    yield Columns(points + np.eye(20, 3) * 1e-12)
    yield Columns(points, ids)
    yield Columns(points, others)
    yield Columns(points, ids.cast(pa.string()))
    yield Columns(points, None, terms)
    yield Columns(points, None, {"terms": pa.array([["a"], ["b"]] * 10)})


def test_what_distinguishes_rows_is_all_of_them():
    found = [b"".join(map(bytes, each.parts())) for each in changed()]
    assert len(set(found)) == len(found)
    points = rows(20)
    for same in (points.copy(), np.asfortranarray(points), np.repeat(points, 2, axis=0)[::2]):
        assert b"".join(map(bytes, Columns(same).parts())) == found[0]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "contract",
    [LIST, NAMED, TableContract(feature_list="point", n_features=1), TableContract(features=("a",), n_features=1)],
    ids=str,
)
def test_rounds_read_the_same_rows_whatever_is_written_to_the_array(contract, order):
    """Two rounds on different rows would be two releases of which the plan knows one snapshot."""
    points = np.array(rows(2000, contract.n_features), order=order)
    found = MemoryRows(Columns(points), contract)
    before = [each.points.copy() for each in found]
    points[:] = 1e6
    for block, old in zip(found, before, strict=True):
        assert not np.shares_memory(block.points, points)
        np.testing.assert_array_equal(block.points, old)
