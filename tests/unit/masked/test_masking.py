"""Masks: sums come back bit for bit, one message per mask, a retry is the same bytes, and the secret stays inside."""

import copy
import hashlib
import itertools
import pickle

import numpy as np
import pytest
from apache_beam.internal import pickler
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.masked.coalitions import coalitions
from dapple_dp.schemas.masked.config import MaskedConfig
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.numerics.masked.shared_masks import SENDER_BYTES, TAG_BYTES, RoundMasks, message_bytes

SECRET = bytes(range(32))
CONTEXT = encode_label("run", "feddp_kmeans/weights", b"broadcast")
SENDERS = [b"a", b"b", b"c"]


def round_masks(secret=SECRET, context=CONTEXT):
    return RoundMasks(secret, context)


def statistics_of(n, size=4, seed=0):
    return np.random.default_rng(seed).integers(-(2**62), 2**62, (n, size))


def only_mask(sender=b"a", context=CONTEXT, secret=SECRET, statistic=0):
    """The mask of one message whose coordinates are all `statistic`."""
    message = np.full((1, 64), statistic, dtype=np.int64)
    found = round_masks(secret, context).mask([sender], message)
    return (found.values - message)[0]


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(0, 7), st.integers(1, 6), st.integers(0, 2**32))
def test_unmasked_sums_are_plain_sums(n, size, seed):
    statistics = statistics_of(n, size, seed)
    masked = round_masks().mask([b"%d" % each for each in range(n)], statistics)
    unmasked = masked.values.sum(axis=0) - round_masks().total(masked.tags, size)
    np.testing.assert_array_equal(unmasked, statistics.sum(axis=0))


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -1, 0])
def test_the_ends_of_the_ring_come_back(value):
    statistics = np.full((3, 2), value, dtype=np.int64)
    masked = round_masks().mask(SENDERS, statistics)
    for index in range(3):
        alone = masked.values[index] - round_masks().total(masked.tags[index : index + 1], 2)
        np.testing.assert_array_equal(alone, statistics[index])


def test_more_messages_than_a_batch():
    statistics = statistics_of(300, 1010)
    masked = round_masks().mask([b"%d" % each for each in range(300)], statistics)
    unmasked = masked.values.sum(axis=0) - round_masks().total(masked.tags, 1010)
    np.testing.assert_array_equal(unmasked, statistics.sum(axis=0))


def test_only_those_present_are_subtracted():
    statistics = statistics_of(3)
    masked = round_masks().mask(SENDERS, statistics)
    unmasked = masked.values[[0, 2]].sum(axis=0) - round_masks().total((masked.tags[0], masked.tags[2]), 4)
    np.testing.assert_array_equal(unmasked, statistics[[0, 2]].sum(axis=0))


def test_a_retried_message_is_the_same_bytes():
    first, again = (round_masks().mask(SENDERS, statistics_of(3)) for _ in range(2))
    assert (first.senders, first.tags) == (again.senders, again.tags)
    assert first.values.tobytes() == again.values.tobytes()


def test_a_message_does_not_depend_on_its_batch():
    together, alone = (
        round_masks().mask(SENDERS, statistics_of(3)),
        round_masks().mask([b"b"], statistics_of(3)[1:2]),
    )
    assert (together.senders[1], together.tags[1]) == (alone.senders[0], alone.tags[0])
    np.testing.assert_array_equal(together.values[1], alone.values[0])


CONTEXTS = {
    "another run": encode_label("run2", "feddp_kmeans/weights", b"broadcast"),
    "another round": encode_label("run", "feddp_kmeans/centers", b"broadcast"),
    "another broadcast": encode_label("run", "feddp_kmeans/weights", b"broadcast2"),
}


def test_no_two_messages_share_a_mask():
    masks = [only_mask()]
    masks += [only_mask(context=context) for context in CONTEXTS.values()]
    masks += [only_mask(sender=sender) for sender in (b"b", b"", encode_label("", "lake/part-0", 0, 0))]
    masks += [only_mask(sender=encode_label("", "lake/part-0", *place)) for place in ((0, 1), (1, 0))]
    masks += [only_mask(secret=bytes(32)), only_mask(statistic=1)]
    for left, right in itertools.combinations(masks, 2):
        assert not np.equal(left, right).any()


