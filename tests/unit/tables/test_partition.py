"""Digests of client ids, shards, cuts between row groups, and samples of a client's rows."""

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.core.plan import Mechanism
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.kmeans.feddp_kmeans import rounds as feddp_kmeans
from dapple_dp.transforms.numerics.tables import partition, row_sampling
from dapple_dp.transforms.tables import client_ids, hive
from tests.scenes import lake

KEY = bytes(range(32))


def test_mix_is_splitmix64():
    # The first outputs of SplitMix64 from seed 0: its state grows by the increment that `mix` adds.
    states = np.array([0, 0x9E3779B97F4A7C15, 0x3C6EF372FE94F82A], dtype=np.uint64)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert partition.mix(states).tolist() == expected


def test_zeros_at_the_end_count():
    strings = [b"", b"\0", b"\0" * 7, b"\0" * 8, b"\0" * 9, b"a", b"a\0"]
    assert len(set(client_ids.digests(pa.array(strings, pa.large_binary())).tolist())) == len(strings)


@pytest.mark.parametrize(
    "stored", [pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.dictionary(pa.int8(), pa.int32())]
)
def test_integers_have_one_form_whatever_their_width(stored):
    ids = client_ids.canonical(pa.chunked_array([pa.array([3, 100, 3], pa.int64()).cast(_value_type(stored))]))
    assert ids.type == pa.int64()
    assert client_ids.digests(ids).tolist() == client_ids.digests(pa.array([3, 100, 3])).tolist()


def _value_type(stored: pa.DataType) -> pa.DataType:
    return stored.value_type if pa.types.is_dictionary(stored) else stored


def test_large_unsigned_ids_stay_what_they_are():
    ids = client_ids.canonical(pa.chunked_array([pa.array([2**64 - 1, 5], pa.uint64())]))
    joined = client_ids.concatenate([ids, pa.array([5])], "id")
    assert joined.to_pylist() == [2**64 - 1, 5, 5]
    assert client_ids.digests(joined)[1] == client_ids.digests(pa.array([5]))[0]
    with pytest.raises(InputError, match="column 'id' must hold client ids of one integer type"):
        client_ids.concatenate([ids, pa.array([-1])], "id")


@pytest.mark.parametrize(
    "other", [pa.array(["1"], pa.large_string()), pa.array([b"1"], pa.large_binary())], ids=["strings", "bytes"]
)
def test_ids_of_two_kinds_are_refused(other):
    with pytest.raises(InputError, match="column 'id' must hold one type of client ids in all files, got"):
        client_ids.concatenate([pa.array([1]), other], "id")


@pytest.mark.parametrize("n_shards", [0, partition.MAX_SHARDS + 1])
def test_impossible_numbers_of_shards_are_refused(n_shards):
    with pytest.raises(ValueError, match="n_shards must be from 1 to"):
        partition.shard_of(np.zeros(1, dtype=np.uint64), n_shards)


def sampled(points: np.ndarray, clients: np.ndarray, max_rows: int, key: bytes = KEY) -> np.ndarray:
    digests = client_ids.digests(pa.array(range(int(clients.max(initial=0)) + 1)))
    return row_sampling.sample_rows(points, clients, digests, max_rows, key)


def test_a_sample_depends_on_the_key_and_not_on_the_precision():
    rng = np.random.default_rng(0)
    points, clients = rng.normal(size=(200, 3)).astype(np.float32), rng.integers(0, 4, 200)
    chosen = sampled(points, clients, 5)
    np.testing.assert_array_equal(sampled(points.astype(np.float64), clients, 5), chosen)
    assert sampled(points, clients, 5, bytes(32)).tolist() != chosen.tolist()
    assert (np.bincount(clients[chosen]) == 5).all()


def test_nothing_is_sampled_from_nothing():
    assert len(sampled(np.zeros((0, 3)), np.zeros(0, dtype=np.int64), 2)) == 0


@pytest.mark.parametrize("allocation", ["tuned", "paper"])
def test_bounded_clients_need_more_noise_per_row(allocation):
    def specs(**settings):
        config = validated(lake.job("lake", "server", privacy__allocation=allocation, **settings))
        return [each for part in feddp_kmeans.round_specs(config, 4, 60) for each in part.releases]

    bounded = specs(data__max_rows_per_client=3, data__client_id="client_id")
    for before, after in zip(specs(), bounded, strict=True):
        doubled = before.name == "sums" or before.mechanism is Mechanism.DISCRETE_LAPLACE
        ratio = after.sensitivity / before.sensitivity
        assert ratio >= (2.0 if doubled else np.sqrt(2.0))
        assert ratio <= (2.0 if doubled else np.sqrt(2.0) + 1e-5)


def test_values_of_hive_folders():
    path = "lake/client=a/client=b%2Fc/part.parquet"
    assert hive.has_folder(path, "client")
    assert not hive.has_folder("lake/part-client=1.parquet", "client")
    assert not hive.has_folder("lake/client=1", "client")
    assert hive.folder_value(path, "client") == "b/c"
    assert hive.folder_value("client=__HIVE_DEFAULT_PARTITION__/x.parquet", "client") is None
