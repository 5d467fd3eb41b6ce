"""Collected reports: their folder, their public parameters, and whether a shuffler wrote them."""

import dataclasses
import json
import os

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from pipelines.run.folder import MANIFEST
from schemas.choices import ReportMode
from schemas.errors import ConfigError
from schemas.reports.config import CollectedReports
from schemas.reports.parameters import ReportParameters
from schemas.reports.rows import PARAMETERS_FILE, REPORTS_FOLDER
from schemas.reports.split_parameters import CollectionParameters, collection_from_json
from transforms.files.octets import read_bytes
from transforms.numerics.reports.amplification import check_guarantee
from transforms.numerics.reports.split_reports import check_split
from transforms.tables.source import list_files


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportSource:
    """Where reports are.

    Attributes:
      folder: as the job names it.
      path: of the Parquet files.
      parameters: of their collection.
    """

    folder: str
    path: str
    parameters: CollectionParameters


def find_reports(config: CollectedReports, folder: str, setting: str) -> ReportSource:
    """Reads the public parameters of reports.

    Args:
      config: the job.
      folder: of the reports.
      setting: what the folder is called in messages.

    Raises:
      ConfigError: if they are missing, do not keep their promise, or differ from what the job says.
    """
    folder = folder.rstrip("/") or folder
    inside = FileSystems.join(folder, REPORTS_FOLDER)
    where = config.reports.parameters or FileSystems.join(folder, PARAMETERS_FILE)
    try:
        text = read_bytes(where).decode()
        path = inside if FileSystems.exists(inside) else folder
    except (OSError, BeamIOError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{setting} must be a folder with {PARAMETERS_FILE}, got {folder}; give the output folder of encode, "
            "or reports.parameters."
        ) from error
    parameters = collection_from_json(text, where)
    if isinstance(parameters, ReportParameters):
        check_guarantee(parameters.guarantee)
    else:
        check_split(parameters)
    config.check(parameters)
    return ReportSource(folder=folder, path=path, parameters=parameters)


def check_shuffled(source: ReportSource, digest: str) -> None:
    """Refuses reports of mode shuffle that no shuffler of this project wrote, or to which files were added.

    Args:
      source: of the reports.
      digest: of their parameters, as manifests have it.

    Raises:
      ConfigError: if the manifest beside them does not say that they are shuffled, or lists other files.
    """
    if source.parameters.guarantee.mode is not ReportMode.SHUFFLE:
        return
    try:
        manifest = json.loads(read_bytes(FileSystems.join(source.folder, MANIFEST)))
        shuffled = manifest["shuffled"] is True and manifest["parameters_digest"] == digest
        listed = {os.path.basename(name) for name in manifest["files"] if name.startswith(f"{REPORTS_FOLDER}/")}
    except (OSError, BeamIOError, ValueError, LookupError, TypeError) as error:
        raise _unshuffled(source) from error
    if not shuffled:
        raise _unshuffled(source)
    found = {os.path.basename(path) for path in list_files(source.path, {}, "reports.path")}
    if listed != found:
        raise ConfigError(
            f"reports.path must hold the files that its shuffler wrote, got {len(found)} of which "
            f"{len(found & listed)} are among its {len(listed)}; run shuffle on all reports."
        )


def _unshuffled(source: ReportSource) -> ConfigError:
    """The error for reports in the order of their arrival."""
    return ConfigError(
        f"reports.path must hold shuffled reports where reports.mode is shuffle, got {source.folder} without such a "
        "manifest; run dapple shuffle on it, and decode its output."
    )
