"""A good file of every format that is believed, and who reads it."""

import gzip
import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import yaml

from dapple_dp.pipelines.kmeans.plan.previous_run import load_previous, memory_from
from dapple_dp.pipelines.ledger.store import Ledger, charges_of, limits_of
from dapple_dp.pipelines.reports.source import find_reports
from dapple_dp.pipelines.run.options import read_text
from dapple_dp.pipelines.tables.private_source import private_source
from dapple_dp.schemas.arrivals.offsets import OffsetRange, WindowOffsets
from dapple_dp.schemas.clustered_fl.records import FederatedState
from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.fit_config import load_config
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR, PairwiseParams
from dapple_dp.schemas.masked.exchange import (
    ExchangePlan,
    MaskedMessages,
    MaskedReleases,
    messages_from_table,
    messages_to_table,
)
from dapple_dp.schemas.masked.pairwise_messages import (
    Leg,
    Letter,
    SenderKeys,
    pinned_from_table,
    pinned_to_table,
    sent_to_table,
)
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.schemas.privacy.release_table import releases_to_table
from dapple_dp.schemas.reports.config import load_decode_config
from dapple_dp.schemas.reports.rows import to_table
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.prepared_layout import PreparedFile, PreparedManifest
from dapple_dp.transforms.arrivals.consume import record_refusal
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.checkpoint import Checkpoint, CheckpointFolder, RunBinding, read_state
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.files.formats.arrays_file import arrays_to_bytes
from dapple_dp.transforms.files.saved_model import load_model, read_reference
from dapple_dp.transforms.masked.exchange_files import Exchange, table_refusal
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.signing import Parties
from dapple_dp.transforms.masked.table_forms import messages_form, pinned_form
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans
from dapple_dp.transforms.numerics.kmeans.recurring.memory import memory_of
from dapple_dp.transforms.numerics.masked.public_keys import public_part
from dapple_dp.transforms.numerics.tables.participation import Counted
from dapple_dp.transforms.reports.batches import _read as read_reports
from dapple_dp.transforms.tables.counted_clients import SALT_BYTES, ClientList
from dapple_dp.transforms.tables.file_seal import seal_of
from dapple_dp.transforms.tables.listing import ListedFile
from dapple_dp.transforms.tables.on_launcher import first_look
from dapple_dp.transforms.tables.prepared_files import read_manifest, write_prepared
from dapple_dp.transforms.tables.read import _list_row_groups
from dapple_dp.transforms.tables.shard_rows import read_blocks
from tests.fuzz import mutations
from tests.scenes import ledgers, models
from tests.scenes import reports as report_scenes
from tests.scenes.lake import job, mixture, table_of

KEY = bytes(range(16))
ROUND = RoundPlan(
    path="feddp_kmeans/weights",
    releases=(
        ReleasePlan(
            spec=ReleaseSpec(
                name="weights",
                shape=(2, 3),
                mechanism=Mechanism.DISCRETE_GAUSSIAN,
                sensitivity=1 << 20,
                share=0.5,
                geometry=Geometry.VECTOR,
            ),
            noise_multiplier=3.25,
        ),
    ),
)
PLAN = ExchangePlan(run="run", nonce=KEY * 2, settings="a" * 64, rounds=(ROUND,), pairwise=PairwiseParams(0.1, 0.2))
_ROUND_FOLDER = "00_weights"
_COUNTERSIGNED, _SHOWN = f"{_ROUND_FOLDER}/countersigned/north.json", "5" * 64
_MESSAGES = f"{_ROUND_FOLDER}/messages/north.parquet"
"""A message sealed in an exchange, as the party that opens the seal reads it."""


class Format(NamedTuple):
    """A format of files.

    Attributes:
      file: the one that is broken, in a folder.
      make: fills an empty folder with good files.
      read: reads all of them.
      ways: in which the file is broken.
    """

    file: str
    make: Callable[[pathlib.Path], None]
    read: Callable[[pathlib.Path], object]
    ways: tuple[Callable[..., bytes], ...] = mutations.BYTES


