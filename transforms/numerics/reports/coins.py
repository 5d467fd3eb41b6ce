"""Private coins of reports, and the one data-independent draw on which a report's privacy rests.

Needs NumPy and the standard library.
"""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.reports.parameters import WORD, SubsetChoice

_WORDS_AT_ONCE = 8
_AGAIN = 1 << 32


class Coins(Protocol):
    """Private random words, uniform, independent of each other and of everything else."""

    def words(self, purpose: int, n_words: int) -> NDArray[np.uint64]:
        """Returns words, shape (n_reports, n_words); different purposes have independent ones. Ask once per purpose."""
        ...


class SystemCoins:
    """Coins of the operating system, for a device; every call draws new ones.

    Args:
      n_reports: number of reports that they are for.
    """

    def __init__(self, n_reports: int):
        self._n_reports = n_reports

    def words(self, purpose: int, n_words: int) -> NDArray[np.uint64]:
        """Draws random words of the system's generator, shape (n_reports, n_words)."""
        raw = secrets.token_bytes(8 * self._n_reports * n_words)
        return np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(self._n_reports, n_words)


class KeyedCoins:
    """Coins that follow from a secret per report, for a simulation whose retries must send the same report.

    Args:
      seeds: per report, secret, of one length; reports of different points have different ones.
    """

    def __init__(self, seeds: Sequence[bytes]):
        self._seeds = seeds

    def words(self, purpose: int, n_words: int) -> NDArray[np.uint64]:
        """Returns the stream of SHAKE-256 of seed and purpose."""
        label = purpose.to_bytes(8, "little")
        raw = b"".join(hashlib.shake_256(seed + label).digest(8 * n_words) for seed in self._seeds)
        return np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(len(self._seeds), n_words)


def positions(choice: SubsetChoice, coins: Coins, purpose: int) -> NDArray[np.int64]:
    """Draws places in an order of all things, favored ones first, shape (n,); independent of the data.

    Exactly: a favored place has probability threshold / (2**64 near), another one
    (2**64 - threshold) / (2**64 (size - near)).

    Args:
      choice: the mechanism.
      coins: private.
      purpose: below 2**16, distinct for each choice of a report.
    """
    drawn = coins.words(purpose, _WORDS_AT_ONCE)
    favored = drawn[:, 0] < np.uint64(choice.threshold)
    bounds = np.where(favored, choice.near, choice.size - choice.near).astype(np.uint64)
    residues = _residues(drawn[:, 1:], bounds, coins, purpose + _AGAIN)
    return np.where(favored, 0, choice.near) + residues.astype(np.int64)


def _residues(drawn: NDArray[np.uint64], bounds: NDArray[np.uint64], coins: Coins, purpose: int) -> NDArray[np.uint64]:
    """Draws uniform integers below the bounds, by rejection: from the first word below the last whole multiple."""
    largest = np.uint64(WORD - 1)
    excess = (largest % bounds + np.uint64(1)) % bounds
    accepted = drawn <= (largest - excess)[:, None]
    residues = drawn[np.arange(len(drawn)), accepted.argmax(axis=1)] % bounds
    missing = ~accepted.any(axis=1)
    if not missing.any():
        return residues
    again = _residues(coins.words(purpose, _WORDS_AT_ONCE), bounds, coins, purpose + _AGAIN)
    return np.where(missing, again, residues)
