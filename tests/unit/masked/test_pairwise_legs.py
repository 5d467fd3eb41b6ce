"""Steps of senders and of the party that unmasks, one by one without a pipeline: sums, and what is refused."""

import collections
import types

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.errors import NotYetError, ProtocolError
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.schemas.masked.exchange import SUM_SCHEMA, sum_from_table
from dapple_dp.schemas.masked.pairwise_messages import HandedOut
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.masked import clients, pairwise_legs, pairwise_rounds
from dapple_dp.transforms.masked.clients import Masking
from dapple_dp.transforms.masked.pairwise_lists import Correspondence, list_everybody, number_listed, sender_of
from dapple_dp.transforms.masked.party_state import RunState
from tests.scenes import lake
from tests.scenes.gaussian_rounds import round_of

STATE = types.SimpleNamespace(releases=())
PLAN = round_of(sums=4, counts=4)
PARAMS = PairwiseParams(corrupt=0.05, dropout=0.25)
NAMES = [b"north", b"south", b"east", b"west"]
STATISTICS = np.random.default_rng(0).integers(-(2**62), 2**62, (len(NAMES), PLAN.size))
NAMED = (NAMES, STATISTICS)


@pytest.fixture
def masking(tmp_path):
    return Masking(secret_uri=lake.write_key(tmp_path / "secret"), run="run", threshold=2, pairwise=PARAMS)


def step(kind, masking, element, *sides):
    """All that a DoFn makes of one element."""
    function = kind(masking, PLAN)
    function.setup()
    return list(function.process(element, STATE, *sides))


def noised(senders, tags, values):
    """Returns what the aggregator gives back for a sum, with no noise on it."""
    row = {"round": PLAN.path, "senders": senders, "tags": tags, "values": values.astype("<i8").tobytes()}
    return sum_from_table(pa.Table.from_pylist([row], schema=SUM_SCHEMA), PLAN)


def added(messages, places):
    taken = ([each[place] for place in places] for each in messages[:2])
    return noised(*taken, messages.values[places].sum(axis=0))


def values_of(releases):
    return np.concatenate([each.values.ravel() for each in releases])


class Legs:
    """A round of four senders of one party, up to its letters."""

    def __init__(self, masking):
        self.masking = masking
        (self.keys,) = step(pairwise_legs._KeysFn, masking, NAMED)
        self.of_keys = Correspondence.of(self.keys, [], self.keys, PARAMS)
        (self.letters,) = step(pairwise_legs._LettersFn, masking, NAMED, self.of_keys)
        self.listed = self.of(self.letters)

    def of(self, letters):
        return Correspondence.of(self.keys, letters, self.keys, PARAMS)

    def messages(self, listed=None):
        return step(pairwise_legs._MessagesFn, self.masking, NAMED, listed or self.listed)

    def shares(self, own, masked):
        return step(pairwise_legs._SharesFn, self.masking, own, self.listed, masked)

    def number(self, place):
        """The number of a sender by its place among the names."""
        return self.listed.roster.number_of(self.keys[place].sender)


@pytest.fixture
def legs(masking):
    return Legs(masking)


def test_senders_are_pseudonyms_and_send_to_all_neighbors(legs):
    assert len({each.sender for each in legs.keys} - set(NAMES)) == 4
    assert sorted(each[:2] for each in legs.letters) == [(a, b) for a in range(4) for b in range(4) if a != b]
    assert legs.listed.shared == {0, 1, 2, 3}
    assert number_listed(legs.listed) == 4
    (messages,) = legs.messages()
    assert messages.senders == tuple(sender_of(legs.number(place)) for place in range(4))
    assert len(set(messages.tags)) == 4
    assert not np.equal(messages.values, STATISTICS).any()