def _config(folder: pathlib.Path) -> None:
    (folder / "job.yaml").write_text(yaml.safe_dump(job(str(folder / "lake"), str(folder / "server.parquet"))))


def _json_config(folder: pathlib.Path) -> None:
    (folder / "job.yaml").write_text(json.dumps(job(str(folder / "lake"), str(folder / "server.parquet"))))


def _read_config(folder: pathlib.Path) -> object:
    return load_config(read_text(str(folder / "job.yaml")))


def _model(folder: pathlib.Path) -> None:
    encoding: list[dict[str, Any]] = [
        {"column": "age", "weight": 1.0, "mean": 2.0, "stddev": 3.0},
        {"column": "kind", "weight": 1, "vocabulary": ["a", "b"]},
        {"column": "size", "weight": 2.0, "edges": [1.0, 2.0]},
    ]
    names = ["age", "kind=a", "kind=b", "size<=1", "1<size<=2", "size>2"]
    models.write_model(folder / "fit", np.eye(3, 6), features=names, encoding=encoding)


def _previous(folder: pathlib.Path) -> None:
    models.write_model(folder / "fit", np.eye(3, 4))
    release = Release(path="a/weights", plan=ROUND.releases[0], values=np.ones((2, 3), np.int64), lattice_unit=0.5)
    (folder / "fit" / "releases.parquet").write_bytes(table_bytes(releases_to_table([release])))
    (folder / "fit" / "privacy.json").write_text(json.dumps({"format": 1, "unit": "record"}))
    manifest = json.loads((folder / "fit" / "run.json").read_text())
    for name in ("releases.parquet", "privacy.json"):
        manifest["files"][name] = hashlib.sha256((folder / "fit" / name).read_bytes()).hexdigest()
    manifest |= {"run_id": "a", "clusters": {"numbers": [0, 1, 2], "released_rows": [0, 1, 2], "next_number": 3}}
    manifest["frame"] = {"clipping_norm": 2.0, "domain": None, "center": [0.0] * 4}
    (folder / "fit" / "run.json").write_text(json.dumps(manifest))


def _centers(folder: pathlib.Path) -> None:
    model = ClusterModel(
        centers=np.eye(3, 4), noisy_sizes=np.ones(3), releases=(), proxy_costs=np.ones(2), noisy_means=np.eye(3, 4)
    )
    (folder / "centers.parquet").write_bytes(table_bytes(model.centers_table()))


def _memory(folder: pathlib.Path) -> None:
    run = memory_of(NoisyMeans(np.eye(2, 3), np.full(2, 9.0), 1.0, 1.0), np.eye(2, 3))
    (folder / "memory.parquet").write_bytes(table_bytes(run.then(run, 9).table((0, 4))))


def _prepared(folder: pathlib.Path) -> None:
    content = table_bytes(table_of(mixture(9), np.arange(9)))
    (folder / "a.parquet").write_bytes(content)
    file = PreparedFile("a.parquet", 9, len(content), hashlib.sha256(content).hexdigest())
    manifest = PreparedManifest(client_id="client_id", features="x", max_rows_per_client=3, files=(file,))
    (folder / "manifest.json").write_text(manifest.to_json())


def _parameters(folder: pathlib.Path) -> None:
    (folder / "parameters.json").write_text(report_scenes.parameters().to_json())


def _read_parameters(folder: pathlib.Path) -> object:
    (folder / "reports.parquet").mkdir(exist_ok=True)
    config = load_decode_config(json.dumps({"reports": {"path": str(folder)}}))
    return find_reports(config, str(folder), "reports.path")


def _reports(folder: pathlib.Path) -> None:
    table = to_table(np.arange(50, dtype=np.uint64), np.arange(50, dtype=np.uint16) % 9, report_scenes.parameters())
    (folder / "r.parquet").write_bytes(table_bytes(table))


