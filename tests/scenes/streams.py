"""Streams as their job leaves them, without a fit: folders of windows with made-up releases."""

import json
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.kmeans.jobs.stream_config import StreamConfig, stream_config
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.kmeans.recurring.remembered import Memory
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.transforms.files.file_bytes import table_bytes
from tests.scenes import lake

COUNT_STDDEV = 5.0


def config(folder: pathlib.Path, features: list[str], unit: str = "record", **stream: Any) -> StreamConfig:
    """A job whose ledger is none that can be read."""
    job = lake.job(str(folder / "lake"), None, unit, algorithm="dp_lloyd", dp_lloyd={"domain": [-8.0, 8.0], "steps": 1})
    del job["server_data"], job["feddp_kmeans"]
    job["clipping"] = {"client_rows": 2} if unit == "client" else {}
    contract = {"max_windows": 2, "min_separation": 2} if unit == "client" else {"once": "made for a test"}
    section = {
        "start": "start",
        "name": "january",
        "column": "dt",
        "first": "2026-01-01",
        "windows": 10_000,
        "memory": 4,
    }
    job["data"] |= {"name": "visits", "features": features}
    return stream_config(job | {"ledger": str(folder / "ledger"), "stream": section | {"band": 3} | contract | stream})


def write_window(
    folder: pathlib.Path,
    config: StreamConfig,
    index: int,
    centers: NDArray[np.float64],
    sizes: NDArray[np.float64],
    *,
    noise: float | None = 0.1,
    scores: NDArray[np.float64] | None = None,
) -> None:
    """The files of a window that its page reads.

    Args:
      folder: of the stream.
      config: of the stream.
      index: of the window.
      centers: shape (k, d).
      sizes: shape (k,), noisy.
      noise: of each remembered mean; None where it is not known.
      scores: shape (k,), of drift; None where they are not known.
    """
    place = folder / config.calendar.date(index)
    place.mkdir(parents=True)
    model = ClusterModel(centers=centers, noisy_sizes=sizes, releases=())
    (place / "centers.parquet").write_bytes(table_bytes(model.centers_table()))
    clusters = [
        {"cluster": number, "noise": noise, "score": None if scores is None else float(scores[number])}
        for number in range(len(centers))
    ]
    features = list(config.template.data.features)
    contents = {
        "drift.json": {"memory": {"clusters": clusters}},
        "privacy.json": {"epsilon": 1.5, "delta": 1e-6},
        "run.json": {"features": features, "encoding": None, "files": {}},
    }
    for name, content in contents.items():
        (place / name).write_text(json.dumps(with_number(content)))
    memory = Memory(
        origins=centers[None],
        sums=np.zeros((1, *centers.shape)),
        counts=sizes[None],
        sums_stddevs=np.ones(1),
        counts_stddevs=np.full(1, COUNT_STDDEV),
    )
    (place / "memory.parquet").write_bytes(table_bytes(memory.table(tuple(range(len(centers))))))
