"""The `encode` job: one private report per client of a lake, as devices would send them."""

import dataclasses
import functools
import logging
import secrets
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import report_outputs
from pipelines.client_staging import JobRows, staged_by_client
from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text, shuffles_in_memory
from pipelines.prepared_fit import feature_names, learned_encoder
from pipelines.run_folder import KEY_FILE, RunFolder
from pipelines.shuffle import shuffling, written_files
from pipelines.spending import charge_of, spending
from schemas.config import PrepareOptions
from schemas.errors import ConfigError
from schemas.flow import Promise, Zone
from schemas.report_config import EncodeConfig, load_encode_config
from schemas.report_parameters import KEY_BYTES, ReportParameters, ReportVariant, canonical
from schemas.report_rows import PARAMETERS_FILE, REPORTS_FOLDER
from schemas.split_parameters import CollectionParameters, collection_from_json
from schemas.table import TableContract
from transforms import row_spill
from transforms.assign_rows import WrittenFile
from transforms.encode_reports import EncodeReports
from transforms.keys import create_key, delete_key
from transforms.numerics.report_design import design
from transforms.numerics.split_reports import design_split
from transforms.read import CheckRows, ListShards, open_parquet
from transforms.split_messages import EncodeMessages
from transforms.table_snapshots import resolve

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedEncode:
    """A job that is ready to run.

    Attributes:
      config: the job.
      rows: one per client, once they are staged.
      parameters: public.
    """

    config: EncodeConfig
    rows: JobRows
    parameters: CollectionParameters


def prepare(config: EncodeConfig) -> PreparedEncode:
    """Reads what is public: names of features, what encodings learn, and parameters that exist already.

    Raises:
      ConfigError: if the parameters are not those of the job.
      InputError: if the data or the server data cannot be found or have another schema.
    """
    data = config.data.model_copy(update={"max_rows_per_client": 1})
    source = resolve(data)
    encoder = learned_encoder(config)
    contract = TableContract.from_config(data, by_client=True, encoder=encoder)
    if contract.n_features is None:
        path = source.list_files()[0]
        with open_parquet(path) as file:
            width = contract.features_only().list_width(file.schema_arrow, path)
        contract = TableContract.from_config(data, n_features=width, by_client=True)
    names = feature_names(data.features, encoder, int(contract.n_features or 0))
    encoding = None if encoder is None else canonical(encoder.to_json())
    designed = design_split if config.reports.variant is ReportVariant.SPLIT_AND_MIX else design
    parameters: CollectionParameters = designed(config, names, secrets.token_bytes(KEY_BYTES), encoding)
    if config.reports.parameters is not None:
        parameters = _agreed(parameters, config.reports.parameters)
    rows = JobRows(data=data, source=source, contract=contract, prepare=PrepareOptions())
    return PreparedEncode(config=config, rows=rows, parameters=parameters)


def _agreed(wanted: CollectionParameters, path: str) -> CollectionParameters:
    """Parameters that exist, if they are what the job asks for but for their key."""
    found = collection_from_json(read_text(path), path)
    if dataclasses.replace(wanted, key=found.key) != found:
        raise ConfigError(
            f"reports.parameters must agree with the job, got {path} of another one; correct the job or leave it out."
        )
    return found


def build(root: beam.Pipeline, job: PreparedEncode, key_uri: str, folder: str, spill_folder: str | None) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      job: its rows hold one row per client.
      key_uri: where workers find the key of nonces and coins.
      folder: private; holds a folder `REPORTS_FOLDER`.
      spill_folder: see `transforms.report_batches.GroupReports`.
    """
    shards = root | "List" >> ListShards(source=job.rows.source, contract=job.rows.contract)
    _ = shards | "CheckRows" >> CheckRows()
    encode: beam.PTransform
    if isinstance(job.parameters, ReportParameters):
        encode = EncodeReports(parameters=job.parameters, contract=job.rows.contract, key_uri=key_uri)
    else:
        encode = EncodeMessages(parameters=job.parameters, contract=job.rows.contract, key_uri=key_uri)
    _ = shards | "Encode" >> encode | "Shuffle" >> shuffling(job.parameters, folder, spill_folder)


def execute(job: PreparedEncode, options: PipelineOptions, folder: str) -> list[WrittenFile]:
    """Runs a job to its end.

    Args:
      job: ready to run.
      options: for Beam.
      folder: private and empty; holds `REPORTS_FOLDER` with the files afterwards.

    Returns:
      The files, sorted by name.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    key_uri = job.config.key_uri or FileSystems.join(folder, KEY_FILE)
    made = not FileSystems.exists(key_uri)
    if made:
        create_key(key_uri)
    local = FileSystems.get_scheme(folder) in (None, "file") and shuffles_in_memory(options)
    FileSystems.mkdirs(FileSystems.join(folder, REPORTS_FOLDER))
    try:
        with staged_by_client(job.rows, options, key_uri, folder) as rows:
            ready = dataclasses.replace(job, rows=rows)
            spill = folder if local else None
            add = functools.partial(build, job=ready, key_uri=key_uri, folder=folder, spill_folder=spill)
            run_graph(add, options, Promise(zone=Zone.PUBLIC, declared=(job.parameters,)))
    finally:
        if made:
            delete_key(key_uri)
        if local:
            row_spill.remove(folder)
    return written_files(folder)


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: encodes, writes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been written then.
    """
    options = parse_job("encode", argv)
    config = load_encode_config(read_text(options.config))
    folder = RunFolder(options.output, options.run_id)
    folder.check()
    job = prepare(config)
    guarantee = job.parameters.guarantee
    _LOGGER.info("run %s: %s, %s", options.run_id, guarantee.mode, job.parameters.cost)
    charge = charge_of(report_outputs.statement(job.parameters), config.data, "encode")
    with spending(config.ledger, charge, options.run_id), folder.opened():
        for file in execute(job, options.beam, folder.staging):
            folder.record(f"{REPORTS_FOLDER}/{file.name}", file.digest)
        folder.write(PARAMETERS_FILE, job.parameters.to_json().encode())
        folder.write("privacy.json", report_outputs.privacy_json(job.parameters))
        folder.publish(report_outputs.encode_manifest(job.parameters, config, options.run_id))
    _LOGGER.info("done: %s", FileSystems.join(options.output, REPORTS_FOLDER))
    spent = {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    return {"run_id": options.run_id, "output": options.output} | spent
