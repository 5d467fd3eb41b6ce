"""What an arm of `benchmarks.engine` does in one turn: a whole command, the rounds alone, a floor, or single passes."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measurement
from benchmarks.measurement import Figures

ROOT = Path(__file__).resolve().parents[1]
_MARKED = """
import importlib.util, os, pathlib, sys, time
place = pathlib.Path(sys.argv.pop(1))

class Mark:
    def find_spec(self, name, path=None, target=None):
        rounds = "transforms.rounds"
        if name.removeprefix("dapple_dp.") not in (rounds, f"{rounds}.round", f"{rounds}.aggregation"):
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
            if getattr(getattr(module, "_StatisticFn", None), "__module__", "") != module.__name__:
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
from dapple_dp.command import main
sys.exit(main())
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
        words = [sys.executable, "-c", _MARKED, str(mark)] if marked else [sys.executable, "-m", "dapple_dp"]
        words += ["fit", "--config", str(lake / "engine.yaml"), "--output", f"{work}/out", *flags]
        started, start = time.time(), time.perf_counter()
        with (lake / "log").open("w") as log:
            child = subprocess.Popen(words, env=_environment(checkout), cwd=checkout, stdout=log, stderr=log)
            _, status, used = os.wait4(child.pid, 0)
        found = {"wall": time.perf_counter() - start, "cpu": used.ru_utime + used.ru_stime, "system": used.ru_stime}
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
    """In a process of its own: the `rounds` of a fit after imports and planning, or the `floor` of its rows."""
    words = [sys.executable, "-m", "benchmarks.engine_turns", "--measure", kind, "--lake", str(lake)]
    done = subprocess.run([*words, "--cores", str(cores)], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def passes(checkout: Path) -> Figures:
    """Microseconds by case, of a checkout and of scikit-learn."""
    words = [sys.executable, str(ROOT / "benchmarks" / "engine_passes.py")]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, text=True, cwd=checkout, env=_environment(checkout), check=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=["rounds", "floor"], required=True)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--cores", type=int)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments)))


def measure(arguments: argparse.Namespace) -> Figures:
    """One measurement in this process."""
    if arguments.measure == "floor":
        return floor(arguments.lake)
    from dapple_dp.pipelines.kmeans.fit import execute
    from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
    from dapple_dp.pipelines.run.options import beam_options
    from dapple_dp.schemas.kmeans.fit_config import validated

    planned = plan_files(validated(json.loads((arguments.lake / "engine.yaml").read_text())))
    with tempfile.TemporaryDirectory() as folder:
        options = beam_options(["--cores", str(arguments.cores)])
        return measurement.measured(lambda: execute(planned, options, folder))


def floor(lake: Path, n_iterations: int = 11) -> Figures:
    """What the rows of one list column cost anybody: to decode them once, and iterations of scikit-learn on float32."""
    import numpy as np
    import pyarrow.parquet as pq
    from threadpoolctl import threadpool_limits

    from benchmarks.engine_passes import lloyd

    decoded = used = 0.0
    with threadpool_limits(limits=1):
        for path in sorted((lake / "clients").glob("*.parquet")):
            start = time.process_time()
            column = pq.read_table(path, columns=["x"], use_threads=False).column("x").combine_chunks()
            points = column.flatten().to_numpy().reshape(len(column), -1)
            middle = time.process_time()
            work = lloyd(points, points[:10].copy(), np.float32)
            start_of_work = time.process_time()
            for _ in range(n_iterations):
                work()
            decoded, used = decoded + middle - start, used + time.process_time() - start_of_work
    return {"wall": decoded + used, "cpu": decoded + used, "rss": measurement.peak_rss()}


if __name__ == "__main__":
    main()
