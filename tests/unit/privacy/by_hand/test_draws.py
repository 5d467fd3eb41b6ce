"""Draws that a key fixes for good, float laws by second formulas, and the DoFns of the noise stage by hand.

A window or a retry draws again what was drawn before, so the same key, label and law must give the same bits in every
version; digests are of little-endian int64.
"""

import dataclasses
import functools
import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, PaneInfo, PaneInfoTiming

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.schemas.errors import PrivacyFlowError, ProtocolError
from dapple_dp.schemas.masked.exchange import MaskedSum
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.transforms.core import keys, noise
from dapple_dp.transforms.core.discretization import log_delta
from dapple_dp.transforms.core.keystream import KeyStream, encode_label, first_accepted
from dapple_dp.transforms.core.noise import discrete_gaussian, discrete_laplace, draw_release
from dapple_dp.transforms.masked import noise_stages
from dapple_dp.transforms.numerics.clustered_fl import normal
from dapple_dp.transforms.numerics.clustered_fl.private_selection import select
from dapple_dp.transforms.numerics.masked import noise_shares
from dapple_dp.transforms.on_beam import noise_stage
from dapple_dp.transforms.privacy.key_files import KeyFile
from tests.scenes import lake

KEY = bytes(range(32))
GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE


def stream_of(*label):
    return KeyStream(KEY, encode_label(*label))


def plan_of(name="sums", shape=(6,), mechanism=GAUSSIAN, multiplier=5.0, geometry=Geometry.VECTOR):
    spec = ReleaseSpec(name=name, shape=shape, mechanism=mechanism, sensitivity=1 << 20, share=1.0, geometry=geometry)
    return ReleasePlan(spec=spec, noise_multiplier=multiplier)


def round_of(*plans):
    return RoundPlan(path="test/round", releases=plans)


def digest(values):
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<i8").tobytes()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda: discrete_laplace(stream_of("format"), 3, 70_000), "c3e1f02e5a700320"),
        (lambda: discrete_laplace(stream_of("format"), 1 << 40, 3_000), "bcd1e006bd47284f"),
        (lambda: discrete_gaussian(stream_of("format"), 0.7, 3_000), "820031317f85b46c"),
        (lambda: discrete_gaussian(stream_of("format"), 87 * 2.0**20, 70_000), "8acfbc190fe6641d"),
        (lambda: stream_of("format").residues(5, 140_000), "08cf6bab00676851"),
        (lambda: normal.sampled_positions(stream_of("format"), 0.03, 5_000), "a83bdeec5f26443f"),
        (lambda: normal.sampled_positions(stream_of("format"), 0.9, 1_000), "bee0306bfa70f8b6"),
    ],
    ids=["laplace", "wide laplace", "narrow gaussian", "gaussian", "residues", "few positions", "many positions"],
)
def test_long_draws_are_pinned(draw, expected):
    assert digest(draw()) == expected


def test_releases_and_shares_are_pinned():
    plans = (plan_of(), plan_of("counts", (2, 2), LAPLACE), plan_of("scatter", (6,), geometry=Geometry.SYMMETRIC))
    exact = np.arange(16, dtype=np.int64) << 30
    releases = draw_release(KEY, round_of(*plans), exact)
    assert digest(np.concatenate([each.values.ravel() for each in releases])) == "559e006ebd0714ba"
    again = noise_stages.further_noised(functools.partial(draw_release, KEY[::-1]), round_of(*plans), releases)
    assert digest(np.concatenate([each.values.ravel() for each in again])) == "cdd744e1b36d3323"
    shared = noise_shares.draw_share(KEY, b"north", round_of(plans[0], plans[2]), exact[:12], 7)
    assert digest(shared) == "5051c4efb8dec187"


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (0, "1111111000001010110001111100011111111110111001111111010110100111"),
        (9, "0001010110001111100011111111110111001111111010110100111110111111"),
    ],
)
def test_coins_on_the_edge_are_decided_by_pinned_streams(position, expected):
    class Words:
        substream = stream_of("words").substream

        def uint64(self, n):
            return np.full(n, edge, dtype=np.uint64)

    edge = math.floor(noise._exp_bounds(Fraction(3, 4), 64)[0])
    words = Words()
    words.position = position
    heads = noise.bernoulli_exp(words, np.full(64, 0.75), lambda _: Fraction(3, 4))
    assert "".join(map(str, heads.astype(int))) == expected


