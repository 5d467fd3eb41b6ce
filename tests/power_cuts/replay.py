"""A job is recorded, its disk is rebuilt as a cut could leave it, and it is called again there."""

import contextlib
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Set
from typing import NamedTuple

from dapple_dp.pipelines.command import main as command
from dapple_dp.schemas.errors import DappleError
from tests.power_cuts import disk, trace
from tests.power_cuts.disk import Disk, Tree
from tests.power_cuts.jobs import Job, Step
from tests.power_cuts.outputs import JOBS
from tests.power_cuts.sites import BEGIN, OF_LEDGERS
from tests.scenes import crashes

SECONDS = 300.0
"""After which a command hangs."""
LAST = 3
"""How many of the last changes that were not flushed are tried one by one."""
_REFUSED = (2, 3, 4, 5, 75)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__, *crashes.PRELOADED])


class Cut(NamedTuple):
    """A state of the disk.

    Attributes:
      step: number of the command.
      after: the call after which the power is cut.
      lost: what of all that was not flushed is there.
      tree: the state.
      entries: how many entries the command knew to be in the ledger.
      over: whether the command had ended.
      sites: durable writes that were under way.
    """

    step: int
    after: str
    lost: str
    tree: Tree
    entries: int
    over: bool
    sites: frozenset[str]

    @property
    def name(self) -> str:
        """Returns where it was cut."""
        return f"step {self.step}, after {self.after}, of what was not flushed: {self.lost}"


class Fault(NamedTuple):
    """A fault after a cut."""

    cut: str
    sites: tuple[str, ...]
    what: str


class Result:
    """Results of cuts of a job.

    Attributes:
      name: of the job.
      calls: of the disk that changed it, in all steps.
      states: different ones that a cut could leave.
      tried: how many of them were.
      reached: durable writes that the job has made.
      cut: those that were cut and tried.
      refused: sentences with which the command refused, and how often.
      faults: what is wrong.
      seconds: in total.
    """

    def __init__(self, name: str):
        self.name, self.calls, self.states, self.tried, self.seconds = name, 0, 0, 0, 0.0
        self.reached: set[str] = set()
        self.cut: set[str] = set()
        self.refused: dict[str, int] = {}
        self.faults: list[Fault] = []


