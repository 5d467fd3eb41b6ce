"""Output folder of an in-memory fit, for other jobs."""

import hashlib
import json
from typing import Any

from dapple_dp.estimator.memory_rows import POINT, made_names
from dapple_dp.estimator.released_run import FitStatement, ReleasedRun
from dapple_dp.pipelines.kmeans.plan.previous_run import load_previous
from dapple_dp.pipelines.kmeans.report import files as outputs
from dapple_dp.pipelines.run.folder import MANIFEST, PRIVACY_FILE, REPORT_FILE, RunFolder
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.statement import statement_from_json
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE, RELEASES_FILE, RunManifest
from dapple_dp.schemas.tables.encoded_column import BoundedColumn, FilledColumn, ScaledColumn
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import releases_bytes, table_bytes
from dapple_dp.transforms.files.stores import join


def _files(run: ReleasedRun) -> dict[str, bytes]:
    """Returns all files of a fit's output folder, except for its manifest."""
    if run.fit is None:
        return run.files
    planned, result = run.fit
    return {
        CENTERS_FILE: table_bytes(result.model.centers_table(result.in_units)),
        RELEASES_FILE: releases_bytes(result.model.releases),
        PRIVACY_FILE: json.dumps(outputs.stated(planned, result)).encode(),
        **outputs.further_files(planned, result),
        REPORT_FILE: run.report().encode(),
    }


def _raw(folder: str, name: str) -> bytes:
    rule = f"{folder} must be the output folder of a finished private fit, with {name}"
    return untrusted.read_bytes(join(folder, name), Refusal(kind=ConfigError, rule=rule, remedy="check the path"))


def _content(raw: bytes, name: str) -> dict[str, Any]:
    """Parses a JSON file of a run; raises ConfigError if it isn't valid."""
    refusal = Refusal(kind=ConfigError, rule=f"{name} must be the file that fit wrote", remedy="fit again")
    return json_schema.parse_as(raw, dict[str, Any], refusal)


def write_run(run: ReleasedRun, folder: str) -> None:
    """Writes the output folder of a fit; raises ConfigError if it isn't empty."""
    target = RunFolder(folder, run.manifest["run_id"])
    target.check()
    with target.opened():
        for name, content in _files(run).items():
            if name == PRIVACY_FILE:
                target.write_privacy(_content(content, name))
            else:
                target.write(name, content)
        target.publish(run.manifest)


def read_run(folder: str) -> ReleasedRun:
    """Loads the fit in an output folder.

    Raises:
      ConfigError: if it isn't the folder of a finished private fit of plain columns, or a file was changed.
    """
    previous = load_previous(folder)
    raw = _raw(previous.folder, MANIFEST)
    refusal = Refusal(
        kind=ConfigError, rule=f"{MANIFEST} in {previous.folder} must be the file that fit wrote", remedy="fit again"
    )
    digests = json_schema.parse_as(raw, RunManifest, refusal).files
    files = {name: _raw(previous.folder, name) for name in digests}
    changed = next((name for name in files if hashlib.sha256(files[name]).hexdigest() != digests[name]), None)
    if changed is not None:
        raise ConfigError(f"{changed} in {previous.folder} was changed after the fit wrote it; fit again.")
    target = Refusal(kind=ConfigError, rule=f"{PRIVACY_FILE} must be the file that fit wrote", remedy="fit again")
    with target.covers():
        content = _content(files[PRIVACY_FILE], PRIVACY_FILE)
        stated, algorithm = statement_from_json(content), str(content["algorithm"])
    manifest = {name: value for name, value in _content(raw, MANIFEST).items() if name != "files"}
    with refusal.covers():
        privacy = FitStatement.of(stated, manifest)
    saved, model = previous.saved, previous.model
    in_units = None if saved.encoder is None else saved.encoder.in_units(model.centers)
    if saved.encoder is not None and (in_units is None or not _is_bounded(saved.encoder)):
        raise ConfigError(
            f"{previous.folder} must be a fit of plain columns, got an encode section; use the assign job."
        )
    columns = saved.feature_names if saved.encoder is None else tuple(column.column for column in saved.encoder.columns)
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
        manifest=manifest,
        files=files,
    )


def _is_bounded(encoder: Encoder) -> bool:
    """Returns whether all columns are unscaled, or scaled from bounds to [-1, 1], with or without fill values."""
    columns = [column.inner if isinstance(column, FilledColumn) else column for column in encoder.columns]
    return all(
        (isinstance(column, BoundedColumn) and column.low == -1.0 and column.weight == 1.0)
        or column == ScaledColumn(column=column.column)
        for column in columns
    )
