"""Results of an in-memory fit."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.estimator.job_of_parameters import in_words
from dapple_dp.estimator.memory_rows import made_names
from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.kmeans.fit_in_memory import fit_in_memory
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from dapple_dp.pipelines.kmeans.report import files as outputs
from dapple_dp.pipelines.kmeans.report import report_warnings
from dapple_dp.pipelines.ledger.spending import Remaining, left_words
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.pipelines.run.folder import REPORT_FILE, new_run_id
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.privacy.statement import PrivacyStatement
from dapple_dp.schemas.quiet_imports import import_libraries
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.rounds.memory_rows import Columns, PublicRows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleasedRun:
    """Complete result of a fit: no row, no exact number of rows, no path of the rows.

    Attributes:
      model: released centers, in the coordinates of the fit, and releases.
      centers: shape (k, d), in the units of the columns.
      encoder: converts columns to features before distances are computed, as for columns with separate bounds; None if
        columns are features.
      algorithm: algorithm of the fit.
      names: names of the columns; None if they have none.
      privacy: the guarantee.
      warnings: warnings in the report.
      manifest: content of `run.json`, except for the list of files.
      fit: the public plan and the releases, from which files and report are created when requested; None for a loaded
        run.
      stamp: stamp of the report; None for a loaded run.
      files: all files of a loaded run, by name, except for the manifest.
    """

    model: ClusterModel
    centers: NDArray[np.float64]
    encoder: Encoder | None
    algorithm: str
    names: tuple[str, ...] | None
    privacy: "FitStatement"
    warnings: tuple[str, ...]
    manifest: dict[str, Any]
    fit: tuple[PlannedFit, FitResult] | None = None
    stamp: RunStamp | None = None
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)

    def report(self) -> str:
        """Returns the report of the fit; raises ConfigError if it was loaded from a folder without one."""
        if self.fit is not None:
            from dapple_dp.pipelines.kmeans.report import report_page

            return report_page.render(*self.fit, _left(self.manifest), self.stamp).html
        if REPORT_FILE not in self.files:
            raise ConfigError(f"The folder of this fit has no {REPORT_FILE}, so there is no report to show.")
        return self.files[REPORT_FILE].decode()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FitStatement(PrivacyStatement):
    """The guarantee of a fit, together with facts from its manifest.

    Attributes:
      ledger: description of the charged ledger.
    """

    ledger: str

    @classmethod
    def of(cls, stated: PrivacyStatement, manifest: dict[str, Any]) -> "FitStatement":
        """Combines a guarantee with the manifest of its run."""
        fields = {field.name: getattr(stated, field.name) for field in dataclasses.fields(PrivacyStatement)}
        return cls(**fields, ledger=_charged(manifest))

    @property
    def facts(self) -> dict[str, str]:
        """The six lines of the statement, by name."""
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
        """Returns the content of `privacy.json`, which is just the guarantee."""
        return {name: value for name, value in PrivacyStatement.to_json(self).items() if name != "ledger"}

    def __str__(self) -> str:
        return "\n".join(f"{name:<11}{text}" for name, text in self.facts.items())

    def _repr_html_(self) -> str:
        from dapple_dp.estimator.notebook import table_html

        return table_html("Privacy of this fit", [("", ""), *self.facts.items()])


def _charged(manifest: dict[str, Any]) -> str:
    """Describes the ledger that a run was charged to, and the remaining budget."""
    ledger, data = manifest["settings"]["ledger"], manifest["settings"]["data"]
    if ledger is None:
        return "none: this fit isn't added up with others"
    return f"{data['name']} in {ledger}; left: {left_words(ledger, _left(manifest))}"


def _left(manifest: dict[str, Any]) -> Remaining | None:
    """Returns the budget that was left when the run ended, according to its manifest."""
    around = manifest.get("ledger")
    return None if around is None else Remaining(**around["after"])


def run_in_memory(
    config: FitConfig, rows: Columns, server: PublicRows | None, tell: Callable[[str], None] | None = None
) -> ReleasedRun:
    """Runs a job to its end, and charges its ledger if it has one.

    Args:
      config: settings of the job.
      rows: all private rows.
      server: the public rows; None if there are none.
      tell: called with a line of text after each round; None for no output.

    Raises:
      DappleError: if the run fails; one sentence.
    """
    run_id = new_run_id()
    import_libraries()
    return released_run(*fit_in_memory(config, rows, server, run_id, tell), run_id)


def released_run(planned: PlannedFit, result: FitResult, states: Sequence[Any], run_id: str) -> ReleasedRun:
    """Collects the results of a run.

    Args:
      planned: plan of the job.
      result: releases of the job.
      states: before the first round and after each; if empty, they are computed again from the releases.
      run_id: id of the run.
    """
    manifest = _without_places(outputs.manifest(planned, result, run_id))
    features, encoder = planned.config.data.features, planned.contract.encoder
    return ReleasedRun(
        model=result.model,
        centers=result.model.centers if result.in_units is None else result.in_units,
        encoder=encoder,
        algorithm=str(planned.config.algorithm),
        names=None if isinstance(features, str) or features == made_names(len(features)) else features,
        privacy=FitStatement.of(result.privacy, manifest),
        warnings=tuple(map(in_words, report_warnings.texts(planned, result, states))),
        manifest=manifest,
        fit=(planned, result),
        stamp=RunStamp.today(run_id, manifest["config_digest"], planned.config.data.name),
    )


def _without_places(manifest: dict[str, Any]) -> dict[str, Any]:
    """Removes the paths of the rows from a manifest, since they only existed during the run."""
    for section in ("data", "server_data"):
        holder = manifest["settings"][section]
        if holder:
            holder["path"] = outputs.NOT_SAID
    return manifest
