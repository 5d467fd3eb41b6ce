"""The `dapple` command."""

import sys

from pipelines.command.process import main

if __name__ == "__main__":
    sys.exit(main())
