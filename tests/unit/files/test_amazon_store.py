"""Amazon's store: a process asks by one client, an object is read by one request, and stays what it was when opened."""

import concurrent.futures
import contextlib
import datetime
import io
import itertools
import os
import threading
import time
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystems import FileSystems

from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.errors import ConfigError, InputError, StoreAwayError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.files import file_bytes, stores, untrusted
from dapple_dp.transforms.files.places import amazon
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.tables import file_seal, shard_rows
from dapple_dp.transforms.tables.file_seal import FileSeal, seal_of
from dapple_dp.transforms.tables.listing import ListedFile
from dapple_dp.transforms.tables.read import _list_row_groups, _ShardsFn
from dapple_dp.transforms.tables.shard_rows import read_batches, read_columns
from tests.scenes import object_store

pytest.importorskip("moto")
obstore = pytest.importorskip("obstore")
ROOT = f"s3://{object_store.BUCKET}"
CONTRACT = TableContract(features=("x",), n_features=1)
LATER = datetime.timedelta(seconds=7)


@pytest.fixture(scope="module")
def served():
    with object_store.object_store() as found:
        yield found


@pytest.fixture
def store(served, monkeypatch):
    """The store, with what it was asked in this test alone."""
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    beam_options([])
    served.asked.clear()
    yield served
    served.cut, served.before, served.tagged = 0, None, True


@pytest.fixture
def made(monkeypatch):
    """Clients that are made."""
    found, honest = [], amazon._made
    monkeypatch.setattr(amazon, "_made", lambda *given: found.append(given) or honest(*given))
    return found


def plain(value: float, n_rows: int = 40) -> bytes:
    """A file whose size and footer do not depend on its values."""
    table, file = pa.table({"x": np.full(n_rows, value)}), io.BytesIO()
    pq.write_table(table, file, compression="none", use_dictionary=False, write_statistics=False)
    return file.getvalue()


def put(name: str, content: bytes, when: datetime.datetime | None = None) -> str:
    """Writes an object, and says when that was."""
    from moto.s3.models import s3_backends

    object_store.client().put_object(Bucket=object_store.BUCKET, Key=name, Body=content)
    (backend,) = (
        each for account in s3_backends.values() for each in account.values() if object_store.BUCKET in each.buckets
    )
    found = backend.buckets[object_store.BUCKET].keys[name]
    if when is not None:
        found.last_modified = when
    return f"{ROOT}/{name}"


def gates(path: str) -> bytes:
    return untrusted.read_bytes(path, untrusted.staged_refusal(path))


def shard_of(path: str) -> ShardRef:
    """The row group of a file, as a job lists it."""
    seal = FileSeal(*STORE.stat(path)).text
    (shard,) = _list_row_groups(ListedFile(path, path, seal), CONTRACT)
    return shard


# --- clients


def test_whatever_is_asked_of_a_store_a_process_has_one_client(store, made):
    file_bytes.write_bytes(f"{ROOT}/a", b"one")
    STORE.put_new(f"{ROOT}/b{os.getpid()}", b"two")
    for _ in range(5):
        assert STORE.get(f"{ROOT}/a") == gates(f"{ROOT}/a") == b"one"
        assert STORE.exists(f"{ROOT}/a")
        assert list(STORE.list(f"{ROOT}/a"))
    file_bytes.remove_files(f"{ROOT}/b")
    assert len(made) <= 1


def test_threads_share_one_client(store, made):
    path, at_once = put("a", b"one" * 1000), 16
    ready = threading.Barrier(at_once, timeout=60)

    def read(number):
        ready.wait()
        return (STORE.get if number % 2 else gates)(path)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        assert set(pool.map(read, range(at_once))) == {b"one" * 1000}
    assert len(made) <= 1


def test_flags_that_come_late_are_those_of_the_next_request(store):
    path = put("a", b"one")
    assert STORE.get(path) == b"one"
    endpoint = object_store.client().meta.endpoint_url
    keys = ["--s3_access_key_id=flagged", "--s3_secret_access_key=s"]
    for flags, key in ((keys, "flagged"), ([], "test"), ([*keys, f"--s3_endpoint_url={endpoint}"], "flagged")):
        beam_options(flags)
        for read in (STORE.get, gates, STORE.exists):
            store.asked.clear()
            assert read(path)
            assert {each.key_id for each in store.asked} == {key}


