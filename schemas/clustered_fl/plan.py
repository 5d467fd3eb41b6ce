"""The budget of a client in clustered federated learning, the noise that keeps within it, and what a run publishes."""

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
    """What a client may spend in a whole run.

    Attributes:
      epsilon: > 0, total.
      delta: total, < 1 / N.
      adjacency: what neighbors differ in.
      accountant: how events are composed.
      select_share: epsilon of one selection over `epsilon`.
      first_round_noise_ratio: noise multiplier of the first round over that of later ones (R-DPCFL).
      choice_share: share of the budget that one choice between models takes: its noise has the variance of that which
        alone would spend all of it, over this share (R-DPCFL).
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
    """A mechanism and how often a client runs it.

    Attributes:
      name: first_round_steps, steps, selections or choices.
      count: >= 1.
      noise_multiplier: of Gaussian steps and choices; None for selections.
      sampling_rate: of Poisson sampling; 1 without.
      select_epsilon: of selections, else None.
    """

    name: str
    count: int
    noise_multiplier: float | None = None
    sampling_rate: float = 1.0
    select_epsilon: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Fields that are set."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SiloPlan:
    """Calibrated noise of a client.

    Attributes:
      n_rows: N, declared in public.
      noise_multiplier: z of Poisson-sampled steps.
      first_round_multiplier: z of steps of the first round.
      select_epsilon: of one selection.
      choice_multiplier: of the noise of one choice; 0 without choices.
      epsilon: spent by all events at `delta`.
      delta: of the whole run.
      adjacency: what neighbors differ in.
      accountant: how events were composed.
      events: all that the client runs.
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
    """The guarantee of every client for its own rows, against all that see what it sends.

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
