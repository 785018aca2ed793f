"""Python's garbage collector, out of the way of a recording."""

import atexit
import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Nothing looks for garbage meanwhile; afterwards the collector is as it was.

    A recording leaves little garbage (about 10 MB for 170 resources), and each look for it walks all that is in use, which only
    grows: a third of the time of a recording, a twentieth of that of a whole command (``bench/preview.py``).
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


# Python would look once more before it ends, for a process whose memory is given back anyway.
atexit.register(gc.disable)
