"""Attacks on object stores: two writers that are both first, leftovers, and stores that cannot decide."""

import io
import json
import sys
import threading
import types

import numpy as np
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystems import FileSystems

from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.run.run_keys import own_key, resumed_nonce
from dapple_dp.pipelines.tables.client_staging import staged_by_client
from dapple_dp.schemas.errors import ConfigError, StoreDeniedError
from dapple_dp.transforms.files import stores as clients
from dapple_dp.transforms.files.places import amazon
from dapple_dp.transforms.privacy import key_files
from tests.scenes import lake, ledgers, stores


@pytest.fixture(autouse=True)
def _keys_of_runs():
    with lake.keys_of_runs():
        yield


@pytest.fixture
def root():
    with stores.store() as found:
        yield found


def together(n, function):
    """Returns what a function did in so many threads that started at once; errors are results."""
    barrier, found = threading.Barrier(n, timeout=60), []

    def call(number):
        barrier.wait()
        try:
            found.append(function(number))
        except (ConfigError, OSError) as error:
            found.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


# A9: a key is made by one.


def late_writes(monkeypatch):
    """Every look at a store finds nothing, as if all writers looked before any of them wrote."""
    monkeypatch.setattr(clients.STORE, "exists", lambda path: False)


def test_two_runs_do_not_both_make_a_key_on_a_store(root, monkeypatch):
    late_writes(monkeypatch)
    found = together(8, lambda _: key_files.create_key(f"{root}team.key"))
    assert found.count(None) == 1
    others = [each for each in found if each is not None]
    assert all(isinstance(each, ConfigError) and "must be a new writable file" in str(each) for each in others)
    assert len(key_files.read_key(f"{root}team.key")) == 32


def test_nor_on_a_local_disk(tmp_path, monkeypatch):
    late_writes(monkeypatch)
    found = together(8, lambda _: key_files.create_key(str(tmp_path / "team.key")))
    assert found.count(None) == 1


def test_a_key_that_is_there_is_never_written_over(root):
    key_files.create_key(f"{root}team.key")
    before = key_files.read_key(f"{root}team.key")
    with pytest.raises(ConfigError, match="must be a new writable file"):
        key_files.create_key(f"{root}team.key")
    assert key_files.read_key(f"{root}team.key") == before


def test_two_attempts_have_one_nonce_or_one_is_refused(root, monkeypatch):
    late_writes(monkeypatch)
    found = together(8, lambda _: resumed_nonce(f"{root}out.partial-r", "r", begun=False))
    nonces = [each for each in found if not isinstance(each, Exception)]
    assert len(nonces) == 1
    assert all("--run_id must be new" in str(each) for each in found if isinstance(each, Exception))


def test_a_second_attempt_without_a_ledger_is_refused(root):
    folder = f"{root}out.partial-r"
    with own_key(folder), pytest.raises(ConfigError, match="--run_id must be new"), own_key(folder):
        pass
    assert stores.names() == []


def job_of_records(folder):
    data = lake.write_lake(folder / "lake", lake.mixture(60))
    return lake.job(data, None, **lake.packed(1))


def test_a_store_that_cannot_tell_is_refused_in_a_sentence(tmp_path):
    with stores.store(conditional=False) as root:
        settings = job_of_records(tmp_path)
        config = tmp_path / "job.yaml"
        config.write_text(json.dumps(settings))
        words = ("fit", "--config", str(config), "--output", f"{root}bucket/out", "--run_id", "r")
        outcome = lake.run_command(*words)
        assert (outcome.code, "where a file can be made by one run only" in outcome.err) == (2, True), outcome.err
        assert stores.names() == []


def test_a_run_writes_to_a_store_and_leaves_neither_key_nor_nonce(root, tmp_path):
    settings = job_of_records(tmp_path)
    settings["key_uri"] = lake.write_key(tmp_path / "key")
    config = tmp_path / "job.yaml"
    config.write_text(json.dumps(settings))
    drawn = []
    for output in ("bucket/a", "bucket/b"):
        words = ("fit", "--config", str(config), "--output", f"{root}{output}", "--run_id", "r")
        outcome = lake.run_command(*words)
        assert outcome.code == 0, outcome.err
        drawn.append(stores.Store.objects[f"{root}{output}/releases.parquet"])
    assert drawn[0] != drawn[1]
    assert not [name for name in stores.names() if "partial" in name or "nonce" in name or "key" in name]


def test_a_store_that_cannot_tell_is_refused_before_the_ledger_is_charged(tmp_path):
    """Though the ledger holds the nonce, and the key is on a disk: two launchers would write to one output."""
    place = ledgers.Place(tmp_path)
    place.job["key_uri"] = lake.write_key(tmp_path / "team.key")
    with stores.store(conditional=False) as root:
        outcome = place.fit(f"{root}bucket/out")
        assert (outcome.code, "where a file can be made by one run only" in outcome.err) == (2, True), outcome.err
        assert stores.names() == []
    assert ledgers.kinds(place.ledger) == ["limit"]


# A10: copies of rows that a killed attempt left.