def test_a_flag_that_is_changed_in_place_counts(store):
    from apache_beam.options.pipeline_options import S3Options

    path, options = put("a", b"one"), beam_options([])
    assert STORE.get(path) == b"one"
    store.asked.clear()
    options.view_as(S3Options).s3_access_key_id = "late"
    options.view_as(S3Options).s3_secret_access_key = "s"
    assert STORE.get(path) == b"one"
    assert {each.key_id for each in store.asked} == {"late"}


def test_credentials_that_were_changed_are_used(store, tmp_path, monkeypatch):
    """In the environment, and in the file that a tool renews."""
    path = put("a", b"one")
    assert STORE.get(path) == b"one"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    store.asked.clear()
    assert STORE.get(path) == b"one"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for number, key in enumerate(("third", "later", "other")):
        text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = s\n"
        (tmp_path / "credentials").write_text(text)
        os.utime(tmp_path / "credentials", (number * 10, number * 10))
        assert STORE.get(path) == b"one"
    assert list(dict.fromkeys(each.key_id for each in store.asked)) == ["second", "third", "later", "other"]


def test_a_process_that_was_forked_is_refused_and_does_not_wait_for_ever(store):
    """Also if another thread is making a client at that moment, and has the lock."""
    path = put("a", b"one")
    assert STORE.get(path) == b"one"
    with amazon._known.lock:
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                STORE.get(path)
                os._exit(1)
            os._exit(0)
    end = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
        assert STORE.get(path) == b"one"
    assert ended == (child, 0)


# --- requests and seals


def test_a_small_object_is_opened_and_read_by_one_request(store):
    path = put("small.parquet", plain(1.0))
    listed = ListedFile(path, path, FileSeal(*STORE.stat(path)).text)
    store.asked.clear()
    (shard,) = _list_row_groups(listed, CONTRACT)
    assert [each.method for each in store.asked] == ["GET"]
    assert read_columns(shard, {"x": pa.float64()}).num_rows == 40
    assert file_seal.content_digest(path, listed.seal, path)
    assert gates(path)
    assert [each.method for each in store.asked] == ["GET"] * 4


def test_objects_are_opened_side_by_side_before_they_are_asked_for(store):
    """In their order; nobody else gets them, and each is what it was when it was opened."""
    when = datetime.datetime(2026, 11, 20)
    shards = [shard_of(put(f"ahead/{index}.parquet", plain(float(index)), when)) for index in range(40)]
    store.asked.clear()
    with stores.opening_ahead(shard.file for shard in shards):
        first = [read_columns(shard, {"x": pa.float64()})["x"][0].as_py() for shard in shards[:20]]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(read_columns, shards[39], {"x": pa.float64()}).result().num_rows == 40
        rest = [read_columns(shard, {"x": pa.float64()})["x"][0].as_py() for shard in shards[20:]]
    assert first + rest == [float(index) for index in range(40)]
    assert len(store.asked) == 41
    assert read_columns(shards[0], {"x": pa.float64()}).num_rows == 40
    assert len(store.asked) == 42


def test_an_object_that_changed_before_it_was_opened_ahead_is_refused(store):
    when = datetime.datetime(2026, 11, 20)
    shards = [shard_of(put(f"late/{index}.parquet", plain(1.0), when)) for index in range(3)]
    put("late/1.parquet", plain(2.0), when + LATER)
    object_store.client().delete_object(Bucket=object_store.BUCKET, Key="late/2.parquet")
    with stores.opening_ahead(shard.file for shard in shards):
        assert read_columns(shards[0], {"x": pa.float64()}).num_rows == 40
        with pytest.raises(InputError, match=r"late/1\.parquet was changed after the job listed it"):
            read_columns(shards[1], {"x": pa.float64()})
        with pytest.raises(InputError, match=r"late/2\.parquet must be"):
            read_columns(shards[2], {"x": pa.float64()})


