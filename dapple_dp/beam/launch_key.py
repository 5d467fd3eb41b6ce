"""The key of a graph that somebody else runs, however often."""

import atexit
import dataclasses
import os
import shutil
import tempfile
from typing import Any, Self

from dapple_dp.pipelines.run.run_keys import RunNonce
from dapple_dp.transforms.privacy.key_files import KeyFile, create_key, read_key

_RUN = "a pipeline"


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchKey(KeyFile):
    """A key derived from a kept one and a random nonce, which is another one in every pickle.

    Beam pickles a graph each time it is run. So two runs of one pipeline draw different noise, while all workers and
    all attempts of a run read the same pickle, and repeat theirs. The pickle holds the place and the nonce, and no key.

    Attributes:
      uri: of the kept key.
    """

    uri: str = ""

    @classmethod
    def of(cls, uri: str | None) -> Self:
        """The key of a graph.

        Args:
          uri: of a kept key that workers can read; None to make one that only workers on this machine can read. It is
            gone when this process ends.

        Raises:
          ConfigError: if there is no key at `uri`, or it can be read by others.
        """
        if uri is None:
            folder = tempfile.mkdtemp(prefix="dapple-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            uri = os.path.join(folder, "noise.key")
            create_key(uri)
        read_key(uri)
        return cls(place=_place(uri), uri=uri)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (_place(self.uri), self.setting, self.uri)


def _place(uri: str) -> str:
    return RunNonce.new(_RUN).place(uri)
