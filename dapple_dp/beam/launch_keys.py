"""Noise keys of a graph that a runner may run several times."""

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
"""Key of a graph that is built, but not translated yet."""


class LaunchKeys:
    """Keys derived from a stored key and a nonce, which is new for each translation of the graph.

    Beam translates the graph once per run of a pipeline. So two runs draw different noise, while all workers and all
    attempts of one run share a translation, and repeat the same noise. It has the nonce, but no key.

    Args:
      uri: place of the stored key, which workers can read; None to create one that only workers on this machine can
        read, and that is deleted when this process ends.

    Raises:
      ConfigError: if there is no key at `uri`, or if others can read it.
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
        """Returns the place of a key with a new nonce."""
        return KeyFile(RunNonce.new(_RUN).place(self._uri))

    def take(self, part: AppliedPTransform, pipeline: beam.Pipeline) -> None:
        """Takes control of the keys of the steps in a part of a graph; they get none before the graph is translated."""
        self._drawing = [function for label, function in held_keys(pipeline) if label.startswith(f"{part.full_label}/")]
        self._give(_NOT_RUN)

    def renew(self) -> None:
        """Gives all of these steps the same new key."""
        self._give(self.place())

    def _give(self, key: KeyFile) -> None:
        for function in self._drawing:
            function._key_source = key
