"""A small lake and jobs on it whose graphs are built and checked, and not run."""

import pathlib
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np

from pipelines import fit
from pipelines.options import beam_options
from pipelines.prepared_fit import PreparedFit
from schemas.choices import NoiseBy
from schemas.flow import GraphPrivacy, Promise
from tests import lake
from transforms.client_messages import Masking, PairwiseParams
from transforms.privacy_flow import check_graph
from transforms.read import ListShards

SHARED = {"scheme": "shared_secret"}
PAIRWISE = {"scheme": "pairwise"}


class World:
    """120 rows of 12 clients in three files, public server rows, a key and a secret."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.path = lake.write_lake(folder / "lake", lake.mixture(120), np.arange(120) // 10, n_files=3)
        self.server = lake.write_server(folder / "server.parquet")
        self.key = lake.write_key(folder / "key")
        self.secret = lake.write_key(folder / "secret")

    def job(self, unit: str = "record", **settings: Any) -> PreparedFit:
        """A private fit, ready to run."""
        server = settings.pop("server", self.server)
        return lake.prepared(lake.job(self.path, server, unit, key_uri=self.key, **settings))

    def masking(self, *, pairwise: bool = False, noise_by: NoiseBy = NoiseBy.AGGREGATOR) -> Masking:
        """How a masked job masks."""
        params = PairwiseParams(0.05, 0.1) if pairwise else None
        return Masking(secret_uri=self.secret, run="run", noise_by=noise_by, pairwise=params)

    def fit(self, root: beam.Pipeline, job: PreparedFit, masking: Masking | None = None) -> None:
        """The graph of a fit."""
        fit.build(root, job, self.key, str(self.folder / "out"), masking=masking)

    def shards(self, root: beam.Pipeline, job: PreparedFit, label: str = "List") -> beam.PCollection:
        """Where private data come from."""
        return root | label >> ListShards(source=job.source, contract=job.contract)


def verdict(build: Callable[[beam.Pipeline], object], promise: Promise) -> GraphPrivacy:
    """What the checker says of a graph."""
    root = beam.Pipeline(options=beam_options([]))
    build(root)
    return check_graph(root, promise)