def _read_reports(folder: pathlib.Path) -> object:
    return list(read_reports((str(folder / "r.parquet"), 0), report_scenes.parameters()))


def _exchange(folder: pathlib.Path) -> None:
    exchange = PairwiseExchange(str(folder))
    exchange.open(PLAN)
    exchange.open_round(0, bytes(32))
    messages = MaskedMessages((b"12345678", b"87654321"), (b"tag1", b"tag2"), np.ones((2, 6), np.int64))
    (folder / _ROUND_FOLDER / "messages").mkdir(parents=True)
    (folder / _MESSAGES).write_bytes(table_bytes(messages_to_table(messages, ROUND)))
    exchange.send_rows(0, Leg.KEYS, "north", [SenderKeys(b"12345678", bytes(32), bytes(range(32)))])
    keys = [SenderKeys(bytes([each] * 8), bytes([each] * 32), bytes(range(each, each + 32))) for each in range(4)]
    (folder / "00_weights" / "keys.parquet").write_bytes(table_bytes(sent_to_table(keys, SenderKeys, ROUND.path)))
    letters = [Letter(0, 1, b"sealed"), Letter(1, 0, b"sealed")]
    (folder / "00_weights" / "letters.parquet").write_bytes(table_bytes(sent_to_table(letters, Letter, ROUND.path)))
    release = Release(path=f"{ROUND.path}/weights", plan=ROUND.releases[0], values=np.ones((2, 3), np.int64))
    exchange.close_round(0, MaskedReleases((release,), (b"12345678",), (b"tag1",)))


def _table(path: pathlib.Path, form: untrusted.TableForm) -> pa.Table:
    return untrusted.read_table(str(path), table_refusal(str(path)), form)


def _read_exchange(folder: pathlib.Path) -> object:
    exchange = PairwiseExchange(str(folder))
    plan = exchange.plan()
    index = exchange.last_round()
    messages = messages_from_table(_table(folder / _MESSAGES, messages_form(plan.rounds[index])), plan.rounds[index])
    found = exchange.keys(index), exchange.letters(index)
    return plan, exchange.broadcast(index), messages, found, Exchange(str(folder)).read_sum(index)


def _pinned(folder: pathlib.Path) -> None:
    batch = [b"north", b"east"], np.arange(2 * ROUND.size).reshape(2, -1)
    (folder / "pinned.parquet").write_bytes(table_bytes(pinned_to_table([batch])))


def _read_pinned(folder: pathlib.Path) -> object:
    return pinned_from_table(_table(folder / "pinned.parquet", pinned_form(ROUND.size)), ROUND.size)


def _parties(folder: pathlib.Path, own: str) -> Parties:
    """Three parties as one of them sees them; the keys are the same in every folder."""
    private = {
        name: bytes(range(7 * place, 7 * place + 32)) for place, name in enumerate((AGGREGATOR, COLLECTOR, "north"))
    }
    for name, key in private.items():
        path = folder / f"{name}.identity"
        path.write_bytes(key)
        path.chmod(0o600)
    keys = {name: public_part(key).hex() for name, key in private.items()}
    return Parties.of(keys, str(folder / f"{own}.identity"), own)


def _countersigned(folder: pathlib.Path) -> None:
    exchange = Exchange(str(folder))
    exchange.open(PLAN)
    exchange.countersign(0, "north", _SHOWN)


def _of_countersigned(folder: pathlib.Path) -> object:
    return Exchange(str(folder)).check_countersigned(0, _SHOWN, 1)


def _signed(folder: pathlib.Path) -> None:
    opened = Exchange(str(folder), _parties(folder, COLLECTOR))
    opened.open(PLAN)
    opened.open_round(0, bytes(32))
    Exchange(str(folder), _parties(folder, "north")).countersign(0, "north", _SHOWN)


def _of_signed(folder: pathlib.Path) -> object:
    return Exchange(str(folder), _parties(folder, COLLECTOR)).check_countersigned(0, _SHOWN, 1)


