"""The `clustered_fl` job: a classifier per cluster of clients, every client under DP-SGD of its own."""

import contextlib
import functools
import json
import logging
import math
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import report_federation
from pipelines.federation_deployment import deployment_yaml
from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text
from pipelines.prepared_federation import PreparedFederation, prepare
from pipelines.report_federation import FederationView, Judged
from pipelines.round_driver import finish, has_begun, is_sealed, key_digest, resumable, run_chunks, run_key
from pipelines.run_folder import MANIFEST, RunFolder
from pipelines.spending import spending
from pipelines.versions import versions
from schemas.clustered_fl_config import ChunksConfig, ClusteredFLConfig, load_clustered_fl_config
from schemas.config import config_digest
from schemas.errors import ConfigError
from schemas.federated import FederatedState
from schemas.federated_output import RELATIONS, assignments_table, models_table
from schemas.flow import TRUSTED_ZONE
from schemas.ledger_charge import Charge
from schemas.plan import PrivacyUnit
from transforms.clustered_fl import FederatedProtocol, TrainingSetup
from transforms.judge_models import ClientModels, JudgeModels
from transforms.publish import read_bytes, table_bytes
from transforms.read import ListShards
from transforms.source import Source

_LOGGER = logging.getLogger(__name__)
MODELS_FILE, ASSIGNMENTS_FILE, REPORT_FILE = "models.parquet", "assignments.parquet", "report.html"
_COUNTS_FILE = "judged.json"


def train(prepared: PreparedFederation, options: PipelineOptions, folder: str, key_uri: str) -> FederatedState:
    """Runs all rounds, or those that an interrupted run has left.

    Args:
      prepared: the job.
      options: for Beam.
      folder: private, of the run; checkpoints lie there.
      key_uri: where workers find the run key.

    Raises:
      DappleError: what stopped the run; rounds that are done stay.
    """
    chunks = prepared.config.chunks
    setup = TrainingSetup(
        federation=prepared.federation,
        contract=prepared.contract,
        key_uri=key_uri,
        cache_bytes=chunks.cache_megabytes << 20,
    )
    protocol = FederatedProtocol(setup, prepared.clients.places, prepared.events)
    arrays = run_chunks(protocol, folder, prepared.binding(key_uri), options, chunks.rounds)
    return FederatedState.from_arrays(dict(arrays))


def judge(
    prepared: PreparedFederation, state: FederatedState, options: PipelineOptions, folder: str
) -> tuple[Judged, ...]:
    """Exact counts of correct rows per client on the evaluation data; nothing without these.

    Raises:
      DappleError: what stopped the pass.
    """
    evaluation = prepared.config.evaluation
    if evaluation is None:
        return ()
    path = FileSystems.join(folder, _COUNTS_FILE)
    models = dict(zip(prepared.clients.names, state.assignments.tolist(), strict=True))
    used = ClientModels(prepared.federation.shape, state.models, models)
    add = functools.partial(
        _build_judgment, prepared=prepared, used=used, source=Source(path=evaluation.path), path=path
    )
    run_graph(add, options, TRUSTED_ZONE)
    counts = json.loads(read_bytes(path))
    FileSystems.delete([path])
    return tuple(Judged(*each) for each in counts)


def _build_judgment(
    root: beam.Pipeline, prepared: PreparedFederation, used: ClientModels, source: Source, path: str
) -> None:
    """Adds the pass over the evaluation rows to a pipeline."""
    shards = root | "List" >> ListShards(source=source, contract=prepared.contract.table)
    _ = shards | "Judge" >> JudgeModels(contract=prepared.contract, used=used, path=path)


def execute(config: ClusteredFLConfig, options: PipelineOptions, folder: RunFolder) -> dict[str, Any]:
    """Runs a job and stages its outputs; returns the content of `run.json` without the list of files.

    Raises:
      DappleError: what stopped the run.
    """
    key_uri = run_key(folder, config.key_uri)
    _LOGGER.info("checking rows and calibrating the noise of every client")
    prepared = prepare(config, options, folder.staging)
    statement = prepared.statement
    _LOGGER.info(
        "plan: %d rounds, epsilon %.6g, delta %.3g", config.training.rounds, statement.epsilon, statement.delta
    )
    state = train(prepared, options, folder.staging, key_uri)
    judged = judge(prepared, state, options, folder.staging)
    view = FederationView(config, prepared.federation, state, prepared.clients.groups, statement, judged)
    ids = prepared.clients.ids()
    folder.write(MODELS_FILE, table_bytes(models_table(state.models, prepared.federation.shape)))
    folder.write(ASSIGNMENTS_FILE, table_bytes(assignments_table(ids, state.assignments)))
    folder.write("privacy.json", json.dumps(statement.to_json(), indent=2, sort_keys=True).encode())
    folder.write("deployment.yaml", deployment_yaml(prepared))
    folder.write(REPORT_FILE, report_federation.render(view).encode())
    return _manifest(prepared, state, prepared.binding(key_uri).input_fingerprint)


def _manifest(prepared: PreparedFederation, state: FederatedState, fingerprint: str) -> dict[str, Any]:
    """Content of `run.json`, without run id and list of files."""
    config, statement = prepared.config, prepared.statement
    return {
        "algorithm": str(config.algorithm),
        "config_digest": config_digest(config),
        "input_fingerprint": fingerprint,
        "models_digest": state.digest(),
        "separation": None if math.isnan(state.separation) else state.separation,
        "epsilon": statement.epsilon,
        "delta": statement.delta,
        "not_private": [] if config.evaluation is None else [REPORT_FILE],
        "versions": versions(),
    }


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: trains, publishes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been published then; rounds that are done stay for the same --run_id.
    """
    options = parse_job("clustered_fl", argv)
    config = load_clustered_fl_config(read_text(options.config))
    folder = RunFolder(options.output, options.run_id)
    folder.check()
    _LOGGER.info("run %s: %s", options.run_id, config.algorithm)
    with resumable(folder), _spending(config, folder):
        if is_sealed(folder):
            _check_sealed(config, folder)
        else:
            folder.seal(execute(config, options.beam, folder) | {"run_id": options.run_id})
        manifest = finish(folder)
    _LOGGER.info("done: %s", FileSystems.join(options.output, REPORT_FILE))
    spent = {"epsilon": manifest["epsilon"], "delta": manifest["delta"]}
    return {"run_id": options.run_id, "output": options.output} | spent


def _spending(config: ClusteredFLConfig, folder: RunFolder) -> contextlib.AbstractContextManager[None]:
    """Charges what every client may spend before its rows are read; a run that goes on is not charged again.

    That the rows are the same is for the checkpoint to check: a run with others is refused there.
    """
    if config.ledger is None:
        return contextlib.nullcontext()
    privacy = config.privacy
    charge = Charge(
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
    bound = config.model_copy(update={"chunks": ChunksConfig()})
    same = f"{config_digest(bound)} {key_digest(run_key(folder, config.key_uri))}"
    begun = functools.partial(has_begun, folder)
    return spending(config.ledger, charge, folder.run_id, same=same, begun=begun)


def _check_sealed(config: ClusteredFLConfig, folder: RunFolder) -> None:
    """Refuses a changed config for a run whose outputs are written."""
    if json.loads(read_bytes(folder.path(MANIFEST)))["config_digest"] != config_digest(config):
        raise ConfigError(
            "the config must be that of the interrupted run of this --run_id, got a changed one; restore the config, "
            "or start anew with another --run_id."
        )
