"""Decides which Neuron devices of a node a pod may get together: sets of neighbours on the chip interconnect. Pure.

The catalog's ``legal_device_counts`` also tell the topology. Where a pod can have any number of devices they form a ring, and a
set is a run of consecutive devices. Elsewhere they form a torus, and a set is an aligned block, which starts at a multiple of its
size.

Source: aws-neuron-sdk, "Neuron scheduler extension" (device allocation by instance type). Where it is silent the stricter reading
applies: a run does not wrap around from the last device to the first, and a block of a torus is a whole number of rows.
"""

from collections.abc import Iterable

from eks_inference.accelerators.neuron.plan import is_legal
from eks_inference.catalog.instances import InstanceType

DEVICES_ANNOTATION = "AWS_NEURON_IDS"
"""On a pod: the devices assigned to it, in the format of AWS's scheduler extension (``0,1,2,3``)."""


def allocate(free: frozenset[int], count: int, shape: InstanceType) -> tuple[int, ...] | None:
    """Returns the first set of ``count`` free devices in ascending order, or None."""
    if count == 0:
        return ()
    return next((found for found in device_sets(count, shape) if free.issuperset(found)), None)


def device_sets(count: int, shape: InstanceType) -> tuple[tuple[int, ...], ...]:
    """Returns all sets of ``count`` devices; empty if the instance type does not give a pod this number."""
    if not is_legal(count, shape):
        return ()
    ring = len(shape.legal_device_counts) == shape.devices
    starts = range(0, shape.devices - count + 1, 1 if ring else count)
    return tuple(tuple(range(start, start + count)) for start in starts)


def shortage(free: frozenset[int], count: int, shape: InstanceType) -> str:
    """Explains to the owner of a pod why ``allocate`` found no devices."""
    if not is_legal(count, shape):
        return f"{shape.name} gives a pod {', '.join(map(str, shape.legal_device_counts)) or 'no'} Neuron devices, not {count}"
    return f"no {count} contiguous free Neuron devices of {shape.devices}: free {spans(free)}"


def spans(devices: Iterable[int]) -> str:
    """Returns ``0-3, 8``, or ``none``."""
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and runs[-1][-1] == device - 1:
            runs[-1].append(device)
        else:
            runs.append([device])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) or "none"
