"""The `profile` job: a differentially private description of each cluster of a released model, by PipelineDP."""

import contextlib
import dataclasses
import functools
import logging
from typing import Any, NamedTuple

import apache_beam as beam

from dapple_dp.pipelines.jobs.job import Job, Outcome, Run, charging
from dapple_dp.pipelines.jobs.place import OutputKind
from dapple_dp.pipelines.kmeans.plan.fingerprint import source_fingerprint
from dapple_dp.pipelines.ledger.remaining import remaining
from dapple_dp.pipelines.ledger.spending import charge_of
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.pipelines.profile import profile_page
from dapple_dp.pipelines.run.folder import REPORT_FILE
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import shuffles_in_memory
from dapple_dp.pipelines.run.registry_entry import (
    basic_section,
    implementation_section,
    model_section,
    registry_entry,
    registry_yaml,
    repeated,
)
from dapple_dp.pipelines.run.run_keys import own_key
from dapple_dp.pipelines.run.versions import version
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.private_source import private_source, staged_listing
from dapple_dp.schemas.core.plan import Promise, Zone
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.privacy.statement import PIPELINE_DP, computational
from dapple_dp.schemas.profile.config import ProfileConfig, load_profile_config
from dapple_dp.schemas.profile.plan import PROFILE_FILE, ProfileLaw, ProfilePlan, ProfileResult
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.tables.prepared_layout import PreparedManifest
from dapple_dp.transforms.files import row_spill, untrusted
from dapple_dp.transforms.files.saved_model import SavedModel, load_model
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.files.untrusted import TableForm
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.profile.accounting import calibrate, statement
from dapple_dp.transforms.profile.measure_clusters import MeasureClusters
from dapple_dp.transforms.profile.pipeline_dp_noise import AddPipelineDPNoise
from dapple_dp.transforms.profile.publish import PublishProfile
from dapple_dp.transforms.profile.rows import ProfileParams, check_columns
from dapple_dp.transforms.tables import hive
from dapple_dp.transforms.tables.on_launcher import first_schema
from dapple_dp.transforms.tables.read import CheckRows, ListShards
from dapple_dp.transforms.tables.source import Source

_NOISE = {
    ProfileLaw.GAUSSIAN: "Gaussian mechanism",
    ProfileLaw.LAPLACE: "Laplace mechanism",
    ProfileLaw.GAUSSIAN_THRESHOLD: "Gaussian thresholding, which names only values that enough units share",
}
_LOGGER = logging.getLogger(__name__)


class PlannedProfile(NamedTuple):
    """A job that is ready to run.

    Attributes:
      config: settings of the job.
      source: files of the rows.
      params: columns and measurements, with the calibrated plan.
      numbers: numbers of the model's clusters, in its order; empty for 0, 1, ...
    """

    config: ProfileConfig
    source: Source
    params: ProfileParams
    numbers: tuple[int, ...] = ()


def plan_profile(config: ProfileConfig, model: SavedModel) -> PlannedProfile:
    """Selects the snapshot of the table and calibrates all mechanisms; reads no private rows.

    Raises:
      ConfigError: if the settings don't fit the model or the data set, or the budget is out of range.
      InputError: if there are no files, or the columns of the first one can't be described.
    """
    contract = model.contract(config.data, by_client=config.by_client)
    params = ProfileParams(
        model=NearestCenters.of(model.centers), contract=contract, plan=calibrate(config, len(model.centers))
    )
    source = private_source(config)
    if source.listed is not None:
        _check_whole_rows(config, source.listed.files.manifest)
    _check_first_file(source, params)
    return PlannedProfile(config, source, params, model.numbers)


def _check_whole_rows(config: ProfileConfig, manifest: PreparedManifest | None) -> None:
    """Refuses a prepared folder in which a row of the input affects two rows."""
    if manifest is not None and manifest.max_rows_per_client is not None and not config.by_client:
        raise ConfigError(
            f"data.path must hold all rows for privacy.unit record, got a folder prepared with "
            f"max_rows_per_client {manifest.max_rows_per_client}; give the original data or use unit client."
        )


