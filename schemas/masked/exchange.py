"""Files that the roles of masked aggregation exchange in a folder; anyone may read them.

The plan is public; messages and sums are uniform to anyone without the clients' secret.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.schemas.settings.format_number import NAME, with_number
from dapple_dp.schemas.settings.json_schema import FileContent, NumberedFile, parse_as
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal
from dapple_dp.schemas.settings.run_manifest import Digest

MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("round", pa.string(), nullable=False),
        pa.field("sender", pa.binary(), nullable=False),
        pa.field("tag", pa.binary(), nullable=False),
        pa.field("values", pa.binary(), nullable=False),
    ]
)
NONCE_BYTES = 32
"""Minimum length of a run's nonce."""
SUM_SCHEMA = pa.schema(
    [
        pa.field("round", pa.string(), nullable=False),
        pa.field("senders", pa.list_(pa.binary()), nullable=False),
        pa.field("tags", pa.list_(pa.binary()), nullable=False),
        pa.field("values", pa.large_binary(), nullable=False),
    ]
)


_MOST_PLAN_BYTES = 1 << 24
_MOST_WORDS = 1 << 28
_MOST_ROUNDS = 1 << 12
_LARGEST_SCALE = 2.0**62
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,255}$")]
_Setting = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,255}$")]
_Length = Annotated[int, Field(ge=1, le=_MOST_WORDS)]
PublicKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class MaskedMessages(NamedTuple):
    """Messages of one round as the aggregator sees them.

    Attributes:
      senders: pseudonyms in this round, one per message.
      tags: tags of the messages, by which those who can compute the masks find them.
      values: int64, shape (n_messages, size), masked.
    """

    senders: tuple[bytes, ...]
    tags: tuple[bytes, ...]
    values: NDArray[np.int64]

    @classmethod
    def joined(cls, batches: Sequence["MaskedMessages"]) -> "MaskedMessages":
        """Joins the messages of at least one batch and sorts them by sender.

        Raises:
          ProtocolError: if a sender has two messages.
        """
        senders = [sender for batch in batches for sender in batch.senders]
        tags = [tag for batch in batches for tag in batch.tags]
        order = sorted(range(len(senders)), key=senders.__getitem__)
        if len(set(senders)) < len(senders):
            raise ProtocolError(
                "a sender must send one message per round, got two from the same sender; for privacy unit client, "
                "group the rows by client first (dapple prepare)."
            )
        values = np.concatenate([batch.values for batch in batches])[order]
        return cls(tuple(senders[place] for place in order), tuple(tags[place] for place in order), values)


class MaskedSum(NamedTuple):
    """The sum of masked messages; uniform on Z_2^64 to anyone without the masks.

    Attributes:
      values: int64, shape (size,), wrapping.
      senders: pseudonyms of those who were present.
      tags: tags of their messages, in the same order.
    """

    values: NDArray[np.int64]
    senders: tuple[bytes, ...]
    tags: tuple[bytes, ...]


class MaskedReleases(NamedTuple):
    """The noised masked sum: unreadable until the masks of those present are subtracted.

    Attributes:
      releases: releases of one round; `values` are masked.
      senders: pseudonyms of those who were present, the final set of the round.
      tags: tags of their messages, in the same order.
    """

    releases: tuple[Release, ...]
    senders: tuple[bytes, ...]
    tags: tuple[bytes, ...]


class _ReleaseContent(FileContent):
    name: _Name
    shape: Annotated[tuple[_Length, ...], Field(max_length=4)]
    mechanism: Mechanism
    sensitivity: Annotated[int, Field(ge=1, lt=1 << 62)]
    share: Annotated[float, Field(gt=0.0)]
    geometry: Geometry
    noise_multiplier: Annotated[float, Field(gt=0.0)]

    def plan(self) -> ReleasePlan:
        """Returns the plan of the release; raises MalformedError if its noise would exceed the lattice."""
        if self.noise_multiplier * self.sensitivity >= _LARGEST_SCALE:
            raise MalformedError("noise that is too large to draw")
        spec = dict(self)
        return ReleasePlan(noise_multiplier=spec.pop("noise_multiplier"), spec=ReleaseSpec(**spec))


class _RoundContent(FileContent):
    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$", max_length=255)]
    releases: Annotated[list[_ReleaseContent], Field(min_length=1, max_length=64)]

    def plan(self) -> RoundPlan:
        """Returns the plan of the round; raises MalformedError if its vector is longer than a message can be."""
        plan = RoundPlan(path=self.path, releases=tuple(release.plan() for release in self.releases))
        if plan.size > _MOST_WORDS:
            raise MalformedError(f"more than {_MOST_WORDS} words in a round")
        return plan


class _PlanContent(NumberedFile):
    run: _Name
    nonce: Annotated[str, Field(pattern=rf"^(?:[0-9a-f]{{2}}){{{NONCE_BYTES},255}}$")]
    settings: _Name
    rounds: Annotated[list[_RoundContent], Field(max_length=_MOST_ROUNDS)]
    pairwise: PairwiseParams | None
    collector: PublicKey | None
    shares: ShareLaw | None


class AggregatorContent(NumberedFile):
    """Content of `aggregator.json`: the public key to which messages are sealed."""

    key: PublicKey


class BroadcastContent(NumberedFile):
    """Content of `broadcast.json`: digest of the broadcast, and path of the round."""

    broadcast: Digest
    round: str


class RefusedContent(NumberedFile):
    """Content of a refusal: the settings in which a party's job differs from the run's."""

    keys: Annotated[tuple[_Setting, ...], Field(max_length=1 << 10)]


