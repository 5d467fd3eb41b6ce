"""Two fits of which the second goes live while a pipeline runs, by the step of `examples/inference`."""

import pathlib
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
from apache_beam.ml.inference.base import ModelMetadata
from apache_beam.transforms.window import FixedWindows, GlobalWindows, TimestampedValue

from dapple_dp.pipelines.run.options import beam_options
from examples.inference import stream
from tests.scenes.models import write_model

CENTERS = np.array([[20.0, 10.0], [60.0, 40.0]])
ROWS = [{"age": 61, "hours": 38}, {"age": 22, "hours": 9}, {"age": None, "hours": 1}]
_SECONDS = 10


def two_nights(folder: pathlib.Path) -> list[str]:
    """Two fits; the second has its centers the other way round."""
    models = {"2026-11-20": CENTERS, "2026-11-21": CENTERS[::-1]}
    return [write_model(folder / night, centers, ["age", "hours"]) for night, centers in models.items()]


def run_two_nights(nights: Sequence[str], flags: Sequence[str]) -> None:
    """Rows of a window are assigned by the model that the side input names in it; raises AssertionError if not.

    The third window names a model that cannot be read: the one in use stays.
    """
    rows = [_at(_SECONDS * window + place, row) for window in range(3) for place, row in enumerate(ROWS)]
    paths = [f"{nights[0]}/run.json", f"{nights[1]}/run.json", f"{nights[0]}/gone/run.json"]
    named = [_at(_SECONDS * window + 1, ModelMetadata(path, str(window))) for window, path in enumerate(paths)]
    with beam.Pipeline(options=beam_options(list(flags))) as pipeline:
        people, models = (
            pipeline | name >> beam.Create(values) | f"{name} windows" >> beam.WindowInto(FixedWindows(_SECONDS))
            for name, values in (("Rows", rows), ("Models", named))
        )
        _ = (
            stream.assigned(people, models, nights[0])
            | "Window" >> beam.Map(_with_window)
            | "Together" >> beam.WindowInto(GlobalWindows())
            | beam.combiners.ToList()
            | "Check" >> beam.Map(_check, list(nights))
        )


def _at(seconds: int, value: object) -> TimestampedValue:
    return TimestampedValue(value, seconds)


def _with_window(each, at=beam.DoFn.TimestampParam):
    return int(at) // _SECONDS, each.inference, each.model_id


def _check(found, nights):
    first, second, third = ([each[1:] for each in found if each[0] == window] for window in range(3))
    assert set(first) == {(1, nights[0]), (0, nights[0]), (None, nights[0])}
    assert set(second) == {(0, nights[1]), (1, nights[1]), (None, nights[1])}
    assert len(third) == len(ROWS)
    assert {model for _, model in third} <= set(nights)
