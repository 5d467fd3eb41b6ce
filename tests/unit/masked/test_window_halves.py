"""Halves of the sums of windows: they combine in the ring as exact sums do, and one alone says nothing."""

import dataclasses
import functools
import os

import numpy as np
import pytest

from schemas.errors import DappleError, InputError, ProtocolError
from schemas.privacy.plan import RoundPlan
from schemas.privacy.window_halves import MaskedSums, MaskTotals
from tests.scenes import lake
from tests.statistical.test_mask_uniformity import looks_uniform
from transforms.files import gate
from transforms.masked.clients import Masking
from transforms.masked.window_halves import combined, half_path, opened_half, present_digest, sealed_half
from transforms.numerics.masked.shared_masks import RoundMasks

WEIGHTS = (16, 6, 3)
SIZE = 400
SECRET = bytes(range(40, 72))


@pytest.fixture
def halves(tmp_path):
    """Both roles' places before the first window."""
    common = {"epoch": "e", "index": 0, "weights": WEIGHTS}
    return tuple(
        kind(folder=str(tmp_path / kind.NAME), key_uri=lake.write_key(tmp_path / f"{kind.NAME}.key", key), **common)
        for kind, key in ((MaskedSums, bytes(range(3, 35))), (MaskTotals, bytes(range(5, 37))))
    )


def at(halves, index):
    return tuple(dataclasses.replace(half, index=index) for half in halves)


def window(halves, index, statistics):
    """Combinations of both roles for one window with a message of each row of `statistics`."""
    masks = RoundMasks(SECRET, b"window %d" % index)
    messages = masks.mask([b"%d" % sender for sender in range(len(statistics))], statistics)
    present = present_digest(messages.senders, messages.tags)
    sums, totals = at(halves, index)
    with np.errstate(over="ignore"):
        summed = messages.values.sum(axis=0, dtype=np.int64)
    return combined(sums, summed, present), combined(totals, masks.total(messages.tags, SIZE), present)


def statistics(seed, senders=3):
    """Any integers, those at the ends of the ring included."""
    drawn = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, (senders, SIZE), dtype=np.int64)
    drawn[:, 0] = -(2**63)
    return drawn


def combination(windows, index):
    """By hand, in integers of any length."""
    exact = [np.sum(each.astype(object), axis=0) for each in windows]
    total = sum(weight * exact[index - age] for age, weight in enumerate(WEIGHTS) if age <= index)
    return [(int(value) + 2**63) % 2**64 - 2**63 for value in total]


def test_the_difference_of_both_roles_is_the_combination_of_exact_sums(halves):
    windows = [statistics(seed, senders) for seed, senders in enumerate((3, 1, 4, 2, 5))]
    for index, each in enumerate(windows):
        sums, masks = window(halves, index, each)
        assert (sums - masks).tolist() == combination(windows, index)


def test_one_unit_moves_each_combination_by_the_weight_of_its_window(halves):
    """Neighbors differ in one sender's statistic of window 1: releases 1, 2 and 3 move by 16, 6 and 3 times that."""
    other = tuple(dataclasses.replace(half, folder=f"{half.folder}-neighbor") for half in halves)
    moved = np.zeros(SIZE, dtype=np.int64)
    moved[5] = 1000
    for index in range(5):
        rows = statistics(index) >> 20
        neighbor = rows + moved * (index == 1) * (np.arange(3) == 2)[:, None]
        found = functools.reduce(np.subtract, window(halves, index, rows))
        beside = functools.reduce(np.subtract, window(other, index, neighbor))
        weight = WEIGHTS[index - 1] if 1 <= index <= 3 else 0
        np.testing.assert_array_equal(beside - found, weight * moved)


def kept(half, index):
    refusal = gate.staged("half")
    return opened_half(half, index, gate.read_octets(half_path(half.folder, index), refusal), refusal)


def test_either_half_looks_uniform_and_both_are_the_exact_sum(halves):
    """400 words of each of five windows whose sums are all 3: what is kept tells them from no other sums."""
    ones = np.ones((3, SIZE), dtype=np.int64)
    for index in range(5):
        window(halves, index, ones)
    found = [np.concatenate([kept(half, index)[1] for index in range(5)]) for half in halves]
    assert looks_uniform(found[0])
    assert looks_uniform(found[1])
    assert not looks_uniform(found[0] - found[1])
    assert set((found[0] - found[1]).tolist()) == {3}


