"""A fit that is killed anywhere: no half result, one charge, and the same bytes when it is taken up."""

import hashlib
import json
import pathlib

import pytest

from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes import crashes, lake, ledgers
from tests.scenes.crashes import Point

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))
"""Keys that the first and the second attempt make if they make one."""
STORE, ACCOUNT, FOLDER = (
    "dapple_dp.pipelines.ledger.store:",
    "dapple_dp.pipelines.kmeans.account:",
    "dapple_dp.pipelines.run.folder:RunFolder.",
)
POINTS = [
    Point(STORE + "Ledger.reserve"),
    Point(STORE + "_Book.append", after=True),
    Point(STORE + "Ledger.reserve", after=True),
    Point(FOLDER + "take_up", after=True),
    Point("dapple_dp.transforms.privacy.key_files:create_key"),
    Point("dapple_dp.transforms.privacy.key_files:create_key", after=True),
    Point("dapple_dp.pipelines.kmeans.plan.file_digests:content_digest", call=2),
    Point(STORE + "Ledger.start"),
    Point(STORE + "Ledger.start", after=True),
    Point("dapple_dp.pipelines.tables.prepare:group"),
    Point("dapple_dp.pipelines.tables.prepare:group", after=True),
    Point("dapple_dp.transforms.core.noise:draw_release", after=True),
    Point("dapple_dp.transforms.core.noise:draw_release", call=2),
    Point("dapple_dp.transforms.files.publish:write_bytes", call=2),
    Point("dapple_dp.pipelines.kmeans.report.files:write_outputs"),
    Point(FOLDER + "seal"),
    Point(STORE + "Ledger.commit"),
    Point(STORE + "_Book.append", after=True, call=3),
    Point(STORE + "Ledger.commit", after=True),
    Point(ACCOUNT + "end_key", after=True),
    Point(FOLDER + "move"),
    Point(FOLDER + "move", after=True),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return ledgers.Place(tmp_path_factory.mktemp("crashes"), epsilon=1000.0, unit="client")


@pytest.fixture(scope="module")
def expected(place):
    """Released files of runs that nobody kills, by key."""
    found = {}
    for number, key in enumerate((FIRST, SECOND)):
        out = f"whole{number}"
        assert crashes.run(place.words(out, out), str(place.folder / "line"), key=key) == 0
        found[key] = lake.released(place.folder / out)
    assert found[FIRST] != found[SECOND]
    return found


def own_ledger(place, run):
    """A ledger of one run: in these tests all runs draw under one key, which a common one would refuse."""
    folder = place.folder / f"ledger-{run}"
    folder.mkdir()
    return ledgers.new_ledger(folder, Limit(epsilon=1000.0, delta=1e-5))


def entries_of(ledger, run):
    return [entry.kind for entry in ledger.entries() if entry.run == run]


def check_whole(folder):
    """The folder is a complete result."""
    manifest = json.loads((folder / "run.json").read_text())
    assert {path.name for path in folder.iterdir()} == {"run.json", *manifest["files"]}
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_a_killed_fit_is_charged_once_and_resumes_with_the_same_bytes(place, expected, point):
    number = POINTS.index(point)
    run, output, line = f"run{number}", place.folder / f"out{number}", str(place.folder / "line")
    ledger = own_ledger(place, run)
    words = place.words(output.name, run, ledger=ledger.path)
    assert crashes.run(words, line, key=FIRST, point=point) == -9
    left = entries_of(ledger, run)
    assert left in ([], ["reserve"], ["reserve", "start"], ["reserve", "start", "commit"])
    if output.exists():
        check_whole(output)
    keyed = output.exists() or pathlib.Path(f"{output}.partial-{run}", "run.key").exists() or "commit" in left
    assert crashes.run(words, line, key=SECOND) == 0
    assert entries_of(ledger, run) == ["reserve", "start", "commit"]
    check_whole(output)
    assert lake.released(output) == expected[FIRST if keyed else SECOND]
    assert not list(place.folder.glob(f"{output.name}.partial-*"))
    printed = crashes.last_line(line)
    assert (printed["run_id"], printed["output"]) == (run, str(output))
    again = lake.run_command(*words)
    assert json.loads(again.out) == printed
    assert entries_of(ledger, run) == ["reserve", "start", "commit"]