def split_rows(folder, shift=0.0):
    """A job by client whose rows are apart."""
    points, clients = lake.mixture(60) + shift, np.arange(60) % 12
    halves = (slice(0, 30), slice(30, 60))
    data = lake.write_files(folder, [lake.table_of(points[half], clients[half]) for half in halves])
    return lake.planned(lake.job(data, None, "client", **lake.packed(1)))


def ids_in(rows):
    """Clients in every file of a copy."""
    files = rows.source.list_files()
    return [pq.read_table(_local(path))["client_id"].to_pylist() for path in files if path.endswith(".parquet")]


def _local(path):
    return io.BytesIO(stores.Store.objects[path])


def test_what_a_killed_attempt_left_is_not_read(root, tmp_path):
    """Same id, other data, fewer shards: the copy once held the clients of both attempts, some of them twice."""
    first, second = split_rows(tmp_path / "a"), split_rows(tmp_path / "b", shift=1.0)
    folder = f"{root}out.partial-r"
    options = beam_options([])
    abandoned = staged_by_client(first.rows, options, "", folder)
    abandoned.__enter__()
    left = stores.names("out.partial-r.clients*")
    assert left
    with staged_by_client(second.rows, options, "", folder) as rows:
        found = [client for ids in ids_in(rows) for client in ids]
        assert len(found) == 60
        assert not {path.removeprefix(stores.SCHEME + "://") for path in rows.source.list_files()} & set(left)
    abandoned.gen.close()


def test_a_run_that_is_taken_up_clears_copies_of_killed_attempts(root, tmp_path):
    place = ledgers.Place(tmp_path)
    place.job["key_uri"] = lake.write_key(tmp_path / "team.key")
    left = f"{root}bucket/out.partial-run.clients-0123456789abcdef/shard-0000000.parquet"
    other = f"{root}bucket/out.partial-run2.clients-0123456789abcdef/shard-0000000.parquet"
    stores.Store.objects.update({left: b"rows", other: b"rows of another run"})
    assert place.fit(f"{root}bucket/out").code == 0
    assert left not in stores.Store.objects
    assert other in stores.Store.objects


def test_a_local_copy_that_a_killed_attempt_left_is_gone(tmp_path):
    prepared = split_rows(tmp_path / "a")
    left = tmp_path / "run.clients" / "left.parquet"
    left.parent.mkdir()
    left.touch()
    key = lake.write_key(tmp_path / "key")
    with staged_by_client(prepared.rows, beam_options([]), key, str(tmp_path / "run")):
        assert not left.exists()
    assert not left.parent.exists()


def test_rows_of_a_run_that_is_over_are_gone_from_the_store(root, tmp_path):
    prepared = split_rows(tmp_path / "a")
    with staged_by_client(prepared.rows, beam_options([]), "", f"{root}out.partial-r"):
        assert stores.names()
    assert stores.names() == []


# The conditions that real stores are asked for. Google's is in `test_gcs`; other libraries are not here, so calls are
# looked at.


@pytest.mark.parametrize(("status", "error"), [(409, FileExistsError), (404, OSError), (403, StoreDeniedError)])
def test_amazon_is_asked_for_an_object_that_is_not_there(monkeypatch, status, error):
    """A conflict is another writer at the same moment. That the server heeds the condition is in `test_s3_claims`."""
    obstore = pytest.importorskip("obstore")
    asked = []

    def put(_, name, content, **how):
        asked.append((name, content, how))
        kinds = {404: FileNotFoundError, 403: obstore.exceptions.PermissionDeniedError}
        raise kinds.get(status, obstore.exceptions.GenericError)(f"Server returned non-2xx status code: {status}")

    monkeypatch.setattr(amazon, "_made", lambda *_: None)
    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises(error):
        clients.STORE.put_new("s3://elsewhere/run.nonce", b"n")
    assert asked == [("run.nonce", b"n", {"mode": "create", "use_multipart": False})]


def test_azure_is_asked_not_to_overwrite(monkeypatch):
    """Its library sends such a blob with If-None-Match: *."""
    blobs, asked = {}, []
    taken = type("ResourceExistsError", (KeyError,), {})
    errors = types.SimpleNamespace(AzureError=KeyError, ResourceExistsError=taken)

    def blob(container, name):
        def upload_blob(content, *, overwrite):
            asked.append(overwrite)
            if (container, name) in blobs:
                raise taken
            blobs[container, name] = content

        return types.SimpleNamespace(upload_blob=upload_blob)

    service = types.SimpleNamespace(client=types.SimpleNamespace(get_blob_client=blob))
    system = types.SimpleNamespace(_blobstorageIO=lambda: service)
    monkeypatch.setitem(sys.modules, "azure.core.exceptions", errors)
    monkeypatch.setattr(FileSystems, "get_filesystem", lambda path: system)
    clients.STORE.put_new("azfs://account/container/out.claim", b"n")
    with pytest.raises(FileExistsError):
        clients.STORE.put_new("azfs://account/container/out.claim", b"m")
    assert blobs == {("container", "out.claim"): b"n"}
    assert asked == [False, False]


@pytest.mark.parametrize("scheme", ["abfs", "http", "testing-store"])
def test_other_places_are_refused(scheme):
    with pytest.raises(ConfigError, match="where a file can be made by one run only"):
        clients.STORE.put_new(f"{scheme}://place/run.nonce", b"n")
