"""The budget of a client in clustered federated learning, and the noise that keeps within it."""

import dataclasses
from typing import Any

from schemas.choices import Adjacency, SiloAccountant


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
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    accountant: SiloAccountant
    select_share: float = 0.03
    first_round_noise_ratio: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SiloEvent:
    """A mechanism and how often a client runs it.

    Attributes:
      name: first_round_steps, steps or selections.
      count: >= 1.
      noise_multiplier: of Gaussian steps; None for selections.
      sampling_rate: of Poisson sampling; 1 without.
      select_epsilon: of selections; None for steps.
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
    epsilon: float
    delta: float
    adjacency: Adjacency
    accountant: SiloAccountant
    events: tuple[SiloEvent, ...]