def test_the_rows_of_many_objects_are_waited_for_together(store):
    """So many requests are open at once that the wait of one is not that of the sum."""
    shards = [shard_of(put(f"slow/{index}.parquet", plain(1.0))) for index in range(32)]
    ready = threading.Barrier(stores.AT_ONCE, timeout=60)

    def wait():
        with contextlib.suppress(threading.BrokenBarrierError):  # An answer that fails would be asked for for minutes.
            ready.wait()

    store.before = wait
    with stores.opening_ahead(shard.file for shard in shards):
        assert sum(read_columns(shard, {"x": pa.float64()}).num_rows for shard in shards) == 32 * 40
    found = stores.side_by_side(lambda path: STORE.stat(path).size, [shard.file for shard in shards])
    assert set(found) == {len(plain(1.0))}
    assert not ready.broken


def test_files_of_a_bundle_are_listed_in_order(store):
    listed = []
    for index in range(5):
        path = put(f"bundle/{index}.parquet", plain(float(index)))
        listed.append(ListedFile(path, path, FileSeal(*STORE.stat(path)).text))
    function = _ShardsFn(CONTRACT, (), "")
    function.start_bundle()
    assert [shard for each in listed for shard in function.process(each)] == []
    found = [each.value for each in function.finish_bundle()]
    assert found == [shard for each in listed for shard in _list_row_groups(each, CONTRACT)]


def test_a_large_object_is_read_in_parts(store, monkeypatch):
    monkeypatch.setattr(amazon, "_END_BYTES", 1 << 16)
    path = put("large.parquet", plain(1.0, 20_000))
    shard = shard_of(path)
    store.asked.clear()
    assert set(read_columns(shard, {"x": pa.float64()})["x"].to_pylist()) == {1.0}
    assert [each.method for each in store.asked] == ["GET", "GET"]
    with stores.open_store(path).source as file:
        content = plain(1.0, 20_000)
        end = len(content)
        for start, length in ((0, 10), (end - (1 << 16) - 5, 900), (end - 4, 100), (5, end), (end + 3, 1), (70, -1)):
            file.seek(start)
            assert file.read(length) == content[start : None if length < 0 else start + length]
        assert file.seek(-1, io.SEEK_END) == len(content) - 1


def test_a_large_object_without_a_tag_is_read_in_parts_and_looked_at_again(store, monkeypatch):
    """A gateway to a disk has none for a file that was not written through it."""
    monkeypatch.setattr(amazon, "_END_BYTES", 1 << 16)
    path, store.tagged = put("untagged.parquet", plain(1.0, 20_000)), False
    shard = shard_of(path)
    assert set(read_columns(shard, {"x": pa.float64()})["x"].to_pylist()) == {1.0}
    with (
        pytest.raises(InputError, match="change"),
        file_seal.open_sealed(shard.file, shard.seal, shard.path),
    ):
        put("untagged.parquet", plain(2.0, 30_000))


def texts(value: str, n_rows: int, **options) -> bytes:
    file = io.BytesIO()
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(n_rows, dtype=np.int32) % 2), [value, value + "x"])
    table = pa.table({"x": np.zeros(n_rows), "s": column})
    pq.write_table(table, file, store_schema=False, **{"compression": "zstd"} | options)
    return file.getvalue()


def test_pages_of_a_large_object_are_looked_at_by_the_request_that_reads_them(store, monkeypatch):
    monkeypatch.setattr(amazon, "_END_BYTES", 64)
    path = put("texts.parquet", texts("abc", 5000, row_group_size=1000))
    listed = ListedFile(path, path, FileSeal(*STORE.stat(path)).text)
    shard, *others = _list_row_groups(listed, CONTRACT, ("s",))
    assert len(others) == 4
    store.asked.clear()
    with file_seal.open_sealed(shard.file, shard.seal, shard.path):
        opening = len(store.asked)
    for read in (read_columns, lambda *given: pa.concat_tables(read_batches(*given))):
        store.asked.clear()
        assert read(shard, {"s": pa.string()})["s"].to_pylist() == ["abc", "abcx"] * 500
        assert len(store.asked) <= opening + 2
    assert read_columns(others[-1], {"s": pa.string()}).num_rows == 1000


