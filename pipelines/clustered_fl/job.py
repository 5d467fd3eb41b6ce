"""The `clustered_fl` job: trains one classifier per cluster of clients, with DP-SGD at every client."""

import functools
import logging
import math
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.clustered_fl import models_page as report_federation
from dapple_dp.pipelines.clustered_fl.models_page import FederationView, Judged
from dapple_dp.pipelines.clustered_fl.planned import PlannedFederation, plan_federation
from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.jobs.job import Job, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind, Stopped
from dapple_dp.pipelines.ledger.spending import Draw, Reservation
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.pipelines.run.folder import REPORT_FILE, RunFolder
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.registry_entry import (
    basic_section,
    implementation_section,
    model_section,
    registry_entry,
    registry_yaml,
    repeated,
)
from dapple_dp.pipelines.run.round_driver import (
    check_rounds,
    has_begun,
    is_sealed,
    run_chunks,
    run_key,
    sealed_manifest,
)
from dapple_dp.pipelines.run.versions import version
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.private_source import evaluation_source, staged_listing
from dapple_dp.schemas.choices import Adjacency
from dapple_dp.schemas.clustered_fl.config import ChunksConfig, ClusteredFLConfig, load_clustered_fl_config
from dapple_dp.schemas.clustered_fl.plan import (
    RELATIONS,
    TRUST,
    TRUSTED,
    SiloStatement,
    assignments_table,
    models_table,
)
from dapple_dp.schemas.clustered_fl.records import FederatedState
from dapple_dp.schemas.core.plan import TRUSTED_ZONE, PrivacyUnit, Zone
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.privacy.statement import KEY_STREAM, computational
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.transforms.clustered_fl.judge_models import ClientModels, JudgeModels
from dapple_dp.transforms.clustered_fl.rounds import FederatedProtocol, TrainingSetup
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.privacy.key_files import key_digest
from dapple_dp.transforms.tables.read import ListShards
from dapple_dp.transforms.tables.source import Source

_LOGGER = logging.getLogger(__name__)
MODELS_FILE, ASSIGNMENTS_FILE = "models.parquet", "assignments.parquet"
_COUNTS_FILE = "judged.json"
_MECHANISMS = {
    ("first_round_steps", "steps"): "Gaussian mechanism on batches (DP-SGD)",
    ("selections",): "exponential mechanism on counts of correct rows",
    ("choices",): "Gaussian mechanism on the comparison of two models",
}


def train(planned: PlannedFederation, options: PipelineOptions, folder: str, key_uri: str) -> FederatedState:
    """Runs all rounds, or the remaining ones of an interrupted run.

    Args:
      planned: the job.
      options: Beam options.
      folder: private folder of the run, which holds the checkpoints.
      key_uri: where workers read the run key.

    Raises:
      DappleError: if a round fails; finished rounds are kept.
    """
    chunks = planned.config.chunks
    setup = TrainingSetup(
        federation=planned.federation,
        contract=planned.contract,
        key_uri=key_uri,
        cache_bytes=chunks.cache_megabytes << 20,
    )
    protocol = FederatedProtocol(setup, planned.clients.places, planned.events)
    done = run_chunks(protocol, folder, planned.binding(key_uri), options, chunks.rounds)
    return FederatedState.from_arrays(dict(done.arrays))


def judge(
    planned: PlannedFederation, state: FederatedState, options: PipelineOptions, folder: str
) -> tuple[Judged, ...]:
    """Counts the correct rows of each client on the evaluation data; returns () without evaluation data.

    Raises:
      DappleError: if the pass fails.
    """
    evaluation = planned.config.evaluation
    if evaluation is None:
        return ()
    path = join(folder, _COUNTS_FILE)
    models = dict(zip(planned.clients.names, state.assignments.tolist(), strict=True))
    used = ClientModels(planned.federation.shape, state.models, models)
    with staged_listing(evaluation_source(evaluation.path, evaluation.csv), folder) as source:
        add = functools.partial(_build_judgment, planned=planned, used=used, source=source, path=path)
        run_graph(add, options, TRUSTED_ZONE)
    counts = untrusted.read_json(path, list[tuple[str, int, int]], untrusted.staged_refusal(path))
    STORE.delete(path)
    return tuple(Judged(*count) for count in counts)