def _state(folder: pathlib.Path) -> dict[str, Any]:
    eye = np.eye(2)[np.array([0, 1, 1])]
    state = FederatedState(
        round_number=5,
        models=np.ones((2, 7)),
        assignments=np.array([0, 1, 1]),
        responsibilities=eye,
        separation=float("nan"),
        switch_round=0,
        em_iterations=0,
        offers=np.zeros((1, 7)),
        offered=np.array([0, -1, 0]),
    )
    return state.to_arrays()


def _checkpoint(folder: pathlib.Path) -> None:
    binding = RunBinding(config_digest="a", input_fingerprint="b", key_digest="c", plan_digest="d")
    events = [{"count": 5, "noise_multiplier": 1.5, "select_epsilon": None}]
    CheckpointFolder(str(folder)).save(
        Checkpoint(rounds=5, binding=binding, plan={"events": events}, events=events, arrays=_state(folder))
    )


def _read_checkpoint(folder: pathlib.Path) -> object:
    return CheckpointFolder(str(folder)).latest()


def _arrays(folder: pathlib.Path) -> None:
    (folder / "state.npz").write_bytes(arrays_to_bytes(_state(folder)))


def _read_arrays(folder: pathlib.Path) -> object:
    return read_state(str(folder / "state.npz"))


def _lake(folder: pathlib.Path) -> None:
    (folder / "l.parquet").write_bytes(table_bytes(table_of(mixture(40), np.arange(40) % 7)))


def _packed_lake(folder: pathlib.Path) -> None:
    contract = TableContract(feature_list="x", client_id="client_id", n_features=4, by_client=True)
    ids, offsets = pa.array(np.arange(40) // 8), np.arange(0, 41, 8)
    write_prepared(str(folder), "l.parquet", ids, mixture(40), offsets, contract)


def _read_lake(folder: pathlib.Path) -> object:
    contract = TableContract(feature_list="x", client_id="client_id", n_features=4, by_client=True)
    path = str(folder / "l.parquet")
    shards = list(_list_row_groups(ListedFile(path, path, seal_of(path).text), contract))
    return [list(read_blocks(shard, contract)) for shard in shards]


def _csv(folder: pathlib.Path) -> None:
    lines = [f'{x},"{x}; ""q""",client {index % 7}' for index, x in enumerate(mixture(40)[:, 0].tolist())]
    (folder / "rows.csv").write_text("\n".join(["age,note,client_id", *lines, ""]))


def _packed_csv(folder: pathlib.Path) -> None:
    _csv(folder)
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes(), mtime=0))


def _read_csv(folder: pathlib.Path, name: str = "rows.csv") -> object:
    contract = TableContract(features=("age",), client_id="client_id", n_features=1, by_client=True)
    path = str(folder / name)
    shards = list(_list_row_groups(ListedFile(path, path, seal_of(path).text), contract))
    first_look(private_source(SimpleNamespace(data=DataConfig(path=path, features="any"))))
    return [list(read_blocks(shard, contract)) for shard in shards]


def _read_packed_csv(folder: pathlib.Path) -> object:
    return _read_csv(folder, "rows.csv.gz")


def _ledger(folder: pathlib.Path) -> None:
    ledger = ledgers.new_ledger(folder, Limit(epsilon=10.0, delta=1e-5))
    ledger.reserve("run", ledgers.gaussian(20.0), {"config": "a"})
    os.rename(ledger.path, folder / "l.sqlite")


def _read_ledger(folder: pathlib.Path) -> object:
    entries = Ledger(str(folder / "l.sqlite")).entries()
    return limits_of(entries), charges_of(entries, "census")


def _of_model(folder: pathlib.Path) -> object:
    return load_model(str(folder / "fit"))


def _of_previous(folder: pathlib.Path) -> object:
    return load_previous(str(folder / "fit"))