def tried(
    name: str,
    make: Callable[[pathlib.Path], Job],
    folder: pathlib.Path,
    *,
    most: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Cuts the power of a job.

    Args:
      name: of the job.
      make: the job, in a folder.
      folder: new.
      most: states that are tried in every step; None for all, 0 for as many as cut all writes that are not cut yet.
      seed: chooses them.
      say: is called with the progress.
    """
    result, begun = Result(name), time.monotonic()
    with contextlib.closing(make(folder)) as job:
        try:
            _try(job, result, most, seed, say)
        except (AssertionError, NotImplementedError) as error:
            # Other jobs are cut all the same.
            result.faults.append(Fault("a step that nobody cut", (), str(error)))
    result.seconds = time.monotonic() - begun
    return result


def _try(job: Job, result: Result, most: int | None, seed: int, say: Callable[[str], None]) -> None:
    """Cuts the power in the steps of a job."""
    name, folder = result.name, job.folder
    for number, step in enumerate(job.steps()):
        if not step.is_cut:
            code, err = called(step.words, folder)
            assert code == step.code, err
            continue
        copy, after = folder / f"before-{number}", folder / f"after-{number}"
        shutil.copytree(job.disk, copy, symlinks=True)
        done = trace.traced(step.words, folder, SECONDS)
        assert done.code == step.code, done.err
        model = Disk(job.disk, copy, job.elsewhere)
        cuts = list(_cuts(model, done.calls, number, result, lambda model=model: len(job.left(model.now()))))
        _check_followed(model, job.disk)
        shutil.copytree(job.disk, after, symlinks=True)
        whole = disk.found(job.disk)
        chosen = _chosen(cuts, most, seed, result.cut)
        result.states += len(cuts)
        say(f"{name}: step {number} ({step.words[0]}), {len(cuts)} states, {len(chosen)} tried")
        for cut in chosen:
            fault = _fault(job, step, cut, whole, result)
            result.tried += 1
            result.cut |= cut.sites
            if fault:
                result.faults.append(Fault(cut.name, tuple(sorted(cut.sites)), fault))
                say(f"{name}: {cut.name} {sorted(cut.sites)}: {fault}")
        disk.clear(job.disk)
        shutil.copytree(after, job.disk, symlinks=True, dirs_exist_ok=True)


def of_job(name: str, most: int | None, seed: int) -> Result:
    """Cuts the power of a job by its name, in a folder that goes, and says on standard error how it goes."""
    with tempfile.TemporaryDirectory(prefix="power-cuts-") as place:
        folder = pathlib.Path(os.path.realpath(place), "job")
        folder.mkdir()
        return tried(name, JOBS[name], folder, most=most, seed=seed, say=_say)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _cuts(model: Disk, calls: list[trace.Call], step: int, result: Result, held: Callable[[], int]) -> Iterator[Cut]:
    """Different states that a cut of a step leaves, in its order; `held` counts entries of the ledger as it is now."""
    entries = held()
    known: dict[tuple[str, int, bool], Cut] = {}
    under_way: dict[int, list[str]] = {}
    for call in calls:
        if mark := trace.mark_of(call):
            kind, site = mark
            if kind == BEGIN:
                under_way.setdefault(call.thread, []).append(site)
                continue
            under_way[call.thread].pop()
            if site.rpartition(".")[2] in OF_LEDGERS and not site.endswith(":failed"):
                # It may have been there before, from an attempt that was killed.
                entries = held()
            continue
        if not model.tell(call):
            continue
        result.calls += 1
        sites = frozenset(under_way.get(call.thread, ()))
        result.reached |= sites
        after = f"{call.name}({', '.join(_short(each) for each in call.args[:2])})"
        _add(known, model, Cut(step, after, "", {}, entries, False, sites))
    _add(known, model, Cut(step, "its end", "", {}, entries, True, frozenset()))
    yield from known.values()


def _add(known: dict[tuple[str, int, bool], Cut], model: Disk, cut: Cut) -> None:
    for lost, tree in model.trees(LAST):
        key = disk.digest(tree), cut.entries, cut.over
        if key in known:
            # The same state has been left by another call: its writes are cut with this one.
            known[key] = known[key]._replace(sites=known[key].sites | cut.sites)
        else:
            known[key] = cut._replace(lost=lost, tree=tree)


def _short(argument: str) -> str:
    """An argument for people: the last two parts of a path."""
    text = re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), argument)
    return "/".join(text.split("/")[-2:])[:60] if text.isprintable() else "..."


def _check_followed(model: Disk, root: pathlib.Path) -> None:
    """Checks that what the record says is what is there, or something was not followed."""
    said, there = model.now(), disk.found(root)
    other = sorted(name for name in said.keys() | there.keys() if _plain(said, name) != _plain(there, name))
    assert not other, f"the record does not follow {other[:5]}"


def _plain(tree: Tree, name: str) -> object:
    entry = tree.get(name)
    return None if entry is None else (entry.kind, entry.content, entry.mode)


def _chosen(cuts: list[Cut], most: int | None, seed: int, before: Set[str] = frozenset()) -> list[Cut]:
    """Chooses as many as are asked for, first those that cut what no other one does, nor steps `before`."""
    if most is None or 0 < len(cuts) <= most:
        return cuts
    rest = random.Random(seed).sample(cuts, len(cuts))
    covered = set(before)
    chosen: list[Cut] = []
    while rest and (most == 0 or len(chosen) < most):
        best = max(rest, key=lambda cut: len(cut.sites - covered))
        if most == 0 and best.sites <= covered:
            break
        rest.remove(best)
        chosen.append(best)
        covered |= best.sites
    return sorted(chosen, key=cuts.index)


def _fault(job: Job, step: Step, cut: Cut, whole: Tree, result: Result) -> str:
    """The fault when the command is called again after a cut; empty if nothing is."""
    try:
        if len(job.left(cut.tree)) < cut.entries:
            return f"{cut.entries - len(job.left(cut.tree))} entries of the ledger are lost"
        disk.write(cut.tree, job.disk)
        code, err = called(step.words, job.folder)
        if code is None:
            return f"hangs for {SECONDS:.0f} seconds"
        if "Traceback" in err:
            return f"a traceback: {err[-2000:]}"
        if code != step.code and code in _REFUSED:
            return _refused(job, step, cut, whole, result, err)
        if code != step.code:
            return f"code {code}: {err[-500:]}"
        return job.fault(cut.tree, whole, disk.found(job.disk), over=cut.over)
    except DappleError as error:
        return f"what is left cannot be read: {error}"


def _refused(job: Job, step: Step, cut: Cut, whole: Tree, result: Result, err: str) -> str:
    """A job may say what to do, where that loses nothing that was charged."""
    sentence = err.strip().splitlines()[-1] if err.strip() else "without a word"
    remedy = job.remedied(sentence, step.words)
    if remedy is None:
        return f"refused: {sentence[-500:]}"
    plain = re.sub(r"/\S+|[0-9a-f]{8,}", "...", sentence)
    result.refused[plain] = result.refused.get(plain, 0) + 1
    code, err = called(remedy, job.folder) if remedy else (step.code, "")
    if code != step.code:
        return f"what it says is no remedy: {sentence[-300:]} Then: {err[-300:]}"
    return job.fault(cut.tree, whole, disk.found(job.disk), over=cut.over)


def called(words: list[str], folder: pathlib.Path) -> tuple[int | None, str]:
    """The exit code of a command in a process of its own, None if it hangs, and what it says on standard error."""
    err = folder / "err"
    process = _CONTEXT.Process(target=_main, args=(words, str(err)))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None, err.read_text()
    return process.exitcode, err.read_text()


def _main(words: list[str], err: str) -> None:
    """The body of a process; it ends without waiting for threads of the runner."""
    os.umask(0o022)
    with open(err, "w", encoding="utf-8") as said, open(os.devnull, "w", encoding="utf-8") as out:
        os.dup2(said.fileno(), 2)
        os.dup2(out.fileno(), 1)
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(out):
            code = command.main(words)
            said.flush()
    os._exit(code)
