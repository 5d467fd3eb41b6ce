"""Clients that take part, the places of their rows, and that rows are those of the client."""

import dataclasses

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.clustered_fl.labeled_contract import LabeledContract
from dapple_dp.schemas.errors import InputError, PrivacyFlowError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.clustered_fl.labeled_clients import (
    ClientGroup,
    ClientPart,
    Clients,
    ListClients,
    RowCache,
    read_clients,
)
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bounded_rows
from dapple_dp.transforms.tables.file_seal import seal_of

CONTRACT = LabeledContract(
    table=TableContract(features=("a",), client_id="who", n_features=1, by_client=True),
    label="y",
    n_classes=9,
    feature_norm=4.0,
)
FIRST, SECOND = ShardRef("one.parquet", 0, 4), ShardRef("two.parquet", 0, 2)


def part(client: str, shard: ShardRef = FIRST, **fields: object) -> ClientPart:
    found = ClientPart(client, "strings", shard, 2, 1, "", "00")
    return found._replace(**fields)


def test_parts_of_a_client_are_put_together():
    clients = Clients.of([part("q", SECOND), part("p"), part("q")], CONTRACT)
    assert (clients.names, clients.n_rows) == (("p", "q"), (2, 4))
    assert clients.places == (
        ClientGroup(clients=(("p", 0),), shards=(FIRST,)),
        ClientGroup(clients=(("q", 1),), shards=(FIRST, SECOND)),
    )


def test_the_digest_is_of_rows_and_not_of_files():
    here = Clients.of([part("p"), part("q")], CONTRACT).digest
    assert Clients.of([part("q", SECOND), part("p", SECOND)], CONTRACT).digest == here
    assert Clients.of([part("p"), part("q", digest="01")], CONTRACT).digest != here


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "integers"}, "column 'who' must hold one type of client ids"),
        ({"n_features": 2}, r"must have width 1 as in one\.parquet, row group 0, got 2"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        Clients.of([part("p"), part("q", **change)], CONTRACT)


def test_a_client_is_in_one_group():
    with pytest.raises(InputError, match="must be the same in all rows of a client"):
        Clients.of([part("p", group="a"), part("p", SECOND, group="b")], CONTRACT)


@pytest.mark.parametrize(
    ("kind", "names", "ids"),
    [
        ("integers", ("-3", "7"), pa.array([-3, 7])),
        ("integers", ("7", str(2**64 - 1)), pa.array([2**64 - 1, 7], pa.uint64())),
        ("strings", ("7", "x"), pa.array(["7", "x"])),
        ("bytes", ("00ff", "07"), pa.array([b"\x00\xff", b"\x07"])),
    ],
)
def test_ids_come_back_as_they_were(kind, names, ids):
    found = Clients.of([part(name, kind=kind) for name in names], CONTRACT).ids()
    assert sorted(found.to_pylist()) == sorted(ids.to_pylist())
    assert found.type == ids.type


def test_declared_clients_have_names_of_the_kind_of_the_data():
    clients = Clients.of([part("7", kind="integers")], CONTRACT)
    assert clients.with_declared({"7": 5, "3": 2}).names == ("3", "7")
    with pytest.raises(InputError, match=r"data\.public_rows must name clients by integers"):
        clients.with_declared({"7": 5, "x": 2})


@pytest.fixture
def place(tmp_path) -> ClientGroup:
    """Two clients of rows that are mixed, the second one in another file, too."""
    for name, owners, values in (("a", "pqpq", [0, 1, 2, 3]), ("b", "qr", [4, 5])):
        columns = {"a": pa.array(values, pa.float64()), "y": pa.array(values), "who": list(owners)}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    files = [(str(tmp_path / f"{name}.parquet"), n_rows) for name, n_rows in (("a", 4), ("b", 2))]
    shards = tuple(ShardRef(path, 0, n_rows, file=path, seal=seal_of(path).text) for path, n_rows in files)
    return ClientGroup(clients=(("p", 0), ("q", 3)), shards=shards)


def test_rows_of_a_client_come_in_the_order_of_shards(place):
    found = read_clients(place, CONTRACT)
    assert sorted(found) == [0, 3]
    np.testing.assert_array_equal(found[0].labels, [0, 2])
    np.testing.assert_array_equal(found[3].features, np.array([[1], [3], [4]]) << 18)
    assert found[0].digest == bounded_rows(np.array([[0.0], [2.0]]), np.array([0, 2]), 4.0).digest


def test_longer_rows_are_shortened_when_they_are_read(place):
    rows = read_clients(place, dataclasses.replace(CONTRACT, feature_norm=1.5))[3]
    np.testing.assert_array_equal(rows.features.round(), [[2**20 // 1.5], [2**20], [2**20]])
    assert rows.features.dtype == np.float32


def test_a_client_without_rows_has_none(place):
    absent = ClientGroup(clients=(("z", 5),), shards=())
    assert read_clients(absent, CONTRACT)[5].features.shape == (0, 1)


@pytest.mark.parametrize(("most_bytes", "kept"), [(1 << 20, True), (59, False), (60, True)])
def test_a_cache_keeps_what_fits(place, most_bytes, kept):
    cache = RowCache()
    first = cache.rows(place, CONTRACT, most_bytes)
    assert (cache.rows(place, CONTRACT, most_bytes) is first) == kept


TWO, OTHER = ClientGroup(clients=(("p", 0), ("q", 1)), shards=(FIRST, SECOND)), ClientGroup(clients=(), shards=(FIRST,))


@pytest.mark.parametrize(
    ("places", "once"),
    [
        ((TWO, OTHER), True),
        ((TWO, dataclasses.replace(OTHER, clients=(("r", 2),))), True),
        ((TWO, dataclasses.replace(OTHER, clients=(("r", 1),))), False),
        ((TWO, dataclasses.replace(OTHER, shards=(SECOND, FIRST, SECOND))), False),
    ],
)
def test_a_client_and_each_of_its_shards_are_listed_once(places, once):
    root = beam.Pipeline()
    if once:
        assert isinstance(root | ListClients(places=places), beam.PCollection)
        return
    with pytest.raises(PrivacyFlowError, match="must be listed once, got some several times"):
        root | ListClients(places=places)
