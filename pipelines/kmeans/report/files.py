"""The files of a finished run besides the released tables."""

import dataclasses
import json
import math
from typing import Any

from pipelines.kmeans.plan import recurrence
from pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from pipelines.kmeans.report import report_page
from pipelines.kmeans.report.fit_view import cluster_names
from pipelines.ledger.remaining import around, remaining
from pipelines.page.stamp import RunStamp
from pipelines.run.folder import RunFolder
from pipelines.run.registry_entry import (
    basic_section,
    implementation_section,
    model_section,
    registry_entry,
    registry_yaml,
    with_curator,
)
from pipelines.run.versions import version, versions
from schemas.choices import ClippingRule, Trust
from schemas.kmeans.fit_config import FitConfig
from schemas.kmeans.model import ClusterModel
from schemas.kmeans.recurring.drift import DRIFT_FILE, Drift
from schemas.kmeans.recurring.remembered import MEMORY_FILE, Remembered
from schemas.privacy.noise_shares import ZEROED_OUT
from schemas.privacy.plan import Mechanism
from schemas.privacy.unit import UNITS
from schemas.settings.digest import config_digest
from schemas.settings.format_number import with_number
from transforms.files.file_bytes import table_bytes
from transforms.files.publish import RELEASED_FILES
from transforms.kmeans.protocols import PROTOCOLS

_NOISE = {
    Mechanism.DISCRETE_GAUSSIAN: "discrete Gaussian mechanism",
    Mechanism.DISCRETE_LAPLACE: "discrete Laplace mechanism",
}
NAMES_FILE = "names.parquet"
NOT_SAID = "given, not said"
"""Stands in `run.json` for where a key is."""


_TRUST = {
    Trust.CENTRAL: (
        "The pipeline is the trusted aggregator: its workers read rows, and only noised sums leave the stage that "
        "adds noise.",
        "The operator of the pipeline, its workers and its storage are trusted; readers of the outputs are not.",
    ),
    Trust.MASKED: (
        "The aggregator adds up masked messages, which are uniform to it, and adds noise; clients hold the masks.",
        "Clients and aggregator follow the protocol and do not pool what they know; who sees releases does not know "
        "all of their noise. With both roles in one job its operator, workers and storage are trusted.",
    ),
}


def write_outputs(folder: RunFolder, planned: PlannedFit, result: FitResult, *, report: bool = True) -> None:
    """Stages everything but the manifest; `report` says whether the page for people is among it."""
    for name in RELEASED_FILES:
        folder.adopt(name)
    patterns = planned.config.data.found_patterns
    more: dict[str, Any] = {"algorithm": str(planned.config.algorithm)}
    more |= {} if patterns is None else {"features": list(planned.feature_names)}
    more["sizes"] = _sizes(result.model)
    folder.write_privacy(result.privacy.to_json() | more)
    folder.write("deployment.yaml", registry_yaml(deployment(planned, result.model)))
    if result.drift is not None:
        folder.write(DRIFT_FILE, _drift_json(result.model, result.drift, result.remembered))
    if result.remembered is not None:
        table = result.remembered.memory.table(result.model.cluster_numbers)
        folder.write(MEMORY_FILE, table_bytes(table))
    names = cluster_names(planned, result)
    if names is not None:
        folder.write(NAMES_FILE, table_bytes(names.table(result.model.cluster_numbers)))
    if report:
        _write_report(folder, planned, result)


def _sizes(model: ClusterModel) -> dict[str, Any]:
    """What a size counts, and the noise stddev of each, in the order of `centers.parquet`; null where nobody knows."""
    known = [stddev if math.isfinite(stddev) else None for stddev in model.size_stddevs.tolist()]
    return {"counted": model.counted, "noise_stddev": known}


def _write_report(folder: RunFolder, planned: PlannedFit, result: FitResult) -> None:
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


def _drift_json(model: ClusterModel, drift: Drift, remembered: Remembered | None) -> bytes:
    memory = {} if remembered is None else {"memory": remembered.to_json(model.cluster_numbers)}
    return json.dumps(with_number(drift.to_json() | memory), indent=2, sort_keys=True).encode()


def _settings(config: FitConfig) -> dict[str, Any]:
    """The job as it was run; where its keys are is nobody's business."""
    content: dict[str, Any] = config.model_dump(mode="json")
    masked = content["masked"]
    places = ((content, "key_uri"), *((masked, name) for name in ("secret_uri", "state_uri", "identity_uri")))
    for holder, name in places:
        if holder.get(name) is not None:
            holder[name] = NOT_SAID
    return content


def deployment(planned: PlannedFit, model: ClusterModel) -> dict[str, Any]:
    """The entry of a run, ready for YAML."""
    entry = registry_entry(
        basic=_basic(planned, model),
        dp_variant={
            "variant_name": "Approximate DP",
            "data_domain": "finite sets of rows with finite numbers as features",
            "unprotected_quantities": _unprotected(planned),
        },
        privacy_loss=_privacy_loss(planned),
        deployment_model=_model(planned),
        implementation=_implementation(planned),
    )
    return with_curator(entry, planned.config.deployment, planned.config.justification)


