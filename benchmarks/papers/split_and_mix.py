"""The paper's shuffle protocol: vectors summed by leaf, split into shares that a shuffler mixes.

Every client splits each coordinate of every leaf, zeros too, into `n_messages` random shares that add up to it modulo
a prime, and adds its part of discrete Gaussian noise. Anyone who sees the shuffled messages learns the noisy sums and
nothing else. The accuracy is that of the central model; the price is messages: their number per client grows with
leaves times coordinates, so this is for small trees.

Source: Chang, Ghazi, Kumar, Manurangsi (2021), Algorithms 9 to 11; Balle, Bell, Gascon, Nissim (2020) for the number of
messages, from `FEWEST_CLIENTS` on; Kairouz, Liu, Steinke (2021) for noise that is split over clients: at 3 lattice
units or more per client its sum differs from one discrete Gaussian by a privacy loss below 10 n exp(-88) per
coordinate. This and what a discrete Gaussian costs beside a continuous one are taken off epsilon and delta first.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from dp_accounting import gaussian_mechanism
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core import noise
from dapple_dp.transforms.core.discretization import log_delta
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.kmeans.starts.seeding import weighted_kmeans
from dapple_dp.transforms.numerics.reports.sums import DecodedCenters, in_ball

VECTOR_BITS = 10
VECTOR_UNITS = 1 << VECTOR_BITS
"""Lattice units of the radius, and of one client in a count."""
SENSITIVITY = 2.0 * VECTOR_UNITS
"""A replaced client moves one leaf by a diameter, or two leaves by a vector and a count each."""
MOST_TIMES = 4
"""Clients that a plan has room for, as a multiple of those that it guarantees; more would wrap around the modulus."""
_LEAST_CLIENT_STDDEV = 3.0
_TAIL_STDDEVS = 40.0
FEWEST_CLIENTS = 19
"""The theorem on the number of messages is for as many clients, at least."""
_CHECKED = (1.0 - 5e-7, 1.0 - 1e-5)
"""The search is asked for a delta that is smaller by these factors in turn; its own error varies with the machine."""
_TAIL_PART = 5e-4
"""Part of delta that pays for an unlikely ratio of discrete to continuous noise."""
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """Parameters that clients and decoder share.

    Attributes:
      n_clients: that take part, at least.
      n_leaves: of the tree.
      n_dims: coordinates of a client's vector, its count included.
      client_stddev: lattice units; noise that each client adds to every coordinate of every leaf.
      modulus: prime.
      n_messages: shares of one coordinate.
    """

    n_clients: int
    n_leaves: int
    n_dims: int
    client_stddev: float
    modulus: int
    n_messages: int

    @property
    def messages_per_client(self) -> int:
        """Messages that each client sends."""
        return self.n_leaves * self.n_dims * self.n_messages


class Messages(NamedTuple):
    """Shuffled or not: `places` int64, leaf * n_dims + coordinate, and `shares` int64 in [0, modulus)."""

    places: NDArray[np.int64]
    shares: NDArray[np.int64]

    def shuffled(self) -> "Messages":
        """The same messages in an order that depends on nothing else."""
        order = np.lexsort((self.shares, self.places))
        return Messages(self.places[order], self.shares[order])


def plan_sums(n_clients: int, n_leaves: int, n_features: int, epsilon: float, delta: float) -> SplitPlan:
    """Plan for the sum of vectors and the count of every leaf, for replacing one client's vector.

    Args:
      n_clients: guaranteed to take part, >= `FEWEST_CLIENTS`.
      n_leaves: >= 1.
      n_features: of a vector in the unit ball.
      epsilon: from 1e-6 to 100, of the shuffled batch.
      delta: from 1e-30 to less than 1; half of it pays for the secrecy of shares.

    Raises:
      ConfigError: if no noise keeps them.
    """
    n_coordinates = n_leaves * (n_features + 1)
    stddev = sum_stddev(n_clients, n_coordinates, epsilon, 0.5 * delta)
    client_stddev = max(stddev / math.sqrt(n_clients), _LEAST_CLIENT_STDDEV)
    most = MOST_TIMES * n_clients
    largest = most * VECTOR_UNITS + _TAIL_STDDEVS * client_stddev * math.sqrt(most)
    modulus = next_prime(2 * math.ceil(largest))
    security = math.log2(2.0 * n_coordinates / delta) + (epsilon + math.log1p(math.exp(-epsilon))) / math.log(2.0)
    return SplitPlan(
        n_clients=n_clients,
        n_leaves=n_leaves,
        n_dims=n_features + 1,
        client_stddev=client_stddev,
        modulus=modulus,
        n_messages=messages_per_value(n_clients, modulus, security),
    )


def sum_stddev(n_clients: int, n_coordinates: int, epsilon: float, delta: float) -> float:
    """Lattice units; stddev of the clients' noise together, so that the discrete sums keep (epsilon, delta).

    Args:
      n_clients: whose noise adds up.
      n_coordinates: that are released.
      epsilon: of the sums.
      delta: of the sums.

    Raises:
      ConfigError: if discrete noise costs more than there is.

    Source: Lemma 8 of docs/guarantee.md for discrete noise, at the stddev of the continuous formula: the noise that is
    returned is no less, and costs no more. Kairouz, Liu, Steinke (2021), Theorem 1, for noise that adds up.
    """
    variance = (gaussian_stddev(epsilon, delta) * SENSITIVITY) ** 2
    tail = _TAIL_PART * delta
    exponent = epsilon - math.log(tail)
    lower = -n_coordinates * math.log1p(-1.0 / (24.0 * variance))
    upper = n_coordinates * (0.5 / variance + 3.0 * math.exp(-2.0 * math.pi**2 * variance))
    upper += math.sqrt(exponent * n_coordinates) / variance + exponent / variance
    summed = 2.0 * n_coordinates * 10.0 * n_clients * math.exp(-2.0 * math.pi**2 * 0.5 * _LEAST_CLIENT_STDDEV**2)
    left = epsilon - lower - upper - summed
    if left <= 0.5 * epsilon:
        raise ConfigError(
            f"privacy.epsilon must be more than discrete noise costs on {n_coordinates} sums, got {epsilon:g}; use a "
            "smaller tree."
        )
    return gaussian_stddev(left, (delta - tail) * math.exp(-lower - summed)) * SENSITIVITY


def messages_per_value(n_clients: int, modulus: int, security: float) -> int:
    """Shares of one value so that shuffled shares are within 2**-security of telling the sum alone.

    Source: Balle, Bell, Gascon, Nissim (2020), "Private summation in the multi-message shuffle model".

    Example:
      >>> messages_per_value(1_000_000, 1 << 31, 40.0)
      9
    """
    return math.ceil(2.0 + (2.0 * security + math.log2(modulus)) / (math.log2(n_clients) - math.log2(math.e)))


def encode_client(vector: NDArray[np.int64], leaf: int, plan: SplitPlan, stream: KeyStream) -> Messages:
    """Messages of one client.

    Args:
      vector: shape (n_features,), lattice units, of norm at most `VECTOR_UNITS`.
      leaf: in [0, n_leaves).
      plan: public.
      stream: private random bits of the client.

    Raises:
      ValueError: if the vector is longer, or the leaf is none.
    """
    if int((vector.astype(object) ** 2).sum()) > VECTOR_UNITS**2 or not 0 <= leaf < plan.n_leaves:
        raise ValueError(f"vector must have a norm of at most {VECTOR_UNITS}, and a leaf of the plan; clip it first.")
    n_values = plan.n_leaves * plan.n_dims
    values = noise.discrete_gaussian(stream.substream(encode_label("noise")), plan.client_stddev, n_values)
    first = leaf * plan.n_dims
    values[first : first + plan.n_dims] += np.append(vector, VECTOR_UNITS)
    drawn = stream.substream(encode_label("shares")).residues(plan.modulus, n_values * (plan.n_messages - 1))
    shares = drawn.reshape(n_values, plan.n_messages - 1)
    last = (values - shares.sum(axis=1)) % plan.modulus
    places = np.repeat(np.arange(n_values), plan.n_messages)
    return Messages(places, np.column_stack([shares, last]).ravel())


class MessageTotals(NamedTuple):
    """Sums of messages by place: `totals` int64 in [0, modulus), and `counts` int64, how many; shape (n_places,)."""

    totals: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, messages: Messages, n_places: int, modulus: int) -> "MessageTotals":
        """Totals of some messages, whose places and shares are in range."""
        totals = np.zeros(n_places, dtype=np.int64)
        step = (1 << 62) // modulus
        for start in range(0, len(messages.places), step):
            np.add.at(totals, messages.places[start : start + step], messages.shares[start : start + step])
            totals %= modulus
        return cls(totals, np.bincount(messages.places, minlength=n_places).astype(np.int64))

    def sums(self, plan: SplitPlan) -> NDArray[np.int64]:
        """Noisy sums, shape (n_leaves, n_dims), lattice units; the last coordinate is the count."""
        signed = np.where(self.totals > plan.modulus // 2, self.totals - plan.modulus, self.totals)
        return signed.reshape(plan.n_leaves, plan.n_dims)


def leaf_centers(sums: NDArray[np.int64], n_clusters: int, seed: int, least: float = 0.0) -> DecodedCenters:
    """Centers in units of the radius: sums over counts of leaves that k-means of their noisy means puts together.

    Args:
      sums: of `MessageTotals.sums`.
      n_clusters: >= 1, at most the number of leaves.
      seed: public.
      least: leaves with a smaller noisy count are left out, in clients.

    Source: Chang et al. (2021), Algorithm 4, lines 7 to 18.
    """
    counts = sums[:, -1] / VECTOR_UNITS
    counts = np.where(counts >= min(least, float(counts.max())), np.maximum(counts, 0.0), 0.0)
    means = in_ball(sums[:, :-1] / (VECTOR_UNITS * np.maximum(counts, 1.0))[:, None])
    labels = weighted_kmeans(means, counts, n_clusters, 20, seed).labels
    members = (labels == np.arange(n_clusters)[:, None]) & (counts > 0.0)
    totals = members @ sums / VECTOR_UNITS
    sizes = np.maximum(totals[:, -1], 1.0)
    return DecodedCenters(in_ball(totals[:, :-1] / sizes[:, None]), sizes)


def gaussian_stddev(epsilon: float, delta: float) -> float:
    """Stddev of Gaussian noise that keeps (epsilon, delta) at sensitivity 1; what the search finds is checked.

    Raises:
      ConfigError: if the search finds none.
    """
    for factor in _CHECKED:
        found = float(gaussian_mechanism.get_sigma_gaussian(epsilon, delta * factor))
        if math.isfinite(found) and log_delta(found, epsilon) <= math.log(delta):
            return found
    raise ConfigError(
        f"privacy.epsilon and privacy.delta must be numbers that some noise meets, got {epsilon:g} and {delta:g}; "
        "choose others."
    )


def next_prime(least: int) -> int:
    """The smallest prime that is at least `least`, below 2**64.

    Example:
      >>> next_prime(90)
      97
    """
    candidate = max(least, 2)
    while not _is_prime(candidate):
        candidate += 1
    return candidate


def _is_prime(number: int) -> bool:
    """Tests primality by Miller and Rabin, with witnesses that are enough below 2**64."""
    if number in _WITNESSES:
        return True
    if any(number % witness == 0 for witness in _WITNESSES):
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, witness, odd, twos) for witness in _WITNESSES)


def _passes(number: int, witness: int, odd: int, twos: int) -> bool:
    power = pow(witness, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
