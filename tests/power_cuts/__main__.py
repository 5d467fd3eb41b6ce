"""`python -m tests.power_cuts --all`: cuts the power of jobs wherever it can be cut, and prints what came of it."""

import argparse
import concurrent.futures
import datetime
import multiprocessing
import pathlib
import shlex
import sys

from tests.power_cuts.jobs import JOBS
from tests.power_cuts.replay import of_job
from tests.power_cuts.report import report
from tests.power_cuts.sites import sites


def main() -> int:
    """Returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.power_cuts")
    parser.add_argument("--job", action="append", choices=sorted(JOBS), help="one or several; default: all")
    parser.add_argument("--all", action="store_true", help="all states; default: a sample in each step")
    parser.add_argument("--most", type=int, default=20, help="states of the sample in each step")
    parser.add_argument("--seed", type=int, default=0, help="chooses the sample")
    parser.add_argument("--processes", type=int, default=1, help="jobs at a time")
    parser.add_argument("--write", help="a file for the table of results")
    options = parser.parse_args()
    most, names = None if options.all else options.most, options.job or list(JOBS)
    with concurrent.futures.ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        begun = [pool.submit(of_job, name, most, options.seed) for name in names]
        results = [each.result() for each in begun]
    words = shlex.join(["python", "-m", "tests.power_cuts", *sys.argv[1:]])
    text = report(results, sites(), words, datetime.date.today())
    sys.stdout.write(text)
    if options.write:
        pathlib.Path(options.write).write_text(text)
    return int(any(each.faults for each in results))


if __name__ == "__main__":
    sys.exit(main())
