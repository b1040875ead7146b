"""Threads that take turns at the requests they make, in an order that a seed decides: a race that can be repeated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from random import Random


class Interleaving:
    """``gate`` is to be called before each request; threads that it does not know pass."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._changed = threading.Condition()
        self._numbers: dict[int, int] = {}
        self._waiting: set[int] = set()
        self._turn: int | None = None
        self._live = 0

    def gate(self) -> None:
        number = self._numbers.get(threading.get_ident())
        if number is None:
            return
        with self._changed:
            self._waiting.add(number)
            self._turn = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == number)
            self._waiting.discard(number)

    def run(self, acts: Sequence[Callable[[], object]]) -> list[object]:
        """What each returns or raises, in order."""
        results: list[object] = [None] * len(acts)
        self._live = len(acts)

        def work(number: int, act: Callable[[], object]) -> None:
            self._numbers[threading.get_ident()] = number
            try:
                self.gate()
                results[number] = act()
            except Exception as error:  # the test judges it
                results[number] = error
            finally:
                with self._changed:
                    self._live -= 1
                    self._turn = None
                    self._changed.notify_all()

        threads = [threading.Thread(target=work, args=each) for each in enumerate(acts)]
        for thread in threads:
            thread.start()
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._turn is None and len(self._waiting) == self._live)
                if not self._live:
                    break
                self._turn = self._chance.choice(sorted(self._waiting))
                self._changed.notify_all()
        for thread in threads:
            thread.join()
        return results
