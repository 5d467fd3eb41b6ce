"""The `unmask` job of the clients: opens the run, then unmasks the sum of each closed round and opens the next.

With masks from a shared secret, every client may run it, or one for all: it needs the secret and the sums, but no rows.
With pairwise masks it needs the shares that clients hand out instead, and one client runs it for all. It writes the
result after the last round.
"""

import contextlib
import functools
import logging
import os
import secrets
import stat

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.jobs.job import Run
from dapple_dp.pipelines.jobs.place import Summary
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult
from dapple_dp.pipelines.kmeans.plan.recurrence import compare_to_previous
from dapple_dp.pipelines.kmeans.report import files as outputs
from dapple_dp.pipelines.masked.clients_role import SHARES, ClientsRole, OpenRound, clients_job, planned_role
from dapple_dp.pipelines.run.folder import MANIFEST, RunFolder
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.schemas.choices import NoiseBy
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.masked.config import RESULT, SECRET_SETTING
from dapple_dp.schemas.masked.exchange import NONCE_BYTES, ExchangePlan, MaskedReleases
from dapple_dp.schemas.masked.pairwise_messages import HandedOut, sent_from_table
from dapple_dp.schemas.privacy.release_table import releases_to_table
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE, RELEASES_FILE
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.files import stores, untrusted
from dapple_dp.transforms.files.file_bytes import make_folder, releases_bytes, table_bytes, write_bytes
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.masked.clients import UnmaskReleases, broadcast_digest, check_present
from dapple_dp.transforms.masked.exchange_files import marks, read_releases, table_refusal
from dapple_dp.transforms.masked.noise_stages import AddFurtherNoise
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.pairwise_legs import UnmaskPairwise
from dapple_dp.transforms.masked.sealing import SEALED
from dapple_dp.transforms.masked.signing import Parties
from dapple_dp.transforms.masked.table_forms import sent_form
from dapple_dp.transforms.numerics.masked.public_keys import private_key, unseal
from dapple_dp.transforms.privacy.key_files import KeyFile, read_key

_LOGGER = logging.getLogger(__name__)
_NO_FINGERPRINT = "none: rows stayed with the clients"


def _handed(
    folder: str, exchange: str, index: int, secret_uri: str, nonce: bytes, parties: Parties | None
) -> list[HandedOut]:
    """Reads the shares that clients have handed out; skips invalid files and those sealed for others."""
    signed = PairwiseExchange(exchange, parties)
    path = signed.plan().rounds[index].path
    own = private_key(read_key(secret_uri, SECRET_SETTING), nonce, SHARES)
    found = []
    for file in marks(folder, SEALED):
        with signed.leaving_out(file):
            content = _opened(file, signed.handed_out(index, file), own, path)
            if content is not None:
                table = untrusted.table_of(content, table_refusal(file), sent_form(HandedOut, path))
                found += sent_from_table(table, HandedOut, path)
    return found


def _opened(file: str, sealed: bytes, own: bytes, path: str) -> bytes | None:
    """Decrypts a sealed file; returns None if it is sealed for another party."""
    return unseal(sealed, own, encode_label(path, os.path.basename(file)))


def _keep(releases: tuple, path: str) -> None:
    write_bytes(path, table_bytes(releases_to_table(list(releases))))


