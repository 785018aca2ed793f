"""The room that the servers of a pair have. For ``router.py``; standard library only."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_WAITING = 256  # each has a thread


class FullError(Exception):
    """Too many requests wait already."""


class Slots:
    """The sequences that the servers have room for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.taken = self.waiting = 0
        self._changed = threading.Condition()
        self._turn = threading.Lock()

    @contextmanager
    def held(self, wanted: int) -> Iterator[None]:
        """Waits until ``wanted`` slots are free. One request at a time: two that had half of theirs would wait for each other."""
        with self._changed:
            if self.waiting >= _WAITING:
                raise FullError
            self.waiting += 1
        with self._turn, self._changed:
            self._changed.wait_for(lambda: self.taken + wanted <= self.number)
            self.taken += wanted
            self.waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self.taken -= wanted
                self._changed.notify_all()
