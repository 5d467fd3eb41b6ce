"""Every kind of client id that a lake may hold is read alike by every job that groups rows by client.

Ids that are strings once stopped `profile` half-way, after its budget was charged: 32-bit offsets were read as 64-bit.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.transforms.profile.measure_clusters import clients_of
from dapple_dp.transforms.profile.rows import CLIENT
from dapple_dp.transforms.tables import client_ids
from tests.scenes import lake
from tests.scenes.models import run_model_job, write_model

KINDS = {
    "int64": lambda ids: pa.array(ids, pa.int64()),
    "int8": lambda ids: pa.array(ids, pa.int8()),
    "uint64": lambda ids: pa.array(ids, pa.uint64()),
    "string": lambda ids: pa.array([f"c{each}" for each in ids], pa.string()),
    "large_string": lambda ids: pa.array([f"c{each}" for each in ids], pa.large_string()),
    "string_view": lambda ids: pa.array([f"c{each}" for each in ids], pa.string_view()),
    "binary": lambda ids: pa.array([b"c%d" % each for each in ids], pa.binary()),
    "large_binary": lambda ids: pa.array([b"c%d" % each for each in ids], pa.large_binary()),
    "fixed_size_binary": lambda ids: pa.array([b"c%03d" % each for each in ids], pa.binary(4)),
    "dictionary of strings": lambda ids: pa.array([f"c{each}" for each in ids]).dictionary_encode(),
    "dictionary of integers": lambda ids: pa.array(ids, pa.int64()).dictionary_encode(),
    "empty strings among them": lambda ids: pa.array(["x" * each for each in ids], pa.string()),
}
STORED = [name for name in KINDS if "view" not in name]
ROWS = np.arange(60) % 20


@pytest.mark.parametrize("n_clients", [1, 2, 19, 20, 21, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_find_their_clients_whatever_the_kind(kind, n_clients):
    owners = np.arange(3 * n_clients) % n_clients
    rows = pa.table({CLIENT: KINDS[kind](owners.tolist())})
    clients, digests = clients_of(rows)
    np.testing.assert_array_equal(clients, owners)
    assert len(set(digests.tolist())) == n_clients


@pytest.mark.parametrize("kind", ["string", "binary", "fixed_size_binary"])
def test_chunks_and_slices_of_ids_are_the_ids(kind):
    ids = KINDS[kind](ROWS.tolist())
    chunked = pa.chunked_array([ids[:7], ids[7:7], ids[7:]])
    whole, parts = (clients_of(pa.table({CLIENT: each}))[1] for each in (ids, chunked))
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(clients_of(pa.table({CLIENT: ids[20:40]}))[1], whole)


def test_one_id_has_one_digest_however_it_is_stored():
    for alike in (
        ("string", "large_string", "string_view", "dictionary of strings"),
        ("binary", "large_binary"),
        ("int64", "int8", "uint64", "dictionary of integers"),
    ):
        found = [clients_of(pa.table({CLIENT: KINDS[kind](ROWS.tolist())}))[1].tolist() for kind in alike]
        assert all(each == found[0] for each in found)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("int64", "uint64")])
def test_digests_refuse_ids_that_are_not_canonical(kind):
    ids = KINDS[kind](ROWS.tolist())
    if ids.type in (pa.large_string(), pa.large_binary()):
        ids = ids.dictionary_encode()
    with pytest.raises(TypeError, match="ids must be canonical and without nulls"):
        client_ids.digests(ids)


def test_digests_refuse_nulls():
    with pytest.raises(TypeError, match="without nulls"):
        client_ids.digests(pa.array(["a", None], pa.large_string()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORED)
def test_a_profile_by_client_reads_every_kind(tmp_path, kind):
    points, owners = lake.mixture(60), ROWS.tolist()
    table = lake.table_of(points).append_column("client_id", KINDS[kind](owners)).append_column("age", pa.array(ROWS))
    settings = {
        "model": write_model(tmp_path / "fit", lake.MEANS),
        "data": {"path": lake.write_files(tmp_path / "lake", [table[:31], table[31:]]), "features": "x"},
        "privacy": {"unit": "client", "epsilon": 100.0, "delta": 1e-6},
        "profile": {"numeric": {"age": {"lower": 0, "upper": 20}}, "max_rows_per_client": 3},
    }
    settings["data"]["client_id"] = "client_id"
    outcome = run_model_job("profile", settings, tmp_path)
    assert outcome.code == 0, outcome.err
    assert json.loads((tmp_path / "profile" / "privacy.json").read_text())["unit"] == "client"
    assert pq.read_table(tmp_path / "profile" / "profile.parquet").num_rows
