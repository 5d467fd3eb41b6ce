"""Tables of an exchange are bounded by the plan of their round, before Arrow sees them."""

import ast
import inspect
import io
import os
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.exchange import (
    MESSAGE_SCHEMA,
    SUM_SCHEMA,
    MaskedMessages,
    MaskedReleases,
    messages_from_table,
    messages_to_table,
    sum_from_table,
    sum_to_table,
)
from dapple_dp.schemas.masked.pairwise_messages import (
    LETTER_BYTES,
    PINNED_SCHEMA,
    HandedOut,
    Letter,
    SenderKeys,
    pinned_from_table,
    pinned_to_table,
    schema_of,
    sent_from_table,
    sent_to_table,
)
from dapple_dp.schemas.privacy.release_table import RELEASE_SCHEMA, releases_from_table, releases_to_table
from dapple_dp.schemas.settings.format_number import METADATA
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.files.untrusted import TableForm
from dapple_dp.transforms.masked.exchange_files import table_refusal
from dapple_dp.transforms.masked.table_forms import messages_form, pinned_form, releases_form, sent_form, sum_form
from dapple_dp.transforms.numerics.masked.shamir import SHARE_BYTES

ROOT = pathlib.Path(__file__).resolve().parents[3]
REFUSAL = table_refusal("north.sealed")


def round_of(size: int) -> RoundPlan:
    spec = ReleaseSpec(
        name="sums",
        shape=(size,),
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=5,
        share=1.0,
        geometry=Geometry.VECTOR,
    )
    return RoundPlan(path="dp_lloyd/lloyd_00", releases=(ReleasePlan(spec=spec, noise_multiplier=2.0),))


def words(*shape: int) -> np.ndarray:
    return np.frombuffer(os.urandom(8 * int(np.prod(shape))), "<i8").reshape(shape)


def ids(n: int, length: int = 8) -> list[bytes]:
    return [os.urandom(length) for _ in range(n)]


def read(table: pa.Table, form: TableForm) -> pa.Table:
    return untrusted.table_of(table_bytes(table), REFUSAL, form)


@pytest.mark.parametrize(("n", "size"), [(1, 1), (1, 3), (3000, 1), (3000, 7), (2, 200_000), (0, 5), (70_000, 2)])
def test_what_parties_send_is_taken(n, size):
    plan, named = round_of(size), ids(n)
    messages = MaskedMessages(tuple(named), tuple(ids(n, 16)), words(n, size))
    assert messages_from_table(read(messages_to_table(messages, plan), messages_form(plan)), plan).senders == tuple(
        named
    )
    release = Release(path=f"{plan.path}/sums", plan=plan.releases[0], values=words(size), lattice_unit=1.0)
    for tags in (ids(n, 16), [b""] * n):
        masked = MaskedReleases((release,), tuple(named), tuple(tags))
        assert sum_from_table(read(sum_to_table(masked, plan), sum_form(plan)), plan).tags == tuple(tags)
    for values in (words(n, size), np.zeros((n, size), np.int64)):
        pinned = read(pinned_to_table([(named, values)]), pinned_form(size))
        assert pinned_from_table(pinned, size)[0] == named
    few = Release(path=release.path, plan=release.plan, values=np.zeros(size, np.int64), lattice_unit=1.0)
    for each in (release, few):
        assert len(releases_from_table(read(releases_to_table([each]), releases_form(plan)))) == 1


