"""Model folders as fit leaves them, without a fit; and the jobs that use them."""

import hashlib
import json
import pathlib
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.settings.format_number import FORMAT
from dapple_dp.transforms.files.file_bytes import table_bytes
from tests.scenes.lake import Outcome, run_command


def write_model(
    folder: pathlib.Path,
    centers: NDArray[np.float64],
    features: list[str] | None = None,
    encoding: list[dict[str, Any]] | None = None,
    sizes: NDArray[np.float64] | None = None,
) -> str:
    """A folder with centers and manifest; features default to the coordinates of the list column `x`, sizes to 1."""
    folder.mkdir(parents=True)
    sizes = np.ones(len(centers)) if sizes is None else sizes
    model = ClusterModel(centers=np.asarray(centers, float), noisy_sizes=sizes, releases=())
    content = table_bytes(model.centers_table())
    (folder / "centers.parquet").write_bytes(content)
    manifest = {
        "format": FORMAT,
        "features": features or [f"x[{index}]" for index in range(centers.shape[1])],
        "encoding": encoding,
        "files": {"centers.parquet": hashlib.sha256(content).hexdigest()},
    }
    (folder / "run.json").write_text(json.dumps(manifest))
    return str(folder)


def run_model_job(job: str, settings: dict[str, Any] | str, folder: pathlib.Path, *flags: str) -> Outcome:
    """`dapple JOB` from `folder`/JOB.yaml to `folder`/JOB, unless the flags name another output."""
    config = folder / f"{job}.yaml"
    config.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
    output = () if "--output" in flags else ("--output", str(folder / job))
    return run_command(job, "--config", str(config), *output, *flags)


def assert_job_refused(job: str, settings: dict[str, Any], folder: pathlib.Path, words: str) -> None:
    """The job ends with exit code 2 and a sentence with these words, and leaves nothing."""
    outcome = run_model_job(job, settings, folder)
    assert outcome.code == 2
    assert words in outcome.lines[-1]
    assert not (folder / job).exists()
