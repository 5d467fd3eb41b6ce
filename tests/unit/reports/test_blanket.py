"""The certificate of a shuffled batch against exact rationals, and exact rationals against all small shuffles."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest

from dapple_dp.schemas.reports.parameters import WORD, SubsetChoice, exp_below
from dapple_dp.transforms.numerics.reports.blanket import blanket_delta
from dapple_dp.transforms.numerics.reports.mechanism import codeword_choice
from tests.scenes.report_laws import probability

SMALL = [(2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3), (5, 2)]


def law(choice: SubsetChoice, favored: frozenset[int]) -> list[Fraction]:
    return [probability(choice, 0 if place in favored else choice.near) for place in range(choice.size)]


def exact_delta(laws: list[list[Fraction]], other: list[Fraction], odds: Fraction) -> Fraction:
    """Hockey-stick divergence of the multisets of reports by `laws` and of those with `other` in the first's place."""
    differences: Counter[tuple[int, ...]] = Counter()
    for places in itertools.product(range(len(other)), repeat=len(laws)):
        rest = math.prod((law[place] for law, place in zip(laws[1:], places[1:], strict=True)), start=Fraction(1))
        differences[tuple(sorted(places))] += rest * (laws[0][places[0]] - odds * other[places[0]])
    return sum((max(value, Fraction(0)) for value in differences.values()), start=Fraction(0))


def lemma(choice: SubsetChoice, overlap: int, odds: Fraction, n_reports: int) -> Fraction:
    """Lemma 5.3 of Balle et al. for two favored sets with this overlap, by all sequences of gains, exactly."""
    likely, unlikely = probability(choice, 0), probability(choice, choice.near)
    blanket = choice.size * unlikely
    apart = choice.near - overlap
    atoms = {"both": overlap, "first": apart, "second": apart, "neither": choice.size - choice.near - apart}
    gains = {
        "both": likely - odds * likely,
        "first": likely - odds * unlikely,
        "second": unlikely - odds * likely,
        "neither": unlikely - odds * unlikely,
    }
    steps = [(1 - blanket, Fraction(0))]
    steps += [(blanket * count / choice.size, choice.size * gains[name]) for name, count in atoms.items()]
    sums: dict[Fraction, Fraction] = {Fraction(0): Fraction(1)}
    for _ in range(n_reports):
        following: dict[Fraction, Fraction] = {}
        for total, chance in sums.items():
            for weight, gain in steps:
                following[total + gain] = following.get(total + gain, Fraction(0)) + chance * weight
        sums = following
    return sum((chance * max(total, Fraction(0)) for total, chance in sums.items())) / (blanket * n_reports)


@pytest.mark.parametrize(("size", "near"), SMALL)
def test_the_certificate_holds_for_every_small_shuffle(size, near):
    # All favored sets of the two neighbors and of the other clients, at every overlap.
    sets = [frozenset(each) for each in itertools.combinations(range(size), near)]
    for local, epsilon in ((2.0, 0.5), (1.0, 0.2), (3.0, 2.5)):
        choice = SubsetChoice.at_most(size, near, local)
        laws = {each: law(choice, each) for each in sets}
        for n_reports in (1, 2, 3) if size < 4 else (1, 2):
            bound = blanket_delta(choice, epsilon, n_reports, 1e-3)
            for others in itertools.combinations_with_replacement(sets, n_reports - 1):
                for second in sets[1:]:
                    # The first set may be any of them by symmetry of places, as long as the others run over all.
                    rest = [laws[each] for each in others]
                    assert exact_delta([laws[sets[0]], *rest], laws[second], exp_below(epsilon)) <= bound


def test_the_certificate_holds_where_public_nonces_choose_the_overlap():
    # Two nonces: under one the neighbors favor the same, under the other sets apart.
    choice = SubsetChoice.at_most(3, 1, 2.0)
    half = Fraction(1, 2)

    def both(first: int, second: int) -> list[Fraction]:
        return [half * each for each in (*law(choice, frozenset({first})), *law(choice, frozenset({second})))]

    for n_reports in (2, 3):
        bound = blanket_delta(choice, 0.5, n_reports, 1e-3)
        points = [both(first, second) for first in range(3) for second in range(3)]
        for first, second, other in itertools.product(points[:2], points, points[:5]):
            assert exact_delta([first] + [other] * (n_reports - 1), second, exp_below(0.5)) <= bound


