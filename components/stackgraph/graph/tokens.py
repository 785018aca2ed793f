"""What stands in a graph for a value that is hidden, or that only a deployment knows."""

from collections.abc import Callable, Mapping
from typing import Any

SECRET = "[secret]"
UNKNOWN = "<unknown>"


class Sealed(str):
    """``[secret]`` with a digest that tells equal secrets of one comparison from others. To all else it is the plain text."""

    digest = ""

    def __new__(cls, digest: str) -> "Sealed":
        sealed = super().__new__(cls, SECRET)
        sealed.digest = digest
        return sealed


def is_token(value: Any) -> bool:
    """Whether the value stands for one that is hidden or not known yet: ``[secret]``, ``<unknown>``, ``<net-vpc.id>``."""
    return isinstance(value, str) and (value == SECRET or (value.startswith("<") and value.endswith(">") and len(value) > 2))


def redacted(type_: str, inputs: Mapping[str, Any], hide: Callable[[Any], str] = lambda value: SECRET) -> dict[str, Any]:
    """The inputs of a resource; of a Kubernetes Secret, whose data a program may well have given as plain text, only the keys.

    ``hide`` makes what stands in place of a value.
    """
    found = dict(inputs)
    if found.get("kind") == "Secret" or type_.rpartition(":")[2] in ("Secret", "SecretPatch"):
        for key in ("data", "stringData"):
            if key in found:
                held = found[key]
                # A text in JSON that was opened is a dictionary of another class: all of it is hidden.
                found[key] = {name: hide(value) for name, value in held.items()} if type(held) is dict else hide(held)
    return found
