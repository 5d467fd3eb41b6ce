import dataclasses

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from scipy import stats

from benchmarks.papers import split_and_mix as protocol
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from tests.scenes.reports import KEY

PLAN = protocol.plan_sums(2000, 4, 2, 1.0, 1e-6)


def stream(client: int) -> KeyStream:
    return KeyStream(KEY * 2, encode_label("client", client))


def all_messages(plan: protocol.SplitPlan, vectors: np.ndarray, leaves: np.ndarray) -> protocol.Messages:
    parts = [
        protocol.encode_client(vector, int(leaf), plan, stream(client))
        for client, (vector, leaf) in enumerate(zip(vectors, leaves, strict=True))
    ]
    return protocol.Messages(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def decoded(messages: protocol.Messages, plan: protocol.SplitPlan) -> np.ndarray:
    return protocol.MessageTotals.of(messages, plan.n_leaves * plan.n_dims, plan.modulus).sums(plan)


def test_shuffled_messages_add_up_to_sums_and_noise_of_the_planned_stddev():
    rng = np.random.default_rng(0)
    vectors, leaves = rng.integers(-700, 700, (300, 2)), rng.integers(0, 4, 300)
    sums = decoded(all_messages(PLAN, vectors, leaves).shuffled(), PLAN)
    exact = np.zeros((4, 3))
    np.add.at(exact, leaves, np.column_stack([vectors, np.full(300, protocol.VECTOR_UNITS)]))
    # Twelve coordinates within 5 stddevs; seeded.
    stddev = PLAN.client_stddev * np.sqrt(300)
    assert np.abs(sums - exact).max() < 5.0 * stddev
    assert np.std(sums - exact) > 0.4 * stddev


def test_sums_wrap_around_the_modulus_and_back():
    plan = dataclasses.replace(PLAN, client_stddev=1e-3)
    vectors = np.array([[-1024, 0], [0, -1024], [-512, 300]])
    sums = decoded(all_messages(plan, vectors, np.array([0, 0, 3])), plan)
    assert sums.tolist() == [[-1024, -1024, 2048], [0, 0, 0], [0, 0, 0], [-512, 300, 1024]]


def test_all_shares_but_one_are_uniform_and_every_coordinate_is_sent():
    messages = protocol.encode_client(np.array([5, 5]), 1, PLAN, stream(0))
    assert np.bincount(messages.places).tolist() == 12 * [PLAN.n_messages]
    assert len(messages.shares) == PLAN.messages_per_client
    assert (messages.shares >= 0).all()
    assert (messages.shares < PLAN.modulus).all()
    shares = np.concatenate([protocol.encode_client(np.zeros(2, int), 0, PLAN, stream(i)).shares for i in range(200)])
    # The mean of 200 x 132 uniform shares is within 5 of its stddevs of the middle; seeded.
    assert abs(shares.mean() / PLAN.modulus - 0.5) < 5.0 / np.sqrt(12.0 * len(shares))


def test_order_is_gone_after_the_shuffle():
    messages = protocol.encode_client(np.array([5, 5]), 1, PLAN, stream(0))
    order = np.random.default_rng(0).permutation(len(messages.places))
    again = protocol.Messages(messages.places[order], messages.shares[order]).shuffled()
    for one, two in zip(messages.shuffled(), again, strict=True):
        np.testing.assert_array_equal(one, two)


def test_small_trees_find_centers():
    means = np.array([[900, 0], [0, -900], [-600, 600], [0, 0]])
    leaves = np.arange(2000) % 3
    sums = decoded(all_messages(PLAN, means[leaves], leaves).shuffled(), PLAN)
    found = protocol.leaf_centers(sums, 3, seed=0).centers * protocol.VECTOR_UNITS
    distances = np.linalg.norm(found[:, None] - means[:3], axis=2)
    assert distances.min(axis=0).max() < 150.0


def test_the_price_is_messages():
    """The page benchmarks/papers/coverage.md says so."""
    assert protocol.plan_sums(10**6, 16, 4, 1.0, 1e-6).messages_per_client == 560
    assert protocol.plan_sums(10**6, 64, 100, 1.0, 1e-6).messages_per_client == 51_712


def test_noise_that_costs_more_than_there_is_is_refused():
    with pytest.raises(ConfigError, match="more than discrete noise costs"):
        protocol.plan_sums(1000, 1 << 12, 100, 1e-6, 0.5)


def test_vectors_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match="norm of at most 1024"):
        protocol.encode_client(np.array([1024, 1]), 0, PLAN, stream(0))
    with pytest.raises(ValueError, match="leaf of the plan"):
        protocol.encode_client(np.array([0, 0]), 4, PLAN, stream(0))


def test_the_gaussian_is_the_analytic_one():
    # Known value of the analytic Gaussian mechanism at (1, 1e-6).
    assert protocol.gaussian_stddev(1.0, 1e-6) == pytest.approx(4.2247, abs=1e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-4, 5e-7, 1e-10])
def test_the_noise_spends_its_epsilon(epsilon, delta):
    stddev = protocol.gaussian_stddev(epsilon, delta)
    above, below = (stats.norm.cdf(sign * 0.5 / stddev - epsilon * stddev) for sign in (1.0, -1.0))
    assert above - np.exp(epsilon) * below == pytest.approx(delta, rel=1e-6)
    assert gaussian_mechanism.get_epsilon_gaussian(stddev, delta) == pytest.approx(epsilon, rel=1e-6)


def test_primes():
    assert [protocol.next_prime(least) for least in (0, 2, 8, 25, 1 << 31)] == [2, 2, 11, 29, 2147483659]
