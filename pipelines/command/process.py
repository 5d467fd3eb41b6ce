"""The command as a process of its own."""

from pipelines.command import main as command
from pipelines.command.interruption import INTERRUPTED, end_soon


def main() -> int:
    """Runs the words of this process; returns its exit code."""
    code = command.main()
    if code == INTERRUPTED:
        end_soon()
    return code
