"""The arena: private k-means of others and ours, on the same data, under the same attacks.

    python -m benchmarks.arena build SYSTEM [--clone PATH_OR_ADDRESS]
    python -m benchmarks.arena cells [SYSTEM ...] [--sets ...] [--epsilons ...] [--draws N] [--data FOLDER]
    python -m benchmarks.arena attacks [SYSTEM ...] [--attacks ...]
    python -m benchmarks.arena stages [--sets ...] [--epsilons ...] [--draws N] [--data FOLDER]
    python -m benchmarks.arena page --out benchmarks/results/arena.md

Finished cells and attacks are kept in HOME (out/arena) under the digest of what was asked and of the data, so that a
run that was stopped goes on where it was. `cells` and `attacks` with one name of each are the command of one cell.
`stages` runs Dapple's cells again, each time with next to no noise in one of its stages.
"""

import argparse
from pathlib import Path

from benchmarks import measurement
from benchmarks.arena import cells, environments, page, sets, stages, verdicts

EPSILONS = (0.3, 1.0, 3.0)


def main() -> None:
    options = parsed()
    found = environments.adapters()
    chosen = {name: found[name] for name in options.systems or found}
    if options.what == "build":
        for name, system in chosen.items():
            if name not in environments.OURS:
                environments.build(system, options.home, options.clone)
    elif options.what == "cells":
        for _ in cells.measured(chosen, options):
            pass
    elif options.what == "stages":
        for _ in cells.measured({page.US: found[page.US]}, options, stages.DOORS):
            pass
    elif options.what == "attacks":
        for each in verdicts.measured(chosen, options.attacks or verdicts.attacks(), options):
            print(page.verdict_line(each), flush=True)
    else:
        measurement.show(page.lines(chosen, options), options.out)


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """Options of the command."""
    parser = measurement.script(__doc__)
    parser.add_argument("what", choices=("build", "cells", "attacks", "stages", "page"))
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help="titles of systems; default: all")
    parser.add_argument("--sets", nargs="+", choices=tuple(sets.SETS), default=list(sets.SETS), metavar="SET")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--attacks", nargs="+", metavar="ATTACK", help="names of attacks; default: all")
    parser.add_argument("--data", type=Path, help="folder of npz files (`benchmarks.data` says which)")
    parser.add_argument("--home", type=Path, default=environments.HOME, help="where environments and results are kept")
    parser.add_argument("--clone", help="of the repository of a system, in place of its address")
    parser.add_argument("--only-kept", action="store_true", help="run nothing; show what is kept")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
