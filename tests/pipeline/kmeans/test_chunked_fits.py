"""Fits whose rounds are cut into several graphs: the same release, and after each of them a run can be taken up."""

import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import signal
from unittest import mock

import apache_beam as beam
import numpy as np
import pytest
import yaml

from dapple_dp.pipelines.kmeans import fit_rounds
from dapple_dp.pipelines.kmeans.fit import aggregation_of
from dapple_dp.pipelines.kmeans.fit_rounds import FitRounds
from dapple_dp.pipelines.run.folder import is_of_rounds
from dapple_dp.schemas.errors import InputError
from dapple_dp.transforms.files.checkpoint import MANIFEST_FILE
from dapple_dp.transforms.rounds.bound_broadcast import state_digest
from tests.scenes import crashes, lake, ledgers
from tests.scenes.crashes import Point
from tests.scenes.protocol_jobs import ALONE, settings_of

pytestmark = pytest.mark.slow

KEY = bytes(range(32))
JOBS = {str(each): settings_of(each) for each in ALONE} | {
    "of clients": {"unit": "client"},
    "moved": {"clipping__center": "none", "clipping__norm": 9.0},
    "after feddp": {
        "algorithm": "dp_lloyd",
        "dp_lloyd": {"domain": [-8, 8], "init": "feddp_init"},
        "clipping": {"norm": "server_radius", "center": "server_mean"},
        "lloyd": {},
    },
    "masked": {"trust": "masked"},
    "pairwise": {"trust": "masked", "masked": {"scheme": "pairwise", "threshold": 2}, "unit": "client"},
}


