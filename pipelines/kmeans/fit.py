"""The `fit` job: a private clustering of a data set, from its config to a published model."""

import contextlib
import dataclasses
import functools
import logging
from typing import NamedTuple

from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.jobs.job import Job, Outcome, Run, charging
from dapple_dp.pipelines.jobs.place import Place
from dapple_dp.pipelines.kmeans.fit_rounds import FitRounds
from dapple_dp.pipelines.kmeans.free_run import Account, FreeRun, in_one_go
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit, message_contract, plan_files
from dapple_dp.pipelines.ledger.spending import charge_of
from dapple_dp.pipelines.run import run_keys
from dapple_dp.pipelines.run.folder import KEY_FILE, SECRET_FILE
from dapple_dp.pipelines.run.options import JobOptions, runs_in_process
from dapple_dp.pipelines.run.round_driver import LARGE_BYTES, check_rounds, rounds_of_a_graph, run_chunks
from dapple_dp.pipelines.run.run_keys import HoldKey
from dapple_dp.pipelines.run.stores import check_local
from dapple_dp.pipelines.tables.client_staging import staged_by_client
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.resources import worker_limits
from dapple_dp.schemas.choices import Runner, Trust
from dapple_dp.schemas.core.plan import PrivacyUnit, Zone
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig, load_config
from dapple_dp.schemas.kmeans.model import model_from_tables
from dapple_dp.schemas.masked.config import SECRET_SETTING
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.privacy.release_table import RELEASE_SCHEMA
from dapple_dp.schemas.privacy.statement import PrivacyStatement
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE, RELEASED_FILES
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import table_bytes, write_bytes
from dapple_dp.transforms.files.signals.measures import MEASURES, ROUNDS
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.files.untrusted import TableForm
from dapple_dp.transforms.on_beam.round import Aggregation, Central
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.rounds.row_cache import NO_LIMITS, WorkerLimits
from dapple_dp.transforms.rounds.shard_sums import ShardSums
from dapple_dp.transforms.rounds.staged_state import staged_state
from dapple_dp.transforms.tables.file_seal import FileSeal
from dapple_dp.transforms.tables.source import Source

_LOGGER = logging.getLogger(__name__)


def aggregation_of(
    planned: PlannedFit, key_uri: str, secret: str = "", limits: WorkerLimits = NO_LIMITS
) -> Aggregation:
    """Chooses the aggregation (central or masked) that the job's `trust` setting asks for.

    Args:
      planned: the job, with its rows in the form that workers read.
      key_uri: place where noise stages read the run key.
      secret: place of the run's mask secret; empty without masks.
      limits: limits of the workers.
    """
    config = planned.config
    if config.trust is not Trust.MASKED:
        return Central(reader=ShardSums(planned.contract, limits), key_source=KeyFile(key_uri))
    from dapple_dp.transforms.masked.aggregation import Masked
    from dapple_dp.transforms.masked.clients import Masking

    masking = Masking.of_section(
        config.masked,
        secret_uri=secret,
        run=config_digest(config.uncut),
        root=planned.source.path,
        whole_clients=config.privacy.unit is PrivacyUnit.CLIENT,
        noise_key="" if config.masked.shares is None else secret,
    )
    return Masked(contract=planned.contract, key_uri=key_uri, masking=masking)


def _held_secret(config: FitConfig, folder: str, hold: HoldKey) -> contextlib.AbstractContextManager[str]:
    """Holds the run's mask secret, which is in the private staging folder by default; yields "" without masks."""
    if config.trust is not Trust.MASKED:
        return contextlib.nullcontext("")
    return hold(config.masked.secret_uri or join(folder, SECRET_FILE), SECRET_SETTING)


class Drawn(NamedTuple):
    """State of a run after its rounds: its guarantee, and the fingerprint of its input."""

    privacy: PrivacyStatement
    fingerprint: str


def execute(planned: PlannedFit, options: PipelineOptions, folder: str, account: Account | None = None) -> Drawn:
    """Runs the rounds of a planned job, or the remaining ones of a stopped attempt.

    The kept key is at `config.key_uri`, or in `folder`. An existing key is used and kept; otherwise a key is created,
    and deleted when the run is over. The key that draws noise is derived from it for this run.

    Data whose clients are split across files are first grouped in a private copy.

    Args:
      planned: the job.
      options: Beam options.
      folder: private staging folder, which receives the released files.
      account: account of a run that other processes may resume; None for a run that ends with this process.

    Raises:
      DappleError: if the run fails.
    """
    config = planned.config
    with contextlib.ExitStack() as held:
        account = held.enter_context(in_one_go(folder)) if account is None else account
        key_uri = held.enter_context(account.held_key(config.key_uri or join(folder, KEY_FILE)))
        secret = held.enter_context(_held_secret(config, folder, account.held_key))
        fingerprint = account.start(planned, key_uri)
        initial, staged = held.enter_context(staged_state(planned.initial, folder))
        limits = held.enter_context(worker_limits(options))
        with staged_by_client(planned.rows, options, key_uri, folder) as rows:
            if rows.contract.participation is not None:
                from dapple_dp.pipelines.ledger.private_state import State

                account.leaves({State.CLIENT_LIST: rows.contract.participation.digest})
            job = dataclasses.replace(planned, source=rows.source, contract=rows.contract, initial=initial)
            if config.trust is Trust.MASKED:
                job = dataclasses.replace(job, contract=message_contract(job))
            aggregation = aggregation_of(job, key_uri, secret, limits)
            n_bytes = _memory(planned.source)
            rounds = FitRounds(job, aggregation, folder, counted=rows.counted, bound=True, staged=staged)
            chunk = rounds_of_a_graph(options, rounds.n_rounds, config.chunks.rounds, n_bytes)
            binding, loop = rounds.binding(fingerprint, key_uri), None
            if runs_in_process(options):
                loop = functools.partial(rounds.run_in_process, start=functools.partial(run_keys.run_key, key_uri))
            done = run_chunks(rounds, folder, binding, options, chunk, loop)
    spent, in_process = rounds.spent(done), runs_in_process(options)
    return Drawn(planned.statement.of_graph(spent, Runner.IN_PROCESS if in_process else None), fingerprint)