def _check_first_file(source: Source, params: ProfileParams) -> None:
    """Refuses columns that can't be described in the first file; other files are checked when they are read."""
    path, schema = first_schema(source, params.others)
    for name in params.others:
        schema = hive.with_field(schema, path, name)
    check_columns(schema, path, params.plan)


def build(root: beam.Pipeline, planned: PlannedProfile, key_uri: str, folder: str, *, spill: bool = False) -> None:
    """Adds the job to an empty pipeline.

    Args:
      root: an empty pipeline.
      planned: the job.
      key_uri: place where workers read the key that ranks and samples rows.
      folder: private folder that receives `profile.parquet`.
      spill: whether rows are grouped by client through files in the folder.
    """
    params = planned.params
    shards = root | "List" >> ListShards(source=planned.source, contract=params.contract, others=tuple(params.others))
    _ = shards | "CheckRows" >> CheckRows()
    measured = shards | "MeasureClusters" >> MeasureClusters(
        params=params, key_uri=key_uri, spill_folder=folder if spill else None
    )
    noised = measured | "PipelineDPNoise" >> AddPipelineDPNoise(plan=params.plan)
    _ = noised | "Publish" >> PublishProfile(plan=params.plan, folder=folder, numbers=planned.numbers)


def _charge(found: tuple[PlannedProfile, SavedModel]) -> Charge:
    planned, _ = found
    return charge_of(statement(planned.params.plan), planned.config.data, "profile")


def _work(run: Run[ProfileConfig], found: tuple[PlannedProfile, SavedModel]) -> ProfileResult:
    """Describes the clusters with a new key, which is deleted afterwards."""
    planned, _ = found
    options, folder = run.options.beam, run.folder.staging
    spill = planned.config.by_client and shuffles_in_memory(options)
    with contextlib.ExitStack() as stack:
        key_uri = stack.enter_context(own_key(folder))
        run.place.draws_with(key_uri)
        if spill:
            stack.callback(row_spill.remove, folder)
        ready = planned._replace(source=stack.enter_context(staged_listing(planned.source, folder)))
        add = functools.partial(build, planned=ready, key_uri=key_uri, folder=folder, spill=spill)
        run_graph(add, options, Promise(zone=Zone.PUBLIC, declared=(planned.params.plan,)))
        digest = config_digest(planned.config)
        fingerprint = source_fingerprint(planned.source, planned.params.contract, digest, key_uri)
    path = join(folder, PROFILE_FILE)
    if not STORE.exists(path):
        raise ConfigError(
            f"--output must be a folder that workers and launcher share, got {folder}; choose another place."
        )
    table = untrusted.read_table(path, untrusted.staged_refusal(path), TableForm.by_size())
    return ProfileResult(table, statement(planned.params.plan), fingerprint)


def _plan(run: Run[ProfileConfig]) -> tuple[PlannedProfile, SavedModel]:
    """Returns the calibrated job, and the model that it describes."""
    model = load_model(run.settings.model)
    _LOGGER.info("run %s: calibrating noise", run.options.run_id)
    planned = plan_profile(run.settings, model)
    plan = planned.params.plan
    _LOGGER.info("plan: %d mechanisms, epsilon %.6g, delta %.3g", len(plan.events), plan.epsilon, plan.delta)
    return planned, model


def _write(run: Run[ProfileConfig], found: tuple[PlannedProfile, SavedModel], result: ProfileResult) -> Outcome:
    run.folder.adopt(PROFILE_FILE)
    run.folder.write_privacy(result.privacy.to_json())
    planned, model = found
    config = planned.config
    run.folder.write("deployment.yaml", deployment_yaml(config, planned.params.plan))
    view = profile_page.ProfileView(
        config=config,
        plan=planned.params.plan,
        table=result.profile,
        stamp=RunStamp.today(run.options.run_id, config_digest(config), config.data.name),
        left=remaining(config.ledger, config.data.name),
    )
    run.folder.write_report(*profile_page.render(view))
    spent = {"epsilon": result.privacy.epsilon, "delta": result.privacy.delta}
    return Outcome(spent, _manifest(planned, model, result.fingerprint))


