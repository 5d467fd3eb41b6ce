"""What a fit in memory releases, and the folder of it that other jobs read."""

import dataclasses
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.estimator.job_of_parameters import in_words
from dapple_dp.estimator.memory_rows import POINT, made_names
from dapple_dp.pipelines.kmeans.fit_in_memory import fit_in_memory
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun, load_previous
from dapple_dp.pipelines.kmeans.report import files as outputs
from dapple_dp.pipelines.kmeans.report import report_warnings
from dapple_dp.pipelines.run.folder import MANIFEST, PRIVACY_FILE, RunFolder, new_run_id
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.privacy.release_table import releases_to_table
from dapple_dp.schemas.privacy.statement import PrivacyStatement, statement_from_json
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE, RELEASES_FILE, RunManifest
from dapple_dp.schemas.tables.encoded_column import BoundedColumn, FilledColumn, ScaledColumn
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.files import gate
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.rounds.memory_rows import Columns, PublicRows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleasedRun:
    """All that is left of a fit: no row, no exact number of rows, no path of theirs.

    Attributes:
      model: centers as they were found, and releases.
      centers: shape (k, d), in the units of the columns.
      encoder: turns columns into features before distances are taken, as for columns with bounds of their own; None
        where columns are features.
      algorithm: that ran.
      names: of the columns; None where they have none.
      privacy: the guarantee.
      warnings: of the report.
      files: the output folder by name, manifest included.
    """

    model: ClusterModel
    centers: NDArray[np.float64]
    encoder: Encoder | None
    algorithm: str
    names: tuple[str, ...] | None
    privacy: PrivacyStatement
    warnings: tuple[str, ...]
    files: dict[str, bytes]


def run_in_memory(config: FitConfig, rows: Columns, server: PublicRows | None) -> ReleasedRun:
    """Runs a job to its end, charged to its ledger if it has one.

    Args:
      config: the job.
      rows: all private rows.
      server: the public ones; None without.

    Raises:
      DappleError: what stopped it, in one sentence.
    """
    run_id = new_run_id()
    planned, result = fit_in_memory(config, rows, server, run_id)
    return _released(planned, result, _files(planned, result, run_id))


def _files(planned: PlannedFit, result: FitResult, run_id: str) -> dict[str, bytes]:
    """The output folder of a fit."""
    manifest = _without_places(outputs.manifest(planned, result, run_id))
    return {
        CENTERS_FILE: table_bytes(result.model.centers_table(result.in_units)),
        RELEASES_FILE: table_bytes(releases_to_table(list(result.model.releases))),
        PRIVACY_FILE: json.dumps(outputs.stated(planned, result)).encode(),
        MANIFEST: json.dumps(manifest).encode(),
        **outputs.further_files(planned, result),
    }


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
        encoder=encoder,
        algorithm=str(planned.config.algorithm),
        names=None if isinstance(features, str) or features == made_names(len(features)) else features,
        privacy=result.privacy,
        warnings=tuple(map(in_words, report_warnings.texts(planned, result))),
        files=files,
    )


def _raw(folder: str, name: str) -> bytes:
    rule = f"{folder} must be the output folder of a finished private fit, with {name}"
    return gate.read_bytes(join(folder, name), Refusal(kind=ConfigError, rule=rule, remedy="check the path"))


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
    if saved.encoder is not None and (in_units is None or not _is_bounded(saved.encoder)):
        raise ConfigError(
            f"{previous.folder} must be a fit of plain columns, got an encode section; use the assign job."
        )
    columns = saved.feature_names if saved.encoder is None else tuple(each.column for each in saved.encoder.columns)
    width = len(columns)
    made = {made_names(width), tuple(f"{POINT}[{index}]" for index in range(width))}
    return ReleasedRun(
        model=model,
        centers=model.centers if in_units is None else in_units,
        encoder=saved.encoder,
        algorithm=algorithm,
        names=None if columns in made else columns,
        privacy=privacy,
        warnings=(),
        files=files,
    )


def _is_bounded(encoder: Encoder) -> bool:
    """Whether all columns are taken as they are or scaled from bounds to -1 to 1, missing values filled or not."""
    columns = [each.inner if isinstance(each, FilledColumn) else each for each in encoder.columns]
    return all(
        (isinstance(each, BoundedColumn) and each.low == -1.0 and each.weight == 1.0)
        or each == ScaledColumn(column=each.column)
        for each in columns
    )
