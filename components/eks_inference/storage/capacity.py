"""Sizes of FSx for Lustre file systems. Pure; no pulumi.

Source: FSx API reference, CreateFileSystem and UpdateFileSystem, StorageCapacity (SSD storage of SCRATCH_2 and PERSISTENT_2).
"""

import math

SMALLEST_GIB = 1200
STEP_GIB = 2400


def lustre_size_gib(needed_gib: float) -> int:
    """Returns the smallest available size for that much data: ``SMALLEST_GIB`` or a multiple of ``STEP_GIB``."""
    return SMALLEST_GIB if needed_gib <= SMALLEST_GIB else math.ceil(needed_gib / STEP_GIB) * STEP_GIB
