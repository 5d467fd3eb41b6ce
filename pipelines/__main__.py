"""The `dapple` command."""

import sys

from pipelines.command import main

if __name__ == "__main__":
    sys.exit(main())
