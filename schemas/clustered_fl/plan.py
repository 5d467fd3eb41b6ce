"""Privacy plan of each client in clustered federated learning, and the published tables of a run."""

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.choices import Adjacency, SiloAccountant
from dapple_dp.schemas.clustered_fl.records import ModelShape

TRUST = "per-silo DP-SGD"
TRUSTED = (
    "what a client sends is private from the server and other clients; one pipeline plays all of them here, so its "
    "operator is trusted"
)
RELATIONS = {Adjacency.ADD_REMOVE: "add_or_remove_one", Adjacency.REPLACE_ONE: "replace_one"}
_SHAPE = b"model"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SiloBudget:
    """Privacy budget of a client for a whole run.

    Attributes:
      epsilon: total, > 0.
      delta: total, < 1 / N.
      adjacency: difference of neighboring data sets.
      accountant: method that composes the events.
      select_share: epsilon of one selection over `epsilon`.
      first_round_noise_ratio: noise multiplier of the first round over that of later ones.
      choice_share: share of the budget for one choice between models: the variance of its noise is that of a choice
        that spends the whole budget, divided by this share.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    accountant: SiloAccountant
    select_share: float = 0.03
    first_round_noise_ratio: float = 1.0
    choice_share: float = 0.05


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SiloEvent:
    """A mechanism and the number of times that a client runs it.

    Attributes:
      name: first_round_steps, steps, selections or choices.
      count: >= 1.
      noise_multiplier: noise multiplier of Gaussian steps and choices; None for selections.
      sampling_rate: rate of Poisson sampling; 1 without sampling.
      select_epsilon: epsilon of one selection; None for other events.
    """

    name: str
    count: int
    noise_multiplier: float | None = None
    sampling_rate: float = 1.0
    select_epsilon: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that are set."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SiloPlan:
    """Calibrated noise of a client.

    Attributes:
      n_rows: N, the public number of rows.
      noise_multiplier: z of Poisson-sampled steps after the first round.
      first_round_multiplier: z of steps of the first round.
      select_epsilon: epsilon of one selection.
      choice_multiplier: noise multiplier of one choice; 0 without choices.
      epsilon: spent by all events at `delta`.
      delta: delta of the whole run.
      adjacency: difference of neighboring data sets.
      accountant: method that composed the events.
      events: all events of the client.
    """

    n_rows: int
    noise_multiplier: float
    first_round_multiplier: float
    select_epsilon: float
    choice_multiplier: float
    epsilon: float
    delta: float
    adjacency: Adjacency
    accountant: SiloAccountant
    events: tuple[SiloEvent, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SiloStatement:
    """The guarantee of every client for its rows, against everyone who sees the data that it sends.

    Attributes:
      adjacency: difference of neighboring rows of one client.
      epsilon: largest one of all clients, composed over all events of the client.
      delta: delta of every client.
      accountant: method that composed the events.
      events: one row per client and kind of event: client_id, mechanism, parameters, count.
      first_round: start of R-DPCFL and the reason for this choice; None for other algorithms.
    """

    adjacency: Adjacency
    epsilon: float
    delta: float
    accountant: str
    events: tuple[dict[str, Any], ...]
    first_round: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `privacy.json`."""
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
    """Returns `models.parquet`: cluster int32, parameters fixed_size_list<double>; metadata: the shape as JSON.

    Args:
      models: shape (n_models, n_parameters); layers in order, each its weights (n_inputs, n_outputs) by row, then
        its intercepts.
      shape: shape of every model.
    """
    parameters = pa.FixedSizeListArray.from_arrays(pa.array(models.ravel(), pa.float64()), models.shape[1])
    numbers = pa.array(np.arange(len(models), dtype=np.int32))
    described = json.dumps(dataclasses.asdict(shape), sort_keys=True)
    return pa.table({"cluster": numbers, "parameters": parameters}).replace_schema_metadata({_SHAPE: described})


def assignments_table(ids: pa.Array, clusters: NDArray[np.int64]) -> pa.Table:
    """Returns `assignments.parquet`: client_id in its original type, cluster int32."""
    return pa.table({"client_id": ids, "cluster": pa.array(clusters.astype(np.int32))})
