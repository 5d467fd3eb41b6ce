"""Who counts in a window of an epoch: a client's own history decides, and nothing of other clients.

Clients are known by keyed digests, as 32 hex digits. A client that was counted stays counted, even if its rows have
been erased since: a job that forgets it would count it more often than was planned.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

LONG_AGO = -1
"""Stands for all windows whose rows are not read again."""
Digests = NDArray[np.bytes_]


class Rule(NamedTuple):
    """How often a client counts.

    Attributes:
      max_windows: at most, >= 1.
      min_separation: from one window to the next, at least, >= 1.
      reach: how many windows are read again, the present one included, >= 1.
      binds: whether `max_windows` can be reached at all; else nobody is remembered for it.
    """

    max_windows: int
    min_separation: int
    reach: int
    binds: bool = True


class Counted(NamedTuple):
    """Clients and the windows in which they counted, in order of window and digest.

    Attributes:
      digests: shape (n,), 32 hex digits each.
      windows: int64, shape (n,): numbers of windows, or LONG_AGO.
      times: int64, shape (n,): 1, or of LONG_AGO how many windows it stands for.
    """

    digests: Digests
    windows: NDArray[np.int64]
    times: NDArray[np.int64]

    @classmethod
    def nobody(cls) -> Self:
        """Before the first window."""
        return cls(np.zeros(0, dtype="S32"), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def of(self, window: int) -> Digests:
        """Those who counted in a window, sorted."""
        found: Digests = self.digests[self.windows == window]
        return found

    def with_window(self, present: Digests, window: int, rule: Rule) -> "Counted":
        """After one window more.

        Args:
          present: of all clients with a row in it, in any order and number.
          window: its number.
          rule: how often a client counts.

        """
        close = self.digests[self.windows > window - rule.min_separation]
        known, places = np.unique(self.digests, return_inverse=True)
        often = known[np.bincount(places, weights=self.times, minlength=len(known)) >= rule.max_windows]
        new = np.setdiff1d(np.unique(present), np.union1d(close, often))
        return Counted(
            np.concatenate([self.digests, new]),
            np.concatenate([self.windows, np.full(len(new), window)]),
            np.concatenate([self.times, np.ones(len(new), dtype=np.int64)]),
        )._after(window, rule)

    def _after(self, window: int, rule: Rule) -> "Counted":
        """Only what this window and later ones ask for: who counted in the last ones, and how often everybody did."""
        is_asked_for = self.windows > window - max(rule.min_separation, rule.reach)
        old, places = np.unique(self.digests[~is_asked_for], return_inverse=True)
        times = np.bincount(places, weights=self.times[~is_asked_for], minlength=len(old)).astype(np.int64)
        if not rule.binds:
            old, times = old[:0], times[:0]
        return Counted(
            np.concatenate([old, self.digests[is_asked_for]]),
            np.concatenate([np.full(len(old), LONG_AGO), self.windows[is_asked_for]]),
            np.concatenate([times, self.times[is_asked_for]]),
        )
