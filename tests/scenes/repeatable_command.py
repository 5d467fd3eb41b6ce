"""`python -m tests.scenes.repeatable_command WORDS` is `dapple WORDS` with random bytes that are always the same.

For tests that start processes and look at what noise decides. Runs of other ids draw other noise all the same.
"""

import sys

from dapple_dp.command import main
from tests.scenes import repeatable_bytes

if __name__ == "__main__":
    repeatable_bytes.stand_in()
    with repeatable_bytes.bytes_of("a command"):
        code = main()
    sys.exit(code)
