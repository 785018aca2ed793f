"""Parses Kubernetes quantities (``k8s.io/apimachinery``, resource.Quantity)."""

from decimal import Decimal

_SUFFIXES = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{prefix: Decimal(1000) ** power for power, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}i": Decimal(1024) ** power for power, prefix in enumerate("KMGT", 1)},
}


def amount(quantity: str) -> Decimal:
    """Returns a quantity as a number: 0.5 for ``500m``, 110 000 000 000 for ``110G``. Raises ``ValueError`` for other text."""
    number = quantity.rstrip("mkKMGTi")
    suffix = quantity[len(number) :]
    if suffix not in _SUFFIXES or not number.replace(".", "", 1).isdecimal():
        raise ValueError(f"{quantity!r} is not a quantity")
    return Decimal(number) * _SUFFIXES[suffix]


def cpu_millis(quantity: str) -> int:
    """Returns a CPU quantity in millicores."""
    return int(amount(quantity) * 1000)


def memory_mib(quantity: str) -> int:
    """Returns a memory quantity in MiB, rounded down."""
    return int(amount(quantity) / 1024**2)
