"""The files of a finished run besides the released tables."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from dapple_dp.pipelines.kmeans.plan.public_fit import frame_json
from dapple_dp.pipelines.kmeans.report.clipping import norm_source
from dapple_dp.pipelines.kmeans.report.fit_view import cluster_names, counted_words
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.pipelines.run.registry_entry import (
    basic_section,
    implementation_section,
    model_section,
    registry_entry,
    registry_yaml,
    repeated,
    with_curator,
)
from dapple_dp.pipelines.run.versions import version, versions
from dapple_dp.schemas.choices import ClippingRule
from dapple_dp.schemas.core.plan import Mechanism, ReleasePlan
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.kmeans.sections.clipping_config import PRIVATE_NORM_QUANTILE
from dapple_dp.schemas.privacy.meaning import Role, meaning_of
from dapple_dp.schemas.privacy.noise_shares import ZEROED_OUT
from dapple_dp.schemas.privacy.statement import KEY_STREAM, PrivacyStatement, computational
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.schemas.settings.run_manifest import RELEASED_FILES
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.kmeans.lloyd.box import rounds_frame
from dapple_dp.transforms.numerics.kmeans import norms
from dapple_dp.transforms.numerics.kmeans.centers import released_as

if TYPE_CHECKING:
    from dapple_dp.schemas.kmeans.recurring.drift import Drift
    from dapple_dp.schemas.kmeans.recurring.remembered import Remembered

_NOISE = {
    Mechanism.DISCRETE_GAUSSIAN: "discrete Gaussian mechanism",
    Mechanism.DISCRETE_LAPLACE: "discrete Laplace mechanism",
}
NAMES_FILE = "names.parquet"
NOT_SAID = "given, not said"
"""Replaces the place of a key in `run.json`."""


def write_outputs(folder: RunFolder, planned: PlannedFit, result: FitResult) -> None:
    """Stages all files except the manifest."""
    for name in RELEASED_FILES:
        folder.adopt(name)
    folder.write_privacy(stated(planned, result))
    for name, content in further_files(planned, result).items():
        folder.write(name, content)
    _write_report(folder, planned, result)


def stated(planned: PlannedFit, result: FitResult) -> dict[str, Any]:
    """Content of `privacy.json`, without registered types."""
    patterns = planned.config.data.found_patterns
    more: dict[str, Any] = {"algorithm": str(planned.config.algorithm)}
    more |= {} if patterns is None else {"features": list(planned.feature_names)}
    return result.privacy.to_json() | more | {"sizes": _sizes(result.model)}


def further_files(planned: PlannedFit, result: FitResult) -> dict[str, bytes]:
    """Files by name, except the released tables, `privacy.json`, the report and the manifest."""
    found = {"deployment.yaml": registry_yaml(deployment(planned, result))}
    if result.drift is not None:
        from dapple_dp.schemas.kmeans.recurring.drift import DRIFT_FILE

        found[DRIFT_FILE] = _drift_json(result.model, result.drift, result.remembered)
    if result.remembered is not None:
        from dapple_dp.schemas.kmeans.recurring.remembered import MEMORY_FILE

        found[MEMORY_FILE] = table_bytes(result.remembered.memory.table(result.model.cluster_numbers))
    names = cluster_names(planned, result)
    if names is not None:
        found[NAMES_FILE] = table_bytes(names.table(result.model.cluster_numbers))
    return found


def _sizes(model: ClusterModel) -> dict[str, Any]:
    """Unit and noise stddev of the sizes, in the order of `centers.parquet`; null if the noise is unknown."""
    known = [stddev if math.isfinite(stddev) else None for stddev in model.size_stddevs.tolist()]
    return {"counted": model.counted, "noise_stddev": known}


def _write_report(folder: RunFolder, planned: PlannedFit, result: FitResult) -> None:
    from dapple_dp.pipelines.kmeans.report import report_page

    config = planned.config
    left = None
    if config.ledger is not None:
        from dapple_dp.pipelines.ledger.remaining import remaining

        left = remaining(config.ledger, config.data.name)
    stamp = RunStamp.today(folder.run_id, config_digest(config), config.data.name)
    folder.write_report(*report_page.render(planned, result, left, stamp))


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
        "clusters": _clusters_json(result),
        "frame": _final_frame(planned, result.model),
        "previous": _previous_json(planned),
        "config_digest": config_digest(planned.config),
        "settings": _settings(planned.config),
        "ledger": _around(planned.config, run_id),
        "input_fingerprint": result.fingerprint,
        "noisy_cost": None if cost is None else dataclasses.asdict(cost),
        "snapshot": None if snapshot is None else dataclasses.asdict(snapshot),
        "versions": versions(),
    } | _when_given(feature_names=None if named is None else list(named), epoch=planned.statement.epoch)


def _around(config: FitConfig, run_id: str) -> dict[str, Any] | None:
    """Budget left in the ledger before and after a run; None without a ledger."""
    if config.ledger is None:
        return None
    from dapple_dp.pipelines.ledger.remaining import around

    return around(config.ledger, config.data.name, run_id)


def _clusters_json(result: FitResult) -> dict[str, Any]:
    """Cluster numbers in the form of `run.json`, for the run that follows this one."""
    found, size = result.drift, result.model.n_clusters
    return {
        "numbers": list(result.model.cluster_numbers),
        "next_number": size if found is None else found.next_number,
        "released_rows": list(range(size)) if found is None else list(found.rows),
    }


def _previous_json(planned: PlannedFit) -> dict[str, Any] | None:
    """The previous run in the form of `run.json`: identified by its release, not its path."""
    previous = planned.previous
    if previous is None:
        return None
    warm = planned.config.starts_warm
    return {"run_id": previous.run_id, "digest": previous.saved.digest, "warm_start": warm}


def _final_frame(planned: PlannedFit, model: ClusterModel) -> dict[str, Any] | None:
    """Frame of the last rounds in the form of `run.json`; None if the run moved it by its releases."""
    config, frame = planned.config, planned.initial.frame
    if isinstance(config, DPLloydFit):
        return frame_json(rounds_frame(config, len(frame.lattice.center)))
    if config.clipping.norm is ClippingRule.PRIVATE:
        release = released_as(model.releases, Role.NORMS)
        if release is None:
            raise LookupError("a private clipping norm must be released, got no such release; give its spec the role.")
        norm = norms.noisy_quantile(release.decoded, release.stddev, PRIVATE_NORM_QUANTILE)
        frame = Frame(frame.lattice._replace(clipping_norm=norm))
    return frame_json(frame)


def _when_given(**content: Any) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}


def _drift_json(model: ClusterModel, drift: "Drift", remembered: "Remembered | None") -> bytes:
    memory = {} if remembered is None else {"memory": remembered.to_json(model.cluster_numbers)}
    return json.dumps(with_number(drift.to_json() | memory), indent=2, sort_keys=True).encode()


def _settings(config: FitConfig) -> dict[str, Any]:
    """Settings of the job, without the places of its keys."""
    content: dict[str, Any] = config.model_dump(mode="json")
    masked = content["masked"]
    places = ((content, "key_uri"), *((masked, name) for name in ("secret_uri", "state_uri", "identity_uri")))
    for holder, name in places:
        if holder.get(name) is not None:
            holder[name] = NOT_SAID
    return content


def deployment(planned: PlannedFit, result: FitResult) -> dict[str, Any]:
    """The registry entry of a run, ready for YAML."""
    stated = result.privacy
    entry = registry_entry(
        basic=_basic(planned, result.model),
        dp_variant={
            "variant_name": "Approximate DP",
            "data_domain": f"finite sets of {_units(planned)} with finite numbers as features",
            "unprotected_quantities": _unprotected(planned, stated),
        },
        privacy_loss=_privacy_loss(planned, stated),
        deployment_model=_model(planned, stated),
        implementation=_implementation(planned, stated),
    )
    return with_curator(entry, planned.config.deployment, planned.config.justification)


def _basic(planned: PlannedFit, model: ClusterModel) -> dict[str, Any]:
    config = planned.config
    judged = "" if config.quality is None else ", and the noisy k-means cost of the centers"
    description = (
        f"Cluster centers of {len(planned.feature_names)} features by {config.algorithm}, with the "
        f"noisy size of each cluster and every noised aggregate behind them{judged}. A size counts "
        f"{counted_words(planned, model)}; the stddev of its noise is {_noise_words(model)}."
    )
    return basic_section(config.data.name, description)


def _noise_words(model: ClusterModel) -> str:
    """Noise stddev of a size, or the range of them, in words."""
    low, high = float(model.size_stddevs.min()), float(model.size_stddevs.max())
    if not math.isfinite(low + high):
        return "unknown"
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _unprotected(planned: PlannedFit, stated: PrivacyStatement) -> str:
    """Everything declared public."""
    public = ["the settings of the job, names of features among them"]
    if planned.config.server_data is not None:
        public.append("the server data, which the curator declares public")
    if planned.config.data.public_rows is not None:
        public.append(f"the number of {_units(planned)}, which the curator declares public")
    if planned.previous is not None:
        public.append(f"what run {planned.previous.run_id} released")
    if stated.neighboring_relation == ZEROED_OUT:
        public.append("who sends, and when")
    return "; ".join(public)


def _units(planned: PlannedFit) -> str:
    """Plural of the privacy unit."""
    return UNITS[planned.plan.unit].words


def _privacy_loss(planned: PlannedFit, stated: PrivacyStatement) -> dict[str, Any]:
    plan, data = planned.plan, planned.config.data
    moved = "added or removed (add or remove one)"
    if stated.neighboring_relation == ZEROED_OUT:
        moved = "left out of its sender's statistic (zeroed out); who sends is public"
    private = f"unknown: the number of {_units(planned)} is private"
    one_unit = (stated.masked or {}).get("one_unit")
    further = "" if one_unit is None else f" One unit is {one_unit}."
    slack = f"; {plan.discretization_slack:.3g} of delta pays for discrete instead of continuous noise"
    return {
        "privacy_unit": str(plan.unit),
        "privacy_unit_details": f"Data sets are adjacent if one is the other with {UNITS[plan.unit].by_id} {moved}."
        + further,
        "number_of_privacy_units": private if data.public_rows is None else data.public_rows,
        "privacy_parameters": {"epsilon": plan.epsilon, "delta": plan.delta},
        "privacy_parameters_details": f"Epsilon is the composed privacy loss of {_composed(stated)} at this delta"
        f"{slack if plan.discretization_slack else ''}. {computational(KEY_STREAM, stated.masked is not None)}",
    }


def _composed(stated: PrivacyStatement) -> str:
    """Describes the releases that epsilon covers."""
    return "all releases" if stated.epoch is None else f"all releases of {stated.covers}, not of this window alone,"


def _model(planned: PlannedFit, stated: PrivacyStatement) -> dict[str, Any]:
    deployment = planned.config.deployment
    schedule = None if deployment is None else deployment.release_schedule
    follows = "" if planned.previous is None else f" It follows run {planned.previous.run_id}."
    readers = "readers of the published files, who may know everything else."
    who = f"Clients or owners of rows; the operator, who runs the pipeline; {readers}"
    if stated.masked is not None:
        who = f"Senders of masked messages; the aggregator; the party that unmasks; {readers}"
    return model_section(
        stated.trust.capitalize(),
        stated.aggregation,
        trust_assumptions=stated.assumptions,
        actors=who,
        release=f"{_one_of(stated)}, published once.{follows} {repeated(planned.config.ledger, schedule)}",
        source=_read(stated),
    )


def _read(stated: PrivacyStatement) -> str:
    """A sentence on the rows that were read."""
    if stated.epoch is not None or stated.window is not None:
        return "Rows of one window; further windows follow."
    if stated.has_parties:
        return "Rows of several parties; each reads its own in every round."
    return "One snapshot of the data, read by one run."


def _one_of(stated: PrivacyStatement) -> str:
    """Describes the released outputs."""
    covers = stated.covers
    return "One run" if covers is None else f"One window; epsilon and delta are of {covers}"


def _implementation(planned: PlannedFit, stated: PrivacyStatement) -> dict[str, Any]:
    plan, config = planned.plan, planned.config
    releases = [release for part in plan.rounds for release in part.releases]
    mechanisms = " and ".join(sorted({_NOISE[release.spec.mechanism] for release in releases}))
    encoded = (
        "" if planned.contract.encoder is None else "; encodings are written in the job or learned from public data"
    )
    split = config.masked.shares is not None and stated.has_parties
    whose = " that each party has for itself" if split else ""
    chosen = "" if config.justification else " How the settings of the job were chosen is unknown."
    return implementation_section(
        preprocessing=f"Rows are clipped to a norm ({norm_source(config)}){encoded}.{chosen}",
        mechanisms=f"{mechanisms}, exact on integers, in {plural(len(releases), 'release')} of "
        f"{plural(len(plan.rounds), 'round')}.{_shares(planned)} "
        "Sums are integers too, and each unit's bound is checked on these integers, so there is no floating-point "
        f"gap. Noise is drawn from a ChaCha20 key stream under a key of the run{whose}. "
        f"Software: dapple {version('dapple-dp')}, algorithm {config.algorithm}. Access controls: unknown.",
        composition=f"{plural(len(releases), 'release')}, composed by privacy loss distributions (dp_accounting "
        f"{version('dp-accounting')}) before any data are read; in neighboring data sets "
        f"{stated.neighbors}.",
        post_processing=_computed(planned, releases),
        more="privacy.json lists every release with mechanism, sensitivity and noise multiplier.",
    )


def _shares(planned: PlannedFit) -> str:
    """A sentence on noise shares; empty if clients don't split the noise."""
    if planned.config.masked.shares is None:
        return ""
    return (
        " Each sender adds a share of this noise; a sum of shares is close to the stated law, and closeness_epsilon of "
        "privacy.json, a part of epsilon, pays for the difference."
    )


def _computed(planned: PlannedFit, releases: Sequence[ReleasePlan]) -> str:
    """Describes the post-processing: the content of the releases, and the public facts used with them."""
    says = "; ".join(dict.fromkeys(meaning_of(release.spec).tells for release in releases))
    public = ["the settings of the job"]
    public += ["the server data"] if planned.config.server_data is not None else []
    public += [] if planned.previous is None else [f"the release of run {planned.previous.run_id}"]
    return f"All outputs are computed from what the releases say ({says}) and from {', '.join(public)}."
