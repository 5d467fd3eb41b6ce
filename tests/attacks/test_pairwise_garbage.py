"""One hostile client of the pairwise scheme stops nobody else: what it sends is left out, in a sentence or silently.

Keys of 32 zeros from one sender once stopped every neighbor with an error that nobody had foreseen.
"""

import pathlib

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.schemas.masked.pairwise_messages import LETTER_BYTES, Leg, Letter, SenderKeys
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.pairwise_lists import Correspondence
from dapple_dp.transforms.numerics.masked import shamir
from dapple_dp.transforms.numerics.masked.pairwise_masks import Revealed
from dapple_dp.transforms.numerics.masked.public_keys import is_sound
from tests.pipeline.masked.test_pairwise_jobs import LLOYD, Parties
from tests.scenes.parties import opened
from tests.unit.masked.test_pairwise import Party

P = 2**255 - 19
LOW_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
    P,
    P + 1,
]
"""Points of low order on the curve and its twist, and other spellings of them; RFC 7748 names the first."""


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_point_of_low_order_is_no_key(point):
    assert not is_sound(point.to_bytes(32, "little"))
    assert not is_sound((point | 1 << 255).to_bytes(32, "little"))


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_a_key_of_another_length_is_refused(length):
    assert not is_sound(bytes(range(1, length + 1)))


def test_honest_keys_are_sound():
    assert all(is_sound(X25519PrivateKey.generate().public_key().public_bytes_raw()) for _ in range(50))


@pytest.fixture
def parties(tmp_path):
    return opened(Parties(tmp_path, **LLOYD))


def folder_of(parties, leg):
    (opened,) = pathlib.Path(parties.exchange).glob("00_*")
    (opened / leg).mkdir(exist_ok=True)
    return opened / leg


GARBAGE = {
    "zeros": (b"z" * 16, bytes(32), bytes(32)),
    "a point of order eight": (b"z" * 16, bytes(range(32)), LOW_ORDER[2].to_bytes(32, "little")),
    "short": (b"z" * 16, b"short", bytes(range(32))),
    "nobody's": (b"", bytes(range(32)), bytes(range(32))),
}


@pytest.mark.slow
def test_hostile_keys_and_letters_are_left_out_and_the_round_goes_on(parties):
    """Three strangers among the keys, and letters of every wrong kind; the others finish the round without them."""
    path = PairwiseExchange(parties.exchange).plan().rounds[0].path
    rows = [{"round": path} | SenderKeys(*each)._asdict() for each in GARBAGE.values()]
    schema = pa.schema([pa.field(name, pa.string() if name == "round" else pa.binary(), False) for name in rows[0]])
    (folder_of(parties, Leg.KEYS) / "hostile.parquet").write_bytes(table_bytes(pa.Table.from_pylist(rows, schema)))
    (folder_of(parties, Leg.KEYS) / "junk.parquet").write_bytes(b"junk")
    assert parties.leg()["left_out"] == ["00_lloyd_00/keys/junk.parquet"]
    listed = PairwiseExchange(parties.exchange).keys(0)
    assert len(listed) == 10
    assert not {each.sender for each in listed} & {each[0] for each in GARBAGE.values()}
    wrong = [(-1, 0, LETTER_BYTES), (0, -1, LETTER_BYTES), (10**12, 1, LETTER_BYTES), (3, 3, LETTER_BYTES), (2, 5, 7)]
    rows = [{"round": path} | Letter(a, b, bytes(n))._asdict() for a, b, n in wrong]
    types = {"round": pa.string(), "sender": pa.int64(), "receiver": pa.int64(), "sealed": pa.binary()}
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])
    (folder_of(parties, Leg.LETTERS) / "hostile.parquet").write_bytes(table_bytes(pa.Table.from_pylist(rows, schema)))
    (folder_of(parties, Leg.LETTERS) / "junk.parquet").write_bytes(b"")
    assert parties.leg()["left_out"] == ["00_lloyd_00/letters/junk.parquet"]
    assert all(len(each.sealed) == LETTER_BYTES for each in PairwiseExchange(parties.exchange).letters(0))
    parties.leg()
    parties.leg(close=False)
    outcome = parties.unmask()
    assert outcome.code == 0, outcome.err
    assert pathlib.Path(parties.released, "00.parquet").exists()


def test_a_list_with_a_hostile_key_is_refused_in_a_sentence():
    keys = [SenderKeys(bytes([each]), bytes([each + 9]) * 32, bytes([each + 9]) * 32) for each in range(3)]
    keys.append(SenderKeys(b"zz", bytes(32), bytes(32)))
    with pytest.raises(ProtocolError, match="the aggregator lists a key that is invalid"):
        Correspondence.of(keys, [], [], PairwiseParams(0.0, 0.1))


