"""Shares of noise by hand: how many count, what they cost, what they are bound to, and which are refused."""

import dataclasses
import math

import numpy as np
import pydantic
import pytest

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.schemas.errors import ConfigError, ProtocolError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.privacy.noise_shares import DropoutShare, ShareLaw
from dapple_dp.transforms.numerics.masked import noise_shares
from dapple_dp.transforms.numerics.masked.noise_shares import closeness, closeness_epsilon, draw_share, with_shares
from tests.scenes import lake

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
PAIRWISE = ShareLaw(threshold=2, corrupt=0.05, dropout=0.3)
SECRET = ShareLaw(threshold=21)


def round_of(multiplier=3.0, size=6, mechanism=Mechanism.DISCRETE_GAUSSIAN, geometry=Geometry.VECTOR):
    spec = ReleaseSpec(
        name="sums", shape=(size,), mechanism=mechanism, sensitivity=1 << 12, share=1.0, geometry=geometry
    )
    return RoundPlan(path="test/round", releases=(ReleasePlan(spec=spec, noise_multiplier=multiplier),))


@pytest.mark.parametrize(
    ("law", "n_listed", "fewest", "counted"),
    [
        (SECRET, None, 21, 21),
        (PAIRWISE, 1000, 700, 650),
        (PAIRWISE, 10_000, 7_000, 6_500),
        (PAIRWISE, 50, 35, 33),
        (PAIRWISE, 10, 7, 7),
        (PAIRWISE, 3, 2, 2),
        (ShareLaw(threshold=900, corrupt=0.05, dropout=0.3), 1000, 900, 850),
        (ShareLaw(threshold=2, corrupt=0.0, dropout=0.07), 100, 93, 93),
    ],
)
def test_shares_that_count(law, n_listed, fewest, counted):
    """Thirty percent of those listed may drop out, and 5% of those listed may all be among those who stay."""
    assert (law.fewest(n_listed), law.counted(n_listed)) == (fewest, counted)
    law.check_present(fewest, n_listed)
    with pytest.raises(ProtocolError, match=f"shares of at least {fewest} senders"):
        law.check_present(fewest - 1, n_listed)


def test_any_part_of_the_senders_but_all_may_drop_out():
    dropout = pydantic.TypeAdapter(DropoutShare)
    assert [dropout.validate_python(each) for each in (0.0, 0.3, 0.999)] == [0.0, 0.3, 0.999]
    for each in (-1e-9, 1.0):
        with pytest.raises(pydantic.ValidationError):
            dropout.validate_python(each)


@pytest.mark.parametrize("statistic", [np.zeros(5, np.int64), np.zeros(6), np.zeros((6, 1), np.int64)])
def test_a_share_is_drawn_for_a_statistic_of_its_round_only(statistic):
    with pytest.raises(ValueError, match=r"exact_sum of test/round must be int64 of shape \(6,\)"):
        draw_share(KEY, b"north", round_of(), statistic, 4)


def test_nobody_is_left():
    with pytest.raises(ProtocolError, match=r"none of 10 senders is left if masked\.dropout and masked\.corrupt"):
        ShareLaw(threshold=2, corrupt=0.5, dropout=0.5).counted(10)


@pytest.mark.parametrize("corrupt", [0.0, 0.05, 0.4])
@pytest.mark.parametrize("n_parties", [1, 2, 3, 4, 10, 101])
def test_two_lists_cannot_both_have_a_quorum(n_parties, corrupt):
    """An honest party signs one list; so both quorums together have at most all honest ones and colluders twice."""
    quorum = ShareLaw(threshold=2, corrupt=corrupt, dropout=0.3).quorum(n_parties)
    colluding = math.floor(corrupt * n_parties)
    assert 2 * quorum > n_parties + colluding
    assert 2 * (quorum - 1) <= n_parties + colluding


def law_of(stddev, support):
    weights = np.exp(-(support**2) / (2.0 * stddev**2))
    return weights / weights.sum()


@pytest.mark.parametrize(("one", "other"), [(0.5, 0.5), (0.5, 0.8), (0.6, 0.6), (0.7, 1.1), (0.9, 0.9)])
def test_a_sum_of_two_is_as_close_as_stated(one, other):
    """Against the convolution, where the bound can be seen: it holds, and a hundredth of it does not."""
    support = np.arange(-60, 61)
    found = np.convolve(law_of(one, support), law_of(other, support), mode="same")
    middle = np.abs(support) <= 8
    ratio = np.abs(np.log(found[middle] / law_of(math.hypot(one, other), support)[middle])).max()
    assert ratio <= closeness(one, other)
    assert ratio > 0.01 * closeness(one, other)