@pytest.mark.parametrize(("size", "near"), [*SMALL, (8, 3)])
def test_the_least_overlap_is_the_worst_and_rounding_costs_little(size, near):
    for local, epsilon, n_reports in ((2.0, 0.5, 4), (1.0, 0.1, 7), (4.0, 2.0, 5)):
        choice = SubsetChoice.at_most(size, near, local)
        least = max(0, 2 * near - size)
        found = [lemma(choice, overlap, exp_below(epsilon), n_reports) for overlap in range(least, near + 1)]
        assert found == sorted(found, reverse=True)
        bound = blanket_delta(choice, epsilon, n_reports, 1e-3)
        assert found[0] <= bound
        assert float(bound) == pytest.approx(min(1.0, float(found[0])), rel=0.02, abs=1e-9)


def by_floats(choice: SubsetChoice, epsilon: float, n_reports: int) -> float:
    """The lemma at the least overlap by floating-point sums over all counts, another way round than the certificate."""
    np = pytest.importorskip("numpy")
    stats = pytest.importorskip("scipy.stats")
    likely, unlikely = (float(probability(choice, place)) for place in (0, choice.near))
    odds, share = math.exp(epsilon), choice.near / choice.size
    first, second, other = (
        choice.size * gain for gain in (likely - odds * unlikely, unlikely - odds * likely, unlikely * (1.0 - odds))
    )
    blanket = choice.size * unlikely
    ones = stats.binom(n_reports, blanket * share)
    total = 0.0
    for one in range(int(ones.ppf(1e-15)), int(ones.isf(1e-15)) + 1):
        twos = stats.binom(n_reports - one, blanket * share / (1.0 - blanket * share))
        for two in range(int(twos.ppf(1e-15)), int(twos.isf(1e-15)) + 1):
            room = first * one + second * two
            if room <= 0.0:
                break
            rest = stats.binom(n_reports - one - two, blanket * (1.0 - 2.0 * share) / (1.0 - 2.0 * blanket * share))
            most = min(int(room / -other), n_reports - one - two)
            counts = np.arange(int(rest.ppf(1e-15)), most + 1)
            part = float((rest.pmf(counts) * (room + other * counts)).sum())
            total += ones.pmf(one) * twos.pmf(two) * part
    return total / (blanket * n_reports)


@pytest.mark.parametrize(("local", "epsilon", "n_reports"), [(3.0, 1.0, 300), (4.2, 1.0, 1000)])
def test_the_certificate_is_close_to_the_lemma_in_floating_point(local, epsilon, n_reports):
    choice = codeword_choice(local)
    exact = by_floats(choice, epsilon, n_reports)
    bound = float(blanket_delta(choice, epsilon, n_reports, exact))
    assert exact <= bound * (1.0 + 1e-9)
    assert bound <= 1.2 * exact


@pytest.mark.parametrize(
    ("n_reports", "epsilon", "local"),
    [(10_000, 0.5, 4.63), (10_000, 1.0, 5.75), (100_000, 1.0, 7.95), (10**6, 1.0, 8.0), (1000, 1.0, 3.65)],
)
def test_the_certificate_gives_the_known_local_epsilons(n_reports, epsilon, local):
    assert blanket_delta(codeword_choice(local), epsilon, n_reports, 1e-6) <= Fraction(1e-6)
    if local < 8.0:
        assert blanket_delta(codeword_choice(local + 0.02), epsilon, n_reports, 1e-6) > Fraction(1e-6)


def test_more_reports_and_a_larger_epsilon_never_hurt():
    choice = codeword_choice(3.0)
    by_number = [blanket_delta(choice, 1.0, n_reports, 1e-6) for n_reports in (1, 2, 10, 100, 1000, 10**4, 2**40)]
    assert by_number == sorted(by_number, reverse=True)
    by_epsilon = [blanket_delta(choice, epsilon, 200, 1e-6) for epsilon in (0.1, 0.5, 1.0, 2.0, 2.9)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert float(blanket_delta(choice, 3.1, 5, 1e-6)) < 1e-9


@pytest.mark.parametrize(
    ("epsilon", "delta", "local"), [(5e-324, 1e-6, 1.0), (1e-12, 1e-6, 1.0), (1.0, 1e-300, 3.0), (1.0, 5e-324, 3.0)]
)
def test_there_is_no_certificate_that_would_take_long(epsilon, delta, local):
    assert blanket_delta(codeword_choice(local), epsilon, 10**6, delta) == 1


def test_choices_turned_round_have_no_certificate():
    # A file may favor the unlikely: within epsilon, but the blanket would be another.
    turned = SubsetChoice(size=64, near=22, threshold=WORD // 10)
    assert turned.keeps(3.0)
    assert turned.ratio < 1
    assert blanket_delta(turned, 1.0, 10**6, 1e-6) == 1