def _basic(planned: PlannedFit, model: ClusterModel) -> dict[str, Any]:
    config = planned.config
    judged = "" if config.quality is None else ", and the noisy k-means cost of the centers"
    description = (
        f"Cluster centers of {len(planned.feature_names)} features by {config.algorithm}, with the "
        f"noisy size of each cluster and every noised aggregate behind them{judged}. A size counts {_units(planned)} "
        f"{model.counted}; the stddev of its noise is {_noise_words(model)}."
    )
    return basic_section(config.data.name, description)


def _noise_words(model: ClusterModel) -> str:
    """Noise stddev of a size, or the range of them, in words."""
    low, high = float(model.size_stddevs.min()), float(model.size_stddevs.max())
    if not math.isfinite(low + high):
        return "unknown"
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _unprotected(planned: PlannedFit) -> str:
    """Everything public by declaration."""
    public = ["the settings of the job, names of features among them"]
    if planned.config.server_data is not None:
        public.append("the server data, which the curator declares public")
    if planned.config.data.public_rows is not None:
        public.append(f"the number of {_units(planned)}, which the curator declares public")
    return "; ".join(public)


def _units(planned: PlannedFit) -> str:
    """The things that the privacy unit counts."""
    return UNITS[planned.plan.unit].words


def _privacy_loss(planned: PlannedFit) -> dict[str, Any]:
    plan, data = planned.plan, planned.config.data
    moved = "added or removed (add or remove one)"
    if planned.statement.neighboring_relation == ZEROED_OUT:
        moved = "left out of its sender's statistic (zeroed out); who sends is public"
    private = f"unknown: the number of {_units(planned)} is private"
    return {
        "privacy_unit": str(plan.unit),
        "privacy_unit_details": f"Data sets are adjacent if one is the other with {UNITS[plan.unit].by_id} {moved}.",
        "number_of_privacy_units": private if data.public_rows is None else data.public_rows,
        "privacy_parameters": {"epsilon": plan.epsilon, "delta": plan.delta},
        "privacy_parameters_details": f"Epsilon is the composed privacy loss of {_composed(planned)} at this delta; "
        f"{plan.discretization_slack:.3g} of delta pays for discrete instead of continuous noise.",
    }


def _composed(planned: PlannedFit) -> str:
    """Whose privacy losses epsilon is of."""
    covers = planned.statement.covers
    return "all releases" if covers is None else f"all releases of {covers}, not of this window alone,"


def _model(planned: PlannedFit) -> dict[str, Any]:
    trust = planned.statement.trust
    details, assumptions = _TRUST[Trust(trust)]
    follows = "" if planned.previous is None else f" It follows run {planned.previous.run_id}."
    return model_section(
        trust.capitalize(),
        details,
        trust_assumptions=assumptions,
        actors="Clients or owners of rows; the operator, who runs the pipeline; readers of the published files, who "
        "may know everything else.",
        release=f"{_one_of(planned)}, published once.{follows} {_repeated(planned)}",
        source="One snapshot of the data, read by one run.",
    )


def _one_of(planned: PlannedFit) -> str:
    """The released outputs."""
    covers = planned.statement.covers
    return "One run" if covers is None else f"One window; epsilon and delta are of {covers}"


def _repeated(planned: PlannedFit) -> str:
    """Whether there are more runs on the same data."""
    config = planned.config
    if config.deployment is not None and config.deployment.release_schedule is not None:
        return "Whether it is repeated: see release_schedule."
    if config.ledger is not None:
        return "Runs on the same data are counted together by a ledger."
    return "Whether it is repeated on the same data is unknown."


def _implementation(planned: PlannedFit) -> dict[str, Any]:
    plan, config = planned.plan, planned.config
    releases = [each for part in plan.rounds for each in part.releases]
    mechanisms = " and ".join(sorted({_NOISE[each.spec.mechanism] for each in releases}))
    norm = {
        ClippingRule.SERVER_RADIUS: "found from the public server data",
        ClippingRule.PRIVATE: "a noisy quantile, released within the budget",
        ClippingRule.DOMAIN: "that of the public domain to which every coordinate is clipped first",
    }.get(config.clipping.norm, "given in the job")  # type: ignore[arg-type]
    chosen = "" if config.justification else " How the settings of the job were chosen is unknown."
    access = "see access_controls" if config.deployment and config.deployment.access_controls else "unknown"
    return implementation_section(
        preprocessing=f"Rows are clipped to a norm ({norm}); encodings, if any, are "
        f"written in the job or learned from public data.{chosen}",
        mechanisms=f"{mechanisms}, exact on integers, in {len(releases)} releases of {len(plan.rounds)} rounds. "
        "Sums are integers too, and each unit's bound is checked on these integers, so there is no floating-point "
        "gap. Noise is keyed by the run and drawn from a ChaCha20 key stream. "
        f"Software: dapple {version('dapple-dp')}, algorithm {config.algorithm}. Access controls: {access}.",
        composition=f"{len(releases)} releases, composed by privacy loss distributions (dp_accounting "
        f"{version('dp-accounting')}) for adding or removing one unit, before any data are read.",
        post_processing=f"Server steps compute {PROTOCOLS[config.algorithm].computes}; nothing else follows.",
        more="privacy.json lists every release with mechanism, sensitivity and noise multiplier.",
    )
