"""Releases that are lost after they were committed, and sweeps: what was charged is there, and is drawn once.

`tests/power_cuts` cuts the power of runs wherever it can be cut.
"""

import pathlib
import shutil
from unittest import mock

import numpy as np
import pytest
import yaml

from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes import epochs, lake, ledgers
from tests.scenes.power_cut import Disk

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))
"""Keys that a run makes before and after the cut."""
DATES = epochs.DATES


class Machine:
    """A run with a ledger."""

    def __init__(self, ledger: ledgers.Ledger, words: list[str], run: str, output: pathlib.Path):
        self.ledger, self.words, self.name, self.output = ledger, words, run, output

    def run(self, key: bytes) -> lake.Outcome:
        with mock.patch("secrets.token_bytes", return_value=key):
            return lake.run_command(*self.words)

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.ledger.entries() if entry.run == self.name]


def of_fit(folder: pathlib.Path, **settings) -> Machine:
    """Rows are elsewhere; the output is in a folder that is not there yet."""
    disk = folder / "disk"
    disk.mkdir()
    ledger = ledgers.new_ledger(disk, Limit(epsilon=1000.0, delta=1e-5))
    (folder / "rows").mkdir()
    place = ledgers.Place(folder / "rows", epsilon=1000.0, unit="client", ledger=ledger.path)
    output = disk / "deep" / "out"
    return Machine(ledger, place.words(str(output), "run", **settings), "run", output)


def of_window(folder: pathlib.Path) -> Machine:
    """The second window of an epoch, whose clients are counted by a client list beside the ledger."""
    place = epochs.Place(folder)
    place.write(DATES[0], range(30))
    place.write(DATES[1], range(20, 60))
    assert place.release(DATES[0]).code == 0
    run = f"january-{DATES[1]}"
    return Machine(place.ledger, place.words(DATES[1]), run, folder / "january" / DATES[1])


# A release that is lost after it was committed.


@pytest.fixture
def lost(tmp_path):
    """A run under a kept key whose committed release is gone."""
    key = lake.write_key(tmp_path / "key")
    machine = of_fit(tmp_path, key_uri=key)
    assert machine.run(FIRST).code == 0
    machine.whole = lake.released(machine.output)
    shutil.rmtree(machine.output)
    return machine


def test_it_is_drawn_again_for_free_and_the_same(lost):
    done = lost.run(SECOND)
    assert done.code == 0, done.err
    assert "is committed: resuming without a further charge" in done.err
    assert lake.released(lost.output) == lost.whole
    assert lost.kinds() == ["reserve", "start", "commit", "commit"]
    before = lost.ledger.entries()
    assert lost.run(SECOND).code == 0
    assert lost.ledger.entries() == before


def test_it_is_drawn_again_once_more(lost):
    assert lost.run(SECOND).code == 0
    shutil.rmtree(lost.output)
    assert lost.run(SECOND).code == 0
    assert lake.released(lost.output) == lost.whole


def test_a_damaged_file_that_is_staged_is_drawn_again(lost):
    """It was once put in place as it was, and its key went."""
    with mock.patch("dapple_dp.pipelines.run.folder.RunFolder.move", side_effect=KeyboardInterrupt):
        assert lost.run(SECOND).code == 130
    staging = pathlib.Path(f"{lost.output}.partial-run")
    (staging / "centers.parquet").write_bytes(b"")
    assert lost.run(SECOND).code == 0
    assert lake.released(lost.output) == lost.whole


def test_without_its_key_it_is_refused(lost, tmp_path):
    (tmp_path / "key").unlink()
    done = lost.run(SECOND)
    assert (done.code, "its budget is spent" in done.err) == (3, True)
    assert lost.kinds() == ["reserve", "start", "commit"]


@pytest.mark.parametrize("changed", ["key", "rows"])
def test_with_another_key_or_other_rows_it_is_refused(lost, tmp_path, changed):
    if changed == "key":
        (tmp_path / "key").write_bytes(SECOND)
    else:
        lake.write_lake(tmp_path / "rows" / "lake", lake.mixture(60, seed=9), np.arange(60))
    done = lost.run(SECOND)
    assert done.code == 3, done.err
    assert "must be resumed with the same" in done.err
    assert not lost.output.exists()
    assert lost.kinds() == ["reserve", "start", "commit"]


def test_another_release_under_its_key_is_not_published(lost):
    """A machine whose last bits differ would draw a second time for one charge."""
    with mock.patch("dapple_dp.transforms.files.file_bytes.releases_to_table", lambda releases: _changed(releases)):
        done = lost.run(SECOND)
    assert (done.code, "released something else the first time" in done.err) == (3, True)
    assert not lost.output.exists()
    assert [path.name for path in lost.output.parent.glob("out.partial-run/*")] == ["versions.json"]
    assert lost.kinds() == ["reserve", "start", "commit"]


def _changed(releases):
    from dapple_dp.schemas.privacy.release_table import releases_to_table

    return releases_to_table(releases).replace_schema_metadata({"other": "bits"})


def test_a_window_of_an_epoch_is_not_drawn_again(tmp_path):
    """The next one may have replaced what it has counted."""
    machine = of_window(tmp_path)
    assert machine.run(FIRST).code == 0
    shutil.rmtree(machine.output)
    done = machine.run(SECOND)
    assert (done.code, "the release of run" in done.err) == (3, True), done.err
    assert machine.kinds() == ["reserve", "start", "commit"]


def test_a_sweep_has_the_parts_that_it_was_charged_for(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    ledger = ledgers.new_ledger(disk, Limit(epsilon=1000.0, delta=1e-5))
    place = ledgers.Place(tmp_path, epsilon=1000.0, ledger=ledger.path)
    job = place.job | {"sweep": {"methods": {"lloyds": {}}, "epsilons": [1.0], "seeds": 2, "cells_per_pipeline": 1}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    recorded = Disk(disk, pathlib.Path(ledger.path))
    with recorded.recording():
        words = ("sweep", "--config", str(tmp_path / "job.yaml"), "--output", str(disk / "deep" / "out"))
        assert lake.run_command(*words).code == 0
    for cut in recorded.cuts:
        recorded.restore(cut)
        parts = {path.name for path in (disk / "deep" / "out" / "parts").glob("*.parquet") if path.stat().st_size}
        committed = ledgers.kinds(ledger).count("commit")
        assert {f"part-{number:04d}.parquet" for number in range(committed)} <= parts, cut.after
    assert committed == 2