@pytest.mark.parametrize("n", [0, 1, 5, 40_000])
def test_what_parties_send_in_pairs_is_taken(n):
    rows = {
        SenderKeys: [SenderKeys(*triple) for triple in zip(ids(n), ids(n, 32), ids(n, 32), strict=True)],
        Letter: [Letter(i // 7, i % 7, sealed) for i, sealed in enumerate(ids(n, LETTER_BYTES))],
        HandedOut: [HandedOut(i // 7, i % 7, i % 2 == 0, share) for i, share in enumerate(ids(n, SHARE_BYTES))],
    }
    for kind, sent in rows.items():
        path = "dp_lloyd/lloyd_00"
        assert sent_from_table(read(sent_to_table(sent, kind, path), sent_form(kind, path)), kind, path) == sent


N, SIZE = 1 << 17, 1000
PLAN = round_of(SIZE)


def packed(schema: pa.Schema, n: int, **columns) -> bytes:
    """Rows that are all alike, as small as Parquet makes them."""
    alike = {field.name: pa.repeat(pa.scalar(columns[field.name], field.type), n) for field in schema}
    coded = {
        name: array.dictionary_encode() if not pa.types.is_nested(array.type) else array
        for name, array in alike.items()
    }
    table = pa.table(coded).replace_schema_metadata({METADATA: b"1"})
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", store_schema=False, use_dictionary=True)
    return file.getvalue()


WORDS = bytes(8 * SIZE)
SENT = {"round": PLAN.path, "sender": b"1" * 8, "tag": b"t" * 16, "values": WORDS}
BOMBS = {
    "messages": lambda: (packed(MESSAGE_SCHEMA, N, **SENT), messages_form(PLAN)),
    "senders of a sum": lambda: (
        packed(SUM_SCHEMA, 1, round=PLAN.path, values=WORDS, senders=[b"1" * 8] * (1 << 21), tags=[b""]),
        sum_form(PLAN),
    ),
    "sums": lambda: (packed(SUM_SCHEMA, 2, round=PLAN.path, values=WORDS, senders=[b"1"], tags=[b""]), sum_form(PLAN)),
    "keys": lambda: (
        packed(schema_of(SenderKeys), N, round=PLAN.path, sender=b"1" * 8, mask=bytes(32), letters=bytes(32)),
        sent_form(SenderKeys, PLAN.path),
    ),
    "letters": lambda: (
        packed(schema_of(Letter), N, round=PLAN.path, sender=1, receiver=2, sealed=bytes(LETTER_BYTES)),
        sent_form(Letter, PLAN.path),
    ),
    "shares": lambda: (
        packed(schema_of(HandedOut), N, round=PLAN.path, owner=1, holder=2, present=True, share=bytes(SHARE_BYTES)),
        sent_form(HandedOut, PLAN.path),
    ),
    "long shares": lambda: (
        packed(schema_of(HandedOut), 64, round=PLAN.path, owner=1, holder=2, present=True, share=bytes(1 << 24)),
        sent_form(HandedOut, PLAN.path),
    ),
    "pinned": lambda: (packed(PINNED_SCHEMA, N, sender=b"1" * 8, values=bytes(64 * SIZE)), pinned_form(SIZE)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_rows_that_no_party_sends_are_refused_before_arrow_sees_them(name, monkeypatch):
    content, form = BOMBS[name]()
    assert len(content) < 1 << 17
    monkeypatch.setattr(untrusted, "_bounded_table", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(ProtocolError, match=r"more (rows|values) than such a file can hold"):
        untrusted.table_of(content, REFUSAL, form)


def test_other_columns_and_groups_without_rows_are_refused_before_arrow_sees_them(monkeypatch):
    monkeypatch.setattr(pq, "ParquetFile", lambda *_, **__: pytest.fail("opened"))
    many = pa.schema([pa.field(f"c{index}", pa.int64()) for index in range(20_000)])
    inside = pa.schema(
        [("round", pa.struct(list(many))), *((name, pa.binary()) for name in ("sender", "tag", "values"))]
    )
    for schema in (many, inside, pa.schema([])):
        with pytest.raises(ProtocolError, match="got other columns"):
            untrusted.table_of(table_bytes(schema.empty_table()), REFUSAL, messages_form(PLAN))
    file = io.BytesIO()
    with pq.ParquetWriter(file, MESSAGE_SCHEMA) as writer:
        for _ in range(2000):
            writer.write_table(MESSAGE_SCHEMA.empty_table())
    with pytest.raises(ProtocolError, match="more rows than such a file can hold"):
        untrusted.table_of(file.getvalue(), REFUSAL, messages_form(PLAN))


BY_SIZE = {
    "dapple_dp/integrations/beam_yaml.py": "centers of a run that has just ended",
    "dapple_dp/integrations/table_out.py": "rows of anybody's columns, whose digest the manifest has",
    "pipelines/kmeans/fit.py": "what this run's own graph has written",
    "pipelines/kmeans/plan/previous_run.py": "files of a run, whose digests the manifest has",
    "pipelines/kmeans/stream/history.py": "files of a window of this stream",
    "pipelines/plan/verify.py": "any run's releases, whose plan follows from them",
    "pipelines/profile/job.py": "what this run's own graph has written",
    "pipelines/reports/decode.py": "what this run's own graph has written",
    "pipelines/trusted_zone/pooled_fit.py": "what this run's own graph has written",
    "pipelines/trusted_zone/sweep_folder.py": "parts of this sweep",
    "transforms/files/saved_model.py": "anybody's centers",
}
"""Where a table is bounded by the size of its file alone, since nothing else is known of it."""


def test_no_table_is_read_without_a_limit_and_by_its_size_only_where_nothing_else_is_known():
    for function in (untrusted.read_table, untrusted.table_of):
        assert inspect.signature(function).parameters["form"].default is inspect.Parameter.empty
    found = set()
    for package in ("dapple_dp", "pipelines", "schemas", "transforms"):
        for path in sorted((ROOT / package).rglob("*.py")):
            nodes = ast.walk(ast.parse(path.read_text()))
            if any(isinstance(node, ast.Attribute) and node.attr == "by_size" for node in nodes):
                found.add(str(path.relative_to(ROOT)))
    assert found == set(BY_SIZE)
    assert releases_form(PLAN).schema == RELEASE_SCHEMA
