"""Which Neuron devices of a node a pod may get together: sets of neighbours on the chip network. Pure.

The numbers come from the catalog (``legal_device_counts``), and tell the form of a set, too. Where a pod can have any number of
devices they form a ring, and a set is a run of devices one after the other. Elsewhere they form a torus, and a set is an aligned
block, which starts at a multiple of its size.

Source: aws-neuron-sdk, "Neuron scheduler extension" (device allocation by instance type). Two things it does not say are taken as
the stricter reading: a run does not go on from the last device to the first, and a block of a torus is a whole number of rows.
"""

from collections.abc import Iterable

from eks_inference.accelerators.neuron.plan import is_legal
from eks_inference.catalog.instances import InstanceType

DEVICES_ANNOTATION = "AWS_NEURON_IDS"
"""On a pod: the devices that it got, ``0,1,2,3``, as AWS's scheduler extension writes it."""


def allocate(free: frozenset[int], count: int, shape: InstanceType) -> tuple[int, ...] | None:
    """The first set of that many devices that are all free, in ascending order; None when there is none."""
    if count == 0:
        return ()
    return next((found for found in device_sets(count, shape) if free.issuperset(found)), None)


def device_sets(count: int, shape: InstanceType) -> tuple[tuple[int, ...], ...]:
    """Every set of that many devices an instance type has; empty when it gives no such number to a pod."""
    if not is_legal(count, shape):
        return ()
    ring = len(shape.legal_device_counts) == shape.devices
    starts = range(0, shape.devices - count + 1, 1 if ring else count)
    return tuple(tuple(range(start, start + count)) for start in starts)


def shortage(free: frozenset[int], count: int, shape: InstanceType) -> str:
    """Why ``allocate`` found nothing, in words for the pod's owner."""
    if not is_legal(count, shape):
        return f"{shape.name} gives a pod {', '.join(map(str, shape.legal_device_counts)) or 'no'} Neuron devices, not {count}"
    return f"no {count} contiguous free Neuron devices of {shape.devices}: free {spans(free)}"


def spans(devices: Iterable[int]) -> str:
    """``0-3, 8``; ``none`` when there is none."""
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and runs[-1][-1] == device - 1:
            runs[-1].append(device)
        else:
            runs.append([device])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) or "none"