def test_one_unit_in_one_coordinate_changes_the_whole_mask():
    """Without this, the difference of two attempts at one message would show how its data changed."""
    statistics = statistics_of(2, 64)
    statistics[1] = statistics[0]
    statistics[1, -1] += 1
    masks = round_masks().mask([b"a"], statistics[:1]).values - statistics[0]
    others = round_masks().mask([b"a"], statistics[1:]).values - statistics[1]
    assert not np.equal(masks, others).any()


def test_senders_are_pseudonyms_of_the_round():
    here = round_masks().mask([b"Alice"], statistics_of(1))
    there = round_masks(context=CONTEXTS["another round"]).mask([b"Alice"], statistics_of(1))
    assert len(here.senders[0]) == SENDER_BYTES
    assert len(here.tags[0]) == TAG_BYTES
    assert here.senders != there.senders
    assert hashlib.blake2b(b"Alice", digest_size=SENDER_BYTES).digest() not in here.senders


def test_bytes_of_a_message():
    k, d = 10, 100
    assert message_bytes(k * (d + 1)) == 8 * k * (d + 1) + SENDER_BYTES + TAG_BYTES


def test_masks_are_pinned():
    expected = [-4964206403505345387]
    np.testing.assert_array_equal(only_mask()[:1], expected)


@pytest.mark.parametrize("carry", [pickle.dumps, pickler.dumps, copy.copy, copy.deepcopy])
def test_masks_cannot_travel(carry):
    with pytest.raises(TypeError, match="RoundMasks must not be pickled or copied"):
        carry(round_masks())


def test_a_secret_has_32_bytes():
    with pytest.raises(ValueError, match="key must be 32 bytes"):
        round_masks(secret=bytes(16))
    assert not hasattr(round_masks(), "__dict__")


def test_a_tag_confirms_a_right_guess_of_a_message_to_a_holder_of_the_secret():
    """Why `privacy.json` promises nothing against clients who read the list of those present."""
    secret, guesses = statistics_of(1), statistics_of(3, seed=1)
    seen = round_masks().mask([b"a"], secret).tags
    found = [round_masks().mask([b"a"], each[None, :]).tags == seen for each in (*guesses, secret[0])]
    assert found == [False, False, False, True]
    for noise_by in ("aggregator", "both"):
        rows = coalitions(MaskedConfig(secret_uri="secret", noise_by=noise_by))
        assert [row["holds"] for row in rows if "whose tags show" in row["parties"]] == [False]
        assert all("tags" not in row["parties"] for row in coalitions(MaskedConfig(scheme="pairwise", threshold=2)))


HOLDS = {
    "aggregator": {
        "one reader of the releases": True,
        "the aggregator, who sees no release": True,
        "the aggregator and a reader of the releases": False,
        "the aggregator and a client": False,
    },
    "both": {"one reader of the releases": True, "the aggregator and readers of the releases": True},
}


@pytest.mark.parametrize("noise_by", HOLDS)
def test_who_adds_the_noise_decides_against_whom_the_promise_holds(noise_by):
    """Parties that know the noise of all can take it off a release; those that know a part of it can't."""
    rows = {row["parties"]: row["holds"] for row in coalitions(MaskedConfig(secret_uri="secret", noise_by=noise_by))}
    assert HOLDS[noise_by].items() <= rows.items()


@pytest.mark.parametrize("corrupt", [0.51, 1.0, -0.01])
def test_more_than_half_of_the_clients_cannot_collude(corrupt):
    assert MaskedConfig(scheme="pairwise", threshold=2, corrupt=0.5).corrupt == 0.5
    with pytest.raises(ValueError, match="corrupt"):
        MaskedConfig(scheme="pairwise", threshold=2, corrupt=corrupt)