def test_a_file_shows_neither_its_half_nor_the_messages(halves):
    window(halves, 0, np.ones((1, SIZE), dtype=np.int64))
    for half in halves:
        content = gate.read_octets(half_path(half.folder, 0), gate.staged("half"))
        present, values = kept(half, 0)
        assert present not in content
        assert values.astype("<i8").tobytes()[:16] not in content


OTHERS = {
    "window": lambda half, other: dataclasses.replace(half, index=1),
    "epoch": lambda half, other: dataclasses.replace(half, epoch="f"),
    "role": lambda half, other: type(other)(**dataclasses.asdict(half)),
    "key": lambda half, other: dataclasses.replace(half, key_uri=other.key_uri),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("role", [0, 1])
def test_a_file_of_another_place_does_not_open(halves, name, role):
    half, other = halves[role], halves[1 - role]
    content = sealed_half(half, np.arange(SIZE), bytes(32))
    refusal = gate.staged("half")
    opened_half(half, 0, content, refusal)
    stranger = OTHERS[name](half, other)
    with pytest.raises(InputError, match="got another one"):
        opened_half(stranger, stranger.index, content, refusal)


@pytest.mark.parametrize(
    "damage",
    [lambda each: each[:-1], lambda each: b"", lambda each: each[:40] + b"\0" + each[41:], lambda each: each * 2],
)
def test_a_damaged_file_does_not_open(halves, damage):
    content = sealed_half(halves[0], np.arange(SIZE) + 1, bytes(32))
    with pytest.raises(InputError):
        opened_half(halves[0], 0, damage(content), gate.staged("half"))


def test_a_retry_keeps_the_same_file_and_another_sum_is_refused(halves):
    for each in at(halves, 0):
        first = combined(each, np.arange(SIZE), bytes(32))
        np.testing.assert_array_equal(combined(each, np.arange(SIZE), bytes(32)), first)
        with pytest.raises(ProtocolError, match="must be written once"):
            combined(each, np.arange(SIZE) + 1, bytes(32))
        with pytest.raises(ProtocolError, match="must be written once"):
            combined(each, np.arange(SIZE), bytes(31) + b"1")


@pytest.mark.parametrize("gone", [0, 1])
def test_a_window_without_an_earlier_half_is_refused(halves, gone):
    for index in (0, 1):
        window(halves, index, statistics(index))
    for half in at(halves, 2):
        os.unlink(half_path(half.folder, gone))
        with pytest.raises(DappleError):
            combined(half, np.arange(SIZE), bytes(32))


def test_a_half_of_another_length_is_refused(halves):
    combined(halves[0], np.arange(SIZE), bytes(32))
    with pytest.raises(InputError, match="another length"):
        combined(at(halves, 1)[0], np.arange(SIZE - 1), bytes(32))


def test_lists_of_messages_are_told_apart():
    """Which are senders and which are tags counts, and so does their order."""
    lists = [((b"a", b"b"), (b"c", b"d")), ((b"a",), (b"b", b"c", b"d")), ((b"b", b"a"), (b"d", b"c")), ((), ())]
    assert len({present_digest(*each) for each in lists}) == len(lists)


def test_masks_name_epoch_and_window(halves):
    """Two windows of one run, nonce, path and broadcast have nothing in common."""
    state, plan = dataclasses.make_dataclass("State", ["releases"])(()), RoundPlan(path="windows/window", releases=())
    masking = Masking(secret_uri="secret", run="run", nonce=b"nonce", masks=halves[1])
    others = [{"index": 1}, {"epoch": "f"}]
    contexts = {masking.context(plan, state)} | {
        dataclasses.replace(masking, masks=dataclasses.replace(halves[1], **each)).context(plan, state)
        for each in others
    }
    contexts.add(dataclasses.replace(masking, masks=None).context(plan, state))
    assert len(contexts) == 4