@pytest.mark.parametrize("places", [[0, 1, 2, 3], [0, 2, 3]])
def test_the_sum_of_those_present_comes_back(legs, places):
    (messages,) = legs.messages()
    masked = added(messages, places)
    (handed,) = legs.shares([legs.keys[place].sender for place in places], masked)
    gone = {legs.number(place) for place in range(4)} - {legs.number(place) for place in places}
    assert {each.owner for each in handed if not each.present} == gone
    handed = [*handed, HandedOut(0, 1, True, b"garbage")]
    found = pairwise_legs._unmask(masked, STATE, legs.listed, handed, PLAN, legs.masking)
    np.testing.assert_array_equal(values_of(found), STATISTICS[places].sum(axis=0))
    assert [each.path for each in found] == ["test/sums", "test/counts"]


def test_a_sum_whose_senders_have_not_a_tag_each_is_not_unmasked(legs):
    (messages,) = legs.messages()
    masked = added(messages, [0, 1, 2, 3])
    (handed,) = legs.shares([each.sender for each in legs.keys], masked)
    short = masked._replace(tags=(*masked.tags, masked.tags[0]))
    with pytest.raises(ValueError, match="argument 2 is longer"):
        pairwise_legs._unmask(short, STATE, legs.listed, handed, PLAN, legs.masking)


def test_a_client_outside_the_sum_hands_out_nothing(legs):
    (messages,) = legs.messages()
    masked = added(messages, [0, 1, 2])
    present, gone = legs.keys[0].sender, legs.keys[3].sender
    (alone,) = legs.shares([present], masked)
    for stranger in (gone, b"", bytes(16), b"\xff" * 17):
        assert legs.shares([stranger, present], masked) == [alone]
        with pytest.raises(NotYetError, match="--client is not in the sum yet"):
            legs.shares([stranger], masked)


def test_a_sender_that_has_not_shared_with_all_sends_no_message(legs):
    fewer = legs.of([each for each in legs.letters if each[:2] != (1, 0)])
    (messages,) = legs.messages(fewer)
    assert set(messages.senders) == {sender_of(number) for number in (0, 2, 3)}
    (nothing,) = legs.messages(legs.of([]))
    assert (nothing.senders, nothing.tags, nothing.values.shape) == ((), (), (0, PLAN.size))


def test_a_sender_whose_keys_are_not_listed_sends_nothing(legs):
    known = [each for each in legs.keys if each.sender != legs.keys[0].sender]
    listed = Correspondence.of(known, [], known, PairwiseParams(corrupt=0.0, dropout=0.0))
    (letters,) = step(pairwise_legs._LettersFn, legs.masking, NAMED, listed)
    assert sorted(each[:2] for each in letters) == [(a, b) for a in range(3) for b in range(3) if a != b]


def test_no_message_is_masked_with_letters_of_others(legs):
    changed = [each._replace(sealed=bytes(len(each.sealed))) if each.sender == 2 else each for each in legs.letters]
    with pytest.raises(ProtocolError, match="the aggregator lists other letters than those that were sent"):
        legs.messages(legs.of(changed))


def test_a_message_has_neighbors_enough_to_take_its_mask_away(legs):
    assert legs.listed.roster.threshold == 2
    (messages,) = legs.messages(legs.listed._replace(shared=frozenset({0, 1, 2})))
    assert len(messages.senders) == 3
    with pytest.raises(ProtocolError, match="fewer than 2 neighbors of a client have shared"):
        legs.messages(legs.listed._replace(shared=frozenset({0, 1})))


def test_pinned_files_are_read_as_they_were_written(masking, tmp_path):
    kept = RunState(folder=str(tmp_path / "state"))
    pairwise_legs.pin([(NAMES[:1], STATISTICS[:1]), (NAMES[1:], STATISTICS[1:])], PLAN.path, kept)
    function = pairwise_legs._PinnedFn(kept, None, types.SimpleNamespace(plan=PLAN))
    ((names, statistics),) = function.process(PLAN.path, STATE)
    assert names == NAMES
    np.testing.assert_array_equal(statistics, STATISTICS)


