"""What a fit in memory releases, and the folder of it that other jobs read."""

import dataclasses
import os
from typing import Any

import numpy as np
from apache_beam.io.filesystems import FileSystems
from numpy.typing import NDArray

from dapple_dp.estimator.job_of_parameters import in_words
from dapple_dp.estimator.memory_rows import POINT, made_names
from pipelines.jobs.job import Run
from pipelines.jobs.place import OutputFolder
from pipelines.jobs.run_job import carry_out
from pipelines.kmeans import fit as fit_job
from pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from pipelines.kmeans.plan.previous_run import PreviousRun, load_previous
from pipelines.kmeans.report import files as outputs
from pipelines.kmeans.report import report_warnings
from pipelines.run.folder import MANIFEST, PRIVACY_FILE, RunFolder
from pipelines.run.options import JobOptions, beam_options, new_run_id
from schemas.errors import ConfigError
from schemas.kmeans.fit_config import FitConfig
from schemas.kmeans.model import ClusterModel
from schemas.privacy.statement import PrivacyStatement, statement_from_json
from schemas.settings import json_schema
from schemas.settings.refusal import Refusal
from schemas.settings.run_manifest import RunManifest
from schemas.tables.encoded_column import BoundedColumn
from schemas.tables.encoder import Encoder
from transforms.files import gate

_Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleasedRun:
    """All that is left of a fit: no row, no exact number of rows, no path of theirs.

    Attributes:
      model: centers as they were found, and releases.
      centers: shape (k, d), in the units of the columns.
      bounds: of columns that have their own, (lower, upper), each of shape (d,): rows are scaled from them to -1 to 1
        before distances are taken; None where distances are in feature units.
      algorithm: that ran.
      names: of the columns; None where they have none.
      privacy: the guarantee.
      warnings: of the report.
      files: the output folder by name, manifest included.
    """

    model: ClusterModel
    centers: NDArray[np.float64]
    bounds: _Bounds | None
    algorithm: str
    names: tuple[str, ...] | None
    privacy: PrivacyStatement
    warnings: tuple[str, ...]
    files: dict[str, bytes]


def run_in_memory(config: FitConfig, folder: str) -> ReleasedRun:
    """Runs a job to its end, charged to its ledger if it has one.

    Args:
      config: the job.
      folder: of its output; private, and not there yet.

    Raises:
      DappleError: what stopped it, in one sentence.
    """
    options = JobOptions(config="", output=folder, run_id=new_run_id(), beam=beam_options([]))
    run = Run(settings=config, options=options, place=OutputFolder(options))
    with carry_out(fit_job.JOB, run) as (planned, result):
        outputs.write_outputs(run.folder, planned, result, report=False)
        run.place.publish(_without_places(outputs.manifest(planned, result, options.run_id)))
    return _released(planned, result, {name: _raw(folder, name) for name in sorted(os.listdir(folder))})


def _without_places(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest that does not name the files in which rows were for the run alone."""
    for section in ("data", "server_data"):
        holder = manifest["settings"][section]
        if holder:
            holder["path"] = outputs.NOT_SAID
    return manifest


def _released(planned: PlannedFit, result: FitResult, files: dict[str, bytes]) -> ReleasedRun:
    """What a job in memory has found."""
    features, encoder = planned.config.data.features, planned.contract.encoder
    return ReleasedRun(
        model=result.model,
        centers=result.model.centers if result.in_units is None else result.in_units,
        bounds=_bounds(encoder),
        algorithm=str(planned.config.algorithm),
        names=None if isinstance(features, str) else features,
        privacy=result.privacy,
        warnings=tuple(map(in_words, report_warnings.texts(planned, result))),
        files=files,
    )


def _raw(folder: str, name: str) -> bytes:
    rule = f"{folder} must be the output folder of a finished private fit, with {name}"
    return gate.read_bytes(
        FileSystems.join(folder, name), Refusal(kind=ConfigError, rule=rule, remedy="check the path")
    )


def _content(files: dict[str, bytes], name: str) -> dict[str, Any]:
    """A JSON file of a run; raises ConfigError if it is none."""
    refusal = Refusal(kind=ConfigError, rule=f"{name} must be that of a fit", remedy="fit again")
    return json_schema.parse_as(files[name], dict[str, Any], refusal)


def write_run(run: ReleasedRun, folder: str) -> None:
    """Writes the output folder of a fit; raises ConfigError if there is something."""
    manifest = _content(run.files, MANIFEST)
    target = RunFolder(folder, manifest["run_id"])
    target.check()
    with target.opened():
        for name, content in run.files.items():
            if name == PRIVACY_FILE:
                target.write_privacy(_content(run.files, name))
            elif name != MANIFEST:
                target.write(name, content)
        target.publish({name: value for name, value in manifest.items() if name != "files"})


def read_run(folder: str) -> ReleasedRun:
    """The fit in an output folder.

    Raises:
      ConfigError: if it holds no finished private fit of plain columns, or a file is not the one that was written.
    """
    previous = load_previous(folder)
    raw = _raw(previous.folder, MANIFEST)
    refusal = Refusal(
        kind=ConfigError, rule=f"{MANIFEST} in {previous.folder} must be that of a fit", remedy="fit again"
    )
    names = json_schema.parse_as(raw, RunManifest, refusal).files
    files = {name: _raw(previous.folder, name) for name in names} | {MANIFEST: raw}
    target = Refusal(kind=ConfigError, rule=f"{PRIVACY_FILE} must be that of a fit", remedy="fit again")
    with target.covers():
        content = _content(files, PRIVACY_FILE)
        privacy, algorithm = statement_from_json(content), str(content["algorithm"])
    return _read(previous, files, privacy, algorithm)


def _read(previous: PreviousRun, files: dict[str, bytes], privacy: PrivacyStatement, algorithm: str) -> ReleasedRun:
    """What a folder says; raises ConfigError if its columns were encoded otherwise than by bounds."""
    saved, model = previous.saved, previous.model
    in_units = None if saved.encoder is None else saved.encoder.in_units(model.centers)
    bounds = _bounds(saved.encoder)
    if saved.encoder is not None and (bounds is None or in_units is None):
        raise ConfigError(
            f"{previous.folder} must be a fit of plain columns, got an encode section; use the assign job."
        )
    width = len(saved.feature_names)
    made = {made_names(width), tuple(f"{POINT}[{index}]" for index in range(width))}
    return ReleasedRun(
        model=model,
        centers=model.centers if in_units is None else in_units,
        bounds=bounds,
        algorithm=algorithm,
        names=None if saved.feature_names in made else saved.feature_names,
        privacy=privacy,
        warnings=(),
        files=files,
    )


def _bounds(encoder: Encoder | None) -> _Bounds | None:
    """Of columns that are scaled from bounds to -1 to 1, and not otherwise; else None."""
    columns: list[Any] = [] if encoder is None else list(encoder.columns)
    if not columns or not all(
        isinstance(each, BoundedColumn) and each.low == -1.0 and each.weight == 1.0 for each in columns
    ):
        return None
    return np.array([each.lower for each in columns]), np.array([each.upper for each in columns])