def test_few_bytes_of_a_large_object_that_would_fill_the_memory_are_refused(store, monkeypatch):
    """One value repeats, which batches bound, or pages are large themselves."""
    monkeypatch.setattr(amazon, "_END_BYTES", 64)
    monkeypatch.setattr(shard_rows, "_TEXT_BYTES", 1 << 20)
    monkeypatch.setattr(shard_rows, "_MOST_TEXT_BYTES", 1 << 24)
    shard = shard_of(put("bomb.parquet", texts("y" * (1 << 14), 4000)))
    batches = read_batches(shard, {"s": pa.string()})
    assert max(batch.nbytes for batch in itertools.islice(batches, 3)) < 1 << 21
    batches.close()
    with pytest.raises(InputError, match="texts of more than 2 GiB"):
        read_columns(shard, {"s": pa.string()})
    monkeypatch.setattr(untrusted, "_MOST_GROUP_BYTES", 1 << 15)
    for read in (read_columns, lambda *given: list(read_batches(*given))):
        with pytest.raises(InputError, match="few bytes that unpack to more than 2 GiB"):
            read(shard, {"s": pa.string()})
        assert read(shard, {"x": pa.float64()})


@pytest.mark.parametrize("end_bytes", [64, 1 << 22])
def test_an_object_that_takes_the_place_of_another_one_is_not_read_for_it(store, monkeypatch, end_bytes):
    """Not even if size, footer and time are the same: what a request brings is of the object that was opened."""
    monkeypatch.setattr(amazon, "_END_BYTES", end_bytes)
    when = datetime.datetime(2026, 11, 20)
    path = put("swapped.parquet", plain(1.0, 20_000), when)
    shard = shard_of(path)
    honest = file_seal._footer_digest

    def then_another(source, size, name):
        put("swapped.parquet", plain(2.0, 20_000), when)
        return honest(source, size, name)

    monkeypatch.setattr(file_seal, "_footer_digest", then_another)
    try:
        assert set(read_columns(shard, {"x": pa.float64()})["x"].to_pylist()) == {1.0}
    except InputError:
        assert end_bytes == 64


@pytest.mark.parametrize("end_bytes", [64, 1 << 22])
def test_a_listed_object_that_changed_is_refused_wherever_it_is_opened(store, monkeypatch, end_bytes):
    monkeypatch.setattr(amazon, "_END_BYTES", end_bytes)
    when = datetime.datetime(2026, 11, 20)
    path = put("listed.parquet", plain(1.0), when)
    listed, shard = ListedFile(path, path, FileSeal(*STORE.stat(path)).text), shard_of(path)
    renamed = pq.read_table(io.BytesIO(plain(1.0))).rename_columns(["y"])
    other = io.BytesIO()
    pq.write_table(renamed, other, compression="none", use_dictionary=False, write_statistics=False)
    assert len(other.getvalue()) == len(plain(1.0))
    for content, moment in ((plain(2.0), when + LATER), (plain(1.0), when + LATER), (other.getvalue(), when)):
        put("listed.parquet", content, moment)
        with pytest.raises(InputError, match=r"listed\.parquet was changed after the job listed it"):
            read_columns(shard, {"x": pa.float64()})
        if moment != when:
            with pytest.raises(InputError, match=r"listed\.parquet was changed after the job listed it"):
                list(_list_row_groups(listed, CONTRACT))
            with pytest.raises(InputError, match=r"listed\.parquet was changed after the job listed it"):
                file_seal.content_digest(path, listed.seal, path)
    put("listed.parquet", plain(1.0), when)
    assert read_columns(shard, {"x": pa.float64()}).num_rows == 40


def test_a_listing_and_an_opening_tell_the_same_state(store):
    for name, content in (("a b+c%20é.parquet", plain(1.0)), ("deep/er/x=1/rows.parquet", plain(2.0, 20_000))):
        path = put(name, content)
        (listed,) = STORE.list(path)
        opened = stores.open_store(path)
        state = stores.StoredFile(listed.size, listed.changed)
        assert opened.state == STORE.stat(path) == state
        assert seal_of(path)[:2] == state


ODD = ["odd//x", "odd/./a", "odd/b/../c", "odd/folder/", "/odd/decoy", "odd/", "odd"]