def test_the_price_covers_any_number_of_shares():
    rounds = (round_of(size=1000), round_of(size=10))
    price = closeness_epsilon(rounds)
    assert 0.0 < price < 1e-50
    for n_shares in (2, 100, 10_000):
        # A share is added n_shares - 1 times, to sums of 1, 2, ... shares.
        least = noise_shares.LEAST_STDDEV
        sums = math.fsum(closeness(least, least * math.sqrt(count)) for count in range(1, n_shares))
        assert 2 * 1010 * sums <= price
    assert with_shares(1.0, rounds) == math.nextafter(1.0, 2.0)


def test_a_share_is_bound_to_key_sender_path_law_and_statistic():
    plan, statistic = round_of(), np.zeros(6, dtype=np.int64)
    first = draw_share(KEY, b"north", plan, statistic, 4)
    np.testing.assert_array_equal(draw_share(KEY, b"north", plan, statistic, 4), first)
    moved = statistic.copy()
    moved[3] = 1
    others = [
        draw_share(OTHER_KEY, b"north", plan, statistic, 4),
        draw_share(KEY, b"east", plan, statistic, 4),
        draw_share(KEY, b"north", dataclasses.replace(plan, path="test/other"), statistic, 4),
        draw_share(KEY, b"north", plan, statistic, 5),
        draw_share(KEY, b"north", plan, moved, 4),
    ]
    assert all(np.count_nonzero(each != first) >= 5 for each in others)


@pytest.mark.parametrize("geometry", Geometry)
def test_shares_below_four_units_are_refused(geometry):
    """A release of 12,288 units among so many that a share has less than four, off the diagonal too."""
    plan, statistic = round_of(geometry=geometry), np.zeros(6, dtype=np.int64)
    smallest = 12_288 / (math.sqrt(2.0) if geometry is Geometry.SYMMETRIC else 1.0)
    most = math.floor((smallest / 4.0) ** 2)
    draw_share(KEY, b"north", plan, statistic, most - 1)
    with pytest.raises(ProtocolError, match="a share of noise must have a stddev of at least 4 lattice units"):
        draw_share(KEY, b"north", plan, statistic, most + 2)


def test_a_release_below_the_least_noise_is_refused_however_it_is_split():
    with pytest.raises(ValueError, match="at least 2\\*\\*10"):
        draw_share(KEY, b"north", round_of(multiplier=0.2), np.zeros(6, dtype=np.int64), 1)


def test_laplace_noise_is_not_split():
    with pytest.raises(ConfigError, match="needs Gaussian noise in every release"):
        noise_shares.check_divisible((round_of(mechanism=Mechanism.DISCRETE_LAPLACE),))


@pytest.mark.parametrize("corrupt", [0.5000001, 0.58, 0.99])
@pytest.mark.parametrize("noise_by", ["aggregator", "clients"])
def test_a_majority_of_colluders_is_refused(tmp_path, corrupt, noise_by):
    section = {"scheme": "pairwise", "threshold": 2, "dropout": 0.0, "noise_by": noise_by}
    job = lake.job(str(tmp_path), "server", trust="masked", masked=section | {"corrupt": corrupt})
    with pytest.raises(ConfigError, match=r"masked\.corrupt must be at most 0\.5"):
        validated(job)
    assert validated(job | {"masked": section | {"corrupt": 0.5}}).masked.corrupt == 0.5


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"noise_by": "clients"}, "masked.corrupt must be 0 for noise_by clients with scheme shared_secret"),
        ({"noise_by": "clients", "corrupt": 0.01}, "one client that colludes can make every mask"),
    ],
)
def test_a_shared_secret_has_no_colluders(tmp_path, section, words):
    job = lake.job(str(tmp_path), "server", trust="masked", masked=section)
    with pytest.raises(ConfigError, match=words):
        validated(job)
    assert validated(job | {"masked": {"noise_by": "clients", "corrupt": 0.0}}).masked.shares == ShareLaw(threshold=1)
