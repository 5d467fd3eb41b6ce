"""The beginning of R-DPCFL: a full first batch, or clients that train apart, decided before anything is spent.

The decision uses public data only: numbers of rows, settings, their noise, and a simulation of it. No row is read.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dapple_dp.schemas.choices import WhenScarce
from dapple_dp.schemas.clustered_fl.plan import SiloBudget
from dapple_dp.schemas.clustered_fl.records import ClusteringParams, TrainingParams
from dapple_dp.transforms.clustered_fl.silo_accounting import silo_plan
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl.choices import offer_rounds
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import schedule_of
from dapple_dp.transforms.numerics.clustered_fl.foresight import Foresight, foresee


class Beginning(NamedTuple):
    """The decision, and the parameters that follow from it.

    Attributes:
      training: with the batches of the first round.
      clustering: with `when_scarce` decided, and with the rounds in which models are offered.
      foresight: result of the simulation; None if nothing was simulated.
    """

    training: TrainingParams
    clustering: ClusteringParams
    foresight: Foresight | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the entry for the first round in `privacy.json`."""
        content: dict[str, Any] = {"when_scarce": str(self.clustering.when_scarce), "decided_by": "the job"}
        if self.foresight is not None:
            content |= {
                "decided_by": "a simulation on public numbers",
                "simulated_share_of_true_clusters": self.foresight.share,
                "simulated_separation": round(self.foresight.separation, 3),
            }
        return content


def begin(
    training: TrainingParams,
    clustering: ClusteringParams,
    budget: SiloBudget,
    n_rows: Sequence[int],
    n_parameters: int,
    public_seed: bytes,
) -> Beginning:
    """Decides `auto`, and gives clients that begin apart first batches of the ordinary size.

    A job that sets what the first round spends, or how far it is trusted, has a full first batch: its own
    `first_batch_size`, its `first_round_noise_ratio` or a `min_separation` of 0.

    Args:
      training: of the job.
      clustering: of the job.
      budget: of every client.
      n_rows: public, per client.
      n_parameters: of a model.
      public_seed: 32 bytes.

    Raises:
      ConfigError: if the budget cannot be spent.
    """
    full = dataclasses.replace(clustering, when_scarce=WhenScarce.CLUSTER)
    when, foresight = clustering.when_scarce, None
    if when is not WhenScarce.ONE_MODEL and full.min_separation > 0.0:
        full = dataclasses.replace(full, offer_rounds=offer_rounds(training.rounds))
    if when is WhenScarce.AUTO:
        when = WhenScarce.CLUSTER
        if training.first_batch_size is None and budget.first_round_noise_ratio == 1.0 and full.min_separation > 0.0:
            noise = np.array([first_noise(rows, training, full, budget) for rows in n_rows])
            stream = KeyStream(public_seed, encode_label("clustered_fl", "foresight"))
            foresight = foresee(noise, n_parameters, full, stream)
            when = WhenScarce.CLUSTER if foresight.enough else WhenScarce.APART
    if when is WhenScarce.APART:
        training = dataclasses.replace(training, first_batch_size=training.batch_size)
        full = dataclasses.replace(full, selection_rounds=0, offer_rounds=offer_rounds(training.rounds))
    return Beginning(training, dataclasses.replace(full, when_scarce=when), foresight)


def first_noise(n_rows: int, training: TrainingParams, clustering: ClusteringParams, budget: SiloBudget) -> float:
    """Returns the stddev of a parameter of a client's mean clipped first gradient, in clipping norms."""
    schedule = schedule_of(training, n_rows, first=True)
    multiplier = silo_plan(n_rows, training, clustering, budget).first_round_multiplier
    return multiplier / (schedule.expected_batch * math.sqrt(schedule.n_steps))
