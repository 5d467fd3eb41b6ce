"""Choices of a client that trains its own model, and takes another only if its rows show that it does as well.

The server offers a model: the mean of all models, or that of a cluster of them. A client answers how many more of its
rows the offer classifies correctly than its own model does, under Gaussian noise. One row moves that difference by at
most 1, and a replaced one by at most 2. All that follows from answers is post-processing.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.clustered_fl.records import ClientRows
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.dense_model import BLOCK_ROWS
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import Model
from dapple_dp.transforms.numerics.clustered_fl.normal import normals

_SHARES = (0.25, 0.75)
"""Shares of the rounds: first the mean of all models is offered, then those of clusters, which show later."""


def offer_rounds(rounds: int) -> tuple[int, ...]:
    """Returns the rounds after which models are offered; clients answer in the next round, so there must be one."""
    found = (math.ceil(share * rounds) for share in _SHARES)
    return tuple(sorted({number for number in found if number < rounds}))


def scores(
    model: Model, candidates: Sequence[NDArray[np.float64]], rows: ClientRows, *, by_loss: bool = False
) -> NDArray[np.int64]:
    """Returns each candidate's number of correct rows, or sum of `Model.gains`, shape (n_candidates,).

    One row more adds from 0 to 1 to a score, or from 0 to 2**GAIN_BITS.
    """
    result = np.zeros(len(candidates), dtype=np.int64)
    for start in range(0, len(rows.labels), BLOCK_ROWS):
        block, labels = rows.features[start : start + BLOCK_ROWS], rows.labels[start : start + BLOCK_ROWS]
        for index, candidate in enumerate(candidates):
            if by_loss:
                result[index] += int(model.gains(candidate, block, labels).sum())
            else:
                result[index] += int((model.predictions(candidate, block) == labels).sum())
    return result


def answer(
    model: Model,
    own: NDArray[np.float64],
    offer: NDArray[np.float64],
    rows: ClientRows,
    stddev: float,
    stream: KeyStream,
) -> int:
    """Returns how many more rows an offered model classifies correctly, noisy and rounded.

    Args:
      model: of both parameters.
      own: the client's parameters, shape (n_parameters,).
      offer: the offered parameters, likewise.
      rows: of the client.
      stddev: of the noise, in rows: the multiplier of the plan. A row more or less moves an answer by at most 1, like
        a step by at most a clipping norm; a replaced row moves both by twice as much, which the accountant counts.
      stream: unique to this call.
    """
    right, own_right = scores(model, (offer, own), rows).tolist()
    return round(right - own_right + stddev * float(normals(stream, 1)[0]))


def takers(
    answers: NDArray[np.int64], n_rows: NDArray[np.int64], stddevs: NDArray[np.float64], *, one_group: bool = False
) -> NDArray[np.bool_]:
    """Returns which clients take their offer: those whose expected gain, given all answers, is not negative.

    The gains of clients, as shares of their rows, are modeled as draws of one normal law with mean and variance
    from the answers. So similar clients decide together, and a client with a far worse offer decides alone.

    Args:
      answers: shape (n_clients,), rows.
      n_rows: public, shape (n_clients,).
      stddevs: of the noise of answers, rows.
      one_group: True if the offer is for all clients: then nobody takes it unless they gain on average.

    Source: Efron, Morris (1973), "Stein's estimation rule and its competitors: an empirical Bayes approach".
    """
    gains, variances = answers / n_rows, (stddevs / n_rows) ** 2
    if len(gains) < 2:
        return gains >= 0.0
    spread = max(0.0, float(gains.var(ddof=1) - variances.mean()))
    weights = 1.0 / np.maximum(variances + spread, 1e-12)
    mean = float((weights * gains).sum() / weights.sum())
    if one_group and mean < 0.0:
        return np.zeros(len(gains), dtype=bool)
    return (spread * gains + variances * mean if spread > 0.0 else np.full(len(gains), mean)) >= 0.0
