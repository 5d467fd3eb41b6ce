"""A small lake and jobs on it whose graphs are built and checked, and not run."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import AsSingleton

from dapple_dp.pipelines.kmeans.fit_rounds import FitRounds
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit, message_contract
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.choices import NoiseBy
from dapple_dp.schemas.core.plan import GraphPrivacy, Promise
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.transforms.files.publish import PublishModel
from dapple_dp.transforms.masked.aggregation import Masked
from dapple_dp.transforms.masked.clients import Masking
from dapple_dp.transforms.on_beam.checker import check_graph
from dapple_dp.transforms.on_beam.exact_sums import SumStatistics
from dapple_dp.transforms.on_beam.noise_stage import AddNoise
from dapple_dp.transforms.on_beam.round import Aggregation, Central, ServerFn, _StatisticFn
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.rounds.shard_sums import ShardSums
from dapple_dp.transforms.rounds.staged_state import StagedArrays
from dapple_dp.transforms.tables.read import ListShards
from tests.scenes import lake


class HostileGraphs:
    """Decorates builders of graphs that must be refused with these words and these labels, in this order, in the path.

    Attributes:
      cases: (builder, words, labels) by the builder's name.
    """

    def __init__(self) -> None:
        self.cases: dict[str, tuple[Callable[..., Any], str, tuple[str, ...]]] = {}

    def __call__(self, words: str, *labels: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def keep(build: Callable[..., Any]) -> Callable[..., Any]:
            self.cases[build.__name__] = (build, words, labels)
            return build

        return keep


class World:
    """120 rows of 12 clients in three files, public server rows, a key and a secret."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.path = lake.write_lake(folder / "lake", lake.mixture(120), np.arange(120) // 10, n_files=3, codes=True)
        self.server = lake.write_server(folder / "server.parquet")
        self.key = lake.write_key(folder / "key")
        self.secret = lake.write_key(folder / "secret")

    def job(self, unit: str = "record", **settings: Any) -> PlannedFit:
        """A private fit, ready to run."""
        server = settings.pop("server", self.server)
        return lake.ready(lake.job(self.path, server, unit, key_uri=self.key, **settings), self.folder / "listings")

    def masking(self, *, pairwise: bool = False, noise_by: NoiseBy = NoiseBy.AGGREGATOR) -> Masking:
        """Returns how a masked job masks."""
        params = PairwiseParams(0.05, 0.1) if pairwise else None
        return Masking(secret_uri=self.secret, run="run", noise_by=noise_by, pairwise=params)

    def fit(self, root: beam.Pipeline, job: PlannedFit, masking: Masking | None = None) -> None:
        """The graph of a fit."""
        aggregation: Aggregation = Central(reader=ShardSums(job.contract), key_source=KeyFile(self.key))
        if masking is not None:
            masking = dataclasses.replace(masking, root=job.source.path)
            job = dataclasses.replace(job, contract=message_contract(job))
            aggregation = Masked(contract=job.contract, key_uri=self.key, masking=masking)
        add_fit(root, job, aggregation, str(self.folder / "out"))

    def shards(self, root: beam.Pipeline, job: PlannedFit, label: str = "List") -> beam.PCollection:
        """Returns where private data come from."""
        return root | label >> ListShards(source=job.source, contract=job.contract)


def add_fit(
    root: beam.Pipeline, job: PlannedFit, aggregation: Aggregation, folder: str, staged: StagedArrays | None = None
) -> None:
    """All rounds of a fit in one graph, which leaves the released files in a folder."""
    rounds = FitRounds(job, aggregation, folder, staged=staged)
    rounds.add_rounds(root, rounds.initial(), 1, len(job.rounds))


def verdict(build: Callable[[beam.Pipeline], object], promise: Promise) -> GraphPrivacy:
    """Returns what the checker says of a graph."""
    root = beam.Pipeline(options=beam_options([]))
    build(root)
    return check_graph(root, promise)


class Scene:
    """The parts of a private fit of one round, to be put together wrongly.

    Attributes:
      shards: private.
      state: public: what is broadcast in the first round.
      first: the first round of the job.
    """

    def __init__(self, world, root, job=None):
        self.world, self.root = world, root
        self.job = job or world.job()
        self.first = self.job.rounds[0]
        self.shards = world.shards(root, self.job)
        self.state = root | "Public" >> beam.Create([self.job.initial], reshuffle=False)

    def statistics(self, label="Statistic", each=None, state=None, shards=None):
        fn = _StatisticFn(ShardSums(self.job.contract), each or self.first)
        shards = self.shards if shards is None else shards
        return shards | label >> beam.ParDo(fn, AsSingleton(self.state if state is None else state))

    def exact(self, label="Sum", statistics=None):
        statistics = self.statistics() if statistics is None else statistics
        return statistics | label >> SumStatistics(size=self.first.plan.size)

    def noise(self, plan=None):
        return AddNoise(plan=plan or self.first.plan, key_source=KeyFile(self.world.key))

    def publish(self):
        return PublishModel(folder=str(self.world.folder / "out"))

    def server(self):
        return beam.ParDo(ServerFn(self.first), AsSingleton(self.state))


def understated(plan, factor=10):
    """The plan of a round whose first release promises less than it should."""
    release = plan.releases[0]
    spec = dataclasses.replace(release.spec, sensitivity=release.spec.sensitivity // factor)
    return dataclasses.replace(plan, releases=(dataclasses.replace(release, spec=spec), *plan.releases[1:]))


def refused(build, promise):
    """The sentence with which a graph is refused."""
    with pytest.raises(PrivacyFlowError) as caught:
        verdict(build, promise)
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_path(sentence, labels):
    path = sentence.rpartition(" Path: ")[2].removesuffix(".").split(" -> ")
    positions = [next(at for at, found in enumerate(path) if label in found) for label in labels]
    assert positions == sorted(positions)
    assert labels[0] in path[0]
    assert labels[-1] in path[-1]
