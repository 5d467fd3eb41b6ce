"""The files of a finished run besides the released tables."""

import importlib.metadata
import json
import platform
from typing import Any

import yaml

from pipelines import report
from pipelines.prepared_fit import FitResult, PreparedFit
from pipelines.run_folder import RunFolder
from schemas.config import config_digest
from schemas.plan import PrivacyUnit
from transforms.publish import RELEASED_FILES

_LIBRARIES = ("dapple", "apache-beam", "numpy", "pyarrow", "scikit-learn", "dp-accounting")


def write_outputs(folder: RunFolder, prepared: PreparedFit, result: FitResult) -> None:
    """Stages everything but the manifest."""
    for name in RELEASED_FILES:
        folder.adopt(name)
    folder.write("privacy.json", _json(result.privacy.to_json()))
    folder.write("deployment.yaml", yaml.safe_dump(deployment(prepared), sort_keys=False).encode())
    folder.write("report.html", report.render(prepared, result).encode())


def manifest(prepared: PreparedFit, result: FitResult, run_id: str) -> dict[str, Any]:
    """Content of `run.json`, without the list of files."""
    encoder, snapshot = prepared.contract.encoder, prepared.source.snapshot
    return {
        "run_id": run_id,
        "algorithm": str(prepared.config.algorithm),
        "features": list(prepared.feature_names),
        "encoding": None if encoder is None else encoder.to_json(),
        "config_digest": config_digest(prepared.config),
        "input_fingerprint": result.fingerprint,
        "snapshot": None if snapshot is None else snapshot.to_json(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _LIBRARIES},
    }


def deployment(prepared: PreparedFit) -> dict[str, Any]:
    """Fields of the registry of differential privacy deployments (OpenDP, NIST); "unknown" where nobody said."""
    config, plan = prepared.config, prepared.plan
    by_client = plan.unit is PrivacyUnit.CLIENT
    return {
        "name": config.data.name or "unknown",
        "data_curator": "unknown",
        "intended_use": "unknown",
        "data_product_type": "cluster centers",
        "publication_date": "unknown",
        "dp_flavor": "approximate differential privacy",
        "privacy_loss": {"epsilon": plan.epsilon, "delta": plan.delta},
        "privacy_unit": {
            "unit": str(plan.unit),
            "description": "all rows of one client" if by_client else "one row",
            "neighboring_relation": "add or remove one",
        },
        "model": {"name": str(config.trust), "actors": prepared.statement.actors},
        "mechanisms": sorted({str(each.spec.mechanism) for part in plan.rounds for each in part.releases}),
        "composition": "privacy loss distributions (dp_accounting), add or remove one",
        "accounting": {
            "releases": sum(len(part.releases) for part in plan.rounds),
            "post_processing": "eigenvectors, k-means on public points, shrinkage to public data",
            "discretization_slack_in_delta": plan.discretization_slack,
        },
        "implementation": {"name": "dapple", "version": _version("dapple"), "algorithm": str(config.algorithm)},
        "justification": "unknown",
        "additional_information": "unknown",
    }


def _version(name: str) -> str:
    """Installed version of a distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _json(content: dict[str, Any]) -> bytes:
    """Indented JSON with sorted keys."""
    return json.dumps(content, indent=2, sort_keys=True).encode()
