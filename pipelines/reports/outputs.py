"""Files of `encode` and `decode` besides reports and centers: guarantee, registry entry, manifest."""

import hashlib
from typing import Any

import pydantic

from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.pipelines.run.registry_entry import (
    basic_section,
    implementation_section,
    model_section,
    registry_entry,
    registry_yaml,
)
from dapple_dp.pipelines.run.versions import version
from dapple_dp.schemas.choices import ReportMode
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.privacy.statement import DEVICES, PrivacyStatement, computational
from dapple_dp.schemas.reports.parameters import ReportParameters
from dapple_dp.schemas.reports.rows import PARAMETERS_FILE, REPORTS_FOLDER
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.transforms.files.file_bytes import WrittenFile
from dapple_dp.transforms.numerics.reports.amplification import Amplification, amplification_of

NEIGHBORING_RELATION = "replace_one"
_PROOFS = {
    Amplification.NONE: "each of which keeps the promise alone",
    Amplification.CLONES: "by the closed form of Feldman, McMillan, Talwar (2022)",
    Amplification.BLANKET: "by a certificate of their privacy blanket (Balle, Bell, Gascon, Nissim 2019)",
    None: "which do not keep the promise",
}


def statement(parameters: ReportParameters) -> PrivacyStatement:
    """The guarantee of a collection."""
    guarantee = parameters.guarantee
    return PrivacyStatement(
        unit=PrivacyUnit.CLIENT,
        neighboring_relation=NEIGHBORING_RELATION,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        events=tuple(_events(parameters)),
        trust=guarantee.mode,
    )


def _events(parameters: ReportParameters) -> list[dict[str, Any]]:
    guarantee = parameters.guarantee
    events: list[dict[str, Any]] = [
        {
            "path": f"reports/{parameters.variant}/{index}",
            "mechanism": "subset_choice",
            "epsilon": epsilon,
            "size": choice.size,
            "near": choice.near,
            "threshold": str(choice.threshold),
        }
        for index, (choice, epsilon) in enumerate(parameters.choices)
    ]
    if guarantee.mode is ReportMode.SHUFFLE:
        event = {"path": "reports/shuffle", "mechanism": "amplification_by_shuffling"}
        event["method"] = str(amplification_of(parameters))
        events.append({**event, "local_epsilon": guarantee.local_epsilon, "min_batch": guarantee.min_batch})
    return events


def privacy_json(parameters: ReportParameters) -> dict[str, Any]:
    """Content of `privacy.json`."""
    content = statement(parameters).to_json()
    content["local_epsilon"] = parameters.guarantee.local_epsilon
    content["unit_details"] = "client/report: the one report of a client"
    return content


def in_many_windows(parameters: ReportParameters) -> dict[str, str]:
    """Notes for a window's `privacy.json` on clients in several windows; its `epsilon` is for one window."""
    if parameters.guarantee.mode is ReportMode.LOCAL:
        return {
            "new_reports": "epsilon of the windows adds up: a client that sends a new report in each of T windows "
            "spends T times epsilon, by sequential composition",
            "one_report_again": "a client that sends one and the same report in several windows, nonce and all, spends "
            "epsilon once",
        }
    return {
        "new_reports": "epsilon and delta of the windows add up: a client that sends a new report, with a new nonce, "
        "in each of T windows spends T times epsilon and T times delta, by sequential composition",
        "one_report_again": "must not be: what comes in two batches is found by comparing them, so that neither hides "
        "the client, and it is left with local_epsilon of each of its different reports",
    }


def spent(parameters: ReportParameters) -> dict[str, float]:
    """Cost of a collection, for a summary."""
    return {"epsilon": parameters.guarantee.epsilon, "delta": parameters.guarantee.delta}


def stage_reports(folder: RunFolder, parameters: ReportParameters, files: list[WrittenFile]) -> None:
    """Stages the files that accompany reports: their listing, the public parameters and the guarantee."""
    for file in files:
        folder.record(f"{REPORTS_FOLDER}/{file.name}", file.digest)
    folder.write(PARAMETERS_FILE, parameters.to_json().encode())
    folder.write_privacy(privacy_json(parameters))


def encode_manifest(parameters: ReportParameters, config: pydantic.BaseModel) -> dict[str, Any]:
    """Content of `run.json` of `encode`, without the list of files."""
    return {
        "job": "encode",
        "features": list(parameters.features),
        "shuffled": True,
        "cost": parameters.cost,
        "parameters_digest": digest(parameters),
        "config_digest": config_digest(config),
    }