def _memory(source: Source) -> int:
    """Estimates the bytes of the rows in memory as twice the file sizes in the listing.

    Stops counting files once the sum is large.
    """
    found = 0
    for file in () if source.listed is None else source.listed.files:
        found += 2 * FileSeal.of_text(file.seal).size
        if found >= LARGE_BYTES:
            break
    return found


def read_release(planned: PlannedFit, folder: str, drawn: Drawn) -> FitResult:
    """Reads the released files of a run and compares them to the previous run; rewrites the centers if needed."""
    paths = [join(folder, name) for name in RELEASED_FILES]
    tables = [
        untrusted.read_table(path, untrusted.staged_refusal(path), TableForm.by_size(schema))
        for path, schema in zip(paths, (None, RELEASE_SCHEMA), strict=True)
    ]
    model, drift, remembered = model_from_tables(*tables), None, None
    if planned.previous is not None:
        from dapple_dp.pipelines.kmeans.plan.recurrence import compare_to_previous

        model, drift, remembered = compare_to_previous(planned, model)
    in_units = planned.in_units(model)
    if drift is not None or in_units is not None:
        write_bytes(join(folder, CENTERS_FILE), table_bytes(model.centers_table(in_units)))
    return FitResult(model, drawn.privacy, drawn.fingerprint, drift, in_units, remembered)


def _place(config: FitConfig, options: JobOptions) -> Place:
    if config.ledger is None:
        return FreeRun(config, options)
    from dapple_dp.pipelines.kmeans.account import RunAccount

    return RunAccount(config, options)


def _plan(run: Run[FitConfig]) -> PlannedFit:
    for name in run.settings.masked.of_parties:
        raise ConfigError(
            f"masked.{name} must be left out for fit, which plays all parties in one job; leave it out, or run the "
            "jobs upload, aggregate and unmask."
        )
    reading = "" if run.settings.server_data is None else "reading public server data and "
    _LOGGER.info("run %s: algorithm %s, %scalibrating noise", run.options.run_id, run.settings.algorithm, reading)
    if runs_in_process(run.options.beam):
        _check_in_process(run.settings, run.options.output)
    planned = plan_files(run.settings)
    # The files aren't listed before the run is charged, and many rows never add rounds to a pipeline.
    n_rounds = rounds_of_a_graph(run.options.beam, len(planned.rounds), run.settings.chunks.rounds, 0)
    check_rounds(run.options.beam, n_rounds, "chunks.rounds")
    plan = planned.plan
    MEASURES.put(ROUNDS, len(planned.rounds))
    rounds = plural(len(planned.rounds), "round")
    covers = planned.statement.covers
    of_all = "" if covers is None else f", for {covers}"
    _LOGGER.info("plan: %s, epsilon %.6g, delta %.3g%s", rounds, plan.epsilon, plan.delta, of_all)
    return planned


def _check_in_process(config: FitConfig, output: str) -> None:
    """Refuses settings that need Beam, for `--runner=InProcess`."""
    asked = {
        f"trust: {config.trust}": config.trust is not Trust.CENTRAL,
        "recurring": config.recurring is not None,
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise ConfigError(f"{name} needs Beam, and --runner=InProcess runs without it; leave the flag out.")
    check_local(config)
    check_local({"--output": output})


def _charge(planned: PlannedFit) -> Charge:
    return charge_of(planned.statement, planned.config.data, "fit", planned.plan.rounds)


def _work(run: Run[FitConfig], planned: PlannedFit) -> FitResult:
    account = run.place if isinstance(run.place, Account) else None
    folder = run.folder.staging
    return read_release(planned, folder, execute(planned, run.options.beam, folder, account))


def _write(run: Run[FitConfig], planned: PlannedFit, result: FitResult) -> Outcome:
    # Imported late, so that the first round doesn't wait for the code that draws pages.
    from dapple_dp.pipelines.kmeans.report import files as outputs

    outputs.write_outputs(run.folder, planned, result)
    spent = {"epsilon": result.privacy.epsilon, "delta": result.privacy.delta}
    return Outcome(spent, outputs.manifest(planned, result, run.options.run_id))


JOB = Job(
    "fit",
    load_config,
    _plan,
    _work,
    _write,
    Zone.PUBLIC,
    reserve=charging(_charge),
    shows="report.html",
    place=_place,
    resolve=with_features,
    in_process=True,
)
