"""Accuracy of clients' models on labeled rows: exact counts, for the trusted zone.

Input element: `ShardRef`. Output: a file with (client, correct rows, rows). Nothing here is private in the sense of a
guarantee; a page that shows the result must state that.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import apache_beam as beam
import numpy as np

from dapple_dp.schemas.clustered_fl.labeled_contract import LabeledContract
from dapple_dp.schemas.clustered_fl.records import ModelShape
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.clustered_fl.labeled_clients import clients_of, read_shard, rows_at
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import model_of


class ClientModels(NamedTuple):
    """Models, and the model that each client uses.

    Attributes:
      shape: of every model.
      models: shape (n_models, n_parameters).
      model_of_client: row of `models`, by the client's id as text.
    """

    shape: ModelShape
    models: np.ndarray
    model_of_client: Mapping[str, int]


def _count(shard: ShardRef, contract: LabeledContract, used: ClientModels) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the numbers of correct rows and of rows of every client of a shard that has a model."""
    if shard == EMPTY_SHARD:
        return
    rows, model = read_shard(shard, contract), model_of(used.shape)
    for client, own in clients_of(rows):
        if client in used.model_of_client:
            points, labels = rows_at(rows, own)
            found = model.predictions(used.models[used.model_of_client[client]], points)
            yield client, np.array([int((found == labels).sum()), len(own)])


def _write_counts(counts: list, path: str) -> None:
    rows = [
        [client, int(correct), int(total)] for client, (correct, total) in sorted(counts, key=lambda count: count[0])
    ]
    write_bytes(path, json.dumps(rows).encode())


@dataclasses.dataclass(eq=False, kw_only=True)
class JudgeModels(beam.PTransform):
    """`ShardRef`s of labeled rows → a file of [client, correct rows, rows], sorted by client.

    Attributes:
      contract: reads the rows.
      used: models, public.
      path: of the file, in a private folder.

    Privacy: none; the counts are exact. Cost: one pass over the rows.
    """

    contract: LabeledContract
    used: ClientModels
    path: str

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Predicts labels and counts the correct ones."""
        return (
            shards
            | "Count" >> beam.FlatMap(_count, self.contract, self.used)
            | "PerClient" >> beam.CombinePerKey(sum)
            | "Gather" >> beam.combiners.ToList()
            | "Write" >> beam.Map(_write_counts, self.path)
        )
