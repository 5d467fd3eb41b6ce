"""Collected reports: their folder and public parameters, and a check that they were shuffled."""

import dataclasses
import os

from dapple_dp.pipelines.run.folder import MANIFEST, absolute
from dapple_dp.schemas.choices import ReportMode
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.config import CollectedReports
from dapple_dp.schemas.reports.parameters import MOST_PARAMETER_BYTES, ReportParameters, parameters_refusal
from dapple_dp.schemas.reports.rows import PARAMETERS_FILE, REPORTS_FOLDER
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import CollectionManifest, ShuffledManifest
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.numerics.reports.amplification import check_guarantee
from dapple_dp.transforms.tables.source import find_files, list_files


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportSource:
    """Location of reports.

    Attributes:
      folder: folder named in the job.
      path: path of the Parquet files.
      parameters: public parameters of the collection.
    """

    folder: str
    path: str
    parameters: ReportParameters


def find_reports(config: CollectedReports, folder: str, setting: str) -> ReportSource:
    """Finds reports and reads their public parameters.

    Args:
      config: the job.
      folder: folder of the reports.
      setting: name of the folder's setting, for messages.

    Raises:
      ConfigError: if the parameters are missing, don't keep their promise, or differ from the job.
    """
    folder = absolute(folder.rstrip("/") or folder)
    inside = join(folder, REPORTS_FOLDER)
    where = config.reports.parameters or join(folder, PARAMETERS_FILE)
    rule = f"{setting} must be a folder with {PARAMETERS_FILE}"
    remedy = "give the output folder of encode, or reports.parameters"
    content = untrusted.read_bytes(where, Refusal(kind=ConfigError, rule=rule, remedy=remedy), MOST_PARAMETER_BYTES)
    path = inside if STORE.exists(inside) else folder
    parameters = ReportParameters.from_json(content, where)
    with parameters_refusal(where).covers():
        check_guarantee(parameters)
    config.check(parameters)
    return ReportSource(folder=folder, path=path, parameters=parameters)


def any_files(root: str, column: str, date: str) -> bool:
    """Returns whether there is a Parquet file in the folder `column=date` below a folder.

    Raises:
      InputError: if the folder can't be listed.
    """
    return next(find_files(root, {}, "reports.path", one_of=(column, (date,))), None) is not None


def check_shuffled(source: ReportSource, digest: str) -> None:
    """Refuses reports of mode shuffle that weren't written by this project's shuffler, or with added files.

    If reports of mode local have a manifest, its parameters must match theirs.

    Args:
      source: source of the reports.
      digest: digest of their parameters, as in manifests.

    Raises:
      ConfigError: if the manifest doesn't mark them as shuffled, or lists other files.
    """
    refusal, path = _unshuffled(source), join(source.folder, MANIFEST)
    if source.parameters.guarantee.mode is not ReportMode.SHUFFLE:
        if STORE.exists(path):
            _check_collection(path, digest)
        return
    manifest = untrusted.read_json(path, ShuffledManifest, refusal)
    if not manifest.shuffled or manifest.parameters_digest != digest:
        raise refusal.because("reports that no shuffler wrote")
    listed = {os.path.basename(name) for name in manifest.files if name.startswith(f"{REPORTS_FOLDER}/")}
    found = {os.path.basename(path) for path in list_files(source.path, {}, "reports.path")}
    if listed != found:
        raise ConfigError(
            f"reports.path must hold the files that its shuffler wrote, got {len(found)} of which "
            f"{len(found & listed)} are among its {len(listed)}; run shuffle on all reports."
        )


def _check_collection(path: str, digest: str) -> None:
    """Refuses parameters that differ from those in the manifest of the reports."""
    rule = f"reports.path must hold reports of the collection in {path}"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="use the parameters file that encode wrote with them")
    if untrusted.read_json(path, CollectionManifest, refusal).parameters_digest != digest:
        raise refusal.because("parameters of another one")


def _unshuffled(source: ReportSource) -> Refusal:
    """The refusal of reports that weren't shuffled."""
    return Refusal(
        kind=ConfigError,
        rule=f"reports.path must hold shuffled reports where reports.mode is shuffle, and {MANIFEST} in {source.folder}"
        " must say so",
        remedy="run dapple reports shuffle on it, and decode its output",
    )
