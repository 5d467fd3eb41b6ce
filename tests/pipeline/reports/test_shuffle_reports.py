"""The shuffle job: reports as they arrived become files that say nothing of their arrival, or are refused."""

import dataclasses
import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.schemas.reports.rows import DIGEST, to_table
from dapple_dp.transforms.numerics.reports.encoder import Reports
from dapple_dp.transforms.reports.batches import FEW_GROUPS, MANY_GROUPS, ReportBatch, _split
from dapple_dp.transforms.reports.encode import keyed_reports
from dapple_dp.transforms.reports.shuffle import n_files
from tests.scenes import lake
from tests.scenes.reports import parameters

MEANS = 8.0 * np.eye(3, 4)
N_CLIENTS = 2000
SHUFFLED = {
    "privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-4},
    "reports": {"mode": "shuffle", "min_batch": N_CLIENTS},
}


def command(job: str, content: dict, folder: pathlib.Path, output: str, *flags: str) -> lake.Outcome:
    (folder / f"{output}.yaml").write_text(yaml.safe_dump(content))
    return lake.run_command(job, "--config", str(folder / f"{output}.yaml"), "--output", str(folder / output), *flags)


@pytest.fixture
def public():
    return parameters(**SHUFFLED)


@pytest.fixture
def arrivals(public) -> pa.Table:
    """Reports in the order of their arrival, with who sent them when."""
    ids = [f"user-{index}".encode() for index in range(N_CLIENTS)]
    reports = keyed_reports(lake.mixture(N_CLIENTS, 0, MEANS), ids, public, lake.KEY)
    table = with_digest(to_table(reports.nonces, reports.indices, public), public.digest)
    table = table.append_column("client_id", pa.array([each.decode() for each in ids]))
    return table.append_column("time", pa.array(np.arange(N_CLIENTS)))


def with_digest(table: pa.Table, digest: bytes | None, start: int = 0) -> pa.Table:
    """Reports with the digest of their parameters, from a row on another one."""
    found = table.column(DIGEST).to_pylist()[:start] if DIGEST in table.column_names else []
    column = pa.array(found + [digest] * (table.num_rows - len(found)), pa.binary(32))
    return table.drop_columns([DIGEST] if DIGEST in table.column_names else []).append_column(DIGEST, column)


def write(folder: pathlib.Path, table: pa.Table, public, n_files: int = 3) -> dict:
    """The folder `inbox` of a server, and the settings of both jobs."""
    (folder / "inbox").mkdir()
    (folder / "parameters.json").write_text(public.to_json())
    for index, part in enumerate(np.array_split(np.arange(table.num_rows), n_files)):
        pq.write_table(table.take(pa.array(part)), folder / "inbox" / f"hour-{index}.parquet")
    reports = {"arrived": "inbox", "path": "shuffled", "parameters": "parameters.json"}
    return {"reports": {name: str(folder / path) for name, path in reports.items()}}


def test_order_ids_and_times_are_gone_and_reports_stay(tmp_path, arrivals, public):
    job = write(tmp_path, arrivals, public)
    outcome = command("shuffle", job, tmp_path, "shuffled")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["n_clients"] == N_CLIENTS
    names = {path.name for path in (tmp_path / "shuffled").iterdir()}
    assert names == {"reports.parquet", "parameters.json", "privacy.json", "run.json"}
    found = pq.read_table(tmp_path / "shuffled" / "reports.parquet")
    order = np.argsort(arrivals["nonce"].to_numpy())
    assert found.equals(arrivals.select(["nonce", "index"]).take(pa.array(order)).cast(found.schema))
    everything = b"".join(path.read_bytes() for path in (tmp_path / "shuffled").rglob("*") if path.is_file())
    assert b"user-" not in everything
    manifest = json.loads((tmp_path / "shuffled" / "run.json").read_text())
    assert (manifest["job"], manifest["shuffled"], manifest["n_rows"]) == ("shuffle", True, N_CLIENTS)
    outcome = command("decode", job, tmp_path, "decoded")
    assert outcome.code == 0, outcome.err


def test_another_order_of_arrival_gives_the_same_files(tmp_path, arrivals, public):
    content = []
    for name, order in (("one", np.arange(N_CLIENTS)), ("two", np.random.default_rng(1).permutation(N_CLIENTS))):
        (tmp_path / name).mkdir()
        twice = np.append(order, order[:7])
        job = write(tmp_path / name, arrivals.take(pa.array(twice)), public, n_files=len(content) + 1)
        assert command("shuffle", job, tmp_path / name, "shuffled", "--direct_runner_bundle_repeat=1").code == 0
        folder = tmp_path / name / "shuffled" / "reports.parquet"
        content.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert content[0] == content[1]


def test_a_batch_below_its_minimum_is_not_written(tmp_path, arrivals, public):
    job = write(tmp_path, arrivals.slice(1), public)
    outcome = command("shuffle", job, tmp_path, "shuffled")
    assert outcome.code == 2
    assert f"must have at least {N_CLIENTS} reports, got {N_CLIENTS - 1}" in outcome.err
    assert not (tmp_path / "shuffled").exists()


def test_duplicates_do_not_fill_a_batch(tmp_path, arrivals, public):
    job = write(tmp_path, pa.concat_tables([arrivals.slice(1), arrivals.slice(5, 1)]), public)
    outcome = command("shuffle", job, tmp_path, "shuffled")
    assert (outcome.code, f"got {N_CLIENTS - 1};" in outcome.err) == (2, True)