def build(root: beam.Pipeline, opened: OpenRound, masked: MaskedReleases, path: str, shares: str) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      opened: the round, now closed.
      masked: noised sum of the round.
      path: output file of the releases.
      shares: folder of the shares handed out for pairwise masks; read by workers, so that the graph holds none.
    """
    plan, masking, state = opened.plan, opened.masking, opened.broadcast(root)
    unmask: beam.PTransform = UnmaskReleases(plan=plan, state=state, masking=masking)
    if masking.pairwise is not None:
        place = root | "Shares" >> beam.Create([shares], reshuffle=False)
        handed = place | "Handed" >> beam.FlatMap(
            _handed, opened.exchange, opened.index, masking.secret_uri, masking.nonce, opened.parties
        )
        unmask = UnmaskPairwise(plan=plan, state=state, listed=opened.listed(root), handed=handed, masking=masking)
    releases = root | "Sum" >> beam.Create([masked], reshuffle=False) | "Unmask" >> unmask
    if masking.noise_by is NoiseBy.BOTH:
        releases = releases | "FurtherNoise" >> AddFurtherNoise(plan=plan, key_source=KeyFile(opened.key_uri))
    _ = releases | "Keep" >> beam.Map(_keep, path)


def _catch_up(role: ClientsRole, options: PipelineOptions) -> None:
    """Unmasks the sums of all closed rounds whose releases are missing."""
    role.plan()
    while (index := role.n_released()) < len(role.rounds) and role.exchange.is_closed(index):
        masked, digest = role.exchange.read_sum(index, role.rounds[index])
        state = role.state()
        role.check_step(index, state)
        role.check_collector()
        if role.pairwise is None:
            check_present(masked, role.planned.config.masked.threshold)
        role.check_countersigned(index, digest)
        role.commit(index, digest)
        part = join(role.released, f"{index:02d}.part")
        add = functools.partial(
            build,
            opened=role.open_round(index, state),
            masked=masked,
            path=part,
            shares=role.shares_folder(index),
        )
        run_graph(add, options, role.step_promise)
        role.keep(index, read_releases(part, role.rounds[index]))
        STORE.delete(part)


def _write_result(role: ClientsRole, output: str, run_id: str) -> None:
    """Writes the files that `fit` would write."""
    folder = RunFolder(output, run_id)
    folder.check()
    statement = role.planned.statement.with_roles("jobs of their own")
    after = compare_to_previous(role.planned, role.state().model())
    model = after.model
    in_units = role.planned.in_units(model)
    result = FitResult(model, statement, _NO_FINGERPRINT, after.drift, in_units, after.remembered)
    with contextlib.ExitStack() as stack:
        stack.callback(folder.release)
        with folder.claimed():
            stack.enter_context(folder.reopened())
        write_bytes(folder.path(RELEASES_FILE), releases_bytes(model.releases))
        write_bytes(folder.path(CENTERS_FILE), table_bytes(model.centers_table(result.in_units)))
        outputs.write_outputs(folder, role.planned, result)
        if stores.is_local(role.released):
            # Clients that may read the releases may also read the result.
            os.chmod(folder.staging, stat.S_IMODE(os.stat(role.released).st_mode) & ~0o022)
        folder.publish(outputs.manifest(role.planned, result, run_id))


def _open_run(role: ClientsRole, run_id: str) -> None:
    """Publishes the plan of the run, unless it is published."""
    if role.exchange.is_open():
        return
    if role.n_released():
        raise ConfigError(
            f"--released already holds releases, in {role.released}, and a new run must start without any; choose "
            "another folder, or restore plan.json of their run."
        )
    nonce = secrets.token_bytes(NONCE_BYTES)
    plan = ExchangePlan(
        run=run_id,
        nonce=nonce,
        settings=role.settings_digest,
        rounds=role.rounds,
        pairwise=role.pairwise,
        collector=role.collector_key(nonce),
        shares=role.planned.config.masked.shares,
    )
    role.keep_settings()
    role.exchange.open(plan)


def _work(run: Run[FitConfig], role: ClientsRole) -> Summary:
    """Takes one step of the run."""
    make_folder(role.released)
    _open_run(role, run.options.run_id)
    _catch_up(role, run.options.beam)
    index, n_rounds = role.n_released(), len(role.planned.rounds)
    summary: Summary = {"run_id": role.plan().run, "round": index, "rounds": n_rounds}
    if index < n_rounds:
        role.exchange.open_round(index, broadcast_digest(role.state()))
        _LOGGER.info("open: round %d, %s", index, role.planned.rounds[index].plan.path)
        return summary
    output = join(role.released, RESULT)
    if not STORE.exists(join(output, MANIFEST)):
        _write_result(role, output, summary["run_id"])
    _LOGGER.info("done: %s", join(output, "report.html"))
    return summary | {"output": output, "epsilon": role.planned.plan.epsilon, "delta": role.planned.plan.delta}


JOB = clients_job("unmask", planned_role, _work, "--run_id")
