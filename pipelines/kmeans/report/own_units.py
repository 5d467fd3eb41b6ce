"""Released centers as people read them: encodings undone, in the units of the columns, shares of rows in percent.

Only pages show centers so; `centers.parquet` keeps the features that were clustered.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.pipelines.page.numbers import fixed
from dapple_dp.schemas.tables.encoder import Encoder

_MOST_COLUMNS = 4
"""Columns that show what is typical of a cluster."""
_MOST_ALIKE = 3
"""Categories of a column that are named where noise may hide which is the largest."""
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


def noise_texts(view: FitView, features: NDArray[np.int64], clusters: NDArray[np.int64]) -> list[str]:
    """Two noise stddevs of each feature, the largest of some clusters that were found; "unknown" where it is."""
    encoder, summary = view.planned.contract.encoder, view.summary
    shown = clusters[summary.found[clusters]]
    if view.unknown_noise:
        return ["unknown"] * len(features)
    moved = summary.centers + 2.0 * view.center_stddevs
    ends = (summary.centers, moved) if encoder is None else (encoder.decoded(summary.centers), encoder.decoded(moved))
    noise = np.abs(ends[1] - ends[0])[shown]
    if not len(shown):
        return ["—"] * len(features)
    return [f"{noise[:, feature].max():.2g}" for feature in features]


def typical(view: FitView, index: int) -> str:
    """The typical values of a cluster, such as "hours 41.2; education Bachelors (62%)"; "" where nothing is encoded.

    Of a column with several features the one with the largest share is named, with those that noise may hide it from;
    where noise is unknown, such a column is left out.
    Columns in which centers differ most come first.
    """
    encoder = view.planned.contract.encoder
    if encoder is None:
        return ""
    columns = sorted(_parts(encoder), key=lambda each: -float(view.summary.spread[each[1]].max()))[:_MOST_COLUMNS]
    values, shares = encoder.decoded(view.summary.centers)[index], encoder.in_percent
    words = []
    for column, part in columns:
        if view.unknown_noise and part.stop - part.start > 1:
            continue  # Noise may hide which of all values is the largest.
        best, *others = view.summary.largest_of(index, part)
        name = view.summary.names[best]
        if len(others) >= _MOST_ALIKE:
            words.append(f"{column} mixed")
            continue
        number = f"({values[best]:.0f}%)" if shares[best] else fixed([float(values[best])], _SIGNS)[0]
        alike = "".join(f" or {view.summary.names[each].removeprefix(f'{column} ')}" for each in others)
        words.append(f"{name} {number}{alike}")
    return "; ".join(words)


def _parts(encoder: Encoder) -> list[tuple[str, slice]]:
    """Columns, and where the features of each are."""
    ends = np.cumsum([0, *(len(column.names) for column in encoder.columns)]).tolist()
    places = (slice(low, high) for low, high in itertools.pairwise(ends))
    return [(column.column, place) for column, place in zip(encoder.columns, places, strict=True)]
