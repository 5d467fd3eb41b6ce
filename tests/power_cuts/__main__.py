"""`python -m tests.power_cuts --all`: cuts the power of jobs wherever it can be cut, and prints what came of it."""

import concurrent.futures
import functools
import multiprocessing
import os
import sys
import tempfile

from benchmarks import measurement
from tests.power_cuts.outputs import JOBS
from tests.power_cuts.replay import of_job
from tests.power_cuts.report import report
from tests.power_cuts.sites import sites


def main() -> int:
    """Returns 1 if anything is wrong."""
    os.environ["DAPPLE_LOG_FORMAT"] = "plain"
    parser = measurement.script(__doc__)
    parser.add_argument("--job", action="append", choices=sorted(JOBS), help="one or several; default: all")
    parser.add_argument("--all", action="store_true", help="all states; default: a sample in each step")
    parser.add_argument("--each", action="store_true", help="as many states as it takes to cut every write once")
    parser.add_argument("--most", type=int, default=20, help="states of the sample in each step")
    parser.add_argument("--seed", type=int, default=0, help="chooses the sample")
    parser.add_argument("--processes", type=int, default=1, help="jobs at a time")
    options = parser.parse_args()
    most, names = None if options.all else 0 if options.each else options.most, options.job or list(JOBS)
    cut = functools.partial(of_job, most=most, seed=options.seed)
    pool = concurrent.futures.ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn"))
    with pool, tempfile.TemporaryDirectory(prefix="power-cuts-cache-") as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        # One process for all jobs imports what commands need once.
        results = list((map if options.processes == 1 else pool.map)(cut, names))
    measurement.show(report(results, sites()), options.out)
    return int(any(each.faults for each in results))


if __name__ == "__main__":
    sys.exit(main())
