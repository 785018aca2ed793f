"""Generates stack files with one mistake, for every command that reads them."""

import copy
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

Path = tuple[str | int, ...]

FREE_FORM = {
    "addon_configuration",
    "extra_args",
    "extra_env",
    "extra_labels",
    "guidellm",
    "mirrors",
    "sampling",
    "tags",
    "values",
}
"""Sections with keys of the user's choice, where another name is not a mistake."""


@dataclass(frozen=True)
class Mutation:
    """A changed stack object. ``path`` is the wrong key, ``kind`` the kind of mistake."""

    kind: str
    path: Path
    stack: dict[str, Any]


def cases(sample: int) -> int:
    """How many cases to generate: a sample, or as many as the environment variable ``CASES`` says."""
    return int(os.environ.get("CASES", sample))


_NINE = ", ".join(["*l{0}"] * 9)
BROKEN = {
    "boolean as a key": "{a: b, true: x}",
    "null as a key": "{a: b, ~: x}",
    "integer as a key": "{a: b, 1: x}",
    "float as a key": "{a: b, 1.5: x}",
    "list as a key": "{[a]: b}",
    "key given twice": "{a: 1, a: 2}",
    "long key": f"{{? {'k' * 2000} : 1}}",
    "100,000 lists in each other": "[" * 100_000,
    "5,000 nested lists": "[" * 5000 + "]" * 5000,
    "3,000 nested mappings": "{a: " * 3000 + "1" + "}" * 3000,
    "alias to itself": "&me [*me]",
    "alias to nothing": "*nobody",
    "billion laughs": f"[&l0 [x, x], {', '.join(f'&l{n} [{_NINE.format(n - 1)}]' for n in range(1, 12))}]",
    "long text by aliases": f"[&long {'x' * 60_000}, {', '.join(['*long'] * 100)}]",
    "nested by aliases": f"[&d0 [x], {', '.join(f'&d{n} [*d{n - 1}]' for n in range(1, 150))}]",
    "merge key of no mapping": "{<<: 1}",
    "two merge keys": "{<<: {a: 1}, <<: {b: 1}}",
    "timestamp": "!!timestamp zz",
    "no boolean": "!!bool zz",
    "no integer": "!!int zz",
    "object of Python": "!!python/object/apply:os.system [x]",
    "long number": "0x" + "f" * 1_000,
    "million digits": "0x" + "f" * 1_000_000,
    "infinity": ".inf",
    "long text": "x" * 70_000,
    "many values": f"[{'0,' * 20_001}]",
    "secret": "{secure: v1:abc}",
}
"""Texts that no stack file may have anywhere, by kind of mistake."""


@dataclass(frozen=True)
class BrokenText:
    """The text of a stack file with one of ``BROKEN`` in place of the value at ``path``, a path below the stack object."""

    kind: str
    path: Path
    text: str


def broken(config: dict[str, Any], key: str, chance: random.Random, kind: str) -> BrokenText:
    """Puts a text of one kind in the place of some value of the stack object, which is the value of a key of ``config``."""
    changed, mark = copy.deepcopy(config), "the-value-to-replace"
    path = chance.choice([*paths(config[key])])
    at(changed[key], path[:-1])[path[-1]] = mark
    return BrokenText(kind, path, yaml.safe_dump({"config": changed}, sort_keys=False).replace(mark, BROKEN[kind], 1))


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the path of every key and list position below a value, outermost first."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        yield (*path, step)
        yield from paths(item, (*path, step))


def mutate(stack: dict[str, Any], chance: random.Random) -> Mutation:
    """Makes one structural mistake, which is always refused: a misspelt key, a value of another type, or an invented key."""
    changed = copy.deepcopy(stack)
    spots = [path for path in paths(stack) if not FREE_FORM & set(path)]
    kind = chance.choice(["misspelt key", "wrong type", "invented key"])
    if kind == "misspelt key":
        # The user chooses the names of pools and servers.
        path = chance.choice([p for p in spots if isinstance(p[-1], str) and p[:-1] not in (("pools",), ("servers",))])
        parent = at(changed, path[:-1])
        wrong = _misspelt(str(path[-1]), chance)
        while wrong in parent:
            wrong = _misspelt(wrong, chance)
        parent[wrong] = parent.pop(path[-1])
        return Mutation(kind, (*path[:-1], wrong), changed)
    if kind == "invented key":
        spots = [p for p in [(), *spots] if isinstance(at(stack, p), dict) and p not in (("pools",), ("servers",))]
        path = (*chance.choice(spots), "no_such_key")
        at(changed, path[:-1])["no_such_key"] = chance.choice([1, "x", [], {}])
        return Mutation(kind, path, changed)
    path = chance.choice(spots)
    at(changed, path[:-1])[path[-1]] = _other_type(at(stack, path), chance)
    return Mutation(kind, path, changed)


def change_value(stack: dict[str, Any], chance: random.Random) -> Mutation:
    """Makes one change that keeps the structure: a number, a misspelt name, a removed key, an item twice. May be harmless."""
    changed = copy.deepcopy(stack)
    spots = [path for path in paths(stack) if not FREE_FORM & set(path)]
    kind = chance.choice(["other number", "misspelt name", "key removed", "item twice"])
    fitting = {
        "other number": lambda value: isinstance(value, int) and not isinstance(value, bool),
        "misspelt name": lambda value: isinstance(value, str) and value != "",
        "key removed": lambda value: True,
        "item twice": lambda value: isinstance(value, list) and value != [],
    }[kind]
    path = chance.choice([path for path in spots if fitting(at(stack, path))])
    parent, value = at(changed, path[:-1]), at(stack, path)
    if kind == "key removed":
        del parent[path[-1]]
    elif kind == "item twice":
        parent[path[-1]] = [*value, value[0]]
    elif kind == "other number":
        parent[path[-1]] = chance.choice([-1, 0, 1, value + 1, value * 2, value * 7, 10**9])
    else:
        parent[path[-1]] = _misspelt(value, chance)
    return Mutation(kind, path, changed)


def at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _misspelt(word: str, chance: random.Random) -> str:
    place = chance.randrange(len(word) + 1)
    return word[:place] + chance.choice("qxz") + word[place:]


def _other_type(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool):
        return chance.choice(["yes", 7, [True]])
    if isinstance(value, int | float):
        return chance.choice(["many", [value], {"value": value}])
    if isinstance(value, str):
        return chance.choice([[value], {"value": value}, True])
    if isinstance(value, list):
        return chance.choice([{"first": 1}, 5, True])
    return chance.choice([[], 5, "text"])
