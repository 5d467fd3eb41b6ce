"""Ids of clients in memory: two different ones stay two, and a row without one is noticed, whatever holds them."""

import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dapple_dp.estimator.client_ids import client_ids
from dapple_dp.schemas.errors import InputError

NAN = float("nan")


class Stream:
    """A column of another library, which Arrow reads without a copy."""

    def __init__(self, values):
        self.values = pa.chunked_array([values])

    def __arrow_c_stream__(self, requested_schema=None):
        return self.values.__arrow_c_stream__(requested_schema)


def typed(ids):
    """Arrow takes integers for signed ones unless it is told."""
    return pa.array(ids, pa.uint64() if ids[-1] == 2**64 - 1 else None)


HOLDERS = {
    "list": list,
    "tuple": tuple,
    "objects": lambda ids: np.array([*ids, None], dtype=object)[:-1],
    "series": pd.Series,
    "objects of pandas": lambda ids: pd.Series(ids, dtype=object),
    "categories": lambda ids: pd.Series(ids, dtype="category"),
    "index": pd.Index,
    "arrow": typed,
    "chunks": lambda ids: pa.chunked_array([typed(ids)[:1], typed(ids)[1:]]),
    "dictionary": lambda ids: typed(ids).dictionary_encode(),
    "stream": lambda ids: Stream(typed(ids)),
}
DIFFERENT = {
    "texts": ["a", "b", "nan", "7"],
    "texts that end in zeros": ["a", "a\0", "a\0\0"],
    "bytes that end in zeros": [b"\1", b"\1\0", b"\1\0\0", b""],
    "digests": [bytes(16), b"\1" + bytes(15), b"\1" * 16],
    "integers": [-(2**63), -1, 0, 2**63 - 1],
    "integers of 64 bits": [0, 2**63, 2**64 - 1],
}


@pytest.mark.parametrize("ids", DIFFERENT.values(), ids=DIFFERENT)
@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_different_ids_stay_different(holder, ids):
    assert client_ids(holder(ids), len(ids)).to_pylist() == ids


def test_integers_of_numpy_are_taken_as_they_are():
    for kind in (np.int8, np.uint64, np.int64):
        assert client_ids(np.arange(4, dtype=kind), 4).to_pylist() == [0, 1, 2, 3]
    assert client_ids([np.int64(5), 5, np.uint8(6)], 3).to_pylist() == [5, 5, 6]
    assert client_ids(range(3), 3).to_pylist() == [0, 1, 2]
    assert client_ids(np.array([b"a", b"bb"]), 2).to_pylist() == [b"a", b"bb"]


MISSING = {
    "NaN among texts": ["secret", NAN],
    "NaN among integers": [7, NAN],
    "NaN of NumPy": ["secret", np.float64("nan")],
    "None": ["secret", None],
    "NA": ["secret", pd.NA],
    "NaT": [b"secret", pd.NaT],
    "nothing but NaN": [NAN, NAN],
}


@pytest.mark.parametrize("ids", MISSING.values(), ids=MISSING)
@pytest.mark.parametrize(
    "holder", [list, lambda ids: np.array(ids, dtype=object), lambda ids: pd.Series(ids, dtype=object)]
)
def test_a_row_without_an_id_is_no_client(holder, ids):
    with pytest.raises(InputError, match="must name a client for every row of X, got nulls"):
        client_ids(holder(ids), len(ids))


def test_nulls_of_tables_are_no_clients():
    for ids in (pd.Series([1, None], dtype="Int64"), pa.array(["a", None]), pa.array(["a", None]).dictionary_encode()):
        with pytest.raises(InputError, match="got nulls"):
            client_ids(ids, 2)


REFUSED = {
    "a number and its text": ([7, "7"], "one type"),
    "bytes and text": ([b"7", "7"], "one type"),
    "truth values": ([True, False], "got bool"),
    "truth values among integers": ([1, True], "got bool"),
    "floats": ([1.0, 2.0], "got float"),
    "floats of NumPy": (np.arange(2.0), "got double"),
    "truth values of NumPy": (np.array([True, False]), "got bool"),
    "integers beyond 64 bits": ([2**64, 1], "at most 64 bits.*with str"),
    "negative and large integers": ([2**63, -1], "at most 64 bits"),
    "integers of UUIDs": ([uuid.UUID(int=2**100).int, 1], "at most 64 bits"),
    "UUIDs": ([uuid.UUID(int=1), uuid.UUID(int=2)], "got UUID"),
    "lists": ([[1], [2]], "got list"),
    "a matrix": (np.zeros((2, 1), int), "one type"),
    "a table of one column": (pd.DataFrame({"id": [1, 2]}), "one type"),
    "a table of Arrow": (pa.table({"id": [1, 2]}), "one type"),
    "a text": ("ab", "give the column itself"),
    "bytes": (b"ab", "give the column itself"),
    "a set": ({1, 2}, "one type"),
    "a mapping": ({1: 2, 3: 4}, "one type"),
    "a generator": ((each for each in (1, 2)), "one type"),
    "no sequence": (7, "one type"),
    "dates": (np.array(["2026-01-01", "2026-01-02"], "M8[D]"), "got date32"),
    "half of a letter": (["\ud800", "a"], "one type"),
    "too few": (["a"], "got 1 ids for 2 rows"),
    "masked ids": (np.ma.array([1, 2], mask=[True, False]), "must not hold masked values"),
    "masked ids in a list": ([np.ma.masked, 1], "must not hold masked values"),
}


@pytest.mark.parametrize(("ids", "rule"), REFUSED.values(), ids=REFUSED)
def test_other_ids_are_refused_in_a_sentence(ids, rule):
    with pytest.raises(InputError, match=rule):
        client_ids(ids, 2)


def test_a_mask_that_masks_nothing_is_none():
    assert client_ids(np.ma.array([1, 2]), 2).to_pylist() == [1, 2]
