"""The noise stage: pinned draws, exact decisions, retry safety, and what it refuses."""

import dataclasses
import functools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.transforms.core import noise
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.core.noise import check_release_noise, discrete_gaussian, discrete_laplace, draw_release
from dapple_dp.transforms.masked.noise_stages import further_noised

KEY = bytes(range(32))
GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE


def _stream(*label: bytes | str | int | float) -> KeyStream:
    return KeyStream(KEY, encode_label(*label))


def _plan(name="sums", shape=(3, 2), mechanism=GAUSSIAN, multiplier=5.0, geometry=Geometry.VECTOR) -> ReleasePlan:
    spec = ReleaseSpec(name=name, shape=shape, mechanism=mechanism, sensitivity=1 << 20, share=1.0, geometry=geometry)
    return ReleasePlan(spec=spec, noise_multiplier=multiplier)


def _round(*plans: ReleasePlan, path="feddp/weights") -> RoundPlan:
    return RoundPlan(path=path, releases=plans or (_plan(),))


def _noise(key=KEY, plan=None, exact_sum=None, path="feddp/weights"):
    """Noise of a one-release round."""
    round_plan = _round(plan or _plan(), path=path)
    exact_sum = np.zeros(round_plan.size, dtype=np.int64) if exact_sum is None else exact_sum
    (release,) = draw_release(key, round_plan, exact_sum)
    return release.values.ravel() - exact_sum


