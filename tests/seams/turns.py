"""Parties of one run in threads of one process, of which one goes on at a time, in a fixed order."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from dapple_dp.schemas.errors import DappleError

Part = Callable[[Callable[[float], None]], Any]
"""What a party does, given what it calls to wait."""


class Turns:
    """Whose turn it is.

    A party that waits hands on to the next, and one that ends leaves the circle, so what comes of all of them is the
    same whatever the machine does.
    """

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._circle: list[int] = []

    def play(self, parts: Sequence[Part]) -> list[Any]:
        """Plays all parts to their ends; what each returned, or refused with."""
        found: list[Any] = [None] * len(parts)

        def play_one(number: int) -> None:
            try:
                self._wait_for(number)
                found[number] = parts[number](lambda _seconds: self._hand_on(number))
            except DappleError as error:
                found[number] = error
            finally:
                with self._turn:
                    self._circle.remove(number)
                    self._turn.notify_all()

        self._circle = list(range(len(parts)))
        threads = [threading.Thread(target=play_one, args=(number,), daemon=True) for number in self._circle]
        with contextlib.ExitStack() as ends:
            for thread in threads:
                thread.start()
                ends.callback(thread.join)
        return found

    def _wait_for(self, number: int) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._circle[0] == number)

    def _hand_on(self, number: int) -> None:
        with self._turn:
            self._circle.append(self._circle.pop(0))
            self._turn.notify_all()
        self._wait_for(number)
