"""What roles of masked aggregation leave for each other in the exchange folder: all of it may be read by anyone.

The plan is public; messages and sums are uniform to whoever lacks the clients' secret.
"""

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.errors import ProtocolError
from schemas.masked.message import MaskedMessages
from schemas.masked.pairwise_messages import PairwiseParams
from schemas.privacy.masked_sum import MaskedReleases
from schemas.privacy.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from schemas.privacy.release import Release

MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("round", pa.string(), nullable=False),
        pa.field("sender", pa.binary(), nullable=False),
        pa.field("tag", pa.binary(), nullable=False),
        pa.field("values", pa.binary(), nullable=False),
    ]
)
NONCE_BYTES = 32
"""Random octets of a run, at least."""
SUM_SCHEMA = pa.schema(
    [
        pa.field("round", pa.string(), nullable=False),
        pa.field("senders", pa.list_(pa.binary()), nullable=False),
        pa.field("tags", pa.list_(pa.binary()), nullable=False),
        pa.field("values", pa.large_binary(), nullable=False),
    ]
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePlan:
    """What everybody who takes part in a run knows.

    Attributes:
      run: names the run.
      nonce: random octets, drawn when the run is opened: no two runs have the same, whatever they are called.
      settings: digest of the settings that all clients must share.
      rounds: paths, laws of noise, sensitivities and shapes, in order.
      pairwise: None for masks from a shared secret; else the shares of clients that may collude and drop out.
      collector: with pairwise masks the public key of whoever unmasks: shares are sealed to it.
    """

    run: str
    nonce: bytes
    settings: str
    rounds: tuple[RoundPlan, ...]
    pairwise: PairwiseParams | None = None
    collector: bytes | None = None

    def to_json(self) -> str:
        """Content of `plan.json`."""
        rounds = [{"path": each.path, "releases": [_release_to_json(r) for r in each.releases]} for each in self.rounds]
        pairwise = None if self.pairwise is None else self.pairwise._asdict()
        found: dict[str, Any] = {"run": self.run, "nonce": self.nonce.hex(), "settings": self.settings}
        found |= {"rounds": rounds, "pairwise": pairwise}
        found["collector"] = None if self.collector is None else self.collector.hex()
        return json.dumps(found, indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "ExchangePlan":
        """Inverse of `to_json`.

        Raises:
          ProtocolError: if the text is something else.
        """
        try:
            found = json.loads(text)
            rounds = tuple(
                RoundPlan(path=each["path"], releases=tuple(map(_release_from_json, each["releases"])))
                for each in found["rounds"]
            )
            pairwise = None if found["pairwise"] is None else PairwiseParams(**found["pairwise"])
            run, nonce, settings = (_text(found[name]) for name in ("run", "nonce", "settings"))
            collector = None if found["collector"] is None else bytes.fromhex(_text(found["collector"]))
            plan = cls(run=run, nonce=_nonce(nonce), settings=settings, rounds=rounds, pairwise=pairwise)
            return dataclasses.replace(plan, collector=collector)
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(
                "plan.json must be what `dapple unmask` wrote, got another file; open a new run."
            ) from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError("not a text")
    return value


def _nonce(text: str) -> bytes:
    nonce = bytes.fromhex(text)
    if len(nonce) < NONCE_BYTES:
        raise ValueError("too short")
    return nonce


def _release_to_json(plan: ReleasePlan) -> dict[str, Any]:
    spec = dataclasses.asdict(plan.spec) | {"mechanism": str(plan.spec.mechanism), "geometry": str(plan.spec.geometry)}
    return spec | {"noise_multiplier": plan.noise_multiplier}


def _release_from_json(row: dict[str, Any]) -> ReleasePlan:
    spec = ReleaseSpec(
        name=row["name"],
        shape=tuple(row["shape"]),
        mechanism=Mechanism(row["mechanism"]),
        sensitivity=row["sensitivity"],
        share=row["share"],
        geometry=Geometry(row["geometry"]),
    )
    return ReleasePlan(spec=spec, noise_multiplier=row["noise_multiplier"])


def messages_to_table(messages: MaskedMessages, plan: RoundPlan) -> pa.Table:
    """One row per message: round, sender, tag and the masked vector's octets."""
    values = [row.tobytes() for row in messages.values.astype("<i8")]
    columns = [[plan.path] * len(values), messages.senders, messages.tags, values]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, MESSAGE_SCHEMA, strict=True)], MESSAGE_SCHEMA)


def messages_from_table(table: pa.Table, plan: RoundPlan) -> MaskedMessages:
    """Inverse of `messages_to_table`.

    Raises:
      ProtocolError: if the rows are not messages of that round.
    """
    values: list[bytes] = table.column("values").to_pylist() if table.schema.equals(MESSAGE_SCHEMA) else [b""]
    if {len(each) for each in values} - {8 * plan.size} or set(table.column("round").to_pylist()) - {plan.path}:
        raise ProtocolError(
            f"messages of round {plan.path} must hold {plan.size} words each, got others; take such files away."
        )
    vectors = np.frombuffer(b"".join(values), dtype="<i8").astype(np.int64).reshape(len(values), plan.size)
    return MaskedMessages(tuple(table.column("sender").to_pylist()), tuple(table.column("tag").to_pylist()), vectors)


def sum_to_table(masked: MaskedReleases, plan: RoundPlan) -> pa.Table:
    """One row: the noised masked sum, and the final list of who is in it."""
    values = np.concatenate([release.values.ravel() for release in masked.releases]).astype("<i8").tobytes()
    row = {"round": plan.path, "senders": list(masked.senders), "tags": list(masked.tags), "values": values}
    return pa.Table.from_pylist([row], schema=SUM_SCHEMA)


def sum_from_table(table: pa.Table, plan: RoundPlan) -> MaskedReleases:
    """Inverse of `sum_to_table`.

    Raises:
      ProtocolError: if the row is not the sum of that round.
    """
    row = table.to_pylist()[0] if table.schema.equals(SUM_SCHEMA) and table.num_rows == 1 else None
    if row is None or row["round"] != plan.path or len(row["values"]) != 8 * plan.size:
        raise ProtocolError(f"the sum of round {plan.path} must hold {plan.size} words, got another; ask for it again.")
    values = np.frombuffer(row["values"], dtype="<i8").astype(np.int64)
    ends = np.cumsum([each.spec.size for each in plan.releases])
    releases = tuple(
        Release(path=f"{plan.path}/{each.spec.name}", plan=each, values=part.reshape(each.spec.shape))
        for each, part in zip(plan.releases, np.split(values, ends[:-1]), strict=True)
    )
    return MaskedReleases(releases, tuple(row["senders"]), tuple(row["tags"]))
