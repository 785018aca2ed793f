"""Generates few stacks that together set every option of the stack file, all accepted by the library.

``schema_walk.py`` derives the demands from the schema. Starting from seeds (the shipped stacks and a few more), one key changes
at a time, and a change stays if the library still accepts the stack. ``covering.yaml`` has the seeds, and values for keys whose
type does not define them. A new key is covered automatically if its type, its pattern or its name defines its values.
"""

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from eks_inference.catalog import zones
from eks_inference.catalog.engines import engines
from eks_inference.catalog.instances import instance_types
from eks_inference.faults import SpecError
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import StackSpec
from golden import GOLDEN, ROOT, assert_golden
from schema_walk import LONGEST, SET, Demand, Place, Schema
from variants import merge

MOST_STACKS = 82
REASON = "a stack of the covering set, which nobody deploys"
_TABLE = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
_KEPT = GOLDEN / "covering_set.jsonl"
_TRIES = 12
"""Candidates tried for one key of one stack."""


@dataclass(frozen=True)
class Example:
    """One generated stack."""

    name: str
    region: str
    stack: dict[str, Any]


@cache
def schema() -> Schema:
    return Schema(StackSpec.model_json_schema())


def demands() -> list[Demand]:
    """The demands of the schema, without keys that no engine of the kind takes yet."""
    return [demand for demand in schema().demands() if str(demand).partition(":")[0] not in _TABLE["nowhere"]]


@cache
def seeds() -> tuple[Example, ...]:
    """Returns the initial stacks: shipped ones, some with changed sections."""
    return tuple(_seed(name, row) for name, row in _TABLE["seeds"].items())


@cache
def covering_set() -> tuple[Example, ...]:
    """Returns the stacks. Together they meet every demand of the schema that can be met; rules against them are silenced.

    They are kept in ``tests/golden``, because the search takes 11 seconds; tests check that they still cover, and are taken.
    With ``UPDATE_GOLDEN=1`` those that the library still takes stay as they are, because bounds of the Kubernetes API are derived
    from what they set, and others are added for what they do not cover.
    """
    kept = tuple(Example(**json.loads(line)) for line in _KEPT.read_text().splitlines())
    if os.environ.get("UPDATE_GOLDEN"):
        kept = _Cover([example for example in kept if _taken(example.stack, example.region) == example.stack]).built()
        assert_golden(_KEPT.name, "\n".join(json.dumps(asdict(example)) for example in kept))
    return kept


def alone(demand: Demand) -> Iterator[tuple[Example, Example]]:
    """Yields seeds that do not meet a demand, each with a version that one change makes meet it."""
    walk = schema()
    for seed in sorted(seeds(), key=lambda seed: -walk.depth(seed.stack, demand.path)):
        if demand in walk.met(seed.stack):
            continue
        for stack in itertools.islice(_changes(seed.stack, seed.region, demand), _TRIES):
            if demand in walk.met(stack) and (taken := _taken(stack, seed.region)):
                yield seed, replace(seed, stack=taken)


class _Cover:
    """The kept stacks, and others for what they do not cover. Other tests count on where a kept stack comes close to a bound."""

    def __init__(self, kept: Sequence[Example]) -> None:
        self.fixed = len(kept)
        names = {example.name for example in kept}
        self.examples = [*kept, *(seed for seed in seeds() if seed.name not in names)]
        self.met = [schema().met(example.stack) for example in self.examples]
        self.counts = Counter(itertools.chain.from_iterable(self.met))
        self.turn = 0

    def built(self) -> tuple[Example, ...]:
        # Deep keys first, because they bring their sections along.
        for demand in sorted(demands(), key=lambda demand: -len(demand.path)):
            if not self.counts[demand]:
                self._answer(demand)
        return tuple(self.examples)

    def _answer(self, demand: Demand) -> None:
        """Changes one of the stacks that are not kept to meet a demand, or adds a changed seed.

        Stacks take turns. A change to which no rule objects is preferred.
        """
        walk, examples = schema(), self.examples
        new = len(examples) - self.fixed
        places = [self.fixed + (self.turn + offset) % new for offset in range(new)]
        places.sort(key=lambda index: -walk.depth(examples[index].stack, demand.path))
        tries = [(index, examples[index]) for index in places]
        if len(examples) < MOST_STACKS:
            tries += [(len(examples), seed) for seed in seeds()]
        second = None
        patience = _TRIES
        for index, example in tries:
            for stack in itertools.islice(_changes(example.stack, example.region, demand), _TRIES):
                met = walk.met(stack)
                lost = self.met[index] - met if index < len(examples) else ()
                if demand not in met or any(self.counts[demand] < 2 for demand in lost):
                    continue
                taken = _taken(stack, example.region)
                if taken == stack:
                    self._keep(index, replace(example, stack=stack), met)
                    return
                if taken and not second:
                    second = index, replace(example, stack=taken), walk.met(taken)
                patience -= bool(second)
            if patience < 0:
                break
        if second:
            self._keep(*second)

    def _keep(self, index: int, example: Example, met: set[Demand]) -> None:
        if index == len(self.examples):
            self.examples.append(replace(example, name=f"{example.name}-{index + 1}"))
            self.met.append(met)
        else:
            self.counts.subtract(self.met[index])
            self.examples[index], self.met[index] = example, met
        self.counts.update(met)
        self.turn = index + 1 - self.fixed