class _Tail:
    """Stands in for the substream of further bits."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def uint64(self, n: int) -> np.ndarray:
        return np.array([self.words.pop(0) for _ in range(n)], dtype=np.uint64)


class _Words:
    """A main stream that reads given words; further bits are those of a real stream."""

    position = 0

    def __init__(self, words: np.ndarray) -> None:
        self._words, self.substream = words, _stream("words").substream

    def uint64(self, n: int) -> np.ndarray:
        return self._words[:n]


def test_draws_are_pinned():
    np.testing.assert_array_equal(discrete_laplace(_stream("golden"), 3, 8), [-1, 0, 3, -2, -1, -2, 0, 4])
    np.testing.assert_array_equal(discrete_gaussian(_stream("golden"), 1.3, 8), [0, -1, 1, -1, 0, 1, -1, -1])
    wide = discrete_gaussian(_stream("golden"), 87 * 2.0**32, 3)
    np.testing.assert_array_equal(wide, [396324840469, 159589572526, 122071955135])
    np.testing.assert_array_equal(_noise(), [3144635, -1429386, -1332111, -5943516, -1127493, 563163])


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_sizes(size):
    assert discrete_gaussian(_stream("a"), 2.0, size).shape == (size,)
    assert discrete_laplace(_stream("a"), 2, size).shape == (size,)


def _draws():
    """A few hundred draws of every kind."""
    wide = [discrete_gaussian(_stream("g", stddev), stddev, 60) for stddev in (0.5, 1.3, 1000.0, 87 * 2.0**32)]
    narrow = [discrete_laplace(_stream("l", scale), scale, 60) for scale in (1, 3, 1 << 33)]
    return np.concatenate([*wide, *narrow, discrete_gaussian(_stream("tiny"), 1e-300, 10)])


def test_exact_path_equals_fast_path(monkeypatch):
    fast, decide, words = _draws(), noise._decide_exactly, []

    def spy(word, exponent, tail):
        words.append(word)
        return decide(word, exponent, tail)

    monkeypatch.setattr(noise, "_ABSOLUTE_MARGIN", 2.0)
    monkeypatch.setattr(noise, "_decide_exactly", spy)
    np.testing.assert_array_equal(_draws(), fast)
    assert len(words) > 3 * len(fast)


def test_an_inaccurate_exp_changes_nothing_inside_its_margin(monkeypatch):
    fast, exact_exp = _draws(), np.exp

    def sloppy_exp(values):
        return exact_exp(values) * (1.0 + 2.0**-6 * np.cos(1e6 * np.arange(len(values))))

    monkeypatch.setattr(noise, "_RELATIVE_MARGIN", 2.0**-5)
    monkeypatch.setattr(noise.np, "exp", sloppy_exp)
    np.testing.assert_array_equal(_draws(), fast)


def test_an_inaccurate_exp_beyond_its_margin_would_be_seen(monkeypatch):
    fast, exact_exp = _draws(), np.exp
    monkeypatch.setattr(noise.np, "exp", lambda values: exact_exp(values) * 0.9)
    assert not np.array_equal(_draws(), fast)


def test_undecided_coins_read_no_further_bits_from_the_main_stream(monkeypatch):
    fast, exact = _stream("a"), _stream("a")
    discrete_gaussian(fast, 10.0, 50)
    monkeypatch.setattr(noise, "_ABSOLUTE_MARGIN", 2.0)
    discrete_gaussian(exact, 10.0, 50)
    assert exact.position == fast.position


@pytest.mark.parametrize("bits", [64, 128, 256])
@pytest.mark.parametrize(
    "exponent", [Fraction(0), Fraction(1), Fraction(1, 3), Fraction(10**6, 10**30 + 7), Fraction(127, 3)]
)
def test_exp_bounds_enclose_the_exact_value(bits, exponent):
    lower, upper = noise._exp_bounds(exponent, bits)
    with mpmath.workdps(200):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * mpmath.mpf(2) ** bits
        assert mpmath.mpf(lower.numerator) / lower.denominator <= exact
        assert exact <= mpmath.mpf(upper.numerator) / upper.denominator
    assert upper - lower < Fraction(1, 1 << 30)


@pytest.mark.parametrize("exponent", [Fraction(65), Fraction(10**600)])
def test_exp_bounds_of_a_tiny_probability(exponent):
    assert noise._exp_bounds(exponent, 64) == (0, 1)


def test_decisions_at_the_edge_read_on_until_they_are_certain():
    with mpmath.workdps(200):
        digits = int(mpmath.floor(mpmath.exp(-1) * mpmath.mpf(2) ** 192))
    first, second, third = (digits >> shift & (2**64 - 1) for shift in (128, 64, 0))
    assert noise._decide_exactly(first - 1, Fraction(1), _Tail())
    assert not noise._decide_exactly(first + 1, Fraction(1), _Tail())
    assert noise._decide_exactly(first, Fraction(1), _Tail(second - 1))
    assert not noise._decide_exactly(first, Fraction(1), _Tail(second + 1))
    assert noise._decide_exactly(first, Fraction(1), _Tail(second, third - 1))
    assert not noise._decide_exactly(first, Fraction(1), _Tail(second, third + 1))


def test_words_next_to_the_edge_are_decided_right():
    exponents = np.linspace(0.001, 30.0, 500)
    with mpmath.workdps(60):
        edges = [int(mpmath.floor(mpmath.exp(-mpmath.mpf(x)) * mpmath.mpf(2) ** 64)) for x in exponents]
    for offset in (-2, -1, 1, 2):
        words = np.array([edge + offset for edge in edges], dtype=np.uint64)
        outcomes = noise.bernoulli_exp(_Words(words), exponents, lambda i: Fraction(exponents[i]))
        assert (outcomes == (offset < 0)).all()


@pytest.mark.parametrize("exponent", [1.0, 43.4])
def test_words_on_the_edge_are_decided_by_bits_of_their_own(exponent):
    edge = math.floor(noise._exp_bounds(Fraction(exponent), 64)[0])
    words = np.full(400, edge, dtype=np.uint64)
    heads = noise.bernoulli_exp(_Words(words), np.full(400, exponent), lambda _: Fraction(exponent)).sum()
    share = float(noise._exp_bounds(Fraction(exponent), 64)[0] - edge)
    assert abs(heads - 400 * share) < 6 * np.sqrt(400 * share * (1 - share))  # fails once in 5e8 keys


def test_a_zero_word_is_not_below_every_probability():
    # exp(-60) is 2**-86.6: after 64 zero bits the next word decides, near 2**(128 - 86.6).
    assert noise._decide_exactly(0, Fraction(60), _Tail(2**41))
    assert not noise._decide_exactly(0, Fraction(60), _Tail(2**42))
    assert not noise._decide_exactly(0, Fraction(10**600), _Tail(0, 0, 1))


def test_a_certain_coin_is_true_even_for_the_largest_word():
    assert noise._decide_exactly(2**64 - 1, Fraction(0), _Tail(2**64 - 1, 5))


@pytest.mark.parametrize("scale", [0, -1, (1 << 44) + 1])
def test_laplace_refuses_a_scale_out_of_range(scale):
    with pytest.raises(ValueError, match=r"scale must be an integer in \[1, 2\*\*44\], got"):
        discrete_laplace(_stream("a"), scale, 1)


@pytest.mark.parametrize("stddev", [0.0, -1.0, float("nan"), float("inf"), 2.0**44])
def test_gaussian_refuses_a_stddev_out_of_range(stddev):
    with pytest.raises(ValueError, match=r"stddev must be in \(0, 2\*\*44\), got"):
        discrete_gaussian(_stream("a"), stddev, 1)


def test_ends_of_the_range_are_drawn():
    assert np.abs(discrete_laplace(_stream("a"), 1 << 44, 1000)).max() > 1 << 44
    assert np.abs(discrete_gaussian(_stream("a"), np.nextafter(2.0**44, 0), 1000)).max() > 1 << 44
    assert not discrete_gaussian(_stream("a"), 5e-324, 1000).any()


def test_release_is_the_sum_plus_noise_in_the_plans_order():
    plans = (_plan(), _plan("counts", (4,), LAPLACE, 2.0), _plan("empty", (0,)))
    round_plan = _round(*plans)
    exact_sum = np.arange(10, dtype=np.int64) << 40
    releases = draw_release(KEY, round_plan, exact_sum)
    assert [release.path for release in releases] == [f"feddp/weights/{name}" for name in ("sums", "counts", "empty")]
    assert [release.values.shape for release in releases] == [(3, 2), (4,), (0,)]
    assert [release.plan for release in releases] == list(plans)
    noises = np.concatenate([release.values.ravel() for release in releases]) - exact_sum
    assert noises.dtype == np.int64
    assert (noises != 0).all()
    assert np.abs(noises).max() < 20 * 5 * 2**20  # Laplace: fails with probability below 1e-20
    assert all(np.isnan(release.lattice_unit) for release in releases)


def test_same_inputs_repeat_exactly():
    exact_sum = np.arange(6, dtype=np.int64)
    first, again = (draw_release(KEY, _round(), exact_sum.copy())[0].values for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(exact_sum, np.arange(6))


def test_shares_and_strides_that_do_not_matter_do_not_change_the_noise():
    plan = _plan()
    other_share = dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, share=0.1))
    np.testing.assert_array_equal(_noise(plan=plan), _noise(plan=other_share))
    strided = np.arange(12, dtype=np.int64)[::2]
    np.testing.assert_array_equal(_noise(exact_sum=strided), _noise(exact_sum=strided.copy()))


def test_everything_that_matters_changes_the_noise():
    moved = np.zeros(6, dtype=np.int64)
    moved[5] = 1
    draws = [
        _noise(),
        _noise(key=KEY[::-1]),
        _noise(exact_sum=moved),
        _noise(path="feddp/weights2"),
        _noise(plan=_plan("sum")),
        _noise(plan=_plan(shape=(2, 3))),
        _noise(plan=_plan(shape=(6,))),
        _noise(plan=_plan(multiplier=np.nextafter(5.0, 6.0))),
        _noise(plan=_plan(mechanism=LAPLACE)),
        _noise(plan=_plan(shape=(6,), geometry=Geometry.SYMMETRIC)),
    ]
    together = np.concatenate(draws)
    # 60 draws spread over 2**24 integers: some pair agrees with probability below 2e-4, of which this key is free.
    assert len(np.unique(together)) == len(together)


def test_a_change_anywhere_in_the_sum_renews_every_release_of_the_round():
    round_plan = _round(_plan("a"), _plan("b"))
    exact_sum = np.zeros(12, dtype=np.int64)
    before = draw_release(KEY, round_plan, exact_sum)
    exact_sum[11] = 1
    after = draw_release(KEY, round_plan, exact_sum)
    assert (before[0].values != after[0].values).all()


def test_releases_of_one_name_do_not_share_noise():
    first, second = draw_release(KEY, _round(_plan(), _plan()), np.zeros(12, dtype=np.int64))
    assert (first.values != second.values).all()


def test_sums_wrap_in_the_ring():
    top = np.full(6, np.iinfo(np.int64).max, dtype=np.int64)
    (release,) = draw_release(KEY, _round(), top)
    assert (release.values < 0).any()
    assert np.abs(release.values.ravel() - top).max() < 20 * 5 * 2**20  # fails with probability below 1e-80


def test_symmetric_noise_is_smaller_off_the_diagonal():
    n = 300
    plan = _plan("outer", (n * (n + 1) // 2,), geometry=Geometry.SYMMETRIC)
    matrix = np.zeros((n, n))
    matrix[np.triu_indices(n)] = _noise(plan=plan) / plan.noise_scale
    # Sample stddevs over 300 and 44,850 draws: 6 standard errors, fails once in 5e8 keys each.
    assert abs(np.diagonal(matrix).std() - 1.0) < 6 / np.sqrt(2 * n)
    assert abs(matrix[np.triu_indices(n, 1)].std() - np.sqrt(0.5)) < 6 * np.sqrt(0.5) / np.sqrt(n * (n - 1))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (_plan(multiplier=2.0**-10 * 0.999), "noise of sums must be at least 2.*10 lattice units"),
        (_plan(multiplier=float("nan")), "noise of sums must be at least 2.*10 lattice units"),
        (_plan(mechanism=LAPLACE, multiplier=2.0**-10 - 2.0**-20), "must be at least 2.*10 lattice units.*got 1023;"),
        (_plan(shape=(6,), multiplier=1.4 * 2.0**-10, geometry=Geometry.SYMMETRIC), "in every coordinate, got 1013"),
        (_plan(multiplier=2.0**24), "must be below 2.*44 lattice units"),
        (_plan(mechanism=LAPLACE, multiplier=2.0**24), "must be below 2.*44 lattice units"),
        (_plan(shape=(5,), geometry=Geometry.SYMMETRIC), r"must have d \* \(d \+ 1\) / 2 coordinates, got 5"),
        (_plan(shape=(6,), mechanism=LAPLACE, geometry=Geometry.SYMMETRIC), "symmetric release must be Gaussian"),
        (_plan(mechanism="discrete_gaussian"), "sums must have a Mechanism and a Geometry, got text"),
        (_plan(geometry="vector"), "sums must have a Mechanism and a Geometry, got text"),
    ],
)
def test_unfit_noise_is_refused_before_anything_is_drawn(plan, message):
    with pytest.raises(ValueError, match=message):
        check_release_noise(plan)
    with pytest.raises(ValueError, match=message):
        draw_release(KEY, _round(_plan("first"), plan), np.zeros(6 + plan.spec.size, dtype=np.int64))


@pytest.mark.parametrize(
    "plan",
    [
        _plan(multiplier=2.0**-10),
        _plan(mechanism=LAPLACE, multiplier=2.0**-10),
        _plan(shape=(1,), multiplier=2.0**-10, geometry=Geometry.SYMMETRIC),
        _plan(shape=(6,), multiplier=2.0**-9.5, geometry=Geometry.SYMMETRIC),
    ],
)
def test_the_smallest_noise_is_allowed(plan):
    check_release_noise(plan)


@pytest.mark.parametrize(
    "exact_sum",
    [
        np.zeros(6),
        np.zeros(6, dtype=np.int32),
        np.zeros(6, dtype=">i8"),
        np.zeros(5, dtype=int),
        np.zeros((3, 2), dtype=int),
    ],
)
def test_a_sum_of_another_kind_is_refused(exact_sum):
    with pytest.raises(ValueError, match=r"exact_sum of feddp/weights must be int64 of shape \(6,\), got"):
        draw_release(KEY, _round(), exact_sum)


def test_a_bad_key_is_refused():
    with pytest.raises(ValueError, match="key must be 32 bytes"):
        draw_release(KEY[:31], _round(), np.zeros(6, dtype=np.int64))


def test_the_digest_and_the_key_stay_inside(monkeypatch):
    seen = []
    digest_of = noise.hashlib.sha256

    def spy(data):
        seen.append(digest_of(data).digest())
        return digest_of(data)

    monkeypatch.setattr(noise.hashlib, "sha256", spy)
    (release,) = draw_release(KEY, _round(), np.zeros(6, dtype=np.int64))
    shown = repr(release) + repr(_stream("a"))
    assert seen
    assert not any(text in shown for text in (seen[0].hex(), repr(seen[0]), KEY.hex(), repr(KEY)))


def test_a_second_noise_is_as_large_as_planned_and_both_are_stated_together():
    """Anyone who knows one key is kept from the sum by full noise of the other; releases state the stddev of both."""
    plan = _plan(shape=(4000,), multiplier=0.25)
    first = draw_release(KEY, _round(plan), np.zeros(4000, dtype=np.int64))
    (both,) = further_noised(functools.partial(draw_release, bytes(32)), _round(plan), first)
    assert both.path == first[0].path
    assert both.plan.noise_multiplier == pytest.approx(0.25 * math.sqrt(2.0), rel=1e-12)
    second = both.values - first[0].values
    # 4,000 draws: a stddev 10% off is nine standard errors away.
    for values, stddev in ((second, plan.noise_stddev), (both.values, both.plan.noise_stddev)):
        assert values.std() == pytest.approx(stddev, rel=0.06)
    assert abs(np.corrcoef(second, first[0].values)[0, 1]) < 0.1
