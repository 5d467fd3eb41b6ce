"""`python -m tests.power_cuts.recorded WORDS`: the command, which reports where its durable writes begin and end."""

import os
import sys

from tests.power_cuts import sites


def main() -> None:
    """Ends without waiting for threads of the runner."""
    os.umask(0o022)
    sites.tell()
    from dapple_dp.pipelines.command import main as command

    code = command.main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
