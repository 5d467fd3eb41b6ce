"""Keys, letters and shares as tables: what was written comes back, anything else is refused."""

import pyarrow as pa
import pytest

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.schemas.masked.exchange import ExchangePlan
from dapple_dp.schemas.masked.pairwise_messages import HandedOut, Letter, SenderKeys, sent_from_table, sent_to_table
from dapple_dp.schemas.privacy.noise_shares import ShareLaw

ROWS = {
    SenderKeys: [SenderKeys(b"a", bytes(32), b"k" * 32), SenderKeys(b"b", b"m" * 32, bytes(32))],
    Letter: [Letter(0, 1, b"sealed"), Letter(2, 0, b"")],
    HandedOut: [HandedOut(3, 1, True, bytes(36)), HandedOut(4, 1, False, b"s" * 36)],
}


@pytest.mark.parametrize("kind", ROWS)
def test_tables_give_back_what_was_sent(kind):
    table = sent_to_table(ROWS[kind], kind, "round")
    assert sent_from_table(table, kind, "round") == ROWS[kind]
    assert table.column_names == ["round", *kind._fields]
    assert sent_from_table(sent_to_table([], kind, "round"), kind, "round") == []


@pytest.mark.parametrize("kind", ROWS)
def test_other_rows_are_refused(kind):
    table = sent_to_table(ROWS[kind], kind, "round")
    others = [table.drop_columns(["round"]), table.append_column("more", pa.array([1, 2])), pa.table({"x": [1]})]
    for other, path in [(table, "another"), *((each, "round") for each in others)]:
        with pytest.raises(ProtocolError, match="must hold what its clients sent, got others"):
            sent_from_table(other, kind, path)


@pytest.mark.parametrize("pairwise", [None, PairwiseParams(0.05, 0.3)])
def test_the_plan_says_how_masks_are_made(pairwise):
    plan = ExchangePlan(run="run", nonce=bytes(32), settings="digest", rounds=(), pairwise=pairwise)
    assert ExchangePlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("pairwise", "shares", "got"),
    [
        (
            PairwiseParams(0.05, 0.3),
            ShareLaw(threshold=2, corrupt=0.1, dropout=0.3),
            "got two different limits for senders",
        ),
        (
            PairwiseParams(0.05, 0.3),
            ShareLaw(threshold=2, corrupt=0.05, dropout=0.2),
            "got two different limits for senders",
        ),
        (PairwiseParams(0.58, 0.0), None, "plan.json must be what"),
        (None, ShareLaw(threshold=2, corrupt=0.58, dropout=0.0), "plan.json must be what"),
    ],
)
def test_a_plan_counts_those_who_collude_once_and_no_majority_of_them(pairwise, shares, got):
    plan = ExchangePlan(run="run", nonce=bytes(32), settings="digest", rounds=(), pairwise=pairwise, shares=shares)
    with pytest.raises(ProtocolError, match=got):
        ExchangePlan.from_json(plan.to_json())
