"""`python -m pipelines JOB` is the command `dapple JOB`; callers in Python have `main`, which takes words."""

import sys

from pipelines.command import process
from pipelines.command.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(process.main())