def _changes(stack: dict[str, Any], region: str, demand: Demand) -> Iterator[dict[str, Any]]:
    """Yields versions of the stack with one change that may meet a demand, valid or not."""
    return _Values(stack, region).with_(schema().root, stack, demand.path, demand.want)


def _taken(stack: dict[str, Any], region: str) -> dict[str, Any] | None:
    """Returns the stack with the rules against it silenced; ``None`` if it cannot be read."""
    text = json.dumps(stack)
    try:
        # parse_stack explains what it refuses, which takes fifty times as long.
        StackSpec.model_validate_json(text, strict=True)
        spec = parse_stack(text)
    except SpecError:
        return None
    faults = check_spec(spec, region).faults
    rules = {fault.rule: REASON for fault in faults}
    if not all(rules):
        return None
    return {**stack, "silenced": {**stack.get("silenced", {}), **rules}} if rules else stack


class _Values:
    """Generates values for places of the schema, most of them from the type alone."""

    def __init__(self, stack: dict[str, Any], region: str) -> None:
        zone_ids = [*stack.get("network", {}).get("zone_ids", ()), *zones.region_zone_ids(region)]
        pools = stack.get("pools", {})
        servers = stack.get("servers", {})
        types = [name for pool in pools.values() for name in pool.get("instance_types", ())]
        families = tuple({family for pool in pools.values() for family in pool.get("instance_families", ())})
        types += [instance_type.name for instance_type in instance_types().values() if instance_type.family in families]
        self.known = {
            "pool": list(pools),
            "server": list(servers),
            "instance_type": types,
            "engine": list(engines()),
            "zone_id": zone_ids,
            "zone_ids": [zone_ids[:1], zone_ids[:2]],
        }

    def with_(self, place: Place, value: Any, path: tuple[str, ...], want: str, name: str = "") -> Iterator[Any]:
        """Yields versions of a value that meet ``want`` at ``path``; ``value`` None means that there is none yet."""
        walk = schema()
        place = walk.resolved(place)
        if not path:
            yield from self._wanted(place, want, name)
            return
        step, *rest = path
        rest = tuple(rest)
        if step.startswith("<"):
            member = walk.members(place)[step]
            if want == SET and not rest:
                yield from self.some(member, name)
            else:
                yield from self.with_(member, value if walk.member(place, value) == step else None, rest, want, name)
        elif step == "[]":
            items = value or []
            for one in self.with_(place["items"], items[0] if items else None, rest, want, _singular(name)):
                yield [one, *items[1:]]
                yield [one, *items]
        elif step in ("*", "~"):
            inside = walk.inside_map(place)
            assert inside is not None
            entries = value or {}
            if step == "~":
                pairs = itertools.product(self.with_(inside[0], None, rest, want), self.some(inside[1], ""))
                yield from ({**entries, key: one} for key, one in pairs)
                return
            # Nothing else would refer to a further pool or server.
            new = () if entries and _is_object(inside[1]) else (key for key in self.some(inside[0], "") if key not in entries)
            within = partial(self.with_, inside[1], path=rest, want=want, name=name)
            yield from _in_turn(_put(entries, key, within(entries.get(key))) for key in (*entries, *itertools.islice(new, 1)))
        else:
            within = partial(self.with_, place["properties"][step], path=rest, want=want, name=step)
            bases = [value] if value is not None else self.some(place, name)
            yield from _in_turn(_put(base, step, within(base.get(step))) for base in bases)

    def _wanted(self, place: Place, want: str, name: str) -> Iterator[Any]:
        if want == LONGEST:
            yield from self._longest(place, name)
        elif want == SET:
            yield from (one for one in self.some(place, name) if one != place.get("default"))
        else:
            yield json.loads(want)

    def some(self, place: Place, name: str) -> Iterator[Any]:
        """Yields values for a place; objects have their required keys only."""
        place = schema().resolved(place)
        yield from _TABLE["values"].get(name, [])
        if (known := self.known.get(name)) is not None:
            yield from known
        elif members := schema().members(place):
            for member in members.values():
                yield from self.some(member, name)
        elif "const" in place:
            yield place["const"]
        elif "enum" in place:
            yield from place["enum"]
        elif "properties" in place or place.get("type") == "object":
            yield from self._objects(place, name)
        elif place.get("type") == "array":
            yield from ([one] for one in self.some(place["items"], _singular(name)))
        elif place.get("type") == "boolean":
            yield from (not place.get("default"), bool(place.get("default")))
        elif place.get("type") in ("integer", "number"):
            yield from _numbers(place)
        elif place.get("type") == "string":
            yield from (text for text in _TABLE["texts"] if _fits(place, text))
        else:
            yield {"covering": True}

    def _objects(self, place: Place, name: str) -> Iterator[dict[str, Any]]:
        if inside := schema().inside_map(place):
            yield from ({key: one} for key, one in itertools.product(self.some(inside[0], ""), self.some(inside[1], name)))
            return
        properties = place.get("properties", {})
        keys = [key for key, inner in properties.items() if key in place.get("required", ()) or "const" in inner]
        choices = [list(itertools.islice(self.some(properties[key], key), _TRIES)) for key in keys]
        if not all(choices):
            return
        # All first choices, then all second ones, and then every combination.
        most = max(map(len, choices), default=0)
        yield from (dict(zip(keys, (row[min(n, len(row) - 1)] for row in choices), strict=True)) for n in range(most or 1))
        yield from (dict(zip(keys, row, strict=True)) for row in itertools.product(*choices))

    def _longest(self, place: Place, name: str) -> Iterator[Any]:
        yield from _TABLE["longest"].get(name, [])
        if place.get("type") == "string":
            for text in self.some(place, name):
                room = place["maxLength"] - len(text)
                if text and (not room or name not in self.known):
                    yield text + "x" * room


