"""What a `clustered_fl` job publishes: models, assignments, and the guarantee of every client."""

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.choices import Adjacency
from schemas.clustered_fl.records import ModelShape

TRUST = "per-silo DP-SGD"
RELATIONS = {Adjacency.ADD_REMOVE: "add_or_remove_one", Adjacency.REPLACE_ONE: "replace_one"}
_SHAPE = b"model"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SiloStatement:
    """The guarantee of every client for its own rows, whoever else is dishonest.

    Attributes:
      adjacency: of neighboring rows of one client.
      epsilon: the largest of any client, composed over all of its events.
      delta: of every client.
      accountant: how events were composed.
      events: one row per client and kind of event: client_id, mechanism, parameters, count.
      first_round: how R-DPCFL begins, and by what that was decided; None for other algorithms.
    """

    adjacency: Adjacency
    epsilon: float
    delta: float
    accountant: str
    events: tuple[dict[str, Any], ...]
    first_round: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Content of `privacy.json`."""
        content = {
            "unit": "record",
            "neighboring_relation": RELATIONS[self.adjacency],
            "adjacency": str(self.adjacency),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant,
            "trust": TRUST,
            "public": "the clients' ids and their declared numbers of rows",
            "events": list(self.events),
        }
        return content if self.first_round is None else content | {"first_round": self.first_round}


def models_table(models: NDArray[np.float64], shape: ModelShape) -> pa.Table:
    """`models.parquet`: cluster int32, parameters fixed_size_list<double>; the model's shape is metadata, as JSON.

    Args:
      models: shape (n_models, n_parameters); layers one behind the other, each its weights (n_inputs, n_outputs) by
        row, then its intercepts.
      shape: of every model.
    """
    parameters = pa.FixedSizeListArray.from_arrays(pa.array(models.ravel(), pa.float64()), models.shape[1])
    numbers = pa.array(np.arange(len(models), dtype=np.int32))
    described = json.dumps(dataclasses.asdict(shape), sort_keys=True)
    return pa.table({"cluster": numbers, "parameters": parameters}).replace_schema_metadata({_SHAPE: described})


def assignments_table(ids: pa.Array, clusters: NDArray[np.int64]) -> pa.Table:
    """`assignments.parquet`: client_id as it was stored, cluster int32."""
    return pa.table({"client_id": ids, "cluster": pa.array(clusters.astype(np.int32))})
