"""Arguments of vLLM by release, and those it refuses together: loads ``vllm_arguments.toml`` and ``vllm_combinations.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal, cast, get_args

from eks_inference.catalog.tables import Row, arguments, rows, table

Takes = Literal[
    "switch",
    "on",
    "int",
    "float",
    "size",
    "size_or_auto",
    "text",
    "name",
    "text_or_alone",
    "object",
    "object_or_text",
    "list",
    "adapters",
    "texts",
    "ints",
    "floats",
]
"""What an argument takes.

``switch`` has a negation, ``on`` has none; neither has a value. A ``size`` is a whole number, also with a suffix (``8k``). A
``name`` is a text without regard to case and dashes. ``text_or_alone`` may stand without its text. ``texts``, ``ints``,
``floats`` and ``adapters`` (``name=path`` or an object) are one or several values.
"""

SEVERAL = ("adapters", "texts", "ints", "floats")


FILE = "vllm_arguments.toml"
BY_FLAG = ("choices", "bounds", "spellings")
"""Tables of a release with an entry for some flags. An empty one says that there is none any more."""


@dataclass(frozen=True)
class VllmArgument:
    """One argument of a release."""

    name: str
    takes: Takes
    choices: tuple[str | int, ...] = ()
    """The only values, if the parser has a list."""
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Bounds of a number: ``gt``, ``ge``, ``lt`` and ``le``, as pydantic calls them."""
    nullable: bool = False
    """Whether a key takes null. A flag never does."""


@dataclass(frozen=True)
class VllmRelease(Row):
    """What the parsers of one release take."""

    quantizations: tuple[str, ...]
    """Values of ``--quantization``."""
    tool_parsers: tuple[str, ...] = ()
    """Values of ``--tool-call-parser``. Empty where there are no flags."""
    keys: Mapping[str, VllmArgument] = field(default_factory=dict)
    """Engine arguments in Python spelling. Empty: no engine profile of this release takes settings as keys."""
    flags: Mapping[str, VllmArgument] = field(default_factory=dict)
    """Flags of ``vllm serve`` without dashes in front. Empty: no engine profile of this release starts ``vllm serve``."""

    spellings: Mapping[str, str] = field(default_factory=dict)
    """Other names of flags: a name → the flag, with ``no-`` in front where the name turns it off."""

    @cached_property
    def several(self) -> frozenset[str]:
        """Flags that take several values."""
        return frozenset(name for name, one in self.flags.items() if one.takes in SEVERAL)


@cache
def vllm_releases() -> Mapping[str, VllmRelease]:
    """All known releases by version (``"0.27.1"``), oldest first."""
    return {name: _release(name, arguments(row)) for name, row in whole_rows(table(FILE)["releases"]).items()}


def whole_rows(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows of all releases, each with what it has from the one that it is ``like``."""
    found: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        found[name] = _added(found[row["like"]], row) if "like" in row else dict(row)
    return found


def _added(like: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    kinds = left(like["flags"], row)
    kinds |= {name: kind for kind, names in row.get("flags", {}).items() for name in names}
    changed: dict[str, dict[str, Any]] = {
        "flags": {kind: sorted(one for one in kinds if kinds[one] == kind) for kind in get_args(Takes) if kind in kinds.values()}
    }
    for part in BY_FLAG:
        kept = {name: value for name, value in like.get(part, {}).items() if name not in row.get("gone", ())}
        changed[part] = {name: value for name, value in {**kept, **row.get(part, {})}.items() if value}
    return {name: value for name, value in {**like, **row, **changed}.items() if name not in ("like", "gone")}


def left(flags: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, str]:
    """The flags of a release that another still has, with what they take."""
    return {name: kind for kind, names in flags.items() for name in names if name not in row.get("gone", ())}


def _release(name: str, row: dict[str, Any]) -> VllmRelease:
    choices, bounds, nullable = row.pop("choices"), row.pop("bounds"), row.pop("nullable", ())
    for table_name in ("keys", "flags"):
        row[table_name] = {
            name: VllmArgument(name, takes, tuple(choices.get(name, ())), bounds.get(name, {}), name in nullable)
            for takes, names in row.get(table_name, {}).items()
            for name in names
        }
    return VllmRelease(name=name, **row)


@cache
def known_arguments() -> Mapping[str, frozenset[str]]:
    """The ``keys`` by release, without releases that have none."""
    return {name: frozenset(release.keys) for name, release in vllm_releases().items() if release.keys}


@cache
def successors() -> Mapping[str, str]:
    """What replaces a removed argument in newer releases: a name, or a sentence that begins with "nothing"."""
    return rows(table(FILE)["successors"])


Test = Literal[
    "given", "is_in", "is_not_in", "is_not", "less_than", "no_less_than", "more_than", "no_multiple_of", "no_divisor_of"
]

_COMBINATIONS = "vllm_combinations.toml"


@dataclass(frozen=True)
class Condition:
    """A statement about one setting of a server."""

    setting: str
    """A flag without dashes, a key inside a flag's object (``eplb-config.use_async``), or a fact (``model.kv_heads``)."""
    test: Test
    against: Any
    """What the setting is compared with: a value, several for ``is_in`` and ``is_not_in``, or the name of another setting."""


@dataclass(frozen=True)
class Combination(Row):
    """Settings that a release refuses when all conditions hold."""

    says: str
    """The refusal in a sentence, without its full stop."""
    conditions: tuple[Condition, ...]
    """The first is about the flag that a user would change."""
    releases: frozenset[str]

    @cached_property
    def flag(self) -> str:
        """The flag that a user would change."""
        return self.conditions[0].setting.partition(".")[0]


@cache
def combinations() -> tuple[Combination, ...]:
    """All known combinations."""
    places = table(_COMBINATIONS)["combinations"].items()
    return tuple(_combination(name, place, arguments(row)) for place, rows in places for name, row in rows.items())


@cache
def combinations_of(release: str) -> tuple[Combination, ...]:
    """Returns what one release refuses."""
    return tuple(combination for combination in combinations() if release in combination.releases)


def default_of(setting: str) -> Any:
    """Returns the engine's value of a flag that is not given; None if it has none, or chooses it."""
    return rows(table(_COMBINATIONS)["defaults"]).get(setting)


def _combination(name: str, source: str, row: dict[str, Any]) -> Combination:
    known = list(vllm_releases())
    first, last = row.pop("since", known[0]), row.pop("until", known[-1])
    row["releases"] = frozenset(known[known.index(first) : known.index(last) + 1])
    row["conditions"] = tuple(map(_condition, row.pop("refused")))
    return Combination(name=name, source=source, read=table(_COMBINATIONS)["read"], **row)


def _condition(row: Mapping[str, Any]) -> Condition:
    (test,) = row.keys() - {"flag"}
    return Condition(row["flag"], cast(Test, test), arguments(row)[test])