@pytest.mark.parametrize("filled", [True, False])
def test_a_party_with_one_message_adds_up_its_clients(masking, tmp_path, filled):
    """So the aggregator learns nothing about how many there are, not even if there is nobody."""
    kept = RunState(folder=str(tmp_path / "state"))
    batches = [(NAMES[:1], STATISTICS[:1]), ([], STATISTICS[:0]), (NAMES[1:], STATISTICS[1:])]
    pairwise_legs.pin(batches if filled else batches[1:2], PLAN.path, kept, b"north")
    function = pairwise_legs._PinnedFn(kept, None, types.SimpleNamespace(plan=PLAN))
    ((names, statistics),) = function.process(PLAN.path, STATE)
    assert names == [b"north"]
    np.testing.assert_array_equal(statistics, [STATISTICS.sum(axis=0) if filled else 0 * STATISTICS[0]])


# All roles in one pipeline.


def test_the_steps_of_one_pipeline_give_the_sum_of_those_present(masking):
    keys = step(pairwise_rounds._AdvertiseFn, masking, NAMED)
    assert [each.sender for each in keys] == NAMES
    listed = list_everybody(keys, PARAMS)
    assert (listed.shared, listed.own, listed.letters) == ({0, 1, 2, 3}, frozenset(), {})
    inboxes = collections.defaultdict(list)
    for receiver, letter in step(pairwise_rounds._ShareFn, masking, NAMED, listed):
        inboxes[receiver].append(letter)
    assert {holder: len(letters) for holder, letters in inboxes.items()} == dict.fromkeys(range(4), 3)
    batches = step(pairwise_rounds._MaskFn, masking, NAMED, listed)
    numbers = [sorted(NAMES).index(name) for name in NAMES]
    assert [each.senders for each in batches] == [(sender_of(number),) for number in numbers]
    kept = [0, 1, 3]
    values = np.concatenate([batches[place].values for place in kept]).sum(axis=0)
    masked = noised(*([batches[place][field][0] for place in kept] for field in (0, 1)), values)
    handed = {
        holder: step(pairwise_rounds._RevealFn, masking, (holder, letters), listed, masked)
        for holder, letters in inboxes.items()
    }
    assert [holder for holder, found in handed.items() if not found] == [numbers[2]]
    shares = [each for found in handed.values() for each in found]
    found = pairwise_legs._unmask(masked, STATE, listed, shares, PLAN, masking)
    np.testing.assert_array_equal(values_of(found), STATISTICS[kept].sum(axis=0))


# Masks of a shared secret.


def test_masks_of_a_shared_secret_come_off_the_sum_of_those_present(masking):
    (messages,) = step(clients._MaskFn, masking, NAMED)
    assert not np.equal(messages.values, STATISTICS).any()
    (found,) = step(clients._UnmaskFn, masking, added(messages, [1, 2]))
    np.testing.assert_array_equal(values_of(found), STATISTICS[1:3].sum(axis=0))
    with pytest.raises(ProtocolError, match="the sum must cover at least 2 messages"):
        step(clients._UnmaskFn, masking, added(messages, [1]))


def test_senders_of_a_shard_are_called_by_party_owner_and_place(masking, monkeypatch):
    shard, asked = ShardRef("lake/part-0.parquet", 3, 4), []
    batches = [([b"a", b"b"], STATISTICS[:2]), ([b"c"], STATISTICS[2:3])]
    monkeypatch.setattr(clients, "shard_statistics", lambda *given: asked.append(given) or iter(batches))
    function = clients._SenderStatisticsFn(masking, "contract", types.SimpleNamespace(plan=PLAN))
    found = list(function.process(shard, STATE))
    assert asked == [(shard, "contract", function._round, STATE)]
    place = encode_label("lake/part-0.parquet", 3)
    assert [names for names, _ in found] == [[encode_label("", b"a", place), encode_label("", b"b", place)],
                                             [encode_label("", b"c", place)]]  # fmt: skip
    assert [statistics for _, statistics in found] == [statistics for _, statistics in batches]
    ((names, none),) = function.process(EMPTY_SHARD, STATE)
    assert (names, none.shape, none.dtype) == ([], (0, PLAN.size), np.int64)
    assert len(asked) == 1