@pytest.mark.parametrize("others", [[], ODD, *([each] for each in ODD)], ids=lambda others: " ".join(others) or "none")
def test_objects_of_others_with_odd_names_are_no_files_and_end_no_listing(store, others):
    """Marks of folders, and names that the library of stores doesn't take or would change."""
    client = object_store.client()
    for each in object_store.names():
        client.delete_object(Bucket=object_store.BUCKET, Key=each)
    for name in others:
        client.put_object(Bucket=object_store.BUCKET, Key=name, Body=b"" if name.endswith("/") else b"odd")
    wanted = [put(f"odd/{name}", b"one") for name in ("a", "folder/b", "é [1]*?.parquet")]
    wanted.append(put("odd/empty", b""))
    assert sorted(each.path for each in STORE.list(f"{ROOT}/odd/")) == sorted(wanted)
    assert {each.path for each in STORE.list(f"{ROOT}/")} == {*wanted, *(["s3://lake/odd"] if "odd" in others else [])}
    assert [each.path for each in STORE.list(f"{ROOT}/odd/a")] == [f"{ROOT}/odd/a"]
    for odd in ("", "odd//x", "odd/./a", "/odd/decoy", "odd/folder/", "odd/a\nb"):
        with pytest.raises(ConfigError, match="no empty part"):
            STORE.get(f"{ROOT}/{odd}")


def test_more_objects_than_a_page_are_listed_once_each(store, monkeypatch):
    monkeypatch.setattr(amazon, "_PAGE", 3)
    names = sorted(put(f"many/{index}", b"one") for index in range(9))
    assert [each.path for each in STORE.list(f"{ROOT}/many/")] == names


def test_more_objects_at_the_root_than_a_page_are_listed_once_each(store, monkeypatch):
    """There Amazon's own library lists, each page by a request that is counted."""
    library = amazon._library(amazon._flags())
    library.meta.events.register("provide-client-params.s3.ListObjectsV2", lambda params, **_: params | {"MaxKeys": 3})
    monkeypatch.setattr(amazon, "_library", lambda _: library)
    for each in object_store.names():
        object_store.client().delete_object(Bucket=object_store.BUCKET, Key=each)
    names = sorted(put(f"root-{index}", b"one") for index in range(8))
    object_store.client().put_object(Bucket=object_store.BUCKET, Key="root-3//odd", Body=b"odd")
    assert [each.path for each in STORE.list(f"{ROOT}/root-")] == names


def test_a_name_that_ends_with_a_slash_repeats_no_object(store, monkeypatch):
    """Neither those that are before the mark of a folder at the end of a page, nor the one without the slash."""
    monkeypatch.setattr(amazon, "_PAGE", 3)
    wanted = [put(f"marks/{name}", b"one") for name in ("a-1", "a-2", "b", "c")]
    put("marks/a/", b"")
    put("marks/b/", b"another one")
    found = list(itertools.islice(STORE.list(f"{ROOT}/marks/"), 9))
    assert [each.path for each in found] == wanted
    assert [each[1:] for each in found] == [STORE.stat(path) for path in wanted]


def test_an_object_with_content_whose_name_ends_with_a_slash_is_never_passed_over(store, caplog):
    """Listed beside others it seems to have another name, where nothing is; where names are whole it is counted."""
    put("slash/a.parquet/", plain(1.0))
    (found,) = STORE.list(f"{ROOT}/slash/")
    with pytest.raises(InputError, match=r"slash/a\.parquet must be"):
        list(_list_row_groups(ListedFile(found.path, found.path, FileSeal(*found[1:]).text), CONTRACT))
    with pytest.raises(FileNotFoundError, match="doesn't exist"):
        STORE.get(found.path)
    STORE.delete(found.path)
    assert "slash/a.parquet/" in object_store.names()
    put("slash//x", b"odd")
    assert not list(STORE.list(f"{ROOT}/slash/"))
    assert "2 objects below s3://lake/slash/ have names that could not be read" in caplog.text


def test_a_longer_object_than_may_be_is_refused(store, monkeypatch):
    monkeypatch.setattr(amazon, "_END_BYTES", 64)
    path = put("long", b"m" * 10_000)
    with pytest.raises(InputError, match="more than 9999 bytes"):
        untrusted.read_bytes(path, untrusted.staged_refusal(path), 9999)
    assert gates(path) == b"m" * 10_000


