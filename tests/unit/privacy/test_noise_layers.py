"""Layers of noise by hand: which are kept, what they add up to, what their keys tell, and which are refused."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from schemas.errors import ConfigError, ProtocolError
from schemas.kmeans.fit_config import validated
from schemas.privacy.noise_shares import MOST_LAYERS, ShareLaw, _root
from schemas.privacy.plan import Geometry
from tests.scenes import lake
from tests.unit.privacy.test_noise_share_laws import KEY, OTHER_KEY, round_of
from transforms.numerics.privacy import noise_shares
from transforms.numerics.privacy.noise_layers import draw_layered, layer_keys, layer_of, layers_from

LAW = ShareLaw(threshold=2, corrupt=0.05, dropout=0.3, layers=MOST_LAYERS)
COUNTS = (14, 12, 9)
NOTHING = np.zeros(6, dtype=np.int64)


@pytest.mark.parametrize(
    ("law", "n_listed", "counts"),
    [
        (LAW, 1000, (950, 891, 837, 785, 737, 692, 650)),
        (LAW, 10, (10, 9, 8, 7)),
        (LAW, 3, (3, 2)),
        (dataclasses.replace(LAW, layers=1), 1000, (950, 650)),
        (dataclasses.replace(LAW, layers=0), 1000, (650,)),
        (dataclasses.replace(LAW, dropout=0.0), 1000, (950,)),
        (dataclasses.replace(LAW, threshold=1000), 1000, (950,)),
        (ShareLaw(threshold=21, layers=6), None, (21,)),
    ],
)
def test_counts_fall_from_all_listed_to_the_fewest(law, n_listed, counts):
    assert law.counts(n_listed) == counts
    assert counts[-1] == law.counted(n_listed)


@pytest.mark.parametrize("law", [LAW, dataclasses.replace(LAW, corrupt=0.4), dataclasses.replace(LAW, layers=2)])
@pytest.mark.parametrize("n_listed", [3, 10, 31, 100, 1000])
def test_what_is_kept_of_those_who_pool_nothing_is_enough_and_a_layer_less_is_not(law, n_listed):
    n_corrupt, counts = math.floor(law.corrupt * n_listed), law.counts(n_listed)
    for n_present in range(law.fewest(n_listed), n_listed + 1):
        kept = law.n_kept(n_present, n_listed)
        assert (n_present - n_corrupt) / counts[kept] >= 1.0
        assert law.counted_of(n_present, n_listed) == counts[kept]
        assert kept == 0 or (n_present - n_corrupt) / counts[kept - 1] < 1.0
    assert law.n_kept(n_listed, n_listed) == 0


def test_roots_are_exact_where_floats_are_not():
    for base, degree in itertools.product((2, 3, 949, 950, 10**9 + 7), (1, 2, 5, 6)):
        assert _root(base**degree, degree) == base
        assert _root(base**degree - 1, degree) == base - 1


@pytest.mark.parametrize("number", [1, 2])
def test_removed_layers_leave_exactly_the_kept_ones(number):
    """Base and layers drawn one by one; whoever has the key of the first layer in excess takes away the others."""
    plan = round_of()
    share, first = draw_layered(KEY, b"north", plan, NOTHING, COUNTS)
    base = noise_shares.draw_share(KEY, b"north", plan, NOTHING, COUNTS[0])
    keys = layer_keys(first, 2)
    second = layers_from(keys[1], 2, plan, COUNTS)
    lowest = layers_from(keys[0], 1, plan, COUNTS) - second
    np.testing.assert_array_equal(share, base + lowest + second)
    left = share - layers_from(keys[number - 1], number, plan, COUNTS)
    np.testing.assert_array_equal(left, base if number == 1 else base + lowest)
    assert np.count_nonzero(lowest) == np.count_nonzero(second) == 6


def test_laws_of_layers_add_up():
    (plan,) = round_of().releases
    variance = noise_shares.share_of(plan, COUNTS[0]).noise_multiplier ** 2
    for number, count in enumerate(COUNTS[1:], start=1):
        variance += layer_of(plan, COUNTS, number).noise_multiplier ** 2
        assert variance * count >= plan.noise_multiplier**2
        assert variance * count == pytest.approx(plan.noise_multiplier**2, rel=1e-14)


def test_a_layer_is_bound_to_key_sender_path_law_and_statistic():
    plan, moved = round_of(), np.eye(1, 6, dtype=np.int64)[0]
    first = draw_layered(KEY, b"north", plan, NOTHING, COUNTS)
    again = draw_layered(KEY, b"north", plan, NOTHING, COUNTS)
    assert again[1] == first[1]
    np.testing.assert_array_equal(again[0], first[0])
    others = [
        draw_layered(OTHER_KEY, b"north", plan, NOTHING, COUNTS),
        draw_layered(KEY, b"east", plan, NOTHING, COUNTS),
        draw_layered(KEY, b"north", dataclasses.replace(plan, path="test/other"), NOTHING, COUNTS),
        draw_layered(KEY, b"north", round_of(multiplier=3.5), NOTHING, COUNTS),
        draw_layered(KEY, b"north", plan, NOTHING, (14, 12, 8)),
        draw_layered(KEY, b"north", plan, moved, COUNTS),
    ]
    assert len({first[1], *(key for _, key in others)}) == 7
    assert all(np.count_nonzero(share != first[0]) >= 5 for share, _ in others)


def test_no_key_leads_back_and_none_is_a_key_of_the_base():
    """Later keys follow from earlier ones; no key is another one, and the base is drawn under none of them."""
    first = draw_layered(KEY, b"north", round_of(), NOTHING, COUNTS)[1]
    keys = layer_keys(first, 5)
    assert layer_keys(keys[2], 3) == keys[2:]
    assert len(set(keys)) == 6
    base = noise_shares.draw_share(KEY, b"north", round_of(), NOTHING, COUNTS[0])
    for key in keys:
        assert not np.array_equal(noise_shares.draw_share(key, b"north", round_of(), NOTHING, COUNTS[0]), base)


@pytest.mark.parametrize("geometry", Geometry)
def test_layers_below_four_units_are_refused(geometry):
    """The share of 1 / 950 is large enough, and the layer that brings it to 1 / 949 is not."""
    plan = round_of(geometry=geometry, multiplier=0.5)
    noise_shares.draw_share(KEY, b"north", plan, NOTHING, 950)
    with pytest.raises(ProtocolError, match=r"layer 1 of sums among 950 senders; set masked\.excess_noise"):
        draw_layered(KEY, b"north", plan, NOTHING, (950, 949))


@pytest.mark.parametrize(
    "section",
    [
        {"scheme": "pairwise", "threshold": 2},
        {"scheme": "pairwise", "threshold": 2, "noise_by": "both"},
        {"noise_by": "clients", "corrupt": 0.0, "threshold": 5},
    ],
)
def test_only_pairwise_shares_have_layers(tmp_path, section):
    job = lake.job(str(tmp_path), "server", trust="masked", masked=section | {"excess_noise": "removed"})
    with pytest.raises(ConfigError, match=r"masked\.excess_noise must be kept unless noise_by is clients"):
        validated(job)
    kept = {"scheme": "pairwise", "threshold": 2, "noise_by": "clients"}
    assert validated(job | {"masked": kept}).masked.shares.layers == 0
    assert validated(job | {"masked": kept | {"excess_noise": "removed"}}).masked.shares.layers == MOST_LAYERS


def test_a_job_that_keeps_all_noise_says_what_it_said_before(tmp_path):
    kept = {"scheme": "pairwise", "threshold": 2, "noise_by": "clients"}
    masked = validated(lake.job(str(tmp_path), "server", trust="masked", masked=kept)).masked
    assert "excess_noise" not in masked.model_dump(mode="json")
    assert "layers" not in masked.shares.to_json()
