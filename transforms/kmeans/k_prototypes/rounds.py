"""k-prototypes as a list of rounds, each of noised sums of numbers and noised cells of codes by cluster.

A row belongs to the prototype of the least |x - c|**2 + gamma * (codes that differ from the modes), where a code
outside of the list is half as far from any code of it. In its features, of which those of a code are the root of
gamma / 2 where the row has it, this is the nearest prototype. There it adds two parts, with noise of their own:

- its difference from the prototype, shortened to a public radius, of which the numbers are used;
- one cell of the cluster for each of m columns of codes, also where its code is not listed: m equal numbers at
  different places, whose L2 norm is the root of m times one of them.

The cells of each column add up to the size of a cluster, so sizes need no release of their own.

The first round has one cluster: the mean of the numbers and how frequent each code is. From these, more prototypes are
drawn than clusters are asked for; some rounds move them, and the server merges them by their sizes, numbers and
histograms. The last rounds move the k that are left.
Source: Huang (1998), "Extensions to the k-means algorithm for clustering large data sets with categorical values".
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyPlan, RoundPlan, RoundSpec
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.kmeans.prototypes_config import KPrototypesFit
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity, Replaced
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.core.statistics.differences import RELATIVE_UNITS
from dapple_dp.transforms.kmeans.k_prototypes.columns import Columns
from dapple_dp.transforms.kmeans.k_prototypes.server import (
    FINE,
    SEEN_STDDEVS,
    first_step,
    initial_state,
    merge_step,
    prototypes_step,
)
from dapple_dp.transforms.kmeans.k_prototypes.state import PrototypeState
from dapple_dp.transforms.kmeans.lloyd.specs import allocation_as_asked, for_sampled_rows, vector_spec
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

NAME = "k_prototypes"
FIRST_SHARE, FINE_SHARE = 0.05, 0.45
"""Shares of the budget for the first round, and for all rounds with many prototypes."""
FINE_ROUNDS, STEPS = 3, 3
"""Rounds with many prototypes, and with those that are left."""
SUMS_SHARE = 0.5
"""Share of a round's budget for its sums; cells have the rest."""
CLEAR = 4.0
"""Stddevs of a difference of two cells from which on one code is called more frequent than another."""
_SUMS = Meaning(tells="where the numbers of each cluster lie", quantity=Quantity.LENGTH)
_CELLS = Meaning(tells="how large each cluster is, and how often its codes occur", replaced=Replaced.LEFT)


def round_specs(config: KPrototypesFit, n_features: int, _: int) -> tuple[RoundSpec, ...]:
    """Every release of a job before calibration; `n_features` is that of rows."""
    columns, size = Columns.of(config), config.max_clusters

    def spec(name: str, n_prototypes: int, share: float, *, settles: bool = False) -> RoundSpec:
        meaning = dataclasses.replace(_SUMS, settles=settles)
        sums = vector_spec("sums", (n_prototypes, n_features), share * SUMS_SHARE, meaning=meaning)
        cells = vector_spec("cells", (n_prototypes, columns.n_cells), share * (1.0 - SUMS_SHARE), meaning=_CELLS)
        return RoundSpec(path=f"{NAME}/{name}", releases=(dataclasses.replace(sums, sensitivity=RELATIVE_UNITS), cells))

    last = 1.0 - FIRST_SHARE - FINE_SHARE
    fine = (spec(f"fine_{step:02d}", FINE * size, FINE_SHARE / FINE_ROUNDS) for step in range(FINE_ROUNDS))
    steps = (spec(f"step_{step:02d}", size, last / STEPS, settles=step > 0) for step in range(STEPS))
    return for_sampled_rows(config, (spec("first", 1, FIRST_SHARE), *fine, *steps))


def rounds(config: KPrototypesFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """The calibrated rounds of a job, in order; `plan` was made from `round_specs`."""
    special = {f"{NAME}/first": first_step, f"{NAME}/fine_{FINE_ROUNDS - 1:02d}": merge_step}

    def bound(each: RoundPlan) -> Round:
        # Codes are read from features as they are, so nobody keeps rows as integers of the frame.
        return Round(each, prototypes_statistic, special.get(each.path, prototypes_step))

    return tuple(map(bound, plan.rounds))


def prototypes_statistic(block: ClientBlock, state: PrototypeState) -> NDArray[np.int64]:
    """Sums of differences from each prototype, then rows per cell of a cluster and a code; shares of clients alike."""
    forms, columns = of_unit(state.privacy_unit), state.settings.columns
    sums = forms.relative_sums(block, state.frame, state.around, state.bound)[: state.centers.size]
    codes = columns.codes_of(block.points) + columns.starts
    coded = block._replace(points=np.hstack([block.points, codes]))
    return np.concatenate([sums, forms.term_cells(coded, state.frame, Assigner(state.centers), columns.limits)])


def found_from(config: KPrototypesFit, plan: PrivacyPlan, _: int) -> tuple[str, ...]:
    """Sentences on how many rows (clients) a cluster needs for its modes to follow its rows."""
    columns, words = Columns.of(config), UNITS[plan.unit].words
    stddev = plan.rounds[-1].releases[-1].noise_stddev / columns.limits.cell_units
    least = math.ceil(SEEN_STDDEVS * stddev / math.sqrt(float((1.0 / columns.widths).sum())))
    ahead = math.ceil(CLEAR * math.sqrt(2.0) * stddev)
    return (
        f"A cluster needs about {least:,} {words} to be found; with fewer, its modes keep their earlier values.",
        f"A mode is clear if its code has about {ahead:,} {words} more than the next one.",
    )


PROTOCOL = RoundsProtocol(
    title="k-prototypes",
    initial_state=initial_state,
    round_specs=round_specs,
    allocation=allocation_as_asked,
    rounds=rounds,
    has_modes=True,
    found_from=found_from,
)