class CountersignedContent(NumberedFile):
    """Content of a countersignature: digest of the evidence that the aggregator showed a client on a closed round."""

    shown: Digest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePlan:
    """Public plan of a run, known to all its participants.

    Attributes:
      run: name of the run.
      nonce: random bytes from the opening of the run, different for all runs, even of the same name.
      settings: digest of the settings that all clients must share.
      rounds: paths, noise laws, sensitivities and shapes, in order.
      pairwise: largest shares of clients that may collude and drop out; None for masks from a shared secret.
      collector: with pairwise masks, the public key to which shares are sealed, of the party that unmasks.
      shares: split of the noise among the senders; None if there is none.
    """

    run: str
    nonce: bytes
    settings: str
    rounds: tuple[RoundPlan, ...]
    pairwise: PairwiseParams | None = None
    collector: bytes | None = None
    shares: ShareLaw | None = None

    @property
    def content(self) -> dict[str, Any]:
        """The plan as plain data, without its format number."""
        rounds = [{"path": plan.path, "releases": [_release_to_json(r) for r in plan.releases]} for plan in self.rounds]
        pairwise = None if self.pairwise is None else self.pairwise._asdict()
        content: dict[str, Any] = {"run": self.run, "nonce": self.nonce.hex(), "settings": self.settings}
        content |= {"rounds": rounds, "pairwise": pairwise}
        content["collector"] = None if self.collector is None else self.collector.hex()
        content["shares"] = None if self.shares is None else dataclasses.asdict(self.shares)
        return content

    def to_json(self) -> str:
        """Returns the content of `plan.json`."""
        return json.dumps(with_number(self.content), indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: bytes | str) -> "ExchangePlan":
        """Inverse of `to_json`.

        Raises:
          ProtocolError: if the text isn't a valid plan.
        """
        rule = "plan.json must be what `dapple masked unmask` wrote"
        refusal = Refusal(kind=ProtocolError, rule=rule, remedy="open a new run")
        content = parse_as(text, _PlanContent, refusal, _MOST_PLAN_BYTES)
        with refusal.covers():
            rounds = tuple(round_.plan() for round_ in content.rounds)
            if len({round_.path for round_ in rounds}) < len(rounds):
                raise MalformedError("a round twice")
            pairwise, shares = content.pairwise, content.shares
            if pairwise and shares and pairwise != (shares.corrupt, shares.dropout):
                raise MalformedError("two different limits for senders that collude or drop out")
            collector = None if content.collector is None else bytes.fromhex(content.collector)
            nonce = bytes.fromhex(content.nonce)
            more = {"nonce": nonce, "collector": collector, "rounds": rounds}
            return cls(**{name: value for name, value in content if name != NAME} | more)


def _release_to_json(plan: ReleasePlan) -> dict[str, Any]:
    result = plan.spec.law | {"noise_multiplier": plan.noise_multiplier}
    del result["windows"]  # No window of an epoch is masked.
    return result


def messages_to_table(messages: MaskedMessages, plan: RoundPlan) -> pa.Table:
    """Returns one row per message: round, sender, tag and the masked vector's bytes."""
    values = [row.tobytes() for row in messages.values.astype("<i8")]
    columns = [[plan.path] * len(values), messages.senders, messages.tags, values]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, MESSAGE_SCHEMA, strict=True)], MESSAGE_SCHEMA)


def messages_from_table(table: pa.Table, plan: RoundPlan) -> MaskedMessages:
    """Inverse of `messages_to_table`.

    Raises:
      ProtocolError: if the rows aren't messages of that round.
    """
    values: list[bytes] = table.column("values").to_pylist() if table.schema.equals(MESSAGE_SCHEMA) else [b""]
    if {len(value) for value in values} - {8 * plan.size} or set(table.column("round").to_pylist()) - {plan.path}:
        raise ProtocolError(
            f"messages of round {plan.path} must hold {plan.size} words each, got another number; remove the files "
            "that don't."
        )
    vectors = np.frombuffer(b"".join(values), dtype="<i8").astype(np.int64).reshape(len(values), plan.size)
    return MaskedMessages(tuple(table.column("sender").to_pylist()), tuple(table.column("tag").to_pylist()), vectors)


def sum_to_table(masked: MaskedReleases, plan: RoundPlan) -> pa.Table:
    """Returns one row: the noised masked sum, and the final list of its senders."""
    values = np.concatenate([release.values.ravel() for release in masked.releases]).astype("<i8").tobytes()
    row = {"round": plan.path, "senders": list(masked.senders), "tags": list(masked.tags), "values": values}
    return pa.Table.from_pylist([row], schema=SUM_SCHEMA)


def sum_from_table(table: pa.Table, plan: RoundPlan) -> MaskedReleases:
    """Inverse of `sum_to_table`.

    Raises:
      ProtocolError: if the row isn't the sum of that round.
    """
    row = table.to_pylist()[0] if table.schema.equals(SUM_SCHEMA) and table.num_rows == 1 else None
    sound = row is not None and row["round"] == plan.path and len(row["values"]) == 8 * plan.size
    if row is None or not sound or None in row["senders"] or None in row["tags"]:
        raise ProtocolError(
            f"the sum of round {plan.path} must hold {plan.size} words, got another number; request the sum again."
        )
    values = np.frombuffer(row["values"], dtype="<i8").astype(np.int64)
    ends = np.cumsum([release.spec.size for release in plan.releases])
    releases = tuple(
        Release(path=f"{plan.path}/{release.spec.name}", plan=release, values=part.reshape(release.spec.shape))
        for release, part in zip(plan.releases, np.split(values, ends[:-1]), strict=True)
    )
    return MaskedReleases(releases, tuple(row["senders"]), tuple(row["tags"]))
