"""The files of a finished run besides the released tables."""

import dataclasses
import json
from typing import Any

from pipelines.kmeans.plan import recurrence
from pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from pipelines.kmeans.report import report_page
from pipelines.kmeans.report.deployment import deployment
from pipelines.ledger.remaining import around, remaining
from pipelines.page.stamp import RunStamp
from pipelines.run.folder import RunFolder
from pipelines.run.registry_entry import registry_yaml
from pipelines.run.versions import versions
from schemas.kmeans.fit_config import FitConfig
from schemas.kmeans.model import ClusterModel
from schemas.kmeans.recurring.drift import DRIFT_FILE, Drift
from schemas.kmeans.recurring.remembered import MEMORY_FILE, Remembered
from schemas.settings.digest import config_digest
from transforms.files.octets import table_bytes
from transforms.files.publish import RELEASED_FILES

NOT_SAID = "given, not said"
"""Stands in `run.json` for where a key lies."""


def write_outputs(folder: RunFolder, planned: PlannedFit, result: FitResult, *, report: bool = True) -> None:
    """Stages everything but the manifest; `report` says whether the page for people is among it."""
    for name in RELEASED_FILES:
        folder.adopt(name)
    patterns = planned.config.data.found_patterns
    more: dict[str, Any] = {"algorithm": str(planned.config.algorithm)}
    more |= {} if patterns is None else {"features": list(planned.feature_names)}
    folder.write_privacy(result.privacy.to_json() | more)
    folder.write("deployment.yaml", registry_yaml(deployment(planned)))
    if result.drift is not None:
        folder.write(DRIFT_FILE, _json(_drift_json(result.model, result.drift, result.remembered)))
    if result.remembered is not None:
        table = result.remembered.memory.table(result.model.cluster_numbers)
        folder.write(MEMORY_FILE, table_bytes(table))
    if report:
        _write_report(folder, planned, result)


def _write_report(folder: RunFolder, planned: PlannedFit, result: FitResult) -> None:
    """Stages the page."""
    config = planned.config
    left = remaining(config.ledger, config.data.name)
    stamp = RunStamp.today(folder.run_id, config_digest(config), config.data.name)
    folder.write("report.html", report_page.render(planned, result, left, stamp).encode())


def manifest(planned: PlannedFit, result: FitResult, run_id: str) -> dict[str, Any]:
    """Content of `run.json`, without the list of files."""
    cost = result.model.noisy_cost
    encoder, snapshot = planned.contract.encoder, planned.source.snapshot
    named = planned.config.data.feature_names
    return {
        "run_id": run_id,
        "algorithm": str(planned.config.algorithm),
        "features": list(planned.feature_names),
        "encoding": None if encoder is None else encoder.to_json(),
        "clusters": recurrence.clusters_json(result),
        "frame": recurrence.final_frame(planned, result.model),
        "previous": recurrence.previous_json(planned),
        "config_digest": config_digest(planned.config),
        "settings": _settings(planned.config),
        "ledger": around(planned.config.ledger, planned.config.data.name, run_id),
        "input_fingerprint": result.fingerprint,
        "noisy_cost": None if cost is None else dataclasses.asdict(cost),
        "snapshot": None if snapshot is None else dataclasses.asdict(snapshot),
        "versions": versions(),
    } | _when_given(feature_names=None if named is None else list(named), epoch=planned.statement.epoch)


def _when_given(**content: Any) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}


def _drift_json(model: ClusterModel, drift: Drift, remembered: Remembered | None) -> dict[str, Any]:
    """Content of `drift.json`."""
    memory = {} if remembered is None else {"memory": remembered.to_json(model.cluster_numbers)}
    return drift.to_json() | memory


def _settings(config: FitConfig) -> dict[str, Any]:
    """The job as it was run; where its keys lie is nobody's business."""
    content: dict[str, Any] = config.model_dump(mode="json")
    masked = content["masked"]
    places = ((content, "key_uri"), *((masked, name) for name in ("secret_uri", "state_uri", "identity_uri")))
    for holder, name in places:
        if holder.get(name) is not None:
            holder[name] = NOT_SAID
    return content


def _json(content: dict[str, Any]) -> bytes:
    """Indented JSON with sorted keys."""
    return json.dumps(content, indent=2, sort_keys=True).encode()
