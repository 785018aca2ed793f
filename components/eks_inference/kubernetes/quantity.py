"""Kubernetes quantities as numbers (``k8s.io/apimachinery``, resource.Quantity)."""

from decimal import Decimal

_SUFFIXES = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(1000),
    "M": Decimal(1000) ** 2,
    "G": Decimal(1000) ** 3,
    "T": Decimal(1000) ** 4,
    "Ki": Decimal(1024),
    "Mi": Decimal(1024) ** 2,
    "Gi": Decimal(1024) ** 3,
    "Ti": Decimal(1024) ** 4,
}


def amount(quantity: str) -> Decimal:
    """``500m`` is 0.5, ``110G`` is 110 000 000 000. Raises ``ValueError`` for what is no quantity."""
    number = quantity.rstrip("mkMGTi")
    suffix = quantity[len(number) :]
    if suffix not in _SUFFIXES or not number.replace(".", "", 1).isdecimal():
        raise ValueError(f"{quantity!r} is no quantity")
    return Decimal(number) * _SUFFIXES[suffix]


def cpu_millis(quantity: str) -> int:
    """Thousandths of a CPU."""
    return int(amount(quantity) * 1000)


def memory_mib(quantity: str) -> int:
    """MiB, rounded down."""
    return int(amount(quantity) / 1024**2)