def shuffle_manifest(parameters: ReportParameters, config: pydantic.BaseModel, n_rows: int) -> dict[str, Any]:
    """Content of `run.json` of `shuffle`, without the list of files."""
    return encode_manifest(parameters, config) | {"job": "shuffle", "n_rows": n_rows}


def decode_manifest(parameters: ReportParameters, config: pydantic.BaseModel, n_reports: int) -> dict[str, Any]:
    """Content of `run.json` of `decode`, without the list of files; `assign` and `evaluate` read it like a fit's."""
    return {
        "algorithm": f"reports_{parameters.variant}",
        "features": list(parameters.features),
        "encoding": parameters.columns,
        "n_reports": n_reports,
        "parameters_digest": digest(parameters),
        "config_digest": config_digest(config),
    }


def digest(parameters: ReportParameters) -> str:
    """SHA-256 of the public parameters."""
    return hashlib.sha256(parameters.to_json().encode()).hexdigest()


def deployment_yaml(parameters: ReportParameters, n_reports: int) -> bytes:
    """Content of `deployment.yaml`: an entry of the registry of differential privacy deployments."""
    return registry_yaml(
        registry_entry(
            basic=_basic(parameters),
            dp_variant={
                "variant_name": "Pure DP" if parameters.guarantee.delta == 0.0 else "Approximate DP",
                "data_domain": "one vector per client, in a ball of public radius",
                "unprotected_quantities": "the public parameters; the number of reports; that a client sent a report",
            },
            privacy_loss=_privacy_loss(parameters, n_reports),
            deployment_model=_model(parameters),
            implementation=_implementation(parameters),
        )
    )


def _basic(parameters: ReportParameters) -> dict[str, Any]:
    description = (
        f"Centers of {parameters.n_clusters} clusters of {parameters.n_features} features, from one "
        "private report per client."
    )
    return basic_section(None, description)


def _privacy_loss(parameters: ReportParameters, n_reports: int) -> dict[str, Any]:
    guarantee = parameters.guarantee
    details = "Pure epsilon of every single report, for any two inputs."
    if guarantee.mode is ReportMode.SHUFFLE:
        proof = _PROOFS[amplification_of(parameters)]
        details = (
            f"Of a shuffled batch of at least {guarantee.min_batch} reports, {proof}; a single report is "
            f"{guarantee.local_epsilon:.6g}-private for anyone who sees it unshuffled."
        )
    return {
        "privacy_unit": str(PrivacyUnit.CLIENT),
        "privacy_unit_details": "Data sets are adjacent if one client's vector is replaced (replace one).",
        "number_of_privacy_units": n_reports,
        "privacy_parameters": {"epsilon": guarantee.epsilon, "delta": guarantee.delta},
        "privacy_parameters_details": f"{details} {computational(DEVICES)}",
    }


def _model(parameters: ReportParameters) -> dict[str, Any]:
    local = parameters.guarantee.mode is ReportMode.LOCAL
    return model_section(
        "Local" if local else "Shuffle",
        "Each client randomizes what it sends"
        + ("." if local else ", and a shuffler removes order, ids and times before anybody reads the reports."),
        trust_assumptions="Nobody but the client's own device is trusted."
        if local
        else "The shuffler is trusted to forget who sent what, and not to work with readers of the reports.",
        actors="Clients; " + ("" if local else "the shuffler; ") + "the decoder; readers of the centers.",
        release="One report per client and collection. Other collections on the same data: unknown.",
        source="One vector per client.",
    )


def _mechanism(parameters: ReportParameters) -> str:
    return (
        f"a choice among {parameters.choices[-1][0].size} codewords (of one bit, for variant paper) by integer "
        "thresholds on uniform words, so its probabilities are exact rationals"
    )


def _implementation(parameters: ReportParameters) -> dict[str, Any]:
    return implementation_section(
        preprocessing="Vectors are clipped to a public radius. How the settings of the job were chosen is unknown.",
        mechanisms=f"Variant {parameters.variant}: {_mechanism(parameters)}. Software: dapple {version('dapple-dp')}. "
        "Access controls: unknown.",
        composition="Privacy losses of a report's choices add up.",
        post_processing="Everything after the reports is computed from them and from the public parameters.",
        more="parameters.json holds everything that encoders and decoder agree on.",
    )
