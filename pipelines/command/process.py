"""The command as a process of its own: what holds for it alone, and would be none of a caller's business."""

from pipelines.command import main as command
from pipelines.command.interruption import INTERRUPTED, end_soon
from transforms.rounds.own_process import no_core_dumps


def main() -> int:
    """Runs the words of this process; returns its exit code."""
    no_core_dumps()
    code = command.main()
    if code == INTERRUPTED:
        end_soon()
    return code