@pytest.mark.parametrize("other", ["other parameters", None])
def test_reports_of_other_parameters_do_not_fill_a_batch(tmp_path, arrivals, public, other):
    # The blanket of a batch is that of one law: reports of another design hide nobody as they were priced.
    digest = other and dataclasses.replace(public, key=bytes(16)).digest
    job = write(tmp_path, with_digest(arrivals, digest, start=N_CLIENTS - 3), public)
    outcome = command("shuffle", job, tmp_path, "shuffled")
    assert (outcome.code, f"reports, got {N_CLIENTS - 3};" in outcome.err) == (2, True)


def test_a_stranger_neither_stops_a_batch_nor_gets_into_it(tmp_path, arrivals, public):
    stranger = with_digest(arrivals.slice(0, 1), bytes(32)).select(arrivals.column_names)
    stranger = stranger.set_column(0, arrivals.schema.field(0), pa.array([12345], pa.uint64()))
    job = write(tmp_path, pa.concat_tables([stranger, arrivals]), public)
    outcome = command("shuffle", job, tmp_path, "shuffled")
    assert outcome.code == 0, outcome.err
    found = pq.read_table(tmp_path / "shuffled" / "reports.parquet")
    assert (found.num_rows, 12345 in found["nonce"].to_pylist()) == (N_CLIENTS, False)
    event = json.loads((tmp_path / "shuffled" / "privacy.json").read_text())["events"][-1]
    assert (event["method"], event["min_batch"]) == ("privacy_blanket", N_CLIENTS)


def test_reports_without_the_digest_of_their_parameters_are_refused(tmp_path, arrivals, public):
    job = write(tmp_path, arrivals.drop_columns([DIGEST]), public)
    outcome = command("shuffle", job, tmp_path, "shuffled")
    assert outcome.code == 2
    assert "parameters" in outcome.err


def test_decode_refuses_reports_that_no_shuffler_wrote(tmp_path, arrivals, public):
    job = write(tmp_path, arrivals, public)
    job["reports"]["path"] = job["reports"]["arrived"]
    outcome = command("decode", job, tmp_path, "decoded")
    assert outcome.code == 2
    assert "reports.path must hold shuffled reports where reports.mode is shuffle" in outcome.err


@pytest.mark.parametrize("change", ["another file", "one file less", "other parameters", "not shuffled"])
def test_decode_refuses_a_folder_that_is_not_as_the_shuffler_left_it(tmp_path, arrivals, public, change):
    job = write(tmp_path, arrivals, public)
    assert command("shuffle", job, tmp_path, "shuffled").code == 0
    folder = tmp_path / "shuffled"
    first = next((folder / "reports.parquet").iterdir())
    if change == "another file":
        (folder / "reports.parquet" / "late.parquet").write_bytes(first.read_bytes())
    elif change == "one file less":
        first.unlink()
    else:
        key, value = ("shuffled", False) if change == "not shuffled" else ("parameters_digest", "0" * 64)
        manifest = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(manifest | {key: value}))
    outcome = command("decode", job, tmp_path, "decoded")
    assert outcome.code == 2
    assert "reports.path must hold" in outcome.err


def test_reports_of_mode_local_may_be_shuffled_and_need_not_be(tmp_path, arrivals):
    public = parameters()
    reports = keyed_reports(lake.mixture(300, 0, MEANS), [str(i).encode() for i in range(300)], public, lake.KEY)
    job = write(tmp_path, to_table(reports.nonces, reports.indices, public), public)
    assert command("shuffle", job, tmp_path, "shuffled").code == 0
    assert command("decode", job, tmp_path, "decoded").code == 0
    job["reports"]["path"] = job["reports"]["arrived"]
    assert command("decode", job, tmp_path, "again").code == 0
    centers = [(tmp_path / name / "centers.parquet").read_bytes() for name in ("decoded", "again")]
    assert centers[0] == centers[1]


def test_an_empty_inbox_is_refused(tmp_path, arrivals):
    job = write(tmp_path, arrivals.slice(0, 0), parameters())
    outcome = command("shuffle", job, tmp_path, "shuffled")
    assert (outcome.code, "reports.arrived must hold at least one report" in outcome.err) == (2, True)


@pytest.mark.parametrize("n_groups", [FEW_GROUPS, MANY_GROUPS])
def test_reports_of_one_nonce_share_a_group_however_many_there_are(public, n_groups):
    nonces = np.random.default_rng(0).integers(0, 1 << 64, 5000, dtype=np.uint64)
    nonces[:4] = [0, (1 << 64) - 1, (1 << 63) - 1, 1 << 63]
    reports = Reports(nonces, np.arange(5000).astype(np.uint16), np.zeros((5000, 0), dtype=np.uint8))
    found = dict(_split(ReportBatch.of(reports, public), public, None, n_groups))
    assert set(found) == set((nonces >> np.uint64(64 - n_groups.bit_length() + 1)).tolist())
    assert {0, n_groups - 1} <= set(found) <= set(range(n_groups))
    parts = [part.reports(public) for part in found.values()]
    together = {
        int(nonce): int(index) for part in parts for nonce, index in zip(part.nonces, part.indices, strict=True)
    }
    assert together == dict(zip(nonces.tolist(), range(5000), strict=True))


def test_large_collections_have_more_files():
    assert [n_files(size) for size in (1, 99_999_999, 100_000_000)] == [64, 64, 1024]
