"""Placeholders in a graph, for secrets and for values that only a deployment knows; and helpers to read recorded inputs. A
placeholder may stand in for a list or a mapping, so no helper fails on any value.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from stackgraph.problems import printable

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


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Almost all mappings are dicts, and an abstract class takes long to recognise one.
_MAPPINGS = (dict, Mapping)


def at(value: Any, *path: str) -> Any:
    """The value at a path, or None. At any path below a placeholder, that placeholder."""
    for key in path:
        if is_token(value):
            return value
        if not isinstance(value, _MAPPINGS):
            return None
        value = value.get(key)
    return value


def table(value: Any) -> Mapping[str, Any]:
    """The value as a mapping with string keys; empty if the value is no mapping."""
    return {str(key): item for key, item in value.items()} if isinstance(value, _MAPPINGS) else {}


def items(value: Any) -> Sequence[Any]:
    """The value as a list. A placeholder counts as a list of one item."""
    if isinstance(value, list | tuple):
        return value
    return [value] if is_token(value) else []


def texts(value: Any) -> tuple[str, ...]:
    """The items of a list as strings, without empty ones. A single string counts as a list of one item."""
    found = [value] if isinstance(value, str) else items(value)
    return tuple(shown for item in found if (shown := text(item)))


def text(value: Any) -> str:
    """The value on one line, without control characters, so that no recorded value can control a terminal."""
    if isinstance(value, str) and value.isprintable() and "  " not in value:
        return value.strip()
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        value = json.dumps(plain(value), ensure_ascii=False, sort_keys=True)
    return " ".join(printable(str(value)).split())


def plain(value: Any) -> Any:
    """The value built only from types that JSON and YAML can express."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, int | float) else str(value)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with ``change`` applied to everything inside that is neither a mapping nor a list. A dict keeps its class."""
    if isinstance(value, Mapping):
        made = {key: mapped(item, change) for key, item in value.items()}
        return type(value)(made) if isinstance(value, dict) else made
    return [mapped(item, change) for item in value] if isinstance(value, list | tuple) else change(value)


def leaves(value: Any) -> Iterator[Any]:
    """Everything inside the value that is neither a mapping nor a list."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(item)
    else:
        yield value


def joined(*parts: Any, by: str = " ") -> str:
    """The parts as strings, without empty ones, joined by ``by``."""
    return by.join(texts(parts))


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values in their order, without empty ones and duplicates."""
    return tuple(dict.fromkeys(filter(None, values)))


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The second items of the pairs, in their order, by the first."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
