"""Entry point of `python -m dapple_dp`, the same as the command `dapple`."""

import sys

from dapple_dp.command import main

if __name__ == "__main__":
    sys.exit(main())
