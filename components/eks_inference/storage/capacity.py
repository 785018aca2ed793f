"""Sizes that FSx for Lustre has. Pure.

Source: FSx API reference, CreateFileSystem and UpdateFileSystem, StorageCapacity (SSD storage of SCRATCH_2 and PERSISTENT_2).
"""

import math

SMALLEST_GIB = 1200
STEP_GIB = 2400


def is_lustre_size(gib: int) -> bool:
    """Whether a file system can be of that size: the smallest one, or a multiple of the step."""
    return gib == SMALLEST_GIB or (gib > 0 and gib % STEP_GIB == 0)


def lustre_size_gib(needed_gib: float) -> int:
    """The smallest size with at least that much room."""
    return SMALLEST_GIB if needed_gib <= SMALLEST_GIB else math.ceil(needed_gib / STEP_GIB) * STEP_GIB
