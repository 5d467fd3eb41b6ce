"""The keystream: pinned words, uniform residues, injective labels, and a secret that stays inside."""

import copy
import pickle

import numpy as np
import pytest
from apache_beam.internal import pickler
from scipy import stats

from dapple_dp.transforms.core.keystream import BATCH_TRIALS, MAX_BOUND, KeyStream, encode_label, first_accepted

KEY = bytes(range(32))


def _stream(*label: bytes | str | int | float) -> KeyStream:
    return KeyStream(KEY, encode_label(*label))


def test_first_words_are_pinned():
    expected = [7062141035847011347, 760433546805408700, 16204879505873899101]
    np.testing.assert_array_equal(_stream("golden").uint64(3), np.array(expected, dtype=np.uint64))


def test_words_do_not_depend_on_how_they_are_asked_for():
    whole, parts = _stream("a"), _stream("a")
    np.testing.assert_array_equal(whole.uint64(9), np.concatenate([parts.uint64(n) for n in (1, 0, 5, 3)]))
    assert whole.position == parts.position == 9


@pytest.mark.parametrize(("key", "label"), [(KEY, "b"), (KEY[::-1], "a")])
def test_another_key_or_label_gives_another_stream(key, label):
    other = KeyStream(key, encode_label(label))
    assert not np.isin(_stream("a").uint64(1000), other.uint64(1000)).any()


def test_substream_does_not_depend_on_the_position_and_is_not_the_parent():
    early, late = _stream("a"), _stream("a")
    late.uint64(17)
    expected = early.substream(b"x").uint64(50)
    np.testing.assert_array_equal(late.substream(b"x").uint64(50), expected)
    strangers = (early.substream(b"y"), KeyStream(KEY, b"x"), _stream("a"), early.substream(b"x").substream(b"x"))
    assert not any(np.isin(stranger.uint64(50), expected).any() for stranger in strangers)


def test_bits_are_the_words_from_the_lowest_bit_up():
    words = _stream("a").uint64(2)
    expected = [bool(int(words[i // 64]) >> (i % 64) & 1) for i in range(100)]
    np.testing.assert_array_equal(_stream("a").bits(100), expected)
    assert len(_stream("a").bits(0)) == 0


def test_bits_are_fair():
    heads = int(_stream("fair").bits(1_000_000).sum())
    assert abs(heads - 500_000) < 3000  # 6 standard deviations: fails once in 5e8 keys


@pytest.mark.parametrize("bound", [2, 3, 5, 64, 1000])
def test_residues_are_uniform(bound):
    counts = np.bincount(_stream("residues", bound).residues(bound, 200_000), minlength=bound)
    assert len(counts) == bound
    assert stats.chisquare(counts).pvalue > 1e-6  # fails once in 1e6 keys


@pytest.mark.parametrize("bound", [MAX_BOUND, MAX_BOUND - 1, 3 << 60, (1 << 61) + 1])
def test_wide_residues_are_uniform(bound):
    values = _stream("wide", bound).residues(bound, 200_000)
    assert values.min() >= 0
    assert values.max() < bound
    # The mean of n uniforms has stddev 1 / sqrt(12 n); 5 of them: fails once in 1.7e6 keys.
    assert abs(np.mean(values / bound) - 0.5) < 5 / np.sqrt(12 * 200_000)
    assert stats.kstest(values / bound, "uniform").pvalue > 1e-6  # fails once in 1e6 keys


def test_modulo_bias_would_be_seen():
    bound = 3 << 60
    biased = (_stream("bias").uint64(200_000) >> np.uint64(2)) % np.uint64(bound)
    assert stats.kstest(biased / bound, "uniform").pvalue < 1e-12


def test_one_residue_costs_no_bits():
    stream = _stream("a")
    np.testing.assert_array_equal(stream.residues(1, 5), np.zeros(5))
    assert stream.position == 0


@pytest.mark.parametrize("bound", [0, -1, MAX_BOUND + 1])
def test_residues_refuse_a_bound_out_of_range(bound):
    with pytest.raises(ValueError, match=r"bound must be in \[1, 2\*\*62\], got"):
        _stream("a").residues(bound, 1)


@pytest.mark.parametrize("size", [0, 1, BATCH_TRIALS + 3])
def test_first_accepted_keeps_the_survivors_in_order(size):
    stream, again = _stream("a"), _stream("a")
    values = first_accepted(lambda trials: stream.residues(7, trials)[::3], 1 / 3, size)
    assert values.shape == (size,)
    assert not size or values[0] == again.residues(7, 1)[0]


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), "k" * 32, None])
def test_key_must_be_32_bytes(key):
    with pytest.raises(ValueError, match="key must be 32 bytes; create one") as caught:
        KeyStream(key, b"label")
    assert "kk" not in str(caught.value)


def test_secret_is_not_shown():
    stream = _stream("a")
    assert repr(stream) == str(stream) == "KeyStream(secret, position=0)"
    assert not hasattr(stream, "__dict__")


@pytest.mark.parametrize("carry", [pickle.dumps, pickler.dumps, copy.copy, copy.deepcopy])
def test_stream_cannot_travel(carry):
    with pytest.raises(TypeError, match="a KeyStream must not be pickled or copied"):
        carry(_stream("a"))


def test_labels_tell_types_and_splits_apart():
    tuples = [(), ("",), (b"",), ("a", "b"), ("ab",), (b"ab",), (1,), (1.0,), ("1",), (-1,), (0.0,), (-0.0,), (1, 1)]
    assert len({encode_label(*parts) for parts in tuples}) == len(tuples)


@pytest.mark.parametrize("part", [True, None, (1,), np.int64(1)])
def test_labels_refuse_other_types(part):
    with pytest.raises(TypeError, match="a label part must be bytes, str, int or float, got"):
        encode_label(part)
