import dataclasses
import json
import math

import numpy as np
import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.config import EncodeConfig
from dapple_dp.schemas.reports.split_parameters import SplitParameters, collection_from_json
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.reports import split_reports
from dapple_dp.transforms.numerics.reports.encoder import lattice_points
from dapple_dp.transforms.numerics.reports.split_and_mix import (
    VECTOR_UNITS,
    Messages,
    MessageTotals,
    encode_client,
    gaussian_stddev,
)
from tests.scenes.reports import KEY, settings

HOSTILE = [[0.0, 0.0], [np.nan, 1.0], [np.inf, -np.inf], [1e308, 1e308], [3.0, 4.0], [-0.0, 5e-324]]


def public(n_clusters: int = 2, depth: object = 1, min_batch: int = 50, n_features: int = 2) -> SplitParameters:
    content = settings(
        n_clusters=n_clusters,
        privacy={"unit": "client", "epsilon": 1.0, "delta": 1e-6},
        tree={"radius": 5.0, "depth": depth},
        reports={"mode": "shuffle", "variant": "split_and_mix", "min_batch": min_batch},
    )
    names = tuple(f"x[{index}]" for index in range(n_features))
    return split_reports.design_split(EncodeConfig.model_validate(content), names, KEY)


def totals_of(points: list, parameters: SplitParameters, first: int = 0) -> MessageTotals:
    ids = [str(first + index).encode() for index in range(len(points))]
    found = split_reports.encode_clients(np.array(points), ids, parameters, KEY * 2)
    return MessageTotals.of(found, parameters.n_places, parameters.modulus)


def test_the_batch_has_the_noise_of_the_gaussian_mechanism():
    parameters = public()
    stddev = parameters.client_stddev * math.sqrt(parameters.guarantee.min_batch)
    assert stddev >= gaussian_stddev(1.0, 0.5e-6) * 2.0 * VECTOR_UNITS
    assert parameters.messages_per_client == 2 * 3 * parameters.n_messages
    assert f"{parameters.messages_per_client} messages" in parameters.cost


def test_the_depth_is_the_papers_unless_it_is_given():
    assert public(n_clusters=2, depth="auto").depth == 4
    with pytest.raises(ConfigError, match=r"tree.depth must be at least 2 for 4 clusters, got 1"):
        public(n_clusters=4, depth=1)
    with pytest.raises(ConfigError, match=r"at most 100,000 messages by split and mix, got \d{3},\d{3} for 1024"):
        public(depth=10, n_features=20)


def test_parameters_survive_json():
    assert collection_from_json(public().to_json(), "here") == public()


def test_any_input_is_a_vector_of_at_most_the_radius_in_one_leaf():
    parameters = dataclasses.replace(public(), client_stddev=1e-3)
    plan = split_reports.plan_of(parameters)
    for point in HOSTILE:
        lattice = np.zeros((2, 3))
        vector = lattice_points(np.array([point]), 5.0, 10)[0].astype(np.int64)
        assert int((vector**2).sum()) <= VECTOR_UNITS**2
        found = encode_client(vector, 1, plan, KeyStream(KEY * 2, encode_label("x")))
        lattice[1] = [*vector, VECTOR_UNITS]
        sums = MessageTotals.of(found, parameters.n_places, parameters.modulus).sums(plan)
        np.testing.assert_array_equal(sums, lattice)


def test_totals_merge_and_tell_whole_clients_from_parts():
    parameters = public()
    whole = totals_of(HOSTILE, parameters)
    parts = [totals_of(HOSTILE[:2], parameters), totals_of(HOSTILE[2:], parameters, first=2)]
    merged = parts[0].merge(parts[1], parameters.modulus)
    for one, two in zip(whole, merged, strict=True):
        np.testing.assert_array_equal(one, two)
    assert split_reports.n_clients_of(whole, parameters) == len(HOSTILE)
    one = MessageTotals.of(Messages(np.array([0]), np.array([5])), parameters.n_places, parameters.modulus)
    assert split_reports.n_clients_of(whole.merge(one, parameters.modulus), parameters) is None


def test_coins_follow_from_client_and_point():
    parameters = public()
    same = [totals_of([[1.0, 2.0]], parameters).totals for _ in range(2)]
    np.testing.assert_array_equal(*same)
    for other in (totals_of([[1.0, 2.0]], parameters, first=7), totals_of([[1.0, 2.0 + 1e-15]], parameters)):
        assert (same[0] != other.totals).mean() > 0.5


@pytest.mark.parametrize(
    ("name", "value"), [("client_stddev", 3.0), ("n_messages", 3), ("modulus", 97), ("n_messages", 99)]
)
def test_parameters_that_break_their_promise_are_refused_by_the_client(name, value):
    wrong = dataclasses.replace(public(), **{name: value})
    with pytest.raises(ConfigError, match="must have the noise, shares and modulus that keep their epsilon and delta"):
        split_reports.encode_clients(np.zeros((1, 2)), [b"a"], wrong, KEY * 2)


@pytest.mark.parametrize("change", [{"key": "00"}, {"depth": 0}, {"n_clusters": 9}, {"features": []}, {"modulus": "x"}])
def test_parameters_that_are_not_parameters_are_refused(change):
    content = json.loads(public().to_json()) | change
    with pytest.raises(ConfigError, match="parameters"):
        collection_from_json(json.dumps(content), "here")
    with pytest.raises(ConfigError, match="report parameters"):
        collection_from_json("[]", "here")
