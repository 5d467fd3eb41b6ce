"""The `dapple` command."""

import sys

from pipelines.command.main import main

if __name__ == "__main__":
    sys.exit(main())
