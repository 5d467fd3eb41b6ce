"""Beam's own code for Dataflow translates every job: one container, no end that is missing, nothing that is private.

Google's cloud is not asked: `docs/how-to/run-on-dataflow.md` says what has been run and what has not. Each job runs on,
in memory, so that all of its pipelines are seen.
"""

import pathlib
import re
import sys
import sysconfig

import numpy as np
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.command.words import WORDS
from tests import released_bytes
from tests.pipeline.privacy.test_secrets import spellings_in, unpacked
from tests.released_bytes import FITS, SECRETS, Desk
from tests.scenes import lake, on_dataflow

pytestmark = pytest.mark.slow

pytest.importorskip("google.cloud.dataflow")
MOST_BYTES = 10_000_000
"""Of a request that Dataflow takes."""
CASES = {
    "fit/record": {"`fit`, rows": ("fit",)},
    "fit/grouped": {"`fit`, clients in several files": ("fit",)},
    "fit/masked": {"`fit`, masked": ("fit",)},
    "topics": {"`topics`": ("topics",)},
    "stream": {"`stream`, each window": ("stream",)},
    "prepare": {"`prepare`": ("prepare",)},
    "assign-plain": {"`assign`": ("assign",)},
    "evaluate-plain": {"`evaluate`": ("evaluate",)},
    "profile-client": {"`profile`, clients": ("profile",)},
    "sweep": {"`sweep`, four settings and two seeds": ("sweep",)},
    "masked_jobs/shared-record": {f"`masked {name}`": (name,) for name in ("upload", "aggregate", "unmask")},
    "reports/shuffled": {"`reports encode`, `shuffle`, `decode`": ("encode", "shuffle", "decode")},
    "clustered_fl/r_dpcfl": {"`clustered_fl`": ("clustered_fl",)},
}
"""Of `tests.released_bytes`: rows of the table of the page, and the words whose pipelines they are."""
PAGE = pathlib.Path(__file__).parents[3] / "benchmarks" / "results" / "dataflow.md"
LIBRARIES = [sysconfig.get_path(each).encode() for each in ("purelib", "stdlib")]
"""Functions of Beam and PipelineDP are sent with the place of their source."""
HERE = {sys.prefix, str(pathlib.Path(__file__).parents[3]), str(pathlib.Path.home()), "/tmp", "/var/tmp", "/usr/"}
"""Beginnings of paths of this machine, but for the root."""


class DeskAtGoogle(Desk):
    """Jobs are for Dataflow, and what is sent of each is kept.

    Attributes:
      case: that they are of.
      sent: by the word of the job.
    """

    def __init__(self, case, folder, translated):
        super().__init__(folder)
        self.case, self.sent = case, {}
        self._translated = translated

    def run(self, case, job, settings, *words):
        n_before = len(self._translated)
        found = super().run(case, job, {"experimental": True} | settings, *words, *on_dataflow.FLAGS)
        self.sent.setdefault(job, []).extend(self._translated[n_before:])
        return found


@pytest.fixture(scope="module", params=CASES)
def desk(request, tmp_path_factory):
    """A desk after a case."""
    with lake.written_keys_draw(), on_dataflow.translating() as translated:
        desk = DeskAtGoogle(request.param, tmp_path_factory.mktemp("desk"), translated)
        if request.param == "topics":
            desk.run("topics", "topics", FITS["spherical"](desk))
        else:
            run, name = released_bytes.CASES[request.param]
            run(desk, name)
    return desk


@pytest.fixture(scope="module")
def sent(desk):
    """Returns what is sent for each pipeline."""
    return [each for group in desk.sent.values() for each in group]


@pytest.fixture(scope="module")
def opened(sent):
    """All of it, as it is when it is unpacked."""
    return [unpacked(b"\n".join([each.request, *each.staged.values()])) for each in sent]


def launcher_in(content):
    """Which paths of the launcher's machine are named, but for those of libraries."""
    for each in LIBRARIES:
        content = content.replace(each, b"")
    return {each for each in HERE if each.encode() in content}


def numbers_in(content, rows):
    """Coordinates, as eight bytes or as text, that are in a content; small and round ones are everywhere."""
    told = np.unique(rows[(np.abs(rows) > 1e-3) & (rows != rows.round(4))])
    found = {each[:10] for each in re.findall(rb"-?\d+\.\d{5,}", content)} & {
        repr(float(each))[:10].encode() for each in told
    }
    for order in "<>":
        wanted = told.astype(f"{order}f8").view(np.uint64)
        for start in range(8):
            words = np.frombuffer(content, np.uint64, (len(content) - start) // 8, start)
            found |= set(np.intersect1d(words, wanted).tolist())
    return found


def private_rows(folder):
    """Coordinates of all rows that are no public ones, nor written by a job."""
    public = {folder / "server.parquet", folder / "known.parquet"}
    paths = [each for each in folder.rglob("*.parquet") if each.is_file() and each not in public]
    paths = [each for each in paths if "runs" not in each.parts[:-2] or "rows-" in each.parent.name]
    paths = [each for each in paths if "held_out" not in each.parts]
    found = [np.asarray(pq.read_table(each)["x"].to_pylist(), dtype=np.float64).ravel() for each in paths]
    return np.concatenate(found)


def test_every_word_is_translated():
    """One that is new has no case yet."""
    assert {word for rows in CASES.values() for words in rows.values() for word in words} == set(WORDS)


def test_the_page_has_the_steps_and_side_inputs(desk):
    for row, words in CASES[desk.case].items():
        sizes = dict.fromkeys((each.n_transforms, each.n_side_inputs) for word in words for each in desk.sent[word])
        assert f"\n| {row} | {'; '.join(f'{steps}, {sides}' for steps, sides in sizes)} |\n" in PAGE.read_text()


def test_steps_run_in_one_container(desk, sent):
    assert all(desk.sent.values())
    assert {tuple(each.images) for each in sent} == {(on_dataflow.IMAGE,)}


def test_every_collection_has_an_end(sent):
    """Windows of a stream are jobs of their own: nothing of Dapple is a streaming job."""
    assert [each.n_unbounded for each in sent] == [0] * len(sent)
    assert not any(b'"JOB_TYPE_STREAMING"' in each.request for each in sent)


def test_it_is_small(sent):
    sizes = [len(each.request) + len(each.staged["pipeline.pb"]) for each in sent]
    assert max(sizes) < 700_000 < MOST_BYTES


def test_nothing_of_the_launcher_is_sent(desk, sent, opened):
    """The paths that the job itself names are its own."""
    assert [set(each.staged) for each in sent] == [{"pipeline.pb"}] * len(sent)
    assert [launcher_in(each.replace(str(desk.folder).encode(), b"")) for each in opened] == [set()] * len(sent)


def test_no_key_is_sent(opened):
    content = b"\n".join(opened)
    assert [key for key in (lake.KEY, *SECRETS) if spellings_in(content, key)] == []


def test_no_row_is_sent(desk, opened):
    rows = private_rows(desk.folder)
    assert len(rows) > 100
    assert numbers_in(b"..." + rows[-20:].tobytes(), rows)
    assert numbers_in(f"[{rows[-20:].tolist()}]".encode(), rows)
    assert [numbers_in(each, rows) for each in opened] == [set()] * len(opened)