def test_batches_are_no_larger_than_stated_and_not_much_larger_than_needed():
    asked = []

    def draw(trials):
        asked.append(trials)
        return np.zeros(trials // 2, dtype=np.int64)

    assert len(first_accepted(draw, 0.5, 100_000)) == 100_000
    missing = 100_000 - 3 * 32_768
    assert asked == [1 << 16] * 3 + [2 * missing + 4 * math.isqrt(missing) + 8]


def test_bounds_of_a_probability_are_as_narrow_as_stated():
    for exponent in (Fraction(1, 3), Fraction(64), Fraction(63)):
        for bits in (64, 128, 640):
            lower, upper = noise._exp_bounds(exponent, bits)
            assert 0 < upper - lower < Fraction(1, 1 << 30)
            assert lower >= 0
            assert upper <= 1 << bits


# Floating-point draws.


class Given:
    """A stream of given words."""

    def __init__(self, *words):
        self._words = list(words)

    def uint64(self, n):
        found, self._words = self._words[:n], self._words[n:]
        return np.array(found, dtype=np.uint64)


def test_uniforms_are_multiples_of_the_smallest_up_to_one():
    words = Given(0, (1 << 11) - 1, 1 << 11, 2**64 - 1, 1 << 63)
    assert normal.uniforms(words, 5).tolist() == [2.0**-53, 2.0**-53, 2.0**-52, 1.0, 0.5 + 2.0**-53]


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_normals_are_those_of_box_and_muller(n):
    half = -(-n // 2)
    radii, angles = np.split(normal.uniforms(stream_of("normals"), 2 * half), 2)
    radii, turns = np.sqrt(-2.0 * np.log(radii)), 2.0 * math.pi * (angles - 0.5)
    expected = np.concatenate([radii * np.cos(turns), radii * np.sin(turns)])[:n]
    np.testing.assert_allclose(normal.normals(stream_of("normals"), n), expected, rtol=1e-12, atol=1e-12)


def test_gumbels_are_double_logarithms():
    expected = [-math.log(-math.log(each)) for each in normal.uniforms(stream_of("gumbels"), 50)]
    np.testing.assert_allclose(normal.gumbels(stream_of("gumbels"), 50), expected, rtol=1e-12)
    with np.errstate(all="raise"):
        assert normal.gumbels(Given(2**64 - 1), 1).tolist() == [math.inf]


def test_positions_are_running_sums_of_geometric_gaps():
    uniforms = normal.uniforms(stream_of("positions"), 200)
    gaps = 1 + np.floor(np.log(uniforms) / math.log1p(-0.25)).astype(int)
    expected = np.cumsum(gaps) - 1
    np.testing.assert_array_equal(normal.sampled_positions(stream_of("positions"), 0.25, 100), expected[expected < 100])
    assert normal.sampled_positions(stream_of("positions"), 1.0, 3).tolist() == [0, 1, 2]
    assert normal.sampled_positions(stream_of("positions"), 0.25, 0).size == 0
    stream = stream_of("positions")
    normal.sampled_positions(stream, 0.25, 100)
    assert stream.position == math.ceil(0.25 * 101 + 6.0 * math.sqrt(0.25 * 101)) + 8


def test_gaps_of_tiny_rates_end_the_positions():
    assert normal.sampled_positions(stream_of("tiny"), 1e-300, 10).size == 0


@pytest.mark.parametrize(("most", "epsilon"), [(1, 0.5), (3, 0.5), (1, 4.0)])
def test_a_selection_is_the_largest_of_sums(most, epsilon):
    counts = np.array([3, 5, 4, 5])
    for name in range(40):
        noises = 2.0 * most / epsilon * normal.gumbels(stream_of("select", name), 4)
        more = () if most == 1 else (most,)
        assert select(counts, epsilon, stream_of("select", name), *more) == int(np.argmax(counts + noises))
    assert select(counts, math.inf, stream_of("select"), most) == 1


def test_deltas_that_floats_cannot_tell_from_nothing_have_no_logarithm_on_either_side():
    for epsilon in (0.0, 1.0):
        assert log_delta(1e17, epsilon) == -math.inf


# Shares, and the stage.


@pytest.mark.parametrize(
    ("geometry", "multiplier", "fits"),
    [
        (Geometry.VECTOR, 4.0, True),
        (Geometry.VECTOR, 4.0 * (1 - 1e-9), False),
        (Geometry.SYMMETRIC, 4.0 * math.sqrt(2.0) * (1 + 1e-9), True),
        (Geometry.SYMMETRIC, 4.0 * math.sqrt(2.0) * (1 - 1e-9), False),
    ],
)
def test_shares_have_at_least_four_units_in_every_coordinate(geometry, multiplier, fits):
    spec = dataclasses.replace(plan_of(geometry=geometry).spec, sensitivity=1)
    share = ReleasePlan(spec=spec, noise_multiplier=multiplier * 3.0)
    if fits:
        assert noise_shares._share_of(share, 9).noise_multiplier == math.nextafter(multiplier, math.inf)
    else:
        with pytest.raises(ProtocolError, match="at least 4 lattice units, got less for sums among 9 senders"):
            noise_shares._share_of(share, 9)


def test_closeness_is_the_stated_bound():
    assert noise_shares.closeness(1.0, 2.0) == pytest.approx(5.0 * math.exp(-1.6 * math.pi**2), rel=1e-12)
    cost = 2.0 * 10 * 2.0**31 * 5.0 * math.exp(-16.0 * math.pi**2)
    assert noise_shares.closeness_epsilon([round_of(plan_of()), round_of(plan_of(shape=(4,)))]) == pytest.approx(cost)


def test_releases_state_the_noise_of_all_who_are_present():
    releases = draw_release(KEY, round_of(plan_of(), plan_of("more")), np.zeros(12, dtype=np.int64))
    found = noise_shares.stated(releases, 16, 25)
    assert [each.plan.noise_multiplier for each in found] == [6.25, 6.25]
    assert [each.plan.spec.name for each in found] == ["sums", "more"]


@pytest.fixture
def key_source(tmp_path):
    return KeyFile(lake.write_key(tmp_path / "key", KEY))


def _drawn(function, *arguments):
    with pytest.raises(RuntimeError, match="between setup and teardown"):
        list(function.process(*arguments))
    function.setup()
    return list(function.process(*arguments))


def test_every_dofn_of_the_stage_draws_what_the_one_place_draws(key_source):
    plan, exact = round_of(plan_of()), np.arange(6, dtype=np.int64)
    other = dataclasses.replace(plan, path="test/other")
    truth = draw_release(KEY, plan, exact)
    (found,) = _drawn(noise_stage._AddNoiseFn(plan, key_source), exact, GlobalWindow(), PANE_INFO_UNKNOWN)
    np.testing.assert_array_equal(found[0].values, truth[0].values)
    ((number, found),) = _drawn(noise_stage._AddKeyedNoiseFn({3: plan, 4: other}, key_source), (4, exact))
    assert number == 4
    np.testing.assert_array_equal(found[0].values, draw_release(KEY, other, exact)[0].values)
    total = MaskedSum(exact, (b"a", b"b"), (b"x", b"y"))
    (masked,) = _drawn(noise_stages._AddMaskedNoiseFn(plan, key_source), total)
    assert (masked.senders, masked.tags) == (total.senders, total.tags)
    np.testing.assert_array_equal(masked.releases[0].values, truth[0].values)
    (further,) = _drawn(noise_stages._AddFurtherNoiseFn(plan, key_source), truth)
    again = noise_stages.further_noised(functools.partial(draw_release, KEY), plan, truth)
    np.testing.assert_array_equal(further[0].values, again[0].values)


def test_equal_sums_of_windows_get_noise_of_their_own(key_source):
    """Equal releases would reveal that two windows are equal, and a window that is wider has another name."""
    plan, exact = round_of(plan_of()), np.arange(6, dtype=np.int64)
    windows = [IntervalWindow(0, 60), IntervalWindow(60, 120), IntervalWindow(0, 120), IntervalWindow(30, 120)]
    seen = {draw_release(KEY, plan, exact)[0].values.tobytes()}
    for window in windows:
        function = noise_stage._AddNoiseFn(plan, key_source)
        (found,) = _drawn(function, exact, window, PANE_INFO_UNKNOWN)
        drawing = keys.window_key(KEY, window.start.micros, window.end.micros)
        assert found[0].values.tobytes() == draw_release(drawing, plan, exact)[0].values.tobytes()
        ((again, *_),) = function.process(exact, window, PANE_INFO_UNKNOWN)
        np.testing.assert_array_equal(again.values, found[0].values)
        seen.add(found[0].values.tobytes())
    assert len(seen) == 5


def test_a_further_pane_of_a_window_is_not_released(key_source):
    function = noise_stage._AddNoiseFn(round_of(plan_of()), key_source)
    function.setup()
    late = PaneInfo(False, True, PaneInfoTiming.LATE, 1, 1)
    with pytest.raises(PrivacyFlowError, match="a window must have one sum, got a second one"):
        list(function.process(np.arange(6, dtype=np.int64), IntervalWindow(0, 60), late))


def test_every_sender_gets_a_share_of_its_own_by_how_many_are_listed(key_source):
    plan, law = round_of(plan_of()), ShareLaw(threshold=2, corrupt=0.1, dropout=0.2)
    statistics = np.arange(12, dtype=np.int64).reshape(2, 6)
    function = noise_stages._AddSharesFn(plan, law, key_source)
    ((names, noised),) = _drawn(function, ((b"a", b"b"), statistics), 40)
    assert names == (b"a", b"b")
    for name, row, found in zip(names, statistics, noised, strict=True):
        np.testing.assert_array_equal(found - row, noise_shares.draw_share(KEY, name, plan, row, 32 - 4))
    np.testing.assert_array_equal(statistics, np.arange(12).reshape(2, 6))
    ((_, unlisted),) = _drawn(noise_stages._AddSharesFn(plan, law, key_source), ((b"a",), statistics[:1]))
    np.testing.assert_array_equal(
        unlisted[0] - statistics[0], noise_shares.draw_share(KEY, b"a", plan, statistics[0], 2)
    )


@pytest.mark.parametrize("values", [np.zeros(5, dtype=np.int64), np.zeros(6), np.zeros((2, 3), dtype=np.int64)])
def test_values_of_another_round_are_no_releases(values):
    with pytest.raises(ValueError, match=r"must be int64 of shape \(6,\)"):
        noise.releases_of(round_of(plan_of()), values)


def test_a_sum_of_too_few_shares_is_not_joined():
    plan, law = round_of(plan_of()), ShareLaw(threshold=2, dropout=0.5)
    total = MaskedSum(np.arange(6, dtype=np.int64), (b"a", b"b", b"c"), (b"x", b"y", b"z"))
    joined = noise_stages._joined(total, 6, plan, law)
    assert (joined.senders, joined.tags) == (total.senders, total.tags)
    assert joined.releases[0].values.tolist() == list(range(6))
    with pytest.raises(ProtocolError, match="shares of at least 4 senders"):
        noise_stages._joined(total, 8, plan, law)