def _in_turn(rows: Iterable[Iterator[Any]]) -> Iterator[Any]:
    """Yields the first item of each row, then the second of each."""
    for column in itertools.zip_longest(*itertools.islice(rows, _TRIES), fillvalue=_NOTHING):
        yield from (one for one in column if one is not _NOTHING)


_NOTHING = object()


def _put(entries: dict[str, Any], key: str, values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    return ({**entries, key: value} for value in values)


def _numbers(place: Place) -> Iterator[int | float]:
    """Yields numbers near the default, which are most likely to be valid, and the bounds."""
    least, most = place.get("minimum", place.get("exclusiveMinimum", 0)), place.get("maximum")
    start = place["default"] if isinstance(place.get("default"), int | float) else least
    number = int if place["type"] == "integer" else float
    for one in (start + 1, start * 2, start - 1, start / 2, least, most):
        if one not in (None, place.get("exclusiveMinimum"), place.get("default")) and least <= one <= (most or one):
            yield number(one)


def _is_object(place: Place) -> bool:
    return any("properties" in one for one in (schema().resolved(place), *schema().members(place).values()))


def _fits(place: Place, text: str) -> bool:
    length = place.get("minLength", 0) <= len(text) <= place.get("maxLength", len(text))
    return length and re.search(place.get("pattern", ""), text) is not None


def _singular(name: str) -> str:
    return name.removesuffix("s")


def _seed(name: str, row: dict[str, Any]) -> Example:
    config = yaml.safe_load((ROOT / f"stacks/Pulumi.{row['base']}.yaml").read_text())["config"]
    stack = config["eks-inference:stack"]
    merge(stack, row.get("with", {}))
    region = row.get("region", config["aws:region"])
    taken = _taken(stack, region)
    assert taken is not None, f"seed {name} is not a valid stack"
    return Example(name, region, taken)