def _of_memory(folder: pathlib.Path) -> object:
    return memory_from((folder / "memory.parquet").read_bytes(), (0, 4), 3, str(folder))


def _of_prepared(folder: pathlib.Path) -> object:
    return read_manifest(str(folder))


def _of_centers(folder: pathlib.Path) -> object:
    return read_reference(str(folder / "centers.parquet"), 4)


def _client_list(folder: pathlib.Path) -> None:
    digests = np.array([b"0" * 32, b"1" * 32], dtype="S32")
    counted = Counted(digests, np.array([0, 1]), np.array([1, 2]))
    content = ClientList(facts={"index": 1}, salt=bytes(range(SALT_BYTES)), kind="", counted=counted).to_bytes()
    (folder / "clients.npz").write_bytes(content)


def _of_client_list(folder: pathlib.Path) -> object:
    refusal = untrusted.staged_refusal("client list")
    return ClientList.from_bytes(untrusted.read_bytes(str(folder / "clients.npz"), refusal), {"index": 1}, refusal)


def _offsets(folder: pathlib.Path) -> None:
    ranges = tuple(OffsetRange(partition=index, first=5, end=9 + index) for index in range(2))
    found = WindowOffsets(
        format=1,
        topic="visits",
        topic_id="a",
        window="2026-01-01",
        cut=1_767_312_000_000,
        salt="0a" * 32,
        ranges=ranges,
    )
    (folder / "offsets.json").write_text(found.model_dump_json())


def _of_offsets(folder: pathlib.Path) -> object:
    path = str(folder / "offsets.json")
    return untrusted.read_json(path, WindowOffsets, record_refusal(path))


FORMATS = {
    "config": Format("job.yaml", _config, _read_config),
    "json_config": Format("job.yaml", _json_config, _read_config, mutations.JSON),
    "model": Format("fit/run.json", _model, _of_model, mutations.JSON),
    "previous": Format("fit/run.json", _previous, _of_previous, mutations.JSON),
    "centers": Format("centers.parquet", _centers, _of_centers),
    "memory": Format("memory.parquet", _memory, _of_memory),
    "manifest": Format("manifest.json", _prepared, _of_prepared, mutations.JSON),
    "parameters": Format("parameters.json", _parameters, _read_parameters, mutations.JSON),
    "reports": Format("r.parquet", _reports, _read_reports),
    "plan": Format("plan.json", _exchange, _read_exchange, mutations.JSON),
    "broadcast": Format(f"{_ROUND_FOLDER}/broadcast.json", _exchange, _read_exchange, mutations.JSON),
    "messages": Format(_MESSAGES, _exchange, _read_exchange),
    "pinned": Format("pinned.parquet", _pinned, _read_pinned),
    "keys": Format(f"{_ROUND_FOLDER}/keys.parquet", _exchange, _read_exchange),
    "letters": Format(f"{_ROUND_FOLDER}/letters.parquet", _exchange, _read_exchange),
    "countersigned": Format(_COUNTERSIGNED, _countersigned, _of_countersigned, mutations.JSON),
    "signed": Format(_COUNTERSIGNED, _signed, _of_signed),
    "sum": Format(f"{_ROUND_FOLDER}/sum.parquet", _exchange, _read_exchange),
    "checkpoint": Format("checkpoint.json", _checkpoint, _read_checkpoint, mutations.JSON),
    "arrays": Format("state.npz", _arrays, _read_arrays),
    "lake": Format("l.parquet", _lake, _read_lake),
    "packed lake": Format("l.parquet", _packed_lake, _read_lake),
    "csv": Format("rows.csv", _csv, _read_csv),
    "packed csv": Format("rows.csv.gz", _packed_csv, _read_packed_csv),
    "client list": Format("clients.npz", _client_list, _of_client_list),
    "offsets": Format("offsets.json", _offsets, _of_offsets, mutations.JSON),
    "ledger": Format("l.sqlite", _ledger, _read_ledger),
}
"""All formats by name."""