def _manifest(planned: PlannedProfile, model: SavedModel, fingerprint: str) -> dict[str, Any]:
    snapshot, plan = planned.source.snapshot, planned.params.plan
    return {
        "job": "profile",
        "model": {"digest": model.digest},
        "sampling_rate": plan.rate,
        "max_rows_per_client": plan.unit_rows if plan.by_client else None,
        "config_digest": config_digest(planned.config),
        "input_fingerprint": fingerprint,
        "snapshot": None if snapshot is None else dataclasses.asdict(snapshot),
    }


def deployment_yaml(config: ProfileConfig, plan: ProfilePlan) -> bytes:
    """The registry entry of a run."""
    numbers = ", ".join(sorted({event.path.split("/")[1] for event in plan.events}))
    description = (
        f"Noisy {numbers} of {len(plan.numeric) + len(plan.categorical)} columns in each of the {plan.n_clusters} "
        "clusters of a released model."
    )
    return registry_yaml(
        registry_entry(
            basic=basic_section(config.data.name, description),
            dp_variant={
                "variant_name": "Approximate DP",
                "data_domain": "finite sets of rows with numbers inside public bounds, and values",
                "unprotected_quantities": "the settings of the job, bounds and public vocabularies among them; the "
                "model that is described",
            },
            privacy_loss=_privacy_loss(plan),
            deployment_model=_model(config),
            implementation=_implementation(plan),
        )
    )


def _privacy_loss(plan: ProfilePlan) -> dict[str, object]:
    counted = f", of which {plan.unit_rows} count," if plan.by_client else ""
    by_threshold = any(event.law is ProfileLaw.GAUSSIAN_THRESHOLD for event in plan.events)
    named = "; the odds of naming a value of one unit are part of delta" if by_threshold else ""
    return {
        "privacy_unit": str(plan.unit),
        "privacy_unit_details": f"Data sets are adjacent if one is the other with {UNITS[plan.unit].by_id}{counted} "
        "added or removed (add or remove one).",
        "number_of_privacy_units": f"unknown: the number of {UNITS[plan.unit].words} is private",
        "privacy_parameters": {"epsilon": plan.epsilon, "delta": plan.delta},
        "privacy_parameters_details": f"Epsilon is the composed privacy loss of all mechanisms at this delta{named}. "
        f"{profile_page.OF_MODEL} {computational(PIPELINE_DP)}",
    }


def _model(config: ProfileConfig) -> dict[str, object]:
    return model_section(
        "Central",
        "The pipeline is the trusted aggregator: its workers read rows, and PipelineDP adds noise before anything "
        "leaves.",
        trust_assumptions="The operator of the pipeline, its workers and its storage are trusted; readers of the "
        "outputs are not.",
        actors="Clients or owners of rows; the operator, who runs the pipeline; readers of the published files, who "
        "may know everything else.",
        release=f"One run, published once. {repeated(config.ledger)}",
        source="One snapshot of the data, read by one run.",
    )


def _implementation(plan: ProfilePlan) -> dict[str, object]:
    laws = sorted({_NOISE[event.law] for event in plan.events})
    rows = f", and each client's rows to {plan.unit_rows}" if plan.by_client else ""
    sampled = "; sampling is not counted on" if plan.rate < 1.0 else ""
    means = "A mean is the noisy sum over the noisy count, inside its bounds. " if plan.numeric else ""
    return implementation_section(
        preprocessing=f"Numbers are cut to public bounds{rows}. How the settings of the job were chosen is unknown.",
        mechanisms=f"{'; '.join(laws)}; {len(plan.events)} in all, by PipelineDP {version('pipeline-dp')} on integers: "
        f"sums and counts are exact. Software: dapple {version('dapple-dp')}, job profile. Access controls: unknown.",
        composition=f"{len(plan.events)} mechanisms, composed by privacy loss distributions for adding or removing one "
        f"unit, before any data are read{sampled}.",
        post_processing=f"{means}All outputs are computed from the noised numbers and public data.",
        more="privacy.json lists every mechanism with sensitivity and noise multiplier.",
    )


JOB = Job(
    "profile",
    load_profile_config,
    _plan,
    _work,
    _write,
    Zone.PUBLIC,
    reserve=charging(_charge),
    place=OutputKind(answered=True).place,
    shows=REPORT_FILE,
    resolve=with_features,
)
