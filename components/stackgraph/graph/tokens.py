"""Placeholders in a graph: for secrets, and for values that only a deployment knows."""

import re
from collections.abc import Callable, Mapping
from typing import Any

SECRET = "[secret]"
UNKNOWN = "<unknown>"
REFERENCE = re.compile(r"<([^<>\s]+\.[^<>\s]+)>")
"""``<net-vpc.id>``: names may hold dots."""


class Sealed(str):
    """``[secret]`` with a digest, which shows whether two secrets of one comparison are equal. Otherwise an ordinary string."""

    digest = ""

    def __new__(cls, digest: str) -> "Sealed":
        sealed = super().__new__(cls, SECRET)
        sealed.digest = digest
        return sealed


def is_token(value: Any) -> bool:
    """Whether the value is a placeholder: ``[secret]``, ``<unknown>``, ``<net-vpc.id>``."""
    return isinstance(value, str) and (value == SECRET or (value.startswith("<") and value.endswith(">") and len(value) > 2))


def references(text: str) -> list[str]:
    """The references to outputs that a text has inside: ``net-vpc.id``."""
    return REFERENCE.findall(text)


def redacted(type_: str, inputs: Mapping[str, Any], hide: Callable[[Any], str] = lambda value: SECRET) -> dict[str, Any]:
    """The inputs of a resource. The data of a Kubernetes Secret is hidden, since programs may pass it as plain text; keys remain.

    ``hide`` returns the placeholder for a value.
    """
    found = dict(inputs)
    if found.get("kind") == "Secret" or type_.rpartition(":")[2] in ("Secret", "SecretPatch"):
        for key in ("data", "stringData"):
            if key in found:
                held = found[key]
                # A parsed JSON string is a subclass of dict: it is hidden as a whole.
                found[key] = {name: hide(value) for name, value in held.items()} if type(held) is dict else hide(held)
    return found
