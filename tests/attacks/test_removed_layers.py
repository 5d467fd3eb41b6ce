"""Who wants more noise removed than is in excess: whatever is handed out yields no key of noise that is kept."""

import hashlib

import numpy as np
import pytest

from schemas.errors import ProtocolError
from tests.statistical.test_mask_uniformity import looks_uniform
from tests.unit.masked.test_pairwise import CONTEXT, Party, secret_of
from transforms.numerics.masked import shamir
from transforms.numerics.masked.neighbors import GraphParams, layer_holders, parameters
from transforms.numerics.masked.pairwise_masks import PairwiseClient
from transforms.numerics.masked.shared_layers import ExcessLayers, SharedLayers, layer_tag
from transforms.numerics.privacy.keystream import KeyStream
from transforms.numerics.privacy.noise_layers import layer_keys

N, N_LAYERS, HOLDERS = 9, 3, GraphParams(5, 3)
EVERYBODY = frozenset(range(N))


class LayeredParty(Party):
    """Clients that have shared keys of layers, too."""

    def __init__(self, holders=HOLDERS, context=CONTEXT, **more):
        super().__init__(N, context=context, **more)
        firsts = [hashlib.sha256(context + b"%d" % number).digest() for number in range(N)]
        self.layers = [SharedLayers.of(first, N_LAYERS, holders) for first in firsts]
        self.letters = {
            c.number: c.share(self.around(c.number), self.threshold, self.statistics[c.number], self.layers[c.number])
            for c in self.clients
        }

    def handed(self, present, excess, silent=()):
        holders = [each for each in self.clients if each.number in present - set(silent)]
        return [share for each in holders for share in each.reveal(self.inbox(each.number), present, excess)]

    def tags(self, present):
        return {n: self.clients[n].tag(self.statistics[n], self.layers[n])[16:] for n in present}

    def layer_keys_of(self, revealed, present, excess, tags=None):
        layers = ExcessLayers(
            first=excess,
            n_layers=N_LAYERS,
            holders=HOLDERS,
            tags=self.tags(present) if tags is None else tags,
            context=self.context,
        )
        handed = [(each.owner, each.holder, each.layer) for each in revealed if each.layer is not None]
        return layers.keys(handed, self.neighbors, present)


@pytest.mark.parametrize("gone", [(), (1,), (0, 4)])
@pytest.mark.parametrize("excess", [1, 2, 3])
def test_holders_give_back_the_key_of_the_first_layer_in_excess(excess, gone):
    party, present = LayeredParty(), EVERYBODY - frozenset(gone)
    found = party.layer_keys_of(party.handed(present, excess), present, excess)
    assert found == {number: party.layers[number].keys[excess - 1] for number in present}


def test_clients_that_are_present_may_be_gone_when_keys_are_handed_out():
    party = LayeredParty()
    revealed = party.handed(EVERYBODY, 2, silent={3})
    assert party.layer_keys_of(revealed, EVERYBODY, 2)[3] == party.layers[3].keys[1]


def test_the_unmasked_sum_is_the_same_with_layers():
    party = LayeredParty()
    present = EVERYBODY - {2}
    masked = party.messages()[sorted(present)].sum(axis=0)
    unmasked = masked - party.total(present, party.handed(present, 2))
    np.testing.assert_array_equal(unmasked, party.statistics[sorted(present)].sum(axis=0))


def combined(answers, threshold):
    """Every secret that as many shares of one kind give back, for any owner."""
    found = set()
    for owner in EVERYBODY:
        shares = sorted((holder, share) for who, holder, share in answers if who == owner)
        for start in range(len(shares) - threshold + 1):
            chosen = shares[start : start + threshold]
            points = np.array([[holder + 1 for holder, _ in chosen]])
            try:
                found.add(shamir.combine(points, np.array([[share for _, share in chosen]]))[0].tobytes())
            except ValueError:
                continue
    return found


@pytest.mark.parametrize("excess", [None, 2, 3])
def test_nothing_that_is_handed_out_yields_a_key_of_noise_that_is_kept(excess):
    """Seeds, keys of masks and of layers, and all that follows from them by the chain: none is that of a kept layer."""
    party, present = LayeredParty(), EVERYBODY - {8}
    revealed = party.handed(present, excess)
    known = set()
    for threshold in (party.threshold, HOLDERS.threshold):
        known |= combined([(each.owner, each.holder, tuple(each.share)) for each in revealed], threshold)
        layers = [(each.owner, each.holder, tuple(each.layer)) for each in revealed if each.layer is not None]
        known |= combined(layers, threshold)
    known |= {key for each in list(known) for key in layer_keys(each, N_LAYERS)}
    n_kept = N_LAYERS if excess is None else excess - 1
    kept = {key for layers in party.layers for key in layers.keys[:n_kept]}
    assert not known & kept
    removed = {key for number in present for key in party.layers[number].keys[n_kept:]}
    assert removed <= known
    assert not known & set(party.layers[8].keys)


def test_whoever_has_a_mask_seed_or_a_secret_of_masks_has_no_layer():
    """Seeds of those present are handed out; layers follow from the party's noise key, not from them."""
    party = LayeredParty()
    for client, layers, statistic in zip(party.clients, party.layers, party.statistics, strict=True):
        seed = client._seed(statistic)
        derived = {KeyStream(octets, b"mask").uint64(4).tobytes() for octets in (seed, client._mask_key)}
        chain = {
            key
            for octets in (seed, client._mask_key, client._letter_private.private_bytes_raw())
            for key in layer_keys(octets, 4)
        }
        assert not (derived | chain) & {*layers.keys, layers.end}