class Place:
    """A lake, and words of fits of it in chunks."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.path = lake.write_lake(folder / "lake", lake.mixture(120), np.arange(120) // 10, n_files=2, codes=True)
        self.server = lake.write_server(folder / "server.parquet")

    def words(self, output: str, chunk: int | None, run: str = "r", **settings) -> list[str]:
        """Arguments of a `fit` to a folder of this name."""
        settings = dict(settings)
        job = lake.job(self.path, self.server, settings.pop("unit", "record"), **settings)
        if chunk is not None:
            job["chunks"] = {"rounds": chunk}
        file = self.folder / f"{output}.yaml"
        file.write_text(yaml.safe_dump(job))
        return ["fit", "--config", str(file), "--output", str(self.folder / output), "--run_id", run]

    def run(self, words: list[str], point: Point | None = None) -> int:
        """In a process of its own, every key that it makes the same."""
        return crashes.run(words, str(self.folder / "line"), key=KEY, point=point)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("chunks"))


@pytest.fixture(scope="module", params=list(JOBS))
def whole(request, place):
    """A job, and its release by one graph."""
    name = request.param.replace(" ", "_")
    assert place.run(place.words(f"{name}_whole", None, **JOBS[request.param])) == 0
    return request.param, name, place.folder / f"{name}_whole"


def test_cuts_do_not_matter(place, whole):
    job, name, expected = whole
    out = place.folder / f"{name}_cut"
    assert place.run(place.words(out.name, 1, **JOBS[job])) == 0
    assert lake.released(out) == lake.released(expected)
    one, other = (json.loads((folder / "privacy.json").read_text()) for folder in (out, expected))
    assert one == other
    assert {path.name for path in out.iterdir()} == {path.name for path in expected.iterdir()}


LLOYD = JOBS["dp_lloyd"] | {"dp_lloyd": {"domain": [-8, 8], "init": "sphere_packing", "steps": 4}}
SAVE = "dapple_dp.transforms.files.checkpoint:CheckpointFolder.save"
N_ROUNDS = 4


@pytest.fixture(scope="module")
def expected(place):
    """The release of a fit that nobody stops."""
    assert place.run(place.words("expected", None, **LLOYD)) == 0
    return lake.released(place.folder / "expected")


@pytest.mark.parametrize(("after", "ledger"), [(True, False), (False, True)], ids=["free", "charged"])
def test_a_run_is_taken_up_after_every_chunk(place, expected, after, ledger):
    for number in range(1, N_ROUNDS + 1):
        name = f"killed_{number}_{after}_{ledger}"
        more = dict(LLOYD)
        if ledger:
            folder = place.folder / f"ledger_{name}"
            folder.mkdir()
            more |= {"ledger": ledgers.new_ledger(folder, ledgers.Limit(epsilon=100.0, delta=1e-4), "rows").path}
            more |= {"data__name": "rows"}
        words = place.words(name, 1, **more)
        assert place.run(words, Point(SAVE, after=after, call=number)) == -signal.SIGKILL
        staging = place.folder / f"{name}.partial-r"
        recorded = json.loads((staging / MANIFEST_FILE).read_text())["rounds"] if number + after > 1 else 0
        assert recorded == max(0, number - 2 + after)
        assert place.run(words) == 0
        assert lake.released(place.folder / name) == expected
        assert not staging.exists()
        assert not any(is_of_rounds(file.name) for file in (place.folder / name).iterdir())


@pytest.fixture(scope="module")
def killed(place, expected, tmp_path_factory):
    """A copy of what a run left that was killed when three of its rounds were recorded."""
    assert place.run(place.words("stopped", 1, **LLOYD), Point(SAVE, after=True, call=4)) == -signal.SIGKILL
    return shutil.copytree(place.folder / "stopped.partial-r", tmp_path_factory.mktemp("killed") / "staging")


@pytest.fixture
def stopped(place, killed):
    """Words of that run, and its staging folder, as it was left."""
    staging, times = place.folder / "stopped.partial-r", {}
    for folder in (staging, place.folder / "stopped"):
        shutil.rmtree(folder, ignore_errors=True)
    for file in pathlib.Path(place.path).iterdir():
        times[file] = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    yield place.words("stopped", 1, **LLOYD), pathlib.Path(shutil.copytree(killed, staging))
    for file, before in times.items():
        os.utime(file, ns=before)


def test_it_may_go_on_in_other_chunks(place, expected, stopped):
    _, staging = stopped
    name = staging.name.partition(".")[0]
    assert place.run(place.words(name, 3, **LLOYD)) == 0
    assert lake.released(place.folder / name) == expected


def test_it_goes_on_from_the_bits_that_were_drawn_from(place, tmp_path, monkeypatch):
    """Another version of a library would compute other last bits from the releases: nobody computes them again."""
    settings = lake.job(place.path, place.server, "record", **LLOYD)
    planned, given, honest = lake.ready(settings, tmp_path), [], fit_rounds.RunRounds
    monkeypatch.setattr(fit_rounds, "RunRounds", lambda **words: given.append(words) or honest(**words))
    state = dataclasses.replace(planned.initial, centers=np.nextafter(planned.initial.centers, np.inf))
    rounds = FitRounds(planned, aggregation_of(planned, "key"), str(place.folder))
    arrays = fit_rounds._to_arrays(state, 1, None)
    assert rounds.rounds_done(arrays) == 1
    rounds.add_rounds(beam.Pipeline(options=lake.beam_options([])), arrays, 2, 3)
    (initial,) = given[0]["state"].producer.parent.transform.values
    assert state_digest(initial) == state_digest(state) != state_digest(planned.initial)
    assert given[0]["rounds"] == planned.rounds[1:3]


@pytest.mark.parametrize("change", ["config", "rows", "key", "record", "state"])
def test_another_run_does_not_go_on_from_it(place, stopped, change):
    words, staging = stopped
    before = sorted(path.name for path in staging.iterdir())
    if change == "config":
        words = place.words(staging.name.partition(".")[0], 1, **LLOYD | {"n_clusters": 4})
    if change == "rows":
        file = next(pathlib.Path(place.path).glob("*.parquet"))
        os.utime(file, ns=(1, 1))
    if change == "key":
        (staging / "run.key").write_bytes(bytes(range(32, 64)))
    if change == "record":
        (staging / MANIFEST_FILE).write_text("{}")
    if change == "state":
        next(staging.glob("round-*.npz")).write_bytes(b"other")
    done = lake.run_command(*words)
    assert done.code in (2, 3), done.err
    said = "must be" if change in ("record", "state") else "This --run_id belongs to an interrupted run"
    assert said in done.err.splitlines()[-1]
    assert not (place.folder / staging.name.partition(".")[0]).exists()
    assert sorted(path.name for path in staging.iterdir()) == before


def test_a_second_driver_is_refused(place, stopped):
    words, staging = stopped
    descriptor = os.open(staging, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        done = lake.run_command(*words)
    finally:
        os.close(descriptor)
    assert done.code == 2
    assert "is still under way" in done.err


def test_bad_input_in_a_later_chunk_keeps_charge_key_and_staging(tmp_path):
    """Voided, the rounds before it would have been given away for nothing."""
    place = Place(tmp_path)
    ledger = ledgers.new_ledger(tmp_path, ledgers.Limit(epsilon=100.0, delta=1e-4), "rows")
    words = place.words("out", 1, **LLOYD, ledger=ledger.path, data__name="rows")
    refused = InputError("a row must be finite, got one that is not; mend it.")
    honest, calls = fit_rounds.FitRounds.add_rounds, []

    def add_rounds(self, root, arrays, first, last):
        calls.append(first)
        if first == 2:
            raise refused
        return honest(self, root, arrays, first, last)

    with mock.patch.object(fit_rounds.FitRounds, "add_rounds", add_rounds):
        assert lake.run_command(*words).code == 2
    assert calls == [1, 2]
    assert [entry.kind for entry in ledger.entries() if entry.run == "r"] == ["reserve", "start"]
    assert (tmp_path / "out.partial-r" / "run.key").exists()
    done = lake.run_command(*words)
    assert done.code == 0, done.err
    assert "going on after round 1 of 4" in done.err
    assert [entry.kind for entry in ledger.entries() if entry.run == "r"] == ["reserve", "start", "commit"]


def test_bad_input_in_the_first_chunk_leaves_nothing(tmp_path):
    place = Place(tmp_path)
    words = place.words("out", 1, **LLOYD)
    with mock.patch.object(fit_rounds.FitRounds, "add_rounds", side_effect=InputError("a row must be finite.")):
        assert lake.run_command(*words).code == 2
    assert not list(tmp_path.glob("out*/"))


def test_a_given_key_beside_the_staging_folder_is_kept(tmp_path):
    """Its path begins as that of the folder does, whose own keys are made again."""
    place = Place(tmp_path)
    key = lake.write_key(tmp_path / "out.partial-r.key")
    words = place.words("out", None, **LLOYD, key_uri=key)
    assert lake.run_command(*words).code == 0
    assert pathlib.Path(key).read_bytes() == lake.KEY


def test_a_complete_run_without_a_ledger_is_reported_as_complete(place):
    """A process stopped between the last rename and the last line may ask again; no other run is taken for it."""
    words = place.words("done", 2)
    assert (first := lake.run_command(*words)).code == 0, first.err
    before = {path.name: path.read_bytes() for path in (place.folder / "done").iterdir()}
    again = lake.run_command(*words)
    assert (again.code, json.loads(again.out)) == (0, json.loads(first.out))
    for other in ([*words[:-1], "another"], place.words("done", 2, seed=5)):
        refused = lake.run_command(*other)
        assert (refused.code, "--output must be a new or empty folder" in refused.err) == (2, True)
    assert before == {path.name: path.read_bytes() for path in (place.folder / "done").iterdir()}
