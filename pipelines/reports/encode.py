"""The `encode` job: makes one private report per client of a data lake, as devices would send them."""

import dataclasses
import functools
import logging
import secrets

import apache_beam as beam

from dapple_dp.pipelines.jobs.job import Job, Outcome, Run, charging
from dapple_dp.pipelines.kmeans.plan.public_facts import feature_names, learned_encoder, server_files
from dapple_dp.pipelines.ledger.spending import charge_of
from dapple_dp.pipelines.reports import outputs as report_outputs
from dapple_dp.pipelines.reports.shuffle import shuffled_batch, shuffling
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import spilling
from dapple_dp.pipelines.run.run_keys import own_key
from dapple_dp.pipelines.tables.client_staging import staged_by_client
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.private_source import JobRows, private_source
from dapple_dp.schemas.core.plan import Promise, Zone
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.reports.config import EncodeConfig, load_encode_config
from dapple_dp.schemas.reports.parameters import (
    KEY_BYTES,
    MOST_PARAMETER_BYTES,
    ReportParameters,
    canonical,
)
from dapple_dp.schemas.reports.rows import REPORTS_FOLDER
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import WrittenFile
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.numerics.reports.design import design
from dapple_dp.transforms.reports.encode import EncodeReports
from dapple_dp.transforms.tables.on_launcher import first_schema
from dapple_dp.transforms.tables.read import CheckRows, ListShards

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedEncode:
    """A job that is ready to run.

    Attributes:
      config: the job.
      rows: rows, one per client once they are staged.
      parameters: public parameters.
    """

    config: EncodeConfig
    rows: JobRows
    parameters: ReportParameters


def _plan_encode(config: EncodeConfig) -> PlannedEncode:
    """Reads the public inputs: feature names, learned encodings, and existing parameters."""
    data = config.data.model_copy(update={"max_rows_per_client": 1})
    source = private_source(config)
    server = server_files(config.server_data, config.data, source)
    encoder = learned_encoder(config.data, config.encodings, server)
    contract = TableContract.from_config(data, by_client=True, encoder=encoder)
    if contract.n_features is None:
        path, schema = first_schema(source)
        width = contract.features_only().list_width(schema, path)
        contract = TableContract.from_config(data, n_features=width, by_client=True)
    names = feature_names(data.features, encoder, int(contract.n_features or 0))
    encoding = None if encoder is None else canonical(encoder.to_json())
    parameters = design(config, names, secrets.token_bytes(KEY_BYTES), encoding)
    if config.reports.parameters is not None:
        parameters = _agreed(parameters, config.reports.parameters)
    rows = JobRows(data=data, source=source, contract=contract)
    return PlannedEncode(config=config, rows=rows, parameters=parameters)


def _agreed(wanted: ReportParameters, path: str) -> ReportParameters:
    """Reads existing parameters; they must match the job except for their key."""
    refusal = Refusal(kind=ConfigError, rule="reports.parameters must be a readable file", remedy="check the path")
    parameters = ReportParameters.from_json(untrusted.read_bytes(path, refusal, MOST_PARAMETER_BYTES), path)
    if dataclasses.replace(wanted, key=parameters.key) != parameters:
        raise ConfigError(
            f"reports.parameters must agree with the job, got {path} of another one; correct the job or leave it out."
        )
    return parameters


def build(root: beam.Pipeline, job: PlannedEncode, key_uri: str, folder: str, spill_folder: str | None) -> None:
    """Adds the job to an empty pipeline.

    Args:
      root: an empty pipeline.
      job: the job, with one row per client.
      key_uri: place where workers read the key of nonces and coins.
      folder: private folder with an existing folder `REPORTS_FOLDER`.
      spill_folder: see `dapple_dp.transforms.reports.batches.GroupReports`.
    """
    shards = root | "List" >> ListShards(source=job.rows.source, contract=job.rows.contract)
    _ = shards | "CheckRows" >> CheckRows()
    encode = EncodeReports(parameters=job.parameters, contract=job.rows.contract, key_uri=key_uri)
    _ = shards | "Encode" >> encode | "Shuffle" >> shuffling(job.parameters, folder, spill_folder)


def _plan(run: Run[EncodeConfig]) -> PlannedEncode:
    job = _plan_encode(run.settings)
    _LOGGER.info("run %s: %s, %s", run.options.run_id, job.parameters.guarantee.mode, job.parameters.cost)
    return job


def _charge(job: PlannedEncode) -> Charge:
    return charge_of(report_outputs.statement(job.parameters), job.config.data, "encode")


def _work(run: Run[EncodeConfig], job: PlannedEncode) -> list[WrittenFile]:
    """Writes `REPORTS_FOLDER` into the staging folder; returns its files, sorted by name.

    Raises:
      InputError: if there are fewer clients than a shuffled batch needs.
    """
    options, folder = run.options.beam, run.folder.staging
    STORE.make_folder(join(folder, REPORTS_FOLDER))
    with (
        own_key(folder, job.config.key_uri) as key_uri,
        spilling(folder, options) as spill,
        staged_by_client(job.rows, options, key_uri, folder) as rows,
    ):
        run.place.draws_with(key_uri)
        ready = dataclasses.replace(job, rows=rows)
        add = functools.partial(build, job=ready, key_uri=key_uri, folder=folder, spill_folder=spill)
        run_graph(add, options, Promise(zone=Zone.PUBLIC, declared=(job.parameters,)))
    return shuffled_batch(job.parameters, folder).files


def _write(run: Run[EncodeConfig], job: PlannedEncode, files: list[WrittenFile]) -> Outcome:
    report_outputs.stage_reports(run.folder, job.parameters, files)
    return Outcome(report_outputs.spent(job.parameters), report_outputs.encode_manifest(job.parameters, run.settings))


JOB = Job(
    "encode",
    load_encode_config,
    _plan,
    _work,
    _write,
    Zone.PUBLIC,
    reserve=charging(_charge),
    shows=REPORTS_FOLDER,
    resolve=with_features,
)