def _build_judgment(
    root: beam.Pipeline, planned: PlannedFederation, used: ClientModels, source: Source, path: str
) -> None:
    shards = root | "List" >> ListShards(
        source=source, contract=planned.contract.table, others=planned.contract.columns
    )
    _ = shards | "Judge" >> JudgeModels(contract=planned.contract, used=used, path=path)


def execute(config: ClusteredFLConfig, options: PipelineOptions, folder: RunFolder, draws_with: Draw) -> dict[str, Any]:
    """Runs a job and stages its outputs; returns the content of `run.json` without the list of files.

    Raises:
      DappleError: if the run fails.
    """
    key_uri = run_key(folder, config.key_uri)
    draws_with(key_uri)
    _LOGGER.info("checking rows and calibrating the noise of every client")
    planned = plan_federation(config, options, folder.staging)
    statement = planned.statement
    _LOGGER.info(
        "plan: %s, epsilon %.6g, delta %.3g",
        plural(config.training.rounds, "round"),
        statement.epsilon,
        statement.delta,
    )
    state = train(planned, options, folder.staging, key_uri)
    judged = judge(planned, state, options, folder.staging)
    stamp = RunStamp.today(folder.run_id, config_digest(config), config.data.name)
    view = FederationView(config, planned.federation, state, planned.clients.groups, statement, judged, stamp)
    ids = planned.clients.ids()
    folder.write(MODELS_FILE, table_bytes(models_table(state.models, planned.federation.shape)))
    folder.write(ASSIGNMENTS_FILE, table_bytes(assignments_table(ids, state.assignments)))
    folder.write_privacy(statement.to_json())
    folder.write("deployment.yaml", deployment_yaml(planned))
    folder.write_report(*report_federation.render(view))
    return _manifest(planned, state, planned.binding(key_uri).input_fingerprint)


def _manifest(planned: PlannedFederation, state: FederatedState, fingerprint: str) -> dict[str, Any]:
    config, statement = planned.config, planned.statement
    return {
        "algorithm": str(config.algorithm),
        "config_digest": config_digest(config),
        "input_fingerprint": fingerprint,
        "models_digest": state.digest(),
        "separation": None if math.isnan(state.separation) else state.separation,
        "epsilon": statement.epsilon,
        "delta": statement.delta,
        "not_private": [] if config.evaluation is None else [REPORT_FILE],
    }


def _plan(run: Run[ClusteredFLConfig]) -> ClusteredFLConfig:
    """Returns the settings unchanged; the actual plan needs the rows, which are read once the run is charged."""
    _LOGGER.info("run %s: %s", run.options.run_id, run.settings.algorithm)
    n_rounds = min(run.settings.chunks.rounds, run.settings.training.rounds)
    check_rounds(run.options.beam, n_rounds, "chunks.rounds")
    return run.settings


def _reserve(run: Run[ClusteredFLConfig], config: ClusteredFLConfig) -> Reservation | None:
    """Reserves the budget that a client may spend; a resumed run isn't charged again.

    The checkpoint verifies that a resumed run reads the same rows.
    """
    if config.ledger is None:
        return None
    return Reservation(
        ledger=config.ledger,
        charge=_charge(config),
        run=run.options.run_id,
        same=functools.partial(_terms, config, run.folder),
        begun=functools.partial(has_begun, run.folder),
    )


def _charge(config: ClusteredFLConfig) -> Charge:
    """Computes the charge of a run from its settings alone."""
    privacy = config.privacy
    return Charge(
        dataset=str(config.data.name),
        job="clustered_fl",
        unit=PrivacyUnit.RECORD,
        neighboring_relation=RELATIONS[privacy.adjacency],
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        events=({"mechanism": "dp_sgd", "rounds": config.training.rounds},),
        scope=config.data.disjoint_scope,
        reason=config.data.disjoint_partitions,
    )


def _terms(config: ClusteredFLConfig, folder: RunFolder) -> str:
    """Digests of the settings and the key, which a resumed run must share with the run that was charged."""
    if is_sealed(folder) and sealed_manifest(folder).get("config_digest") == config_digest(config):
        # The key of a sealed run may be deleted already, so take the digests from the ledger.
        status = Ledger(str(config.ledger)).status(folder.run_id)
        if status is not None:
            return str(status.reserved["same"])
    bound = config.model_copy(update={"chunks": ChunksConfig()})
    return f"{config_digest(bound)} {key_digest(run_key(folder, config.key_uri))}"


