"""Pairwise masks: the sums come back bit for bit, whichever clients drop out; never both shares of a client."""

import itertools

import numpy as np
import pytest

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.numerics.masked.neighbors import circle
from dapple_dp.transforms.numerics.masked.pairwise_masks import (
    Neighbor,
    PairwiseClient,
    Revealed,
    SharedRound,
    agreed_seed,
    total_mask,
)
from tests.statistical.test_mask_uniformity import looks_uniform

CONTEXT = encode_label("run", "feddp_kmeans/weights", b"broadcast")
SIZE = 6


def secret_of(number):
    return bytes([number]) * 32


class Party:
    """Clients that have shared, on a circle."""

    def __init__(self, n, k=None, threshold=None, size=SIZE, context=CONTEXT, seed=0, statistics=None):
        self.size, self.context = size, context
        drawn = np.random.default_rng(seed).integers(-(2**62), 2**62, (n, size))
        self.statistics = drawn if statistics is None else statistics
        self.clients = [PairwiseClient(secret_of(number), number, context) for number in range(n)]
        self.keys = {client.number: client.advertise() for client in self.clients}
        self.neighbors = dict(enumerate(circle(n, k or n - 1, bytes(16)).tolist()))
        self.threshold = threshold or len(self.neighbors[0]) // 2 + 1
        self.letters = {
            each.number: each.share(self.around(each.number), self.threshold, self.statistics[each.number])
            for each in self.clients
        }

    def around(self, number):
        return [Neighbor(other, self.keys[other]) for other in self.neighbors[number]]

    def messages(self):
        return np.stack([c.mask(self.around(c.number), self.statistics[c.number]) for c in self.clients])

    def inbox(self, holder):
        return {o: (Neighbor(o, self.keys[o]), self.letters[o][holder]) for o in self.neighbors[holder]}

    def revealed(self, present, silent=()):
        holders = [each for each in self.clients if each.number in present - set(silent)]
        return [share for each in holders for share in each.reveal(self.inbox(each.number), present)]

    def total(self, present, revealed):
        tags = {number: self.clients[number].tag(self.statistics[number]) for number in present}
        shared = SharedRound(self.keys, self.neighbors, self.threshold, self.context, tags)
        return total_mask(revealed, shared, present, self.size)


@pytest.mark.parametrize(("n", "k"), [(5, None), (10, None), (20, 12)])
@pytest.mark.parametrize("share", [0.0, None, 0.3])
def test_unmasked_sums_are_plain_sums_of_those_present(n, k, share):
    party = Party(n, k, threshold=2)
    n_gone = 1 if share is None else int(share * n)
    present = frozenset(range(n)) - frozenset(np.random.default_rng(1).permutation(n)[:n_gone].tolist())
    masked = party.messages()[sorted(present)].sum(axis=0)
    unmasked = masked - party.total(present, party.revealed(present))
    np.testing.assert_array_equal(unmasked, party.statistics[sorted(present)].sum(axis=0))


def test_some_of_those_present_may_be_silent_in_the_end():
    party = Party(10, threshold=5)
    present = frozenset(range(9))
    masked = party.messages()[:9].sum(axis=0)
    found = party.total(present, party.revealed(present, silent={0, 1}))
    np.testing.assert_array_equal(masked - found, party.statistics[:9].sum(axis=0))
    with pytest.raises(ProtocolError, match="at least 5 neighbors of every client must hand out shares"):
        Party(10, threshold=5).total(present, party.revealed(present, silent={0, 1, 2, 3, 4}))


def test_messages_are_uniform_and_so_are_sums_of_some():
    party = Party(30, 12, size=2000, statistics=np.full((30, 2000), 1 << 20))
    messages, everyone = party.messages(), frozenset(range(30))
    assert looks_uniform(messages)
    assert looks_uniform(messages[:20].sum(axis=0))
    assert looks_uniform(messages.sum(axis=0))
    assert not looks_uniform(messages.sum(axis=0) - party.total(everyone, party.revealed(everyone)))


def test_shares_are_of_the_seed_of_the_message_that_was_shared():
    """A message of other data than were shared cannot be unmasked, rather than share a mask with the first one."""
    party, everyone = Party(5), frozenset(range(5))
    party.statistics[0, 0] += 1
    with pytest.raises(ProtocolError, match="clients handed out other shares than those sent to them"):
        party.total(everyone, party.revealed(everyone))


def test_masks_of_two_clients_cancel():
    left, right = (PairwiseClient(secret_of(number), number, CONTEXT) for number in (0, 1))
    seeds = [
        agreed_seed(own._mask_private, other.advertise().mask, numbers, CONTEXT)
        for own, other, numbers in ((left, right, (0, 1)), (right, left, (1, 0)))
    ]
    assert seeds[0] == seeds[1]
    statistic = np.zeros(4, dtype=np.int64)
    ends = ((left, right), (right, left))
    pair = sum(own.mask([Neighbor(other.number, other.advertise())], statistic) for own, other in ends)
    np.testing.assert_array_equal(pair, left.mask([], statistic) + right.mask([], statistic))


def test_a_retry_repeats_its_bytes():
    first, again = Party(5), Party(5)
    assert first.letters == again.letters
    np.testing.assert_array_equal(first.messages(), again.messages())


def test_no_mask_is_used_for_two_messages():
    """Masks differ by client, round and statistic; of two attempts with other data only one seed is ever shared."""
    base, other_round = Party(5), Party(5, context=encode_label("run", "feddp_kmeans/centers", b"broadcast"))
    other_data = Party(5, seed=1)
    masks = [row for party in (base, other_round, other_data) for row in party.messages() - party.statistics]
    for left, right in itertools.combinations(masks, 2):
        assert not np.equal(left, right).any()


def test_never_both_shares_of_one_client():
    """A client answers one list of who is present; a collector refuses to work with shares of both kinds."""
    party = Party(6)
    everyone, fewer = frozenset(range(6)), frozenset(range(5))
    revealed = party.revealed(everyone)
    assert all(each.present for each in revealed)
    for client in party.clients[:5]:
        with pytest.raises(ProtocolError, match="a second list of who is present has arrived"):
            client.reveal(party.inbox(client.number), fewer)
    mixed = revealed + Party(6).revealed(fewer)
    with pytest.raises(ProtocolError, match="shares must be of a client's seed or of its key, got both"):
        party.total(everyone, mixed)


def test_shares_are_of_the_right_kind():
    party = Party(6)
    present = frozenset((0, 1, 2, 3))
    kinds = {(each.owner, each.present) for each in party.revealed(present)}
    assert kinds == {(owner, owner in present) for owner in range(6)}


def test_a_changed_letter_is_noticed_and_left_out():
    party = Party(4)
    inbox = party.inbox(0)
    neighbor, letter = inbox[1]
    for place in (0, 40, -1):
        changed = bytearray(letter)
        changed[place] ^= 1
        client = PairwiseClient(secret_of(0), 0, CONTEXT)
        revealed = client.reveal(inbox | {1: (neighbor, bytes(changed))}, frozenset(range(4)))
        assert {each.owner for each in revealed} == {2, 3}


def test_a_letter_is_for_its_reader_only():
    party = Party(4)
    assert PairwiseClient(secret_of(2), 2, CONTEXT).reveal(party.inbox(0), frozenset(range(4))) == []


def test_collector_learns_no_key_of_those_present():
    party = Party(6)
    present = frozenset(range(5))
    keys = {each.owner for each in party.revealed(present) if not each.present}
    assert keys == {5}
    assert all(isinstance(each, Revealed) for each in party.revealed(present))
