"""Turns Python's garbage collector off during a recording and at exit."""

import atexit
import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Disables the collector inside the context and restores its state afterwards.

    A recording leaves little garbage (about 10 MB for 170 resources), while each collection traverses all live objects, whose
    number only grows: a third of a recording's time, a twentieth of a whole command's (``bench/preview.py``).
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


# Skip the final collection: the process returns its memory anyway.
atexit.register(gc.disable)
