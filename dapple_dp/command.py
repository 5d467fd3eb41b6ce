"""Entry point of the installed command `dapple`."""

import gc

_RARELY = (50_000, 20, 50)
"""Thresholds of the garbage collector. With Python's default of 700 objects it would scan all libraries over and over
while they are imported, which takes a quarter of the time of a small job; numbers are in arrays, which don't
count."""


def main() -> int:
    """Runs the command line of this process; returns its exit code."""
    from dapple_dp.transforms.rounds.own_process import no_core_dumps

    no_core_dumps()
    gc.set_threshold(*_RARELY)
    from dapple_dp.pipelines.command import main as command
    from dapple_dp.pipelines.command.interruption import end_soon

    code = command.main()
    if code:
        end_soon(code)
    # The process ends, so there is no need for another collection.
    gc.disable()
    gc.freeze()
    return code
