"""A protocol of many rounds that needs no data: each round adds keyed numbers to a total. For tests of the driver."""

import hashlib
import os
import signal
from collections.abc import Sequence
from unittest import mock

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from dapple_dp.pipelines.run import round_driver
from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.core.plan import Promise, Zone
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.section import Section
from dapple_dp.transforms.files.checkpoint import Arrays, RunBinding
from dapple_dp.transforms.privacy.key_files import key_digest, read_key

N_SHARDS = 5


class ToyConfig(Section):
    """Settings of the toy."""

    rounds: int
    scale: int = 1


def _add(total: np.ndarray, parts: list, number: int) -> dict[str, np.ndarray]:
    return {"total": total + sum(parts), "last": np.array(number)}


def _part(shard: int, arrays: dict, number: int, key_uri: str, die_in: int) -> np.ndarray:
    if number == die_in and shard == N_SHARDS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    drawn = hashlib.blake2b(f"{number} {shard}".encode(), key=read_key(key_uri), digest_size=8).digest()
    return np.frombuffer(drawn, dtype="<i8") // 2 + shard * arrays["total"] // 7


def _step(parts: list, arrays: dict, number: int) -> dict[str, np.ndarray]:
    return _add(arrays["total"], parts, number)


class ToyProtocol:
    """Rounds over a few numbers; `die_in` kills the process in that round."""

    def __init__(self, n_rounds: int, key_uri: str, die_in: int = 0):
        self.n_rounds = n_rounds
        self.asks_last = True
        self._key_uri = key_uri
        self._die_in = die_in

    def initial(self) -> Arrays:
        return {"total": np.zeros(1, dtype=np.int64), "last": np.array(0)}

    def add_rounds(self, root: beam.Pipeline, arrays: Arrays, first: int, last: int) -> beam.PCollection:
        shards = root | "Shards" >> beam.Create(range(N_SHARDS))
        state = root | "State" >> beam.Create([dict(arrays)], reshuffle=False)
        for number in range(first, last + 1):
            side = AsSingleton(state)
            parts = shards | f"Part{number}" >> beam.Map(_part, side, number, self._key_uri, self._die_in)
            gathered = parts | f"Gather{number}" >> beam.combiners.ToList()
            state = gathered | f"Step{number}" >> beam.Map(_step, side, number)
        return state

    def promise(self, first: int, last: int) -> Promise:
        return Promise(zone=Zone.PUBLIC)

    def events(self, n_rounds: int) -> Sequence[dict[str, int]]:
        return [{"round": number} for number in range(1, n_rounds + 1)]

    def rounds_done(self, arrays: Arrays) -> int:
        return int(arrays["last"])

    def expected(self, key: bytes) -> np.ndarray:
        """The total without Beam."""
        total = np.zeros(1, dtype=np.int64)
        for number in range(1, self.n_rounds + 1):
            drawn = [
                hashlib.blake2b(f"{number} {each}".encode(), key=key, digest_size=8).digest()
                for each in range(N_SHARDS)
            ]
            parts = [np.frombuffer(each, dtype="<i8") // 2 + i * total // 7 for i, each in enumerate(drawn)]
            total = total + sum(parts)
        return total


def run(
    config: ToyConfig, output: str, run_id: str, *, die_in: int = 0, fingerprint: str = "rows", chunk: int = 2
) -> np.ndarray:
    """The whole life of a run, its graphs unchecked since the toy's steps are not audited; returns the total."""
    folder = RunFolder(output, run_id)
    with round_driver.resumable(folder):
        key_uri = round_driver.run_key(folder, None)
        protocol = ToyProtocol(config.rounds, key_uri, die_in)
        binding = RunBinding(
            config_digest=config_digest(config),
            input_fingerprint=fingerprint,
            key_digest=key_digest(key_uri),
            plan_digest=round_driver.plan_digest(protocol.events(config.rounds)),
        )
        with mock.patch("dapple_dp.pipelines.run.graph.check_graph"):
            done = round_driver.run_chunks(protocol, folder.staging, binding, beam_options([]), chunk)
        folder.write("total.txt", str(done.arrays["total"].tolist()).encode())
        folder.seal({"run_id": run_id})
        round_driver.finish(folder)
    return done.arrays["total"]
