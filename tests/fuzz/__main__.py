"""Breaks good files of every format at random, and reads them.

python -m tests.fuzz --number 10000 --format plan                           # some formats
python -m tests.fuzz --number 2000 --out benchmarks/results/fuzzing.md      # all, and a page of results
"""

import sys
import time

from benchmarks import measurement
from benchmarks.machine import heading
from tests.fuzz.formats import FORMATS
from tests.fuzz.trial import tried

ABOUT = (
    "A good file of each format is broken at random: cut off, bytes changed, brackets and quotes inserted, parts "
    "repeated or removed, and in JSON values of other types and sizes, keys that are missing or there twice, or values "
    "deep within each other. The reader of a job reads the file, in one process, with an alarm. Seeds count from "
    "0, so the same command gives the same files.",
    "",
    "A file fails if its reader raises anything but an error with a sentence and exit code 2, 3, 4 or 5, takes longer "
    "than the alarm, or leaves a file behind. What was read all the same was not broken where anything is said, or "
    "says something else that may be said, such as another number: digests are for that.",
    "",
    "| format | broken files | read all the same | refused | failed | slowest, s | total, s |",
    "| --- " * 7 + "|",
)


def main() -> int:
    """Returns 1 if a file was neither read nor refused in a sentence."""
    parser = measurement.script(__doc__)
    parser.add_argument("--number", type=int, default=1000, help="of broken files per format")
    parser.add_argument("--first_seed", type=int, default=0, help="seeds count from here")
    parser.add_argument("--format", action="append", choices=sorted(FORMATS), help="one or several; default: all")
    parser.add_argument("--shown", type=int, default=3, help="failures to show per format")
    options = parser.parse_args()
    bad, lines = 0, [*heading("Broken files of every format"), *ABOUT]
    for name in options.format or FORMATS:
        start = time.perf_counter()
        found = tried(name, options.number, options.first_seed)
        refused = ", ".join(f"{count:,} (code {code})" for code, count in sorted(found.refused.items()))
        cells = [name, f"{options.number:,}", f"{found.accepted:,}", refused or "0", str(len(found.failed))]
        cells += [f"{found.slowest:.2f}", f"{time.perf_counter() - start:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
        sys.stderr.write(f"{lines[-1]}\n")
        for seed, text in found.failed[: options.shown]:
            sys.stderr.write(f"seed {seed}: {text}\n")
        bad += len(found.failed)
    number = options.number * len(options.format or FORMATS)
    measurement.show([*lines, "", f"{number:,} files in all, {bad} of them failed."], options.out)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
