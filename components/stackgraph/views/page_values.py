"""Renders recorded values as YAML for a page. Placeholders link to the resources that they refer to."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stackgraph.graph.tokens import SECRET, UNKNOWN
from stackgraph.graph.values import plain
from stackgraph.presentation.markup import Markup, element, escaped, together
from stackgraph.views.manifests import key_rank

Link = Callable[[str], str]
"""Returns the address of the resource that ``name.property`` refers to, or ``""``."""

_LONG = 40


def render_values(values: Mapping[str, Any], link: Link) -> Markup:
    """Lines of YAML that load as the values. Long JSON strings are spread over several lines."""
    return together(*_lines(plain(values), link), by="\n")


def _lines(value: Any, link: Link) -> list[Markup]:
    """The lines of a value, without indentation."""
    if isinstance(value, Mapping) and value:
        return [line for key in sorted(value, key=key_rank) for line in _entry(key, value[key], link)]
    if isinstance(value, list) and value:
        return [line for item in value for line in _behind("-", _lines(item, link))]
    if isinstance(value, str):
        return _text(value, link)
    return [element("i", _number(value) if isinstance(value, int | float) else json.dumps(value))]


def _entry(key: str, value: Any, link: Link) -> Iterator[Markup]:
    name = together(element("b", key if _is_plain(key) else _quoted(key)), ":")
    lines = _lines(value, link)
    if isinstance(value, Mapping | list) and value:
        yield name
        yield from (together("  ", line) for line in lines)
    else:
        yield from _behind(name, lines)


def _behind(lead: str, lines: list[Markup]) -> Iterator[Markup]:
    yield together(lead, " ", lines[0])
    yield from (together("  ", line) for line in lines[1:])


def _number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    shown = str(value)
    # YAML 1.1 reads a number with an exponent as a string unless it contains a point.
    return shown.replace("e", ".0e") if "e" in shown and "." not in shown else shown


# -- texts -----------------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(rf"({re.escape(SECRET)})|({re.escape(UNKNOWN)})|<([^\s<>]+\.[^\s<>]+)>")
# A conservative subset of the strings that YAML allows without quotes, which covers most that people write.
_PLAIN = re.compile(r"(?:[A-Za-z/_]|<(?=[^\s<>=]+>$))(?:[\w./@+=<>-]|[: ](?=[\w./@+=<>-]))*", re.ASCII)
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def _is_plain(value: str) -> bool:
    return _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS


def _text(value: str, link: Link) -> list[Markup]:
    if "\n" in value and _fits_block(value):
        lines = value.removesuffix("\n").split("\n")
        return [escaped("|" if value.endswith("\n") else "|-"), *(_marked(line, link) for line in lines)]
    if len(value) > _LONG and value[0] in "{[" and (laid_out := _laid_out(value)):
        head = together("|-", element("em", "  # JSON, laid out"))
        return [head, *(_marked(line, link) for line in laid_out.split("\n"))]
    return [_marked(value if _is_plain(value) else _quoted(value), link)]


def _fits_block(value: str) -> bool:
    """Whether a YAML block can hold the text."""
    lines = value.removesuffix("\n").split("\n")
    return (
        bool(lines[0])
        and bool(lines[-1])
        and not lines[0][0].isspace()
        and all(not line or (line.strip(" ") and line.replace("\t", "").isprintable()) for line in lines)
    )


def _laid_out(value: str) -> str:
    """A JSON string over several lines; ``""`` if it is no JSON or would lose information."""
    try:
        found = json.loads(value, object_pairs_hook=_without_repetition)
        shown = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return ""
    return shown if found and shown.replace("\n", "").isprintable() else ""


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def _quoted(value: str) -> str:
    return f'"{"".join(_ESCAPES.get(letter) or _printable(letter) for letter in value)}"'


def _printable(letter: str) -> str:
    number = ord(letter)
    return letter if letter.isprintable() else f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}"


def _marked(line: str, link: Link) -> Markup:
    """The line with its placeholders marked or linked."""
    parts: list[str] = []
    end = 0
    for found in _TOKEN.finditer(line):
        parts.append(line[end : found.start()])
        address = link(found[3]) if found[3] else ""
        if address:
            parts.append(element("a", found[0], href=address))
        else:
            parts.append(element("mark", found[0], class_="secret" if found[1] else None))
        end = found.end()
    return together(*parts, line[end:])
