"""The `unmask` job, clients' role: opens the run; then takes the sum of a closed round and opens the next one.

Every client may run it for itself, or one for all: it needs the secret and the sums, no rows. With pairwise masks it
needs the shares that clients have handed out instead, and one client runs it for all. After the last round it writes
the result.
"""

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import outputs
from pipelines.clients_role import ClientsRole
from pipelines.graph import run_graph
from pipelines.options import parse_role, read_text
from pipelines.prepared_fit import FitResult
from pipelines.recurrence import followed
from pipelines.run_folder import MANIFEST, RunFolder
from schemas.choices import NoiseBy
from schemas.config import load_config
from schemas.exchange import ExchangePlan
from schemas.masked_message import MaskedReleases
from schemas.pairwise_messages import HandedOut, sent_from_table
from schemas.plan import RoundPlan
from schemas.release import releases_from_table, releases_to_table
from transforms.client_messages import Masking, UnmaskReleases, broadcast_digest
from transforms.exchange_files import read_table
from transforms.noise import AddFurtherNoise
from transforms.pairwise_legs import UnmaskPairwise, read_lists
from transforms.publish import (
    CENTERS_FILE,
    RELEASES_FILE,
    make_folder,
    read_bytes,
    table_bytes,
    table_from_bytes,
    write_bytes,
)

_LOGGER = logging.getLogger(__name__)
_RESULT = "result"
_NO_FINGERPRINT = "none: rows stayed with the clients"


@dataclasses.dataclass(frozen=True, slots=True)
class HandedShares:
    """Where the shares of a round are: the exchange, number of the round, folder of the shares."""

    exchange: str
    number: int
    folder: str

    def collections(self, root: beam.Pipeline, plan: RoundPlan) -> dict[str, beam.PCollection]:
        """What `UnmaskPairwise` reads besides the sum; shares are read by workers, so that the graph holds none."""
        listed = (
            root
            | "Nobody" >> beam.Create([""], reshuffle=False)
            | "Listed" >> beam.Map(read_lists, self.exchange, self.number)
        )
        handed = (
            root
            | "Shares" >> beam.Create([self.folder], reshuffle=False)
            | "Handed" >> beam.FlatMap(_handed, plan.path)
        )
        return {"listed": listed, "handed": handed}


def _handed(folder: str, path: str) -> list[HandedOut]:
    """Shares of all clients that have handed out theirs."""
    files = FileSystems.match([FileSystems.join(folder, "*.parquet")])[0].metadata_list
    tables = [read_table(each.path) for each in sorted(files, key=lambda each: each.path)]
    return [row for table in tables for row in sent_from_table(table, HandedOut, path)]


def _keep(releases: tuple, path: str) -> None:
    write_bytes(path, table_bytes(releases_to_table(list(releases))))


def build(
    root: beam.Pipeline,
    masked: MaskedReleases,
    state: Any,
    plan: RoundPlan,
    masking: Masking,
    path: str,
    handed: HandedShares | None = None,
) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      masked: the noised sum of a closed round.
      state: what was broadcast in it.
      plan: of the round.
      masking: of the clients' role.
      path: where the releases go.
      handed: where shares are, with pairwise masks.
    """
    broadcast = root | "Public" >> beam.Create([state], reshuffle=False)
    known: dict[str, Any] = {"plan": plan, "state": broadcast, "masking": masking}
    unmask: beam.PTransform = UnmaskReleases(**known)
    if handed is not None:
        unmask = UnmaskPairwise(**known, **handed.collections(root, plan))
    releases = root | "Sum" >> beam.Create([masked], reshuffle=False) | "Unmask" >> unmask
    if masking.noise_by is NoiseBy.BOTH:
        releases = releases | "FurtherNoise" >> AddFurtherNoise(plan=plan, key_uri=masking.secret_uri)
    _ = releases | "Keep" >> beam.Map(_keep, path)


def _catch_up(role: ClientsRole, options: PipelineOptions) -> None:
    """Unmasks the sums of all rounds that are closed and not known yet."""
    plan = role.plan()
    while (index := role.n_released()) < len(plan.rounds) and role.exchange.is_closed(index):
        masked, digest = role.exchange.read_sum(index)
        state = role.state()
        role.check_step(index, state)
        role.commit(index, digest)
        part = FileSystems.join(role.released, f"{index:02d}.part")
        masking = role.masking(plan)
        handed = None
        if masking.pairwise is not None:
            handed = HandedShares(role.exchange.folder, index, role.shares_folder(index))
        add = functools.partial(
            build, masked=masked, state=state, plan=plan.rounds[index], masking=masking, path=part, handed=handed
        )
        run_graph(add, options, dataclasses.replace(role.prepared.promise, stages=()))
        role.keep(index, releases_from_table(table_from_bytes(read_bytes(part))))
        FileSystems.delete([part])


def _write_result(role: ClientsRole, output: str, run_id: str) -> None:
    """The files that `fit` would write."""
    folder = RunFolder(output, run_id)
    folder.check()
    statement = role.prepared.statement.with_roles("jobs of their own")
    model, drift = followed(role.prepared, role.state().model())
    result = FitResult(model, statement, _NO_FINGERPRINT, drift)
    with folder.opened():
        write_bytes(folder.path(RELEASES_FILE), table_bytes(releases_to_table(list(model.releases))))
        write_bytes(folder.path(CENTERS_FILE), table_bytes(model.centers_table()))
        outputs.write_outputs(folder, role.prepared, result)
        folder.publish(outputs.manifest(role.prepared, result, run_id))


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: one step of the run.

    Raises:
      DappleError: what stopped it, in one sentence.
    """
    options = parse_role("unmask", argv, ("--released", "--run_id"))
    role = ClientsRole.from_config(load_config(read_text(options.config)), options.exchange, options.released)
    make_folder(role.released)
    if not role.exchange.is_open():
        rounds = tuple(each.plan for each in role.prepared.rounds)
        role.make_secret()
        plan = ExchangePlan(run=options.run_id, settings=role.settings_digest, rounds=rounds, pairwise=role.pairwise)
        role.exchange.open(plan)
    _catch_up(role, options.beam)
    index, n_rounds = role.n_released(), len(role.prepared.rounds)
    found: dict[str, Any] = {"run_id": role.plan().run, "round": index, "rounds": n_rounds}
    if index < n_rounds:
        role.exchange.open_round(index, broadcast_digest(role.state()))
        _LOGGER.info("open: round %d, %s", index, role.prepared.rounds[index].plan.path)
        return found
    output = FileSystems.join(role.released, _RESULT)
    if not FileSystems.exists(FileSystems.join(output, MANIFEST)):
        _write_result(role, output, found["run_id"])
    _LOGGER.info("done: %s", FileSystems.join(output, "report.html"))
    return found | {"output": output, "epsilon": role.prepared.plan.epsilon, "delta": role.prepared.plan.delta}
