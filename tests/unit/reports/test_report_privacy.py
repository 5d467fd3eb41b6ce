"""The law of a report, computed and not sampled: two probabilities, whatever the point."""

import dataclasses
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.parameters import WORD, ReportParameters, SubsetChoice
from dapple_dp.transforms.numerics.reports import encoder as report_encoder
from dapple_dp.transforms.numerics.reports.amplification import check_guarantee
from dapple_dp.transforms.numerics.reports.coins import KeyedCoins, SystemCoins, positions
from dapple_dp.transforms.numerics.reports.mechanism import bit_choices, codeword_choice
from tests.scenes.report_laws import HOSTILE, below_exp, probability
from tests.scenes.reports import LARGEST_WORD, ForcedCoins, parameters

EPSILONS = (0.1, 1.0, 2.0, 3.0, 4.0, 5.7, 8.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_choice_keeps_epsilon_exactly_and_spends_nearly_all_of_it(epsilon):
    choice = codeword_choice(epsilon)
    assert sum(probability(choice, place) for place in range(choice.size)) == 1
    assert below_exp(choice.ratio, epsilon)
    assert math.log(choice.ratio) > epsilon - 1e-9
    assert choice.keeps(epsilon)
    assert not choice.keeps(epsilon - 1e-6)
    assert not dataclasses.replace(choice, threshold=choice.threshold + (1 << 30)).keeps(epsilon)


def test_the_law_of_private_codewords_is_that_of_positions():
    # Among codewords drawn without a look at the point, the one sent depends on the position alone.
    public = parameters(privacy__epsilon=1.0, reports__variant="privunit")
    choice, places = public.choices[0][0], np.arange(public.choices[0][0].size)
    words = np.random.default_rng(0).integers(0, WORD - 1, choice.size, dtype=np.uint64)

    class Coins(ForcedCoins):
        def words(self, purpose, n_words):
            return np.tile(words, (choice.size, 1)) if purpose == 2 else super().words(purpose, n_words)

    for point in HOSTILE:
        nonces = np.full(choice.size, 3, dtype=np.uint64)
        sent = report_encoder.encode(
            np.tile(point, (choice.size, 1)), public, nonces, Coins({1: (choice, places)})
        ).codewords
        assert sorted(sent.view("<u8").ravel().tolist()) == sorted(words.tolist())


@pytest.mark.parametrize("rounding", [0, LARGEST_WORD])
def test_the_papers_bits_are_randomized_responses_whatever_the_point(rounding):
    public = parameters(privacy__epsilon=1.0, reports__variant="paper")
    (first, first_epsilon), (second, second_epsilon) = public.choices
    assert Fraction(first_epsilon) + Fraction(second_epsilon) <= Fraction(public.guarantee.local_epsilon)
    lies = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    laws = []
    for point in HOSTILE:
        coins = ForcedCoins({0: (first, lies[:, 0]), 1: (second, lies[:, 1])}, others=rounding)
        sent = report_encoder.encode(np.tile(point, (4, 1)), public, np.full(4, 9, dtype=np.uint64), coins).indices
        assert sorted(sent.tolist()) == [0, 1, 2, 3]
        chances = [probability(first, one) * probability(second, two) for one, two in lies.tolist()]
        laws.append(dict(zip(sent.tolist(), chances, strict=True)))
    for mine in laws:
        for theirs in laws:
            assert all(below_exp(mine[index] / theirs[index], 1.0) for index in range(4))


def test_two_bits_never_spend_more_than_epsilon():
    for epsilon in (0.1, 0.3, 1.0, 1.7, 4.0, 7.3):
        parts = [part for _, part in bit_choices(epsilon, 0.1)]
        assert sum(map(Fraction, parts)) <= Fraction(epsilon)


class Words:
    """Coins that are given word by word."""

    def __init__(self, *rounds):
        self._rounds = list(rounds)

    def words(self, purpose, n_words):
        row = self._rounds.pop(0)
        return np.array([[*row, *[0] * (n_words - len(row))]], dtype=np.uint64)[:, :n_words]


@pytest.mark.parametrize("size", [3, 6, 64, 1000])
def test_residues_are_accepted_from_a_whole_number_of_cycles(size):
    choice = SubsetChoice(size=size + 1, near=size, threshold=WORD - 1)
    limit = WORD - WORD % size
    assert positions(choice, Words([0, limit - 1]), 0).tolist() == [size - 1]
    if limit < WORD:
        assert positions(choice, Words([0, limit, 1]), 0).tolist() == [1]
        assert positions(choice, Words([0, *7 * [limit]], [2 % size]), 0).tolist() == [2 % size]


def test_the_threshold_is_the_first_word_that_does_not_favor():
    choice = codeword_choice(1.0)
    assert positions(choice, Words([choice.threshold - 1, 5]), 0).tolist() == [5]
    assert positions(choice, Words([choice.threshold, 5]), 0).tolist() == [choice.near + 5]
    assert positions(choice, Words([0, 0]), 0).tolist() == [0]
    assert positions(choice, Words([LARGEST_WORD, 0]), 0).tolist() == [choice.near]


def test_parameters_that_break_their_promise_are_refused_by_the_client():
    public = parameters(privacy__epsilon=1.0)
    strong = codeword_choice(2.0)
    with pytest.raises(ConfigError, match="must stay within local_epsilon"):
        dataclasses.replace(public, choices=((strong, 1.0),))
    with pytest.raises(ConfigError, match="must stay within local_epsilon"):
        dataclasses.replace(public, choices=(*public.choices, *public.choices))
    with pytest.raises(ConfigError, match="must stay within local_epsilon"):
        ReportParameters.from_json(public.to_json().replace(str(public.choices[0][0].threshold), str(WORD - 1)))
    with pytest.raises(ConfigError, match="must stay within local_epsilon"):
        dataclasses.replace(public, choices=())
    # Two bits by one choice would spend its epsilon twice.
    bits = parameters(privacy__epsilon=1.0, reports__variant="paper")
    with pytest.raises(ConfigError, match="must be those of variant paper, got sizes"):
        dataclasses.replace(bits, choices=bits.choices[:1])
    with pytest.raises(ConfigError, match="must be those of variant paper, got sizes"):
        dataclasses.replace(public, variant=bits.variant)
    with pytest.raises(ConfigError, match="must be those of variant nested, got sizes"):
        dataclasses.replace(bits, variant=public.variant)


@pytest.mark.parametrize("mode", ["local", "shuffle"])
def test_a_guarantee_that_reports_do_not_give_is_refused(mode):
    shuffled = {"privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-6}}
    more = {"privacy__epsilon": 1.0} if mode == "local" else shuffled
    public = parameters(reports={"mode": mode, "min_batch": 100_000}, **more)
    check_guarantee(public)
    for change in ({"epsilon": 0.9}, {"min_batch": 1000, "epsilon": 0.99}):
        wrong = dataclasses.replace(public, guarantee=dataclasses.replace(public.guarantee, **change))
        with pytest.raises(ConfigError, match="epsilon of report parameters must be at least"):
            report_encoder.encode_point([1.0, 2.0, 3.0, 4.0], wrong)


def test_coins_follow_from_seed_and_purpose_or_from_the_system():
    seeds = [b"a" * 16, b"b" * 16]
    words = KeyedCoins(seeds).words(1, 4)
    np.testing.assert_array_equal(words, KeyedCoins(seeds).words(1, 4))
    assert len(np.unique(np.concatenate([words, KeyedCoins(seeds).words(2, 4)]))) == 16
    fresh = SystemCoins(3)
    assert len(np.unique(np.concatenate([fresh.words(1, 5), fresh.words(1, 5)]))) == 30


def test_a_device_needs_neither_beam_nor_pydantic():
    code = (
        "import sys\nfrom dapple_dp.transforms.numerics.reports.encoder import encode_point\n"
        "from dapple_dp.schemas.reports.parameters import ReportParameters\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'apache_beam', 'pydantic', 'pyarrow', 'scipy', 'sklearn', 'cryptography'}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_device_sends_ten_bytes():
    report = report_encoder.encode_point([1.0, 2.0, 3.0, np.nan], parameters())
    assert report.nonces.nbytes + report.indices.nbytes + report.codewords.nbytes == 10
    assert parameters().report_bytes == 10
    private = parameters(reports__variant="privunit")
    report = report_encoder.encode_point([1.0, 2.0, 3.0, 4.0], private)
    assert report.nonces.nbytes + report.codewords.nbytes == private.report_bytes == 16


def test_points_of_another_width_are_refused():
    with pytest.raises(ConfigError, match="must have 4 features"):
        report_encoder.encode_point([1.0, 2.0], parameters())
