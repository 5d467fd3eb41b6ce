"""`python -m tests.fuzz --number 10000 --format plan`: breaks files and prints a row of the table of results."""

import argparse
import sys
import time

from tests.fuzz.formats import FORMATS
from tests.fuzz.trial import tried


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Returns 1 if a file was neither read nor refused in a sentence."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--number", type=int, default=1000, help="of broken files per format")
    parser.add_argument("--first_seed", type=int, default=0, help="seeds count from here")
    parser.add_argument("--format", action="append", choices=sorted(FORMATS), help="one or several; default: all")
    parser.add_argument("--shown", type=int, default=3, help="failures to show per format")
    options = parser.parse_args()
    bad = 0
    say("| format | broken files | read all the same | refused | failed | slowest, s | total, s |")
    say("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.format or FORMATS:
        start = time.perf_counter()
        found = tried(name, options.number, options.first_seed)
        refused = ", ".join(f"{count:,} (code {code})" for code, count in sorted(found.refused.items()))
        cells = [name, f"{options.number:,}", f"{found.accepted:,}", refused or "0", str(len(found.failed))]
        cells += [f"{found.slowest:.2f}", f"{time.perf_counter() - start:.0f}"]
        say(f"| {' | '.join(cells)} |")
        for seed, text in found.failed[: options.shown]:
            sys.stderr.write(f"seed {seed}: {text}\n")
        bad += len(found.failed)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
