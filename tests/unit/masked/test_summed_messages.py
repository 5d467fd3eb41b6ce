"""Sums of the aggregator, by hand: values in the ring, who was present, and refusals."""

import numpy as np
import pytest

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.exchange import MaskedMessages, MaskedSum
from dapple_dp.transforms.masked.aggregation import all_arrive
from dapple_dp.transforms.masked.aggregator import SumMessagesFn, _checked


def messages(*named):
    names = tuple(name for name, _ in named)
    return MaskedMessages(names, tuple(b"tag " + name for name in names), np.array([row for _, row in named]))


def test_messages_are_added_in_the_ring_by_sender():
    top = np.iinfo(np.int64).max
    function = SumMessagesFn(2)
    with np.errstate(over="ignore"):
        first = function.add_input(function.create_accumulator(), messages((b"c", [top, 1]), (b"a", [1, 2])))
        second = function.add_input(function.create_accumulator(), messages((b"b", [5, 7])))
        merged = function.merge_accumulators([first, second])
    found = function.extract_output(merged)
    assert found.values.tolist() == [top + 6 - 2**64, 10]
    assert (found.senders, found.tags) == ((b"a", b"b", b"c"), (b"tag a", b"tag b", b"tag c"))
    assert merged is not first
    assert first.values.tolist() == [-(2**63), 3]
    empty = function.extract_output(function.create_accumulator())
    assert (empty.values.tolist(), empty.senders, empty.tags) == ([0, 0], (), ())
    batch = messages((b"a", [1, 2]))
    assert all_arrive(batch) is batch


@pytest.mark.parametrize(
    ("senders", "threshold", "said"),
    [
        ((b"a", b"b"), 2, None),
        ((b"a", b"b"), 3, "fewer than 3 messages"),
        ((), 1, "fewer than 1 messages"),
        ((b"a", b"a"), 1, "two messages of one sender"),
        ((b"a", b"b", b"b"), 1, "two messages of one sender"),
        ((b"a",), 1, None),
    ],
)
def test_a_sum_is_of_enough_senders_once_each(senders, threshold, said):
    total = MaskedSum(np.zeros(1, dtype=np.int64), senders, senders)
    if said is None:
        assert _checked(total, threshold) is total
    else:
        with pytest.raises(ProtocolError, match=said):
            _checked(total, threshold)
