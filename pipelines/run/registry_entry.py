"""`deployment.yaml`: a run as an entry of the registry of differential privacy deployments (OpenDP, NIST).

The fields are those of the registry's template of 2026. The run fills in what it knows and leaves fields that only the
curator knows "unknown"; once these are filled, the entry meets tier 3.
"""

import copy
from collections.abc import Mapping
from typing import Any

from dapple_dp.schemas.privacy.curator import DeploymentConfig
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.schemas.settings.format_number import FORMAT

UNKNOWN = "unknown"
_SECTIONS = {"intended_use": "basic", "release_schedule": "deployment_model", "approved_by": "administrative"}
"""Section of the entry for each field of `DeploymentConfig`."""


def registry_entry(**sections: dict[str, Any]) -> dict[str, Any]:
    """An entry with the sections of a deployment, in order; the administrative fields are left to the curator."""
    administrative = {
        "evidence_sources": UNKNOWN,
        "status": "Draft",
        "registry_authors": [UNKNOWN],
        "tier": 3,
    }
    return {"url_slug": UNKNOWN, "deployment": sections | {"administrative": administrative}}


def with_curator(entry: dict[str, Any], given: DeploymentConfig | None, reasons: Mapping[str, str]) -> dict[str, Any]:
    """Returns the entry with the curator's texts from the job, word for word.

    Args:
      entry: result of `registry_entry`; not changed.
      given: fields of the entry; None leaves them unknown.
      reasons: reasons for settings, by name.
    """
    filled: dict[str, Any] = copy.deepcopy(entry)
    deployment = filled["deployment"]
    for name, text in ({} if given is None else given.given).items():
        deployment[_SECTIONS[name]][name] = text
    if reasons:
        deployment["implementation"]["justification"] = dict(reasons)
    return filled


def registry_yaml(entry: dict[str, Any]) -> bytes:
    """Formats an entry as a file; the format number is a comment, since the template has no field for it."""
    return f"# format: {FORMAT}\n{yaml_text.render(entry)}".encode()


def basic_section(name: str | None, description: str) -> dict[str, Any]:
    """The section on the publication; mostly left to the curator."""
    return {
        "name": name or UNKNOWN,
        "data_curators": [{"data_curator_name": UNKNOWN, "data_curator_type": UNKNOWN}],
        "description": description,
        "intended_use": UNKNOWN,
        "data_product_type": "Machine learning model",
        "data_product_region": UNKNOWN,
        "data_product_sector": UNKNOWN,
        "publication_date": UNKNOWN,
    }


def model_section(
    name: str, details: str, *, trust_assumptions: str, actors: str, release: str, source: str
) -> dict[str, Any]:
    """The section on trust and releases: one release, of static data, as files.

    Args:
      name: name of the deployment model.
      details: details of the deployment model.
      trust_assumptions: who is trusted, and for what.
      actors: all actors.
      release: details of the release.
      source: details of the data.
    """
    return {
        "model_name": name,
        "model_name_details": details,
        "trust_assumptions": trust_assumptions,
        "actors": actors,
        "release_type": "One release",
        "release_type_details": release,
        "data_source_type": "Static",
        "data_source_type_details": source,
        "access_type": "Non-interactive",
        "access_type_details": "Readers get files and cannot query the data.",
    }


def repeated(ledger: str | None, schedule: str | None = None) -> str:
    """A sentence on further runs on the same data.

    Args:
      ledger: ledger of the job; None without one.
      schedule: release schedule, as written by the curator.
    """
    if schedule is not None:
        return "Whether it is repeated: see release_schedule."
    if ledger is not None:
        return "Runs on the same data are counted together by a ledger."
    return "Whether it is repeated on the same data is unknown."


def implementation_section(
    *, preprocessing: str, mechanisms: str, composition: str, post_processing: str, more: str
) -> dict[str, Any]:
    """The section on mechanisms and composition; `more` names the file with all releases or parameters."""
    return {
        "preprocessing_and_hyperparameter_tuning": preprocessing,
        "mechanisms": mechanisms,
        "composition": composition,
        "post_processing": post_processing,
        "justification": UNKNOWN,
        "utility": UNKNOWN,
        "additional_information": more,
    }