def test_a_list_that_names_a_sender_who_has_gone_leaves_masks_in_the_sum():
    """A server that says so has all layers removed; without the message of the sender nobody can unmask the sum."""
    party = LayeredParty(size=2000, statistics=np.full((N, 2000), 1 << 20))
    gone, claimed = 4, EVERYBODY
    revealed = party.handed(claimed, 1)
    assert len(party.layer_keys_of(revealed, claimed, 1)) == N
    masked = np.delete(party.messages(), gone, axis=0).sum(axis=0)
    assert looks_uniform(masked - party.total(claimed, revealed))
    everybodys = party.messages().sum(axis=0) - party.total(claimed, revealed)
    np.testing.assert_array_equal(everybodys, party.statistics.sum(axis=0))


def test_too_few_holders_give_nothing_back():
    party = LayeredParty()
    owner = 0
    holders = party.neighbors[owner][: HOLDERS.n_neighbors]
    silent = set(holders[HOLDERS.threshold - 1 :])
    revealed = party.handed(EVERYBODY, 1, silent=silent)
    with pytest.raises(ProtocolError, match="at least 3 neighbors of every client must hand out shares, got fewer"):
        party.layer_keys_of(revealed, EVERYBODY, 1)


def test_a_client_that_refuses_layers_is_waited_for_in_a_sentence():
    """It hands out shares of seeds as before there were layers: one is no loss, too many stop the round."""
    party = LayeredParty()
    one = [each._replace(layer=None) if each.holder == 0 else each for each in party.handed(EVERYBODY, 1)]
    assert len(party.layer_keys_of(one, EVERYBODY, 1)) == N
    many = [each._replace(layer=None) if each.holder < 7 else each for each in one]
    with pytest.raises(ProtocolError, match="got fewer; wait for more of them"):
        party.layer_keys_of(many, EVERYBODY, 1)


def test_one_layer_more_is_not_answered_after_another_one():
    """A holder works out the layer from the list; asked again for the same list with another layer, it refuses."""
    party = LayeredParty()
    party.handed(EVERYBODY, 3)
    with pytest.raises(ProtocolError, match="a round must have one list of who is present, got a second one"):
        party.handed(EVERYBODY, 2)


def test_a_collector_that_takes_keys_for_one_layer_more_is_refused():
    party = LayeredParty()
    revealed = party.handed(EVERYBODY, 3)
    with pytest.raises(ProtocolError, match="shares that clients hand out must be those that they were sent"):
        party.layer_keys_of(revealed, EVERYBODY, 2)


def test_keys_of_another_round_are_refused():
    """Its letters do not open in this round; its shares, replayed, give keys whose tags are others."""
    party, other = LayeredParty(), LayeredParty(context=b"another round")
    inbox = {owner: (each[0], other.letters[owner][0]) for owner, each in party.inbox(0).items()}
    assert PairwiseClient(secret_of(0), 0, CONTEXT).reveal(inbox, EVERYBODY, 1) == []
    with pytest.raises(ProtocolError, match="shares that clients hand out must be those that they were sent"):
        party.layer_keys_of(other.handed(EVERYBODY, 1), EVERYBODY, 1)


def test_tags_of_layers_are_bound_to_sender_and_round():
    end = bytes(range(32))
    found = {layer_tag(*each) for each in ((end, 0, b"a"), (end, 1, b"a"), (end, 0, b"b"), (b"", 0, b"a"))}
    assert len(found) == 4


WRONG = {
    "another length": lambda share: share[:-1],
    "no residues": lambda share: share + shamir.PRIME,
    "off by one": lambda share: (share + 1) % shamir.PRIME,
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_shares_of_one_holder_are_left_out(kind):
    party = LayeredParty()
    revealed = [
        each._replace(layer=WRONG[kind](each.layer)) if each.holder == 0 and each.layer is not None else each
        for each in party.handed(EVERYBODY, 1)
    ]
    assert party.layer_keys_of(revealed, EVERYBODY, 1) == {n: party.layers[n].keys[0] for n in EVERYBODY}


def test_a_share_of_somebody_who_holds_none_is_left_out():
    party = LayeredParty()
    stranger = party.neighbors[0][-1]
    revealed = party.handed(EVERYBODY, 1)
    share = next(each.layer for each in revealed if each.owner == 1 and each.layer is not None)
    added = [each._replace(layer=share) if (each.owner, each.holder) == (0, stranger) else each for each in revealed]
    assert party.layer_keys_of(added, EVERYBODY, 1)[0] == party.layers[0].keys[0]


def test_a_letter_without_its_layers_is_a_letter():
    """A hostile owner that shares no layers keeps its own noise in; holders answer for its seed."""
    party = LayeredParty()
    plain = party.clients[0].share(party.around(0), party.threshold, party.statistics[0])
    holder = party.neighbors[0][0]
    inbox = party.inbox(holder) | {0: (party.inbox(holder)[0][0], plain[holder])}
    (answer,) = [each for each in party.clients[holder].reveal(inbox, EVERYBODY, 1) if each.owner == 0]
    assert answer.present
    assert answer.layer is None


@pytest.mark.parametrize("n_clients", [10, 50, 100, 1000, 10_000])
def test_holders_are_neighbors_and_colluders_among_them_stay_below_the_threshold(n_clients):
    graph, holders = parameters(n_clients, 0.05, 0.3), layer_holders(n_clients, 0.05, 0.3)
    assert 2 <= holders.threshold <= holders.n_neighbors <= graph.n_neighbors
    if graph.n_neighbors == n_clients - 1:
        assert holders == graph
    n_corrupt = int(0.05 * n_clients)
    order = np.random.default_rng(0)
    worst = max(
        int(order.hypergeometric(n_corrupt, n_clients - 1 - n_corrupt, holders.n_neighbors, 1000).max())
        for _ in range(10)
    )
    assert worst < holders.threshold
