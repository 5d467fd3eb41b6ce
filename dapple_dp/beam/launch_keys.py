"""Keys of a graph that somebody else runs, however often."""

import atexit
import os
import shutil
import tempfile

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform

from dapple_dp.pipelines.run.run_keys import RunNonce
from dapple_dp.transforms.on_beam.workers import HeldKeyFn, held_keys
from dapple_dp.transforms.privacy.key_files import KeyFile, create_key, read_key

_RUN = "a pipeline"
_NOT_RUN = KeyFile("", "the key of a pipeline, which comes when a runner translates the graph,")
"""Of a graph that is built."""


class LaunchKeys:
    """Keys that are derived from a kept one and a nonce, which is another one in each translation of the graph.

    Beam translates the graph whenever a pipeline is run. So two runs draw different noise, while all workers and all
    attempts of one run have the same translation, and repeat theirs. It holds the place and the nonce, and no key.

    Args:
      uri: of the kept key, which workers can read; None to make one that only workers on this machine can read. It is
        gone when this process ends.

    Raises:
      ConfigError: if there is no key at `uri`, or it can be read by others.
    """

    def __init__(self, uri: str | None):
        if uri is None:
            folder = tempfile.mkdtemp(prefix="dapple-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            uri = os.path.join(folder, "noise.key")
            create_key(uri)
        read_key(uri)
        self._uri = uri
        self._drawing: list[HeldKeyFn] = []

    def place(self) -> KeyFile:
        """A key of its own."""
        return KeyFile(RunNonce.new(_RUN).place(self._uri))

    def take(self, part: AppliedPTransform, pipeline: beam.Pipeline) -> None:
        """Takes over the keys of the steps in a part of a graph: they get none before the graph is translated."""
        self._drawing = [function for label, function in held_keys(pipeline) if label.startswith(f"{part.full_label}/")]
        self._give(_NOT_RUN)

    def renew(self) -> None:
        """Gives all of these steps one new key."""
        self._give(self.place())

    def _give(self, key: KeyFile) -> None:
        for function in self._drawing:
            function._key_source = key
