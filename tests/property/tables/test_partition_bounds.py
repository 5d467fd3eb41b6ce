"""Digests of ids, cuts between row groups, and samples of a client's rows."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.transforms.numerics.tables import partition, row_sampling
from dapple_dp.transforms.tables import client_ids

KEY = bytes(range(32))


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 5))
def test_digests_of_strings_depend_on_the_string_alone(strings, skipped):
    ids = client_ids.canonical(pa.chunked_array([pa.array([b"x" * skipped, *strings])]))[1:]
    digests = client_ids.digests(ids)
    assert digests.dtype == np.uint64
    assert len(digests) == len(strings)
    alone = [int(client_ids.digests(pa.array([each], pa.large_binary()))[0]) for each in strings]
    assert digests.tolist() == alone
    assert len(set(alone)) == len(set(strings))


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 12))
def test_row_groups_hold_whole_clients_or_one(sizes, max_rows):
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    groups = partition.row_groups(offsets, max_rows)
    assert groups.cuts[0] == 0
    assert groups.cuts[-1] == offsets[-1]
    assert np.diff(groups.cuts).max(initial=0) <= max_rows
    assert groups.runs.sum() == len(groups.cuts) - 1
    ends = groups.cuts[np.concatenate([[0], np.cumsum(groups.runs)]).astype(np.int64)]
    assert np.isin(ends, offsets).all()
    for (start, stop), run in zip(itertools.pairwise(ends), groups.runs, strict=True):
        assert run == 1 or np.isin([start, stop], offsets).all()
        assert run == 1 or ((offsets > start) & (offsets < stop)).sum() == 0


def sampled(points: np.ndarray, clients: np.ndarray, max_rows: int, key: bytes = KEY) -> np.ndarray:
    digests = client_ids.digests(pa.array(range(int(clients.max(initial=0)) + 1)))
    return row_sampling.sample_rows(points, clients, digests, max_rows, key)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=40), st.integers(1, 6), st.data())
@settings(max_examples=200)
def test_one_row_more_replaces_one_row_at_most(rows, max_rows, data):
    clients, values = np.array(rows).T
    points = values[:, None] / 3.0

    def sample(kept: np.ndarray) -> list:
        chosen = sampled(points[kept], clients[kept], max_rows)
        return sorted(zip(clients[kept][chosen].tolist(), values[kept][chosen].tolist(), strict=True))

    everything = np.arange(len(rows))
    removed = data.draw(st.integers(0, len(rows) - 1))
    before, after = sample(everything), sample(np.delete(everything, removed))
    common = sum(min(before.count(each), after.count(each)) for each in set(before))
    assert len(before) - common <= 1
    assert len(after) - common <= 1
    assert np.bincount([client for client, _ in before]).max() <= max_rows
    assert sample(np.array(data.draw(st.permutations(everything.tolist())))) == before
