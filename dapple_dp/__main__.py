"""`python -m dapple_dp` is the command `dapple`."""

import sys

from dapple_dp.command import main

if __name__ == "__main__":
    sys.exit(main())
