"""The number of senders that may collude is one: the account, the thresholds and the quorum count alike."""

import itertools

import hypothesis.strategies as st
from hypothesis import given
from scipy import stats

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.transforms.numerics.masked.neighbors import SECURITY_BITS, parameters

THOUSANDTHS = range(1000)
CLIENTS = range(3, 101)


def colluding(corrupt, n):
    """Returns what the account takes off: senders whose shares of the noise count for nothing."""
    return n - ShareLaw(threshold=1, corrupt=corrupt, dropout=0.0).counted(n)


def graph_or_none(n, corrupt, dropout=0.0):
    """A graph; None where there is none that keeps what is promised."""
    try:
        return parameters(n, corrupt, dropout)
    except ProtocolError:
        return None


def check(n, corrupt, found):
    """A client's colluding neighbors, as many as there may be, can't give a secret back."""
    if found is not None:
        tail = stats.hypergeom(n - 1, colluding(corrupt, n), found.n_neighbors).sf(found.threshold - 1)
        assert n * tail <= 2.0**-SECURITY_BITS


def test_what_floats_count_otherwise_is_counted_alike():
    """58% of 50 are 29, and 28.999999999999996 in floats: a threshold of 29 was within reach of those who collude."""
    pairs = [
        (n, each) for n, each in itertools.product(CLIENTS, THOUSANDTHS) if int(each / 1000 * n) != each * n // 1000
    ]
    assert {(50, 580), (100, 290)} < set(pairs)
    for n, thousandth in pairs:
        check(n, thousandth / 1000, graph_or_none(n, thousandth / 1000))


def test_the_account_counts_whole_senders_of_decimal_shares():
    for n, thousandth in itertools.product(CLIENTS, THOUSANDTHS):
        assert colluding(thousandth / 1000, n) == thousandth * n // 1000


@given(st.integers(3, 100), st.integers(0, 999), st.integers(0, 999))
def test_no_threshold_is_within_reach_of_those_who_collude(n, corrupt, dropout):
    found = graph_or_none(n, corrupt / 1000, dropout / 1000)
    check(n, corrupt / 1000, found)
    if found is not None and found.n_neighbors == n - 1:
        assert found.threshold > colluding(corrupt / 1000, n)
        fewest = ShareLaw(threshold=1, corrupt=0.0, dropout=dropout / 1000).fewest(n)
        assert found.threshold <= fewest - 1, "every client that stays has enough neighbors that stay"


@given(st.integers(1, 300), st.integers(0, 500))
def test_colluders_form_no_second_quorum(n, corrupt):
    law = ShareLaw(threshold=1, corrupt=corrupt / 1000, dropout=0.0)
    assert 2 * law.quorum(n) > n + corrupt * n // 1000
