"""Participation of clients in the windows of an epoch: each client's own history decides, and no other client's.

Clients are identified by keyed digests of 32 hex digits. A client that was counted stays counted, even if its rows have
been erased since: a job that forgot it would count it more often than planned.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

LONG_AGO = -1
"""Stands for all windows whose rows are not read again."""
Digests = NDArray[np.bytes_]


class Rule(NamedTuple):
    """Limits on how often a client counts.

    Attributes:
      max_windows: most windows in which it counts, >= 1.
      min_separation: least distance of these windows, >= 1.
      reach: number of windows that are read again, including the present one, >= 1.
      binds: True if `max_windows` can be reached at all; otherwise nobody is remembered for it.
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
      times: int64, shape (n,): 1, or for LONG_AGO the number of windows that it stands for.
    """

    digests: Digests
    windows: NDArray[np.int64]
    times: NDArray[np.int64]

    @classmethod
    def nobody(cls) -> Self:
        """Returns the list before the first window."""
        return cls(np.zeros(0, dtype="S32"), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def of(self, window: int) -> Digests:
        """Returns the clients that counted in a window, sorted."""
        result: Digests = self.digests[self.windows == window]
        return result

    def with_window(self, present: Digests, window: int, rule: Rule) -> "Counted":
        """Returns the list after one more window.

        Args:
          present: digests of all clients with a row in it, in any order and number.
          window: its number.
          rule: limits on how often a client counts.

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
        """Keeps what later windows need: the clients of the last windows, and how often each client counted."""
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