def test_letters_of_numbers_that_nobody_has_are_not_looked_at():
    keys = [SenderKeys(bytes([each]), bytes([each + 9]) * 32, bytes([each + 9]) * 32) for each in range(3)]
    letters = [Letter(-1, 0, b""), Letter(0, 3, b""), Letter(2**62, 1, b""), Letter(0, 1, b""), Letter(0, 2, b"")]
    found = Correspondence.of(keys, letters, keys[:1], PairwiseParams(0.0, 0.0))
    assert found.shared == {0}


def changed(answer, **fields):
    return answer._replace(**fields)


WRONG = {
    "another length": lambda each: changed(each, share=each.share[:-1]),
    "no residues": lambda each: changed(each, share=each.share + shamir.PRIME),
    "negative": lambda each: changed(each, share=-each.share - 1),
    "an owner that nobody is": lambda each: changed(each, owner=99),
    "a holder that nobody is": lambda each: changed(each, holder=99),
    "a holder below zero": lambda each: changed(each, holder=-1),
    "its own holder": lambda each: changed(each, holder=each.owner),
    "limbs that no secret has": lambda each: changed(each, share=np.full(shamir.N_LIMBS, shamir.PRIME - 1)),
}


@pytest.mark.parametrize("gone", [(), (2,)], ids=["all present", "one gone"])
@pytest.mark.parametrize("kind", WRONG)
def test_wrong_shares_of_one_holder_are_left_out(kind, gone):
    """Shares of the first holder are wrong, for every owner; the sum comes back by the others'."""
    party = Party(8, threshold=4)
    present = frozenset(range(8)) - frozenset(gone)
    answers = [WRONG[kind](each) if each.holder == 0 else each for each in party.revealed(present)]
    masked = party.messages()[sorted(present)].sum(axis=0)
    plain = party.statistics[sorted(present)].sum(axis=0)
    np.testing.assert_array_equal(masked - party.total(present, answers), plain)


@pytest.mark.parametrize("owner", [7, 3], ids=["key", "seed"])
def test_a_wrong_share_is_found_out_even_where_it_decodes(owner):
    """A key is compared with the public one, a seed with its tag; a share that is off by one gives another secret."""
    party, present = Party(8, threshold=4), frozenset(range(7))
    off = np.eye(1, shamir.N_LIMBS, dtype=np.int64)[0]
    answers = [
        changed(each, share=(each.share + off) % shamir.PRIME) if (each.owner, each.holder) == (owner, 0) else each
        for each in party.revealed(present)
    ]
    masked = party.messages()[sorted(present)].sum(axis=0)
    plain = party.statistics[sorted(present)].sum(axis=0)
    np.testing.assert_array_equal(masked - party.total(present, answers), plain)


@pytest.mark.parametrize("other", [{"context": b"another run"}, {"seed": 1}], ids=["run", "statistics"])
def test_sound_shares_of_other_seeds_are_refused(other):
    """Once they made the sum a random number: files of another run, or of an attempt on other rows, do decode."""
    party, present = Party(6, threshold=3), frozenset(range(6))
    with pytest.raises(ProtocolError, match="clients handed out other shares than those sent to them"):
        party.total(present, Party(6, threshold=3, **other).revealed(present))


def test_a_tag_reveals_neither_client_nor_statistic():
    """It differs wherever a mask does, and is the same where a message is sent again."""
    parties = [Party(5), Party(5, seed=1), Party(5, context=b"another run")]
    tags = [client.tag(party.statistics[client.number]) for party in parties for client in party.clients]
    assert len(set(tags)) == len(tags) == 15
    assert tags[:5] == [client.tag(row) for client, row in zip(Party(5).clients, parties[0].statistics, strict=True)]


def test_shares_that_fit_nowhere_are_refused_in_a_sentence():
    party, present = Party(6, threshold=3), frozenset(range(5))
    answers = [
        Revealed(each.owner, each.holder, each.present, np.full(shamir.N_LIMBS, 5 + each.holder))
        for each in party.revealed(present)
    ]
    with pytest.raises(ProtocolError, match="clients handed out other shares than those sent to them"):
        party.total(present, answers)


def test_letters_of_another_length_are_left_out():
    party = Party(5, threshold=2)
    inbox = party.inbox(0)
    sizes = dict(zip(inbox, (0, 5, 40), strict=False))
    short = {owner: (inbox[owner][0], inbox[owner][1][:size]) for owner, size in sizes.items()}
    revealed = party.clients[0].reveal(inbox | short, frozenset(range(5)))
    assert {each.owner for each in revealed} == set(inbox) - set(short)
