"""Composes a YAML document from the events of PyYAML's parser, within bounds: no text of any length costs more than seconds.

PyYAML's own composer recurses as deep as a text nests, in C without a limit, and multiplies aliases and merge keys. The dialect
is that of the Pulumi CLI's Go library: ``on``, ``8000:80`` and dates are strings, unlike in YAML 1.1 and PyYAML.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

KeyPath = tuple[str | int, ...]

MOST_BYTES = 2**20
"""The longest file, and the most characters of all its texts where each alias counts with what it stands for."""
MOST_VALUES = 20_000
"""The most keys, items and values. The largest stack file of this repository has 250."""
MOST_DEPTH = 64
LONGEST_TEXT = 2**16
LONGEST_NUMBER = 64
LONGEST_KEY = 1024
"""In characters, as YAML 1.2.2, section 7.4.2, bounds keys without a question mark."""


@dataclass(frozen=True)
class Mistake:
    """What is wrong in a text, the line, and the path of the key that has it."""

    message: str
    line: int
    path: KeyPath
    given: str = ""
    allowed: str = ""
    hint: str = ""


class RefusedText(Exception):
    """A text that stands for no value, or is beyond a bound. ``mistakes`` has everything found."""

    def __init__(self, *mistakes: Mistake) -> None:
        self.mistakes = mistakes
        super().__init__("; ".join(mistake.message for mistake in mistakes))


@dataclass(frozen=True)
class Node:
    """A value, the line where it or its key stands, and what it costs where an alias repeats it."""

    line: int
    value: "Mapping[str, Node] | list[Node] | str | int | float | bool | None"
    values: int = 1
    letters: int = 0
    height: int = 0

    def plain(self) -> Any:
        """The value in the types of JSON. An alias gives a copy."""
        if isinstance(self.value, Mapping):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value

    def lines(self, path: KeyPath = ()) -> Iterator[tuple[KeyPath, int]]:
        """The line of every key and item."""
        yield path, self.line
        if isinstance(self.value, Mapping | list):
            for step, node in self.value.items() if isinstance(self.value, Mapping) else enumerate(self.value):
                yield from node.lines((*path, step))


def compose(text: str) -> Node:
    """The only document of a text. Raises ``RefusedText``, or ``yaml.YAMLError`` where the text is no YAML."""
    composer = _Composer(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    node = composer.document()
    if composer.mistakes:
        raise RefusedText(*composer.mistakes)
    return node


@dataclass
class _Composer:
    events: Iterator[Any]
    mistakes: list[Mistake] = field(default_factory=list)
    anchors: dict[str, Node] = field(default_factory=dict)
    values: int = 0
    letters: int = 0

    def document(self) -> Node:
        next(self.events)
        if isinstance(event := next(self.events), yaml.StreamEndEvent):
            return Node(1, None)
        node = self.node(next(self.events), ())
        next(self.events)
        if not isinstance(event := next(self.events), yaml.StreamEndEvent):
            self.refuse("a second document begins here", _line(event), (), allowed="one document in a file")
        return node

    def refuse(self, message: str, line: int, path: KeyPath, **details: str) -> None:
        self.mistakes.append(Mistake(message, line, path, **details))

    def node(self, event: Any, path: KeyPath, line: int = 0) -> Node:
        """The node that begins with an event. ``line`` is that of its key."""
        line = line or _line(event)
        if isinstance(event, yaml.AliasEvent):
            named = self.anchors.get(event.anchor)
            if named is None:
                self.refuse("this alias names an anchor that is not complete before it", line, path, given=f"*{event.anchor}")
                return Node(line, None)
            self.count(named.values, named.letters, len(path) + named.height, line, path)
            return replace(named, line=line)
        letters = len(event.value) if isinstance(event, yaml.ScalarEvent) else 0
        self.count(1, letters, len(path), line, path)
        if isinstance(event, yaml.ScalarEvent):
            node = Node(line, self.scalar(event, path), letters=letters)
        else:
            if event.tag not in (None, "!", _TAG + _COLLECTIONS[type(event)]):
                self.refuse_tag(event, path)
            value = self.mapping(path) if isinstance(event, yaml.MappingStartEvent) else [*self.items(path)]
            keys, below = ([*value], [*value.values()]) if isinstance(value, dict) else ([], value)
            node = Node(
                line,
                value,
                1 + len(keys) + sum(each.values for each in below),
                sum(map(len, keys)) + sum(each.letters for each in below),
                1 + max((each.height for each in below), default=0),
            )
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def count(self, values: int, letters: int, depth: int, line: int, path: KeyPath) -> None:
        """Adds to what the document has. Raises ``RefusedText`` beyond a bound: the rest is not read."""
        self.values, self.letters = self.values + values, self.letters + letters
        for what, found, most, unit in (
            ("nested too deep", depth, MOST_DEPTH, "levels"),
            ("too many values", self.values, MOST_VALUES, "in a file, where an alias counts with all it stands for"),
            ("too much text", self.letters, MOST_BYTES, "characters, where an alias counts with all it stands for"),
        ):
            if found > most:
                raise RefusedText(*self.mistakes, Mistake(what, line, path, allowed=f"at most {most} {unit}"))

    def items(self, path: KeyPath) -> Iterator[Node]:
        index = 0
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            yield self.node(event, (*path, index))
            index += 1

    def mapping(self, path: KeyPath) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] | None = None
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            line = _line(event)
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                if merged is not None:
                    self.refuse("this key is given twice", line, (*path, "<<"), allowed="<<: [*one, *other]")
                merged = self.merged(self.node(next(self.events), (*path, "<<"), line), path)
                continue
            key = self.key(event, path)
            value = self.node(next(self.events), (*path, key), line)
            if key in own:
                self.refuse(f"this key is given twice, first on line {own[key].line}", line, (*path, key))
            own.setdefault(key, value)
        return (merged or {}) | own

    def merged(self, source: Node, path: KeyPath) -> dict[str, Node]:
        """The keys of a mapping, or of several: the first that has a key gives its value."""
        found: dict[str, Node] = {}
        for node in source.value if isinstance(source.value, list) else [source]:
            if isinstance(node.value, Mapping):
                found = {**node.value, **found}
            else:
                self.refuse("a merge key takes a mapping or a list of them", node.line, (*path, "<<"))
        return found

    def key(self, event: Any, path: KeyPath) -> str:
        """The text of a key. The CLI refuses keys of every other kind (pulumi/sdk/go/common/resource/config/value.go)."""
        shown = event.value[:LONGEST_NUMBER] if isinstance(event, yaml.ScalarEvent) else "?"
        known = len(self.mistakes)
        key = self.node(event, (*path, shown)).value
        if len(self.mistakes) > known:
            return shown
        if isinstance(key, str) and len(key) <= LONGEST_KEY:
            return key
        if isinstance(key, str):
            self.refuse("the key is too long", _line(event), (*path, shown), allowed=f"at most {LONGEST_KEY} characters")
        else:
            allowed = "a text, in quotes where YAML would read something else"
            self.refuse("a key must be a text", _line(event), (*path, shown), given=_KINDS[type(key)], allowed=allowed)
        return shown

    def scalar(self, event: yaml.ScalarEvent, path: KeyPath) -> str | int | float | bool | None:
        text: str = event.value
        line, tag = _line(event), (event.tag or "!").removeprefix(_TAG)
        if len(text) > LONGEST_TEXT:
            self.refuse("the text is too long", line, path, allowed=f"at most {LONGEST_TEXT} characters")
        elif tag == "!":
            for pattern, value in _READINGS.values() if event.implicit[0] else ():
                if pattern.fullmatch(text):
                    # As in Go, what looks like a number and is none is a text.
                    with contextlib.suppress(ValueError):
                        return self.read(value, text, line, path)
        elif tag in _READINGS:
            pattern, value = _READINGS[tag]
            try:
                if pattern.fullmatch(text):
                    return self.read(value, text, line, path)
            except ValueError:
                pass
            self.refuse(f"this is no !!{tag}", line, path, given=text[:LONGEST_NUMBER])
        elif tag != "str":
            self.refuse_tag(event, path)
        return text

    def read(self, value: Callable[[str], Any], text: str, line: int, path: KeyPath) -> Any:
        if len(text) > LONGEST_NUMBER:
            allowed = f"at most {LONGEST_NUMBER} characters"
            self.refuse("the number is too long", line, path, allowed=allowed, hint="put it in quotes")
            return None
        found = value(text)
        if isinstance(found, float) and not math.isfinite(found):
            self.refuse("JSON has no such number, and the CLI hands values over as JSON", line, path, given=text)
        return found

    def refuse_tag(self, event: Any, path: KeyPath) -> None:
        allowed = ", ".join(f"!!{tag}" for tag in ("str", *_READINGS, *_COLLECTIONS.values()))
        self.refuse("unknown tag", _line(event), path, given=event.tag.replace(_TAG, "!!")[:LONGEST_NUMBER], allowed=allowed)


def _line(event: Any) -> int:
    return event.start_mark.line + 1


def _int(text: str) -> int:
    digits = text.replace("_", "")
    return int(digits, 8 if re.match(r"[-+]?0[0-7]", digits) else 0)


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_TAG = "tag:yaml.org,2002:"
_COLLECTIONS = {yaml.MappingStartEvent: "map", yaml.SequenceStartEvent: "seq"}
_KINDS = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
_READINGS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"~|null|Null|NULL|"), lambda text: None),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    "int": (re.compile(r"[-+]?(0|[1-9][0-9_]*|0o?[0-7_]+|0x[0-9a-fA-F_]+)"), _int),
    "float": (
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
        _float,
    ),
}


def is_plain_text(text: str) -> bool:
    """Whether a text without quotes is read as a text, and not as a number, a truth value or nothing."""
    return not any(pattern.fullmatch(text) for pattern, _ in _READINGS.values())
