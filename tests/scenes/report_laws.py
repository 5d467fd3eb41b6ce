"""The law of a report by its mechanism's thresholds, and points that nobody expects."""

import decimal
from fractions import Fraction

import numpy as np

from dapple_dp.schemas.reports.parameters import WORD, ReportParameters, SubsetChoice
from dapple_dp.transforms.numerics.reports import encoder as report_encoder
from tests.scenes.reports import ForcedCoins

HOSTILE = np.array(
    [
        [0.0, 0.0, 0.0, 0.0],
        [1.0, 2.0, 3.0, 4.0],
        [-9.0, 0.0, 0.0, 0.0],
        [np.nan, 1.0, np.nan, 0.0],
        [np.nan, np.nan, np.nan, np.nan],
        [np.inf, -np.inf, np.inf, 0.0],
        [-np.inf, 0.0, 0.0, 0.0],
        [1e308, 1e308, -1e308, 1e308],
        [-0.0, 5e-324, -5e-324, 0.0],
        [10.0, 10.0, 10.0, 10.0],
    ]
)


def below_exp(ratio: Fraction, epsilon: float) -> bool:
    """Returns whether ratio <= exp(epsilon), by 60 digits."""
    with decimal.localcontext(decimal.Context(prec=60)):
        return ratio <= Fraction(decimal.Decimal(epsilon).exp().next_minus())


def law(public: ReportParameters, point: np.ndarray, nonce: int) -> list[Fraction]:
    """Probability of each index for this point and nonce: every position of the mechanism is tried."""
    choice = public.choices[-1][0]
    places = np.arange(choice.size)
    points, nonces = np.tile(point, (choice.size, 1)), np.full(choice.size, nonce, dtype=np.uint64)
    reports = report_encoder.encode(points, public, nonces, ForcedCoins({1: (choice, places)}))
    assert sorted(reports.indices.tolist()) == places.tolist()
    found = [Fraction(0)] * choice.size
    for place, index in zip(places.tolist(), reports.indices.tolist(), strict=True):
        found[index] = probability(choice, place)
    return found


def probability(choice: SubsetChoice, place: int) -> Fraction:
    """Probability of a position, by the thresholds alone."""
    if place < choice.near:
        return Fraction(choice.threshold, WORD * choice.near)
    return Fraction(WORD - choice.threshold, WORD * (choice.size - choice.near))
