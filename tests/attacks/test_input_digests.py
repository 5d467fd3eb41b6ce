"""The digest of all input, by threads or by workers: one value, of the files that were listed, and seen by nobody."""

import hashlib
import hmac
import io
import os
import pathlib
import shutil
import tracemalloc
from types import SimpleNamespace

import apache_beam as beam
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.kmeans.plan import file_digests, fingerprint
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.tables import prepare, private_source
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.errors import InputError, PrivacyFlowError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.transforms.files import publish
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.tables import file_seal, read
from dapple_dp.transforms.tables.file_seal import seal_of
from dapple_dp.transforms.tables.listing import FileList, ListedFile
from dapple_dp.transforms.tables.read import DigestFiles
from dapple_dp.transforms.tables.source import Source
from tests.scenes import crashes, lake, ledgers, stores

PORTABLE = ("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")
NAMES = ("b", "a", "a.parquet\x01/é", "a.parquet\x01/😀")
"""Paths are sorted with a tab behind: that of `a` comes after those below `a.parquet\x01`."""


@pytest.fixture
def world(tmp_path) -> SimpleNamespace:
    for number, name in enumerate(NAMES):
        path = tmp_path / "lake" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(lake.table_of(lake.mixture(20, seed=number)), path)
    server = lake.write_server(tmp_path / "server.parquet")
    return SimpleNamespace(folder=tmp_path, lake=tmp_path / "lake", server=server, key=lake.write_key(tmp_path / "key"))


@pytest.fixture(params=["threads", "workers"])
def way(request, monkeypatch):
    """Threads, or workers of the runner in memory, which writes blocks of three digests."""
    monkeypatch.setattr(file_digests, "shuffles_in_memory", lambda _: request.param == "threads")
    for module in (read, file_digests):
        monkeypatch.setattr(module, "FILES_IN_BLOCK", 3)
    return request.param


def planned(world, path=None, **settings) -> PlannedFit:
    """The job, with its files listed."""
    found = lake.planned(lake.job(str(path or world.lake), world.server, **settings))
    assert found.source.listed.files
    return found


def found(world, job: PlannedFit, *flags: str) -> str:
    options = beam_options(flags)
    return fingerprint.content_fingerprint(job, "digest", world.key, options, str(world.folder / "run"))


