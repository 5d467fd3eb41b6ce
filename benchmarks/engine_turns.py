"""What an arm of `benchmarks.engine` does in one turn: a whole command, the rounds alone, or their sums in NumPy."""

import argparse
import dataclasses
import json
import os
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import measurement
from benchmarks.measurement import Figures

ROOT = Path(__file__).resolve().parents[1]
_MARKED = """
import importlib.util, os, pathlib, sys, time
place = pathlib.Path(sys.argv.pop(1))

class Mark:
    def find_spec(self, name, path=None, target=None):
        if name not in ("transforms.rounds", "transforms.rounds.round", "transforms.rounds.aggregation"):
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec.submodule_search_locations is None:
            spec.loader.exec_module = self.executed(spec.loader.exec_module)
        sys.meta_path.insert(0, self)
        return spec

    def executed(self, own):
        def exec_module(module):
            own(module)
            if getattr(module, "_StatisticFn", module).__module__ != module.__name__:
                return
            setup = module._StatisticFn.setup
            def marked(self):
                if not place.exists():
                    used = os.times()
                    place.write_text(f"{time.time()} {sum(used[:4])}")
                setup(self)
            module._StatisticFn.setup = marked
        return exec_module

sys.meta_path.insert(0, Mark())
try:
    from pipelines.command.process import main
except ModuleNotFoundError:
    from pipelines.command import main
sys.exit(getattr(main, "main", main)())
"""
"""The command, which leaves the time at which the statistic of the first round is set up, and what CPU that took."""


def command(lake: Path, checkout: Path, flags: tuple[str, ...], *, marked: bool = False) -> Figures:
    """One command, from the start of its process to its end, in seconds and megabytes.

    Args:
      lake: has `engine.yaml`.
      checkout: whose code runs.
      flags: of the command.
      marked: whether it also says how long it took to the first round.
    """
    with tempfile.TemporaryDirectory(dir=lake) as work:
        mark = Path(work) / "first"
        words = [sys.executable, "-c", _MARKED, str(mark)] if marked else [sys.executable, "-m", "pipelines"]
        words += ["fit", "--config", str(lake / "engine.yaml"), "--output", f"{work}/out", *flags]
        started, start = time.time(), time.perf_counter()
        with (lake / "log").open("w") as log:
            child = subprocess.Popen(words, env=_environment(checkout), cwd=checkout, stdout=log, stderr=log)
            _, status, used = os.wait4(child.pid, 0)
        found = {"wall": time.perf_counter() - start, "cpu": used.ru_utime + used.ru_stime}
        if marked and not status:
            first, cpu = map(float, mark.read_text().split())
            found |= {"first": first - started, "first_cpu": cpu}
    if status:
        said = (lake / "log").read_text().splitlines()[-3:]
        code = os.waitstatus_to_exitcode(status)
        raise SystemExit(f"the job must end with code 0, got {code} in {checkout}: {' '.join(said)}")
    return found | {"rss": used.ru_maxrss / 1024}


def _environment(checkout: Path) -> dict[str, str]:
    """That of this process, with the code of a checkout; modules are compiled once, as those that are installed."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": str(checkout)}


def alone(lake: Path, kind: str, *, cores: int = 1) -> Figures:
    """The rounds of a fit after imports and planning: `rounds` as a command has them, or `numpy` by processes."""
    parts = [("--cores", str(cores))]
    if kind == "numpy":
        parts = [("--part", str(part), str(cores)) for part in range(cores)]
    words = [sys.executable, "-m", "benchmarks.engine_turns", "--measure", kind, "--lake", str(lake)]
    children = [subprocess.Popen([*words, *part], stdout=subprocess.PIPE, text=True, cwd=ROOT) for part in parts]
    found = [json.loads(child.communicate()[0].splitlines()[-1]) for child in children]
    return {
        "wall": max(each["wall"] for each in found),
        "cpu": sum(each["cpu"] for each in found),
        "rss": sum(each["rss"] for each in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=["rounds", "numpy"], required=True)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1))
    parser.add_argument("--cores", type=int)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments)))


def measure(arguments: argparse.Namespace) -> Figures:
    """One measurement in this process; processes that it has started and that have ended count."""
    from pipelines.kmeans.fit import execute
    from pipelines.kmeans.plan.planned_fit import plan_fit
    from pipelines.run.options import beam_options
    from schemas.kmeans.fit_config import validated

    planned = plan_fit(validated(json.loads((arguments.lake / "engine.yaml").read_text())))
    if arguments.measure == "numpy":
        return measurement.measured(lambda: in_numpy(planned, arguments.lake, *arguments.part))
    with tempfile.TemporaryDirectory() as folder:
        options = beam_options(["--cores", str(arguments.cores)])
        found = measurement.measured(lambda: execute(planned, options, folder))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found | {"cpu": found["cpu"] + used.ru_utime + used.ru_stime}


def in_numpy(planned: Any, lake: Path, part: int, n_parts: int) -> None:
    """The same statistics, noise and server steps without Beam, on a part of the files of one list column.

    The first round reads the rows, and keeps them in memory as the lattice integers that the others ask for.
    """
    import numpy as np
    import pyarrow.parquet as pq
    from threadpoolctl import threadpool_limits

    from schemas.tables.client_block import ClientBlock
    from transforms.numerics.privacy import noise
    from transforms.numerics.statistics import lattice
    from transforms.numerics.statistics.frame import QuantizedFrame

    first, *others = planned.rounds
    state, key, kept = planned.initial, secrets.token_bytes(32), []
    total: Any = 0
    with threadpool_limits(limits=1):
        for path in sorted((lake / "clients").glob("*.parquet"))[part::n_parts]:
            column = pq.read_table(path, columns=["x"], use_threads=False).column("x").combine_chunks()
            block = ClientBlock(column.flatten().to_numpy().reshape(len(column), -1))
            total = total + first.statistic(block, state)
            kept.append(ClientBlock(state.frame.quantize(block.points, lattice.SUM_BITS).astype(np.int32)))
        state = first.step(state, noise.draw_release(key, first.plan, total))
        for each in others:
            known = dataclasses.replace(state, frame=QuantizedFrame.of(state.frame, lattice.SUM_BITS))
            total = np.sum([each.statistic(block, known) for block in kept], axis=0)
            state = each.step(state, noise.draw_release(key, each.plan, total))


if __name__ == "__main__":
    main()
