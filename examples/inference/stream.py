"""A stream of rows finds its clusters while night after night a new private fit goes live.

A running pipeline assigns rows by Beam's RunInference with `DappleModelHandler`. Meanwhile the second night is fitted.
Every few seconds a side input names the newest night that is complete, and rows are assigned by it from then on,
without a restart. `python -m examples.inference` runs it on a small Flink of its own.

Everything is written to `out/inference`. What the pipeline finds is as private as the rows, so a pipeline of your own
keeps it in the trusted zone; these rows are made up.
"""

import pathlib
import shutil
import time
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import ModelMetadata, PredictionResult, RunInference
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows

from dapple_dp import DappleModelHandler
from dapple_dp.pipelines.command.main import main as dapple

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "out" / "inference"
NIGHTS = ("2026-11-20", "2026-11-21")
NEW_MODELS = str(OUTPUT / "nights" / "????-??-??" / "run.json")
WINDOW_SECONDS = 2
SERVED = OUTPUT / "served"
MEANS = 5.0 * np.eye(3, 4)


def rows(n_rows: int, seed: int) -> pa.Table:
    """Made-up rows around three means."""
    noise = np.random.default_rng(seed).normal(0.0, 0.5, (n_rows, 4))
    return pa.table(dict(zip("abcd", (MEANS[np.arange(n_rows) % 3] + noise).T, strict=True)))


def fit(night: str, seed: int) -> None:
    """One night's fit, as a scheduler would start it."""
    pq.write_table(rows(3000, seed), OUTPUT / f"{night}.parquet")
    job = {
        "algorithm": "feddp_kmeans",
        "data": {"path": str(OUTPUT / f"{night}.parquet"), "features": list("abcd")},
        "server_data": {"path": str(OUTPUT / "server.parquet")},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 2.0, "delta": 1.0e-6},
        "clipping": {"norm": "server_radius"},
    }
    config = OUTPUT / f"{night}.yaml"
    config.write_text(yaml.safe_dump(job))
    if dapple(["fit", "--config", str(config), "--output", str(OUTPUT / "nights" / night)]):
        raise SystemExit(1)


def made_up(_: object) -> list[dict[str, float]]:
    """Three rows."""
    return rows(3, 7).to_pylist()


def note(result: PredictionResult) -> None:
    """Notes which model a row was assigned by."""
    (SERVED / pathlib.PurePath(result.model_id).name).touch()


def wait_for(night: str, end: float) -> bool:
    """Waits until rows have been assigned by a night's model; False after `end`."""
    while not (SERVED / night).exists():
        if time.time() > end:
            return False
        time.sleep(0.2)
    return True


def newest_night(_: object) -> ModelMetadata:
    """The last date whose fit is complete; staging folders have other names, and late repeats of earlier dates wait."""
    found = FileSystems.match([NEW_MODELS])[0].metadata_list
    path = max(each.path for each in found)
    return ModelMetadata(model_id=path, model_name=pathlib.PurePath(path).parent.name)


def add_models(pipeline: beam.Pipeline, end: float) -> beam.PCollection:
    """Announces new models until `end`, seconds since the epoch."""
    ticks = pipeline | "Ticks" >> PeriodicImpulse(time.time(), end, WINDOW_SECONDS, apply_windowing=True)
    return ticks | "Newest" >> beam.Map(newest_night)


def add_stream(pipeline: beam.Pipeline, end: float) -> None:
    """Rows until `end`, seconds since the epoch, each assigned by the model of the time."""
    models = add_models(pipeline, end)
    people = (
        pipeline | "Impulses" >> PeriodicImpulse(time.time(), end, fire_interval=0.5) | "Rows" >> beam.FlatMap(made_up)
    )
    windows = people | "Windows" >> beam.WindowInto(FixedWindows(WINDOW_SECONDS))
    _ = assigned(windows, models, str(OUTPUT / "nights" / NIGHTS[0])) | "Note" >> beam.Map(note)


def assigned(people: beam.PCollection, models: beam.PCollection, first: str) -> beam.PCollection:
    """Rows, each assigned by the model of its window, or by the first one where its window names none."""
    handler = DappleModelHandler(first, on_invalid_rows="drop", max_batch_size=64)
    return people | "Assign" >> RunInference(handler, model_metadata_pcoll=models)


def run(flags: Sequence[str], seconds: float) -> int:
    """Fits the first night, starts the stream, fits the second night beside it.

    Args:
      flags: of a runner for streams on this machine.
      seconds: that the stream lasts at most.

    Returns:
      0 if rows have been assigned by both nights' models.
    """
    for folder in (OUTPUT / "nights", SERVED):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    pq.write_table(rows(90, 99), OUTPUT / "server.parquet")
    fit(NIGHTS[0], 0)
    end = time.time() + seconds
    pipeline = beam.Pipeline(argv=[*flags, "--streaming"])
    add_stream(pipeline, end)
    stream = pipeline.run()
    served = wait_for(NIGHTS[0], end)
    fit(NIGHTS[1], 1)
    served = served and wait_for(NIGHTS[1], end)
    stream.cancel()
    print(f"nights that rows were assigned by: {sorted(path.name for path in SERVED.iterdir())}")
    return 0 if served else 1