def _work(run: Run[ClusteredFLConfig], config: ClusteredFLConfig) -> dict[str, Any]:
    """Returns the manifest of an interrupted run that had staged everything; runs the job otherwise."""
    if not is_sealed(run.folder):
        return execute(config, run.options.beam, run.folder, run.place.draws_with)
    sealed = sealed_manifest(run.folder)
    if sealed.get("config_digest") != config_digest(config):
        raise ConfigError(
            "This --run_id belongs to an interrupted run, and the config has changed since then; restore the config, "
            "or start over with another --run_id."
        )
    return sealed


def deployment_yaml(planned: PlannedFederation) -> bytes:
    """The registry entry of a run; fields that only the curator knows are "unknown"."""
    return registry_yaml(
        registry_entry(
            basic=_basic(planned),
            dp_variant={
                "variant_name": "Approximate DP",
                "data_domain": "finite sets of labeled rows of every client",
                "unprotected_quantities": "the settings of the job; ids of clients and their declared numbers of rows",
            },
            privacy_loss=_privacy_loss(planned),
            deployment_model=_model(planned.config),
            implementation=_implementation(planned),
        )
    )


def _basic(planned: PlannedFederation) -> dict[str, Any]:
    config, shape = planned.config, planned.federation.shape
    description = (
        f"Classifiers ({shape.kind}) of {shape.n_features} features into {shape.n_classes} classes, "
        f"trained by {planned.federation.n_clients} clients with {config.algorithm}, and which client uses which."
    )
    return basic_section(config.data.name, description)


def _privacy_loss(planned: PlannedFederation) -> dict[str, Any]:
    statement = planned.statement
    change = "replaced" if statement.adjacency is Adjacency.REPLACE_ONE else "added or removed"
    return {
        "privacy_unit": "record",
        "privacy_unit_details": f"Data sets are adjacent if one is the other with one row of one client {change}.",
        "number_of_privacy_units": sum(silo.n_rows for silo in planned.federation.silos),
        "privacy_parameters": {"epsilon": statement.epsilon, "delta": statement.delta},
        "privacy_parameters_details": "Epsilon is the composed privacy loss of all that one client sends, for the "
        f"client that spends most. {computational(KEY_STREAM)}",
    }


def _model(config: ClusteredFLConfig) -> dict[str, Any]:
    return model_section(
        "Local",
        f"{TRUST}: each client is a curator of many rows and makes private what it sends.",
        trust_assumptions=f"{TRUSTED[0].upper()}{TRUSTED[1:]}, and so are its workers and storage.",
        actors="Clients; the server, which sees what clients send; readers of the models.",
        release=f"One run, published once. {repeated(config.ledger)}",
        source="One snapshot of the rows of every client.",
    )


def _implementation(planned: PlannedFederation) -> dict[str, Any]:
    config = planned.config
    return implementation_section(
        preprocessing="Rows are shortened to a public norm and rounded to integers, and the gradient of a row is "
        "clipped to a norm given in the job. How the settings of the job were chosen is unknown.",
        mechanisms=f"{'; '.join(_mechanisms(planned.statement))}. Noise is in double precision, keyed by the run and "
        "drawn from a ChaCha20 key stream. "
        f"Software: dapple {version('dapple-dp')}, algorithm {config.algorithm}. Access controls: unknown.",
        composition=f"All events of a client by {config.privacy.accountant_used} (dp_accounting "
        f"{version('dp-accounting')}), for the adjacency {config.privacy.adjacency}, before training.",
        post_processing="Models and assignments are computed from what clients send, and from public settings.",
        more="privacy.json lists every event of every client.",
    )


def _mechanisms(statement: SiloStatement) -> list[str]:
    """Names the mechanisms of all events."""
    names = {str(event["name"]) for event in statement.events}
    return [words for known, words in _MECHANISMS.items() if names & set(known)]


JOB = Job(
    "clustered_fl",
    load_clustered_fl_config,
    _plan,
    _work,
    lambda run, config, manifest: Outcome({name: manifest[name] for name in ("epsilon", "delta")}, manifest),
    Zone.PUBLIC,
    reserve=_reserve,
    shows=REPORT_FILE,
    place=OutputKind(stopped=Stopped.RESUMED, answered=True).place,
    resolve=with_features,
)