def test_a_store_that_is_away_is_waited_for_if_it_has_answered(store, monkeypatch):
    path = put("a", b"one")
    assert STORE.get(path) == b"one"
    monkeypatch.setattr(amazon, "_FIRST_PATIENCE", 0.0)
    began = time.monotonic()

    def back() -> None:
        store.every = int(time.monotonic() - began < 3.0)

    store.before = back
    STORE.put(f"{ROOT}/b", b"two")
    assert time.monotonic() - began >= 3.0
    assert (STORE.get(path), STORE.get(f"{ROOT}/b")) == (b"one", b"two")
    store.every, store.before = 1, None
    monkeypatch.setattr(amazon._known, "answered", set())
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    # A bucket's root is listed by Amazon's own library.
    for ask in (STORE.get, lambda _: list(STORE.list(f"{ROOT}/"))):
        with pytest.raises(StoreAwayError, match="doesn't answer"):
            ask(path)
    store.every = 0


@pytest.mark.parametrize("size", [1, 11 << 20])
def test_an_upload_waits_for_a_store_that_is_away(store, size):
    """In one request, or in parts."""
    put("a", b"one")
    assert STORE.get(f"{ROOT}/a") == b"one"
    began = []

    def goes_away() -> None:
        if not began and "/uploaded" in store.asked[-1].path:
            began.append(time.monotonic())
        store.every = int(bool(began) and time.monotonic() - began[0] < 3.0)

    store.before = goes_away
    with STORE.create(f"{ROOT}/uploaded{size}") as file:
        file.write(b"u" * size)
    assert time.monotonic() - began[0] >= 3.0
    assert STORE.get(f"{ROOT}/uploaded{size}") == b"u" * size


def test_a_write_whose_answer_was_lost_is_known_again(store):
    """Made once, asked twice: what is there is its own, or another writer's."""
    lost = [True]
    put_once = obstore.put

    def put_and_lose(*words, **named):
        found = put_once(*words, **named)
        if lost:
            lost.clear()
            raise obstore.exceptions.GenericError("HTTP error: error sending request")
        return found

    with mock.patch.object(obstore, "put", put_and_lose):
        STORE.put_new(f"{ROOT}/once", b"mine")
    lost.append(True)
    with mock.patch.object(obstore, "put", put_and_lose), pytest.raises(FileExistsError):
        STORE.put_new(f"{ROOT}/once", b"yours")
    assert STORE.get(f"{ROOT}/once") == b"mine"


def test_an_upload_that_fails_leaves_no_object(store):
    with contextlib.suppress(KeyError), STORE.create(f"{ROOT}/half") as file:
        file.write(b"half of it")
        raise KeyError
    assert not STORE.exists(f"{ROOT}/half")
    with STORE.create(f"{ROOT}/whole") as file:
        file.write(b"w" * (11 << 20))
    assert STORE.stat(f"{ROOT}/whole").size == 11 << 20


def test_a_missing_or_empty_object_is_an_error_of_a_file(store):
    for path in (f"{ROOT}/none", "s3://no-such-bucket/none"):
        with pytest.raises(OSError, match="could not be read"):
            stores.open_store(path)
    for path in ("s3://no-such-bucket/", "s3://no-such-bucket/none", "s3://no-such-bucket/none/"):
        with pytest.raises(FileNotFoundError, match="could not be read: it doesn't exist"):
            list(STORE.list(path))
    path = put("empty.parquet", b"")
    assert stores.open_store(path).source.read() == b""
    with pytest.raises(InputError, match=r"empty\.parquet must be"):
        shard_of(path)


def test_without_credentials_a_file_cannot_be_read_and_nobody_waits(store, monkeypatch, tmp_path):
    path = put("a", b"one")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    refusal = Refusal(kind=InputError, rule="rows must be there", remedy="look")
    store.asked.clear()
    with pytest.raises(InputError, match="rows must be there"):
        untrusted.read_bytes(path, refusal)
    assert not store.asked


def test_bytes_that_do_not_all_come_are_asked_for_again(store):
    path = put("a", b"one" * 1000)
    store.asked.clear()
    store.cut = 1
    assert gates(path) == b"one" * 1000
    assert [each.method for each in store.asked] == ["GET", "GET"]
