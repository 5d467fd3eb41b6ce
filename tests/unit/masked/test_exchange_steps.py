"""Steps that read and write the exchange, one by one without a pipeline: each file comes back as it was sent."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.pipelines.masked import aggregate, pairwise_upload, unmask, upload
from dapple_dp.pipelines.masked.clients_role import SHARES
from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.schemas.masked.exchange import SUM_SCHEMA, ExchangePlan, MaskedMessages, sum_from_table
from dapple_dp.schemas.masked.pairwise_messages import HandedOut, Leg, Letter, SenderKeys
from dapple_dp.transforms.masked.exchange_files import MESSAGES, read_releases
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.party_state import RunState
from dapple_dp.transforms.masked.sealing import Sealing
from dapple_dp.transforms.numerics.masked.public_keys import private_key, public_key
from tests.scenes import lake
from tests.scenes.gaussian_rounds import round_of

FIRST, SECOND = dataclasses.replace(round_of(sums=4), path="run/first"), round_of(sums=4, counts=4)
PLAN = ExchangePlan(
    run="run",
    nonce=bytes(range(32)),
    settings="digest",
    rounds=(FIRST, SECOND),
    pairwise=PairwiseParams(corrupt=0.0, dropout=0.25),
)
INDEX = 1
VALUES = np.random.default_rng(1).integers(-(2**62), 2**62, (3, SECOND.size))
SENDERS = tuple(number.to_bytes(8, "big") for number in range(3))
SENT = MaskedMessages(SENDERS, (b"t0", b"t1", b"t2"), VALUES)
SECRET = bytes(range(50, 82))


class Place:
    """An exchange in which the second round is open, and the keys of an aggregator and of who unmasks."""

    def __init__(self, folder):
        self.folder = str(folder / "exchange")
        self.exchange = PairwiseExchange(self.folder)
        self.exchange.open(PLAN)
        self.key_uri = lake.write_key(folder / "aggregator")
        self.secret_uri = lake.write_key(folder / "secret", SECRET)
        self.kept = RunState(folder=str(folder / "state"))

    def sealing(self, key=lake.KEY, purpose=MESSAGES):
        return Sealing(receiver=public_key(private_key(key, PLAN.nonce, purpose)), secret_uri=self.secret_uri)

    def send(self, sent, leg, client="north"):
        pairwise_upload._send(sent, self.folder, INDEX, client, leg, self.sealing(), None, self.kept)

    def messages(self):
        (path,) = self.exchange.message_files(INDEX)
        (found,) = aggregate._read(path, self.folder, INDEX, self.key_uri, None)
        return found


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def equal(left, right):
    return (left.senders, left.tags) == (right.senders, right.tags) and np.array_equal(left.values, right.values)


def masked_sum(senders):
    row = {"round": SECOND.path, "senders": senders, "tags": [b"t"] * len(senders), "values": VALUES[0].tobytes()}
    return sum_from_table(pa.Table.from_pylist([row], schema=SUM_SCHEMA), SECOND)


def test_messages_of_a_client_come_as_they_were_sent_and_what_was_pinned_is_gone(place):
    place.kept.pin(FIRST.path, b"rows")
    place.kept.pin(SECOND.path, b"rows")
    place.send(SENT._replace(senders=SENDERS[::-1], tags=SENT.tags[::-1], values=VALUES[::-1]), Leg.MESSAGES)
    assert equal(place.messages(), SENT)
    assert not place.kept.is_pinned(SECOND.path)
    assert place.exchange.arrived(INDEX, Leg.KEYS) == {}


def test_messages_of_a_shared_secret_come_as_they_were_sent(place):
    halves = [SENT._replace(senders=SENT.senders[own], tags=SENT.tags[own], values=VALUES[own])
              for own in (slice(1, 3), slice(0, 1))]  # fmt: skip
    upload._send(halves, place.folder, INDEX, "north", place.sealing(), None, place.kept)
    assert equal(place.messages(), SENT)
    changed = SENT._replace(values=VALUES + 1)
    upload._send([changed], place.folder, INDEX, "north", place.sealing(), None, place.kept)
    assert equal(place.messages(), SENT)  # asked twice, the first answer


def test_a_client_without_senders_sends_no_file_and_no_file_is_a_batch_without_messages(place):
    place.send(MaskedMessages((), (), VALUES[:0]), Leg.MESSAGES)
    assert place.exchange.message_files(INDEX) == []
    (nothing,) = aggregate._read("", place.folder, INDEX, place.key_uri, None)
    assert (nothing.senders, nothing.tags, nothing.values.shape) == ((), (), (0, SECOND.size))
    assert nothing.values.dtype == np.int64
    (first,) = aggregate._read("", place.folder, 0, place.key_uri, None)
    assert first.values.shape == (0, FIRST.size) != nothing.values.shape


def test_keys_and_letters_are_left_row_by_row(place):
    keys = [SenderKeys(name, bytes([number]) * 32, b"k" * 32) for number, name in enumerate((b"a", b"b"))]
    place.send(keys, Leg.KEYS)
    assert place.exchange.own_keys(INDEX, "north") == keys
    assert place.exchange.message_files(INDEX) == []
    place.send([Letter(1, 0, bytes(120))], Leg.LETTERS)
    assert set(place.exchange.arrived(INDEX, Leg.LETTERS)) == {"north"}


def test_a_sum_is_written_once_and_of_those_who_have_shared(place):
    public = [public_key(private_key(SECRET, bytes([number]), "keys")) for number in range(4)]
    names = (b"a", b"b", b"c", b"d")
    place.send([SenderKeys(name, key, key) for name, key in zip(names, public, strict=True)], Leg.KEYS)
    place.exchange.close_keys(INDEX, 2)
    place.send([Letter(sender, 3, bytes(120)) for sender in range(3)], Leg.LETTERS)
    place.exchange.close_letters(INDEX, 2)
    with pytest.raises(ProtocolError, match="a message comes from a sender whose letters are not listed"):
        aggregate._close(masked_sum([*SENDERS, (3).to_bytes(8, "big")]), place.folder, INDEX, True, None)
    assert not place.exchange.is_closed(INDEX)
    aggregate._close(masked_sum(list(SENDERS)), place.folder, INDEX, True, None)
    found, _ = place.exchange.read_sum(INDEX)
    assert found.senders == SENDERS
    np.testing.assert_array_equal(np.concatenate([each.values for each in found.releases]), VALUES[0])
    assert not place.exchange.is_closed(0)


def test_a_sum_of_a_shared_secret_has_no_list_of_letters(place):
    aggregate._close(masked_sum([b"anyone"]), place.folder, INDEX, False, None)
    assert place.exchange.read_sum(INDEX)[0].senders == (b"anyone",)


def test_shares_come_to_the_party_that_unmasks_and_garbage_is_left_out(place, tmp_path):
    rows = [HandedOut(0, 1, True, bytes(36)), HandedOut(2, 1, False, b"s" * 36)]
    folder, sealing = tmp_path / "shares", place.sealing(SECRET, SHARES)
    folder.mkdir()
    for client, own in (("north", rows[:1]), ("south", rows[1:])):
        pairwise_upload._hand_out(own, str(folder / f"{client}.sealed"), place.folder, INDEX, sealing, None)
    stranger = place.sealing(bytes(32), SHARES)
    pairwise_upload._hand_out(rows, str(folder / "east.sealed"), place.folder, INDEX, stranger, None)
    (folder / "west.sealed").write_bytes(b"garbage")
    (folder / "copy.sealed").write_bytes((folder / "north.sealed").read_bytes())

    def handed(index, nonce=PLAN.nonce):
        return unmask._handed(str(folder), place.folder, index, place.secret_uri, nonce, None)

    assert handed(INDEX) == rows
    assert handed(0) == handed(INDEX, bytes(32)) == []


def test_releases_are_kept_in_their_file(tmp_path):
    releases = masked_sum([b"a"]).releases
    unmask._keep(releases, str(tmp_path / "releases.parquet"))
    found = read_releases(str(tmp_path / "releases.parquet"), PLAN.rounds[INDEX])
    assert [each.path for each in found] == [each.path for each in releases]
    assert all(np.array_equal(*(each.values for each in pair)) for pair in zip(found, releases, strict=True))
