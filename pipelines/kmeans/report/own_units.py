"""Released centers as people read them: encodings undone, in the units of the columns, shares of rows in percent.

Only pages show centers so; `centers.parquet` keeps the features that were clustered.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

from pipelines.kmeans.report.fit_view import FitView
from pipelines.page.numbers import fixed
from schemas.tables.encoder import Encoder

_MOST_COLUMNS = 4
"""Columns that tell what is typical of a cluster."""
_SIGNS = 3


def texts(view: FitView, features: NDArray[np.int64], clusters: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """A row per feature, a text per cluster."""
    encoder, centers = view.planned.contract.encoder, view.summary.centers
    if encoder is None:
        return [fixed(centers[clusters, feature].tolist()) for feature in features]
    values, shares = encoder.decoded(centers), encoder.in_percent
    return [
        tuple(f"{value:.0f}%" for value in values[clusters, feature])
        if shares[feature]
        else fixed(values[clusters, feature].tolist())
        for feature in features
    ]


def typical(view: FitView, index: int) -> str:
    """What is typical of a cluster, for example "hours 41.2; education Bachelors (62%)"; "" where nothing is encoded.

    Of a column with several features the one with the largest share is named. Columns in which centers differ most
    come first.
    """
    encoder = view.planned.contract.encoder
    if encoder is None:
        return ""
    parts = _parts(encoder)
    order = sorted(parts, key=lambda part: -float(view.summary.spread[part].max()))[:_MOST_COLUMNS]
    values, shares = encoder.decoded(view.summary.centers)[index], encoder.in_percent
    words = []
    for part in order:
        best = part.start + int(values[part].argmax())
        number = f"({values[best]:.0f}%)" if shares[best] else fixed([float(values[best])], _SIGNS)[0]
        words.append(f"{view.summary.names[best]} {number}")
    return "; ".join(words)


def _parts(encoder: Encoder) -> list[slice]:
    """Where the features of each column lie."""
    ends = np.cumsum([0, *(len(column.names) for column in encoder.columns)]).tolist()
    return [slice(low, high) for low, high in itertools.pairwise(ends)]
