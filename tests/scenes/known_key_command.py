"""`python -m tests.scenes.known_key_command KEY WORDS` is `dapple WORDS`, and the key in the file KEY draws all noise.

For tests that compare what several ways to run a job release. Outside of tests no written key draws.
"""

import contextlib
import sys
from collections.abc import Iterator
from unittest import mock

from dapple_dp.pipelines.command.main import main
from dapple_dp.pipelines.run import run_keys
from dapple_dp.transforms.core.loop import RunKey
from dapple_dp.transforms.privacy.key_files import read_key


@contextlib.contextmanager
def one_key_draws(path: str) -> Iterator[None]:
    """Whatever key a run has made for itself, the one at `path` draws."""
    in_memory = mock.patch.multiple(run_keys, memory_key=lambda: RunKey(read_key(path)))
    with in_memory, mock.patch.multiple(run_keys, run_place=lambda *_: path, check_held_keys=lambda _: None):
        yield


if __name__ == "__main__":
    with one_key_draws(sys.argv[1]):
        code = main(sys.argv[2:])
    sys.exit(code)