def by_hand(world, *others: str) -> str:
    """HMAC of the settings, then of every file by its path, then of the server data."""
    files = [path for path in world.lake.rglob("*") if path.is_file()]
    lines = [f"{path}\t{hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    server = hashlib.sha256(hashlib.sha256(pathlib.Path(world.server).read_bytes()).hexdigest().encode()).hexdigest()
    text = "\n".join(["digest", *sorted(lines), *others, f"server\t{server}"])
    return hmac.new(pathlib.Path(world.key).read_bytes(), text.encode(), hashlib.sha256).hexdigest()


def prepared(world) -> pathlib.Path:
    """A prepared folder of 60 rows of 12 clients."""
    contract = TableContract(features=(), feature_list="x", n_features=4, client_id="client_id", by_client=True)
    table = lake.table_of(lake.mixture(60), [row % 12 for row in range(60)])
    source = lake.staged(Source(path=lake.write_files(world.folder / "loose", [table])), world.folder)
    folder = world.folder / "prepared"
    folder.mkdir()
    grouping = prepare.Grouping(contract=contract, folder=str(folder), n_shards=2)
    prepare.group(source, beam_options([]), grouping)
    return folder


def raw(seed: int) -> bytes:
    """A Parquet file."""
    sink = io.BytesIO()
    pq.write_table(lake.table_of(lake.mixture(20, seed=seed)), sink)
    return sink.getvalue()


def flip(path: pathlib.Path) -> None:
    """Changes a row; size, footer and time of change stay."""
    before = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(before.st_size // 4)
        byte = file.read(1)[0]
        file.seek(before.st_size // 4)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def unread(*_):
    raise AssertionError("a file was read")


# --- one value


def test_the_value_is_that_by_hand(world, way):
    job = planned(world)
    assert found(world, job) == by_hand(world)
    files = job.source.listed.files
    assert sorted(files) == list(files) != list(files.by_file()), "the names are no test of the order"
    assert not list(world.folder.glob("run*")), "digests of private content were left"


def test_bundles_that_are_tried_again_give_the_same(world, monkeypatch):
    monkeypatch.setattr(file_digests, "shuffles_in_memory", lambda _: False)
    assert found(world, planned(world), "--direct_runner_bundle_repeat=3") == by_hand(world)


def test_a_portable_runner_reads_the_files_and_the_launcher_none(world, monkeypatch):
    job = planned(world)
    monkeypatch.setattr(file_digests, "content_digest", unread)
    assert found(world, job, *PORTABLE) == by_hand(world)


def test_a_window_without_files_has_a_digest(world, way):
    empty = FileList.of((), "data.path")
    assert list(file_digests.file_digests(empty, beam_options([]), str(world.folder / "run"))) == []


# --- the files that were listed


def test_a_file_that_was_rewritten_after_the_listing_is_refused(world, way):
    job = planned(world)
    os.utime(world.lake / "b.parquet", (5, 5))
    with pytest.raises(InputError, match=r"b.parquet was changed after the job listed it"):
        found(world, job)
    assert not list(world.folder.glob("run*"))


def test_a_file_that_is_rewritten_while_it_is_read_is_refused(world, way, monkeypatch):
    honest, job = file_seal._content, planned(world)

    def meanwhile(source, name):
        digest = honest(source, name)
        with open(name, "r+b") as file:
            file.write(b"PAR1")
        os.utime(name, (7, 7))
        return digest

    monkeypatch.setattr(file_seal, "_content", meanwhile)
    with pytest.raises(InputError, match=r"was changed after the job listed it"):
        found(world, job)


def test_a_file_that_is_gone_ends_the_job_in_one_sentence(world, way):
    job = planned(world)
    (world.lake / "b.parquet").unlink()
    with pytest.raises(InputError, match=r"b.parquet could not be read; .*\.$"):
        found(world, job)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(world, way):
    job = planned(world)
    (world.lake / "b.parquet").unlink()
    os.mkfifo(world.lake / "b.parquet")
    with pytest.raises(InputError, match=r"must name regular files"):
        found(world, job)


def test_a_file_in_place_of_another_is_read_as_the_one_that_was_opened_or_refused(world, way):
    job = planned(world)
    other = world.folder / "other.parquet"
    pq.write_table(lake.table_of(lake.mixture(20, seed=9)), other)
    os.replace(other, world.lake / "b.parquet")
    with pytest.raises(InputError, match=r"was changed after the job listed it"):
        found(world, job)


def test_a_link_that_moves_to_another_partition_is_another_input(world, way):
    """Rows take the value of the folder in which the link is, wherever the file is."""
    values = []
    for value in ("mon", "tue"):
        folder = world.folder / "linked"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / f"client_id={value}").mkdir(parents=True)
        (folder / f"client_id={value}" / "part.parquet").symlink_to(world.lake / "b.parquet")
        values.append(found(world, planned(world, folder, unit="client")))
        assert found(world, planned(world, folder, unit="client")) == values[-1]
    assert values[0] != values[1]
    (world.folder / "elsewhere").symlink_to(world.folder)
    again = planned(world, world.folder / "elsewhere" / "linked", unit="client")
    assert found(world, again) == values[1]


def test_digests_that_are_missing_are_not_made_up(world, monkeypatch):
    """Nor is the listing believed if an attacker writes another one."""
    monkeypatch.setattr(file_digests, "shuffles_in_memory", lambda _: False)
    job, honest = planned(world), file_digests._write_block
    monkeypatch.setattr(file_digests, "run_graph", lambda *_: None)
    with pytest.raises(InputError, match=r"must be the file that this run wrote"):
        found(world, job)

    def short(build, *_):
        honest((0, bytes(95)), build.keywords["place"])

    monkeypatch.setattr(file_digests, "run_graph", short)
    with pytest.raises(InputError, match=r"got fewer digests than files"):
        found(world, job)

    def after_another_listing(build, *words):
        pathlib.Path(build.keywords["listing"].path).write_text("")
        return run_graph(build, *words)

    monkeypatch.setattr(file_digests, "run_graph", after_another_listing)
    with pytest.raises(InputError, match=r"The list of input files in the staging folder is missing or was changed"):
        found(world, job)


# --- on a store


def test_objects_of_a_store_are_hashed_and_nothing_is_left_there(way):
    with stores.store() as root:
        objects = {f"{root}lake/{name}.parquet": raw(seed) for seed, name in enumerate(("b", "a"))}
        stores.Store.objects.update(objects)
        data = SimpleNamespace(data=DataConfig(path=f"{root}lake", features="x"))
        files = private_source.private_source(data).listed.files
        taken = file_digests.file_digests(files, beam_options([]), f"{root}out.partial-r")
        found = [(each.path, digest) for each, digest in taken]
        assert found == [(path, hashlib.sha256(objects[path]).hexdigest()) for path in sorted(objects)]
        assert len(stores.names()) == 2
        stores.Store.objects[f"{root}lake/a.parquet"] += b"more"
        with pytest.raises(InputError, match=r"a.parquet was changed after the job listed it"):
            list(file_digests.file_digests(files, beam_options([]), f"{root}out.partial-r"))
        assert len(stores.names()) == 2


def test_blocks_of_a_killed_attempt_are_not_read(monkeypatch):
    """Its job may go on in the cluster, and write after this attempt has begun."""
    places, honest = [], file_digests._build
    monkeypatch.setattr(file_digests, "shuffles_in_memory", lambda _: False)

    def watched(root, listing, place):
        places.append(place)
        for earlier in places[:-1]:
            file_digests._write_block((0, bytes(64)), earlier)
        honest(root, listing, place)

    monkeypatch.setattr(file_digests, "_build", watched)
    with stores.store() as root:
        stores.Store.objects[f"{root}lake/a.parquet"] = raw(0)
        data = SimpleNamespace(data=DataConfig(path=f"{root}lake", features="x"))
        files = private_source.private_source(data).listed.files
        first, second = (list(file_digests.file_digests(files, beam_options([]), f"{root}out")) for _ in range(2))
    assert first == second
    assert len(set(places)) == 2


# --- prepared folders: the manifest has the digests, and every graph compares them with the bytes


def test_a_prepared_folder_is_not_read_again(world, way, monkeypatch):
    folder = prepared(world)
    world.lake = folder
    for module in (file_digests, read):
        monkeypatch.setattr(module, "content_digest", unread)
    assert found(world, planned(world, folder)) == by_hand(world)


def test_a_manifest_that_changes_after_the_listing_is_refused(world):
    folder = prepared(world)
    job = planned(world, folder)
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"max_rows_per_client": null', '"max_rows_per_client": 3'))
    with pytest.raises(InputError, match=r"must not change after the job listed it"):
        found(world, job)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_bytes_that_are_not_those_of_the_manifest_end_a_run_before_noise(world, unit, monkeypatch):
    place = ledgers.Place(world.folder / "place", unit=unit)
    folder = prepared(world)
    flip(next(folder.glob("*.parquet")))
    monkeypatch.setattr("dapple_dp.transforms.core.noise.draw_release", unread)
    outcome = place.fit(data=place.job["data"] | {"path": str(folder)})
    assert (outcome.code, "was changed after prepare wrote it" in outcome.err) == (2, True), outcome.err
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start", "void"]


# --- in the ledger


class Stopped(BaseException):
    """Ends a run as a signal would, but leaves the process."""


def stop(*_):
    raise Stopped


def test_a_run_of_one_runner_goes_on_for_free_on_another(tmp_path, monkeypatch):
    place = ledgers.Place(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("dapple_dp.pipelines.kmeans.report.files.write_outputs", stop)
        with pytest.raises(Stopped):
            place.fit()
    drawn = lake.released(tmp_path / "out.partial-run")
    monkeypatch.setattr(file_digests, "content_digest", unread)
    again = lake.run_command(*place.words("out", "run"), *PORTABLE)
    assert again.code == 0, again.err
    assert lake.released(tmp_path / "out") == drawn
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start", "commit"]


@pytest.mark.slow
def test_a_launcher_that_is_killed_leaves_digests_to_its_owner_only_and_goes_on(tmp_path):
    place = ledgers.Place(tmp_path)
    words, line = place.words("out", "run"), str(tmp_path / "line")
    point = crashes.Point("dapple_dp.pipelines.kmeans.plan.file_digests:_staged_digests")
    assert crashes.run([*words, *PORTABLE], line, key=bytes(range(32)), point=point) == -9
    assert ledgers.kinds(place.ledger) == ["limit", "reserve"]
    (left,) = tmp_path.glob("out.partial-run.clients/*-0")
    assert len(left.read_bytes()) == 64
    assert left.parent.stat().st_mode & 0o777 == 0o700
    assert crashes.run(words, line, key=bytes(range(32))) == 0
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start", "commit"]
    assert not list(tmp_path.glob("out.partial-run*"))


# --- many files


def many(world, n_files: int) -> FileList:
    """A listing of one file under many names."""
    file = str(world.lake / "b.parquet")
    seal, files = seal_of(file).text, FileList("data.path")
    for number in range(n_files):
        files._add(ListedFile(f"{number:06d}", file, seal), str(number))
    return files


def peak(world, files: FileList) -> int:
    """Bytes that the launcher holds at most while it takes digests of files."""
    tracemalloc.start()
    try:
        taken = sum(1 for _ in file_digests.file_digests(files, beam_options([]), str(world.folder / "run")))
        assert taken == len(files)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_launcher_holds_few_files_however_many_there_are(world):
    """Threads that read at once hold no more of a small file than its bytes, so chance has no part in it."""
    assert peak(world, many(world, 20_000)) < 2 * peak(world, many(world, 2_000)) < 4_000_000


def test_the_launcher_holds_one_block_of_the_digests_of_workers(world, monkeypatch):
    def played(build, *_):
        for block in range(20):
            file_digests._write_block((block, bytes(32_000)), build.keywords["place"])

    monkeypatch.setattr(file_digests, "shuffles_in_memory", lambda _: False)
    monkeypatch.setattr(file_digests, "FILES_IN_BLOCK", 1_000)
    monkeypatch.setattr(file_digests, "run_graph", played)
    assert peak(world, many(world, 20_000)) < 2 * peak(world, many(world, 2_000))


def test_a_file_that_fails_ends_the_reading_of_those_behind_it(world, monkeypatch):
    """Not all of a lake is read before the user sees the error."""
    read, honest = [], file_digests.content_digest

    def digest(file, seal, name):
        read.append(name)
        return honest(file, seal, name)

    monkeypatch.setattr(file_digests, "content_digest", digest)
    files = many(world, 20_000)
    os.unlink(world.lake / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet \(.*\) could not be read"):
        peak(world, files)
    assert 0 < len(read) < 1_000


# --- nobody sees a digest


def refused(build, words):
    with pytest.raises(PrivacyFlowError, match=words):
        run_graph(build, beam_options(["--no_pipeline_type_check"]), TRUSTED_ZONE)


def test_digests_are_as_private_as_rows_to_the_checker(world):
    listed = planned(world).source.listed.files.write(str(world.folder / "listing"))

    def published(root):
        return root | "Digests" >> DigestFiles(listing=listed) | "Write" >> beam.ParDo(publish._WriteModelFn("out"))

    def told(root):
        return root | "Digests" >> DigestFiles(listing=listed) | "Tell" >> beam.Map(print)

    def elsewhere(root):
        digests = root | "Digests" >> DigestFiles(listing=listed)
        return digests | "Stage" >> PrivateSink(write=print, places=("out",))

    refused(published, r"must be given public data and releases, got exact private data")
    for build in (told, elsewhere):
        refused(build, r"must (run audited code|be handed audited functions)")
