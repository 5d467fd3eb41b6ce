"""The `dapple` command as a process of its own, as it is installed."""

import gc

_RARELY = (50_000, 20, 50)
"""How many new objects the collector of cycles waits for. Python's own 700 has it look through all libraries again and
again while they are imported, which takes a quarter of the time of a small job; numbers are in arrays, which do not
count."""


def main() -> int:
    """Runs the words of this process; returns its exit code."""
    from dapple_dp.transforms.rounds.own_process import no_core_dumps

    no_core_dumps()
    gc.set_threshold(*_RARELY)
    from dapple_dp.pipelines.command import main as command
    from dapple_dp.pipelines.command.interruption import end_soon

    code = command.main()
    if code:
        end_soon(code)
    # The process ends, so nothing needs to be looked through once more.
    gc.disable()
    gc.freeze()
    return code
