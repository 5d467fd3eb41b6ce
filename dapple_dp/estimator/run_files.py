"""What a fit in memory releases, and the folder of it that other jobs read."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.estimator.job_of_parameters import in_words
from dapple_dp.estimator.memory_rows import POINT, made_names
from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.kmeans.fit_in_memory import fit_in_memory
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun, load_previous
from dapple_dp.pipelines.kmeans.report import files as outputs
from dapple_dp.pipelines.kmeans.report import report_page, report_warnings
from dapple_dp.pipelines.ledger.spending import Remaining, left_words
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.pipelines.run.folder import MANIFEST, PRIVACY_FILE, RunFolder, new_run_id
from dapple_dp.schemas.core.unit import UNITS
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
      page: makes the report, of what the run itself knew; None of a run that was read.
    """

    model: ClusterModel
    centers: NDArray[np.float64]
    encoder: Encoder | None
    algorithm: str
    names: tuple[str, ...] | None
    privacy: "FitStatement"
    warnings: tuple[str, ...]
    files: dict[str, bytes]
    page: Callable[[], str] | None = None

    def report(self) -> str:
        """Returns the page of the fit; raises ConfigError if it was read from a folder without one."""
        if self.page is not None:
            return self.page()
        if outputs.REPORT_FILE not in self.files:
            raise ConfigError(f"The folder of this fit has no {outputs.REPORT_FILE}, so there is no report to show.")
        return self.files[outputs.REPORT_FILE].decode()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FitStatement(PrivacyStatement):
    """The guarantee of a fit, with what its record says around it.

    Attributes:
      ledger: that was charged, in words.
    """

    ledger: str

    @classmethod
    def of(cls, stated: PrivacyStatement, manifest: dict[str, Any]) -> "FitStatement":
        """Joins a guarantee with the manifest of its run."""
        fields = {field.name: getattr(stated, field.name) for field in dataclasses.fields(PrivacyStatement)}
        return cls(**fields, ledger=_charged(manifest))

    @property
    def facts(self) -> dict[str, str]:
        """The six lines by name."""
        laws = sorted({event["mechanism"].removeprefix("discrete_").capitalize() for event in self.events})
        covers = f", {self.covers}" if self.covers else ""
        return {
            "epsilon": f"{self.epsilon:.6g}, delta {self.delta:.3g}{covers}",
            "unit": f"{self.unit}: protects {UNITS[self.unit].protects}",
            "neighbors": self.neighbors,
            "noise": f"discrete {' and '.join(laws)} in {plural(len(self.events), 'release')}; {self.actors}",
            "ledger": self.ledger,
            "checked": self.ran or "the graph that Beam ran, before any row was read",
        }

    def to_json(self) -> dict[str, Any]:
        """Content of `privacy.json`, which holds the guarantee alone."""
        return {name: value for name, value in PrivacyStatement.to_json(self).items() if name != "ledger"}

    def __str__(self) -> str:
        return "\n".join(f"{name:<11}{text}" for name, text in self.facts.items())

    def _repr_html_(self) -> str:
        from dapple_dp.estimator.notebook import table_html

        return table_html("Privacy of this fit", [("", ""), *self.facts.items()])


def _charged(manifest: dict[str, Any]) -> str:
    """The ledger that a run was charged to, and what it left."""
    ledger, data = manifest["settings"]["ledger"], manifest["settings"]["data"]
    if ledger is None:
        return "none: nothing adds this fit to others"
    return f"{data['name']} in {ledger}; left: {left_words(ledger, _left(manifest))}"


def _left(manifest: dict[str, Any]) -> Remaining | None:
    """The budget that was left when the run ended, as the manifest says."""
    around = manifest.get("ledger")
    return None if around is None else Remaining(**around["after"])


def run_in_memory(
    config: FitConfig, rows: Columns, server: PublicRows | None, tell: Callable[[str], None] | None = None
) -> ReleasedRun:
    """Runs a job to its end, charged to its ledger if it has one.

    Args:
      config: the job.
      rows: all private rows.
      server: the public ones; None without.
      tell: takes a line after each round; None to say nothing.

    Raises:
      DappleError: what stopped it, in one sentence.
    """
    run_id = new_run_id()
    planned, result = fit_in_memory(config, rows, server, run_id, tell)
    return _released(planned, result, _without_places(outputs.manifest(planned, result, run_id)))


def _files(planned: PlannedFit, result: FitResult, manifest: dict[str, Any]) -> dict[str, bytes]:
    """The output folder of a fit, but for its report."""
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


def _released(planned: PlannedFit, result: FitResult, manifest: dict[str, Any]) -> ReleasedRun:
    """What a job in memory has found."""
    features, encoder = planned.config.data.features, planned.contract.encoder
    stamp = RunStamp.today(manifest["run_id"], manifest["config_digest"], planned.config.data.name)
    return ReleasedRun(
        model=result.model,
        centers=result.model.centers if result.in_units is None else result.in_units,
        encoder=encoder,
        algorithm=str(planned.config.algorithm),
        names=None if isinstance(features, str) or features == made_names(len(features)) else features,
        privacy=FitStatement.of(result.privacy, manifest),
        warnings=tuple(map(in_words, report_warnings.texts(planned, result))),
        files=_files(planned, result, manifest),
        page=functools.partial(report_page.render, planned, result, _left(manifest), stamp),
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
        if run.page is not None:
            target.write(outputs.REPORT_FILE, run.page().encode())
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
    digests = json_schema.parse_as(raw, RunManifest, refusal).files
    files = {name: _raw(previous.folder, name) for name in digests}
    changed = next((name for name in files if hashlib.sha256(files[name]).hexdigest() != digests[name]), None)
    if changed is not None:
        raise ConfigError(f"{changed} in {previous.folder} must be the file that fit wrote, got another; fit again.")
    files[MANIFEST] = raw
    target = Refusal(kind=ConfigError, rule=f"{PRIVACY_FILE} must be that of a fit", remedy="fit again")
    with target.covers():
        content = _content(files, PRIVACY_FILE)
        stated, algorithm = statement_from_json(content), str(content["algorithm"])
    with refusal.covers():
        privacy = FitStatement.of(stated, _content(files, MANIFEST))
    return _read(previous, files, privacy, algorithm)


def _read(previous: PreviousRun, files: dict[str, bytes], privacy: FitStatement, algorithm: str) -> ReleasedRun:
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
