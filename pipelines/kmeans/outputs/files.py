"""The files of a finished run besides the released tables."""

import dataclasses
import json
import logging
from typing import Any

from pipelines.kmeans.outputs import page as report
from pipelines.kmeans.outputs.deployment import deployment
from pipelines.kmeans.prepared import recurrence
from pipelines.kmeans.prepared.prepared_fit import FitResult, PreparedFit
from pipelines.ledger.store import Ledger, charges_of, limits_of
from pipelines.page.stamp import RunStamp
from pipelines.run.failures import describe_unexpected
from pipelines.run.folder import RunFolder
from pipelines.run.registry_entry import registry_yaml
from pipelines.run.versions import versions
from schemas.errors import DappleError
from schemas.kmeans.drift import DRIFT_FILE
from schemas.settings.digest import config_digest
from transforms.files.publish import RELEASED_FILES
from transforms.privacy import ledger_filter

_LOGGER = logging.getLogger(__name__)


def write_outputs(folder: RunFolder, prepared: PreparedFit, result: FitResult) -> None:
    """Stages everything but the manifest."""
    for name in RELEASED_FILES:
        folder.adopt(name)
    folder.write("privacy.json", _json(result.privacy.to_json()))
    folder.write("deployment.yaml", registry_yaml(deployment(prepared)))
    if result.drift is not None:
        folder.write(DRIFT_FILE, _json(result.drift.to_json()))
    stamp = RunStamp.today(folder.run_id, prepared.config, prepared.config.data.name)
    folder.write("report.html", report.render(prepared, result, _remaining(prepared), stamp).encode())


def _remaining(prepared: PreparedFit) -> report.Remaining | None:
    """What the ledger leaves of the data set's budget, this run counted; None without a ledger, or one that fails."""
    if prepared.config.ledger is None:
        return None
    try:
        entries, name = Ledger(prepared.config.ledger).entries(), str(prepared.config.data.name)
        limit = limits_of(entries)[name]
        spent = ledger_filter.most_spent(limit, charges_of(entries, name))
    except (DappleError, LookupError, OSError) as error:
        _LOGGER.warning("the report does not say what is left of the budget: %s", describe_unexpected(error))
        return None
    epsilon, _ = ledger_filter.spent_epsilon(limit, spent)
    return report.Remaining(max(limit.epsilon - epsilon, 0.0), max(limit.delta - spent.basic_delta, 0.0))


def manifest(prepared: PreparedFit, result: FitResult, run_id: str) -> dict[str, Any]:
    """Content of `run.json`, without the list of files."""
    cost = result.model.noisy_cost
    encoder, snapshot = prepared.contract.encoder, prepared.source.snapshot
    named = prepared.config.data.feature_names
    return {
        "run_id": run_id,
        "algorithm": str(prepared.config.algorithm),
        "features": list(prepared.feature_names),
        "encoding": None if encoder is None else encoder.to_json(),
        "clusters": recurrence.clusters_json(result),
        "frame": recurrence.final_frame(prepared, result.model),
        "previous": recurrence.previous_json(prepared),
        "config_digest": config_digest(prepared.config),
        "input_fingerprint": result.fingerprint,
        "noisy_cost": None if cost is None else dataclasses.asdict(cost),
        "snapshot": None if snapshot is None else snapshot.to_json(),
        "versions": versions(),
    } | ({} if named is None else {"feature_names": list(named)})


def _json(content: dict[str, Any]) -> bytes:
    """Indented JSON with sorted keys."""
    return json.dumps(content, indent=2, sort_keys=True).encode()
