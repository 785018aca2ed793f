"""Edits recorded graphs at random, and applies a diff to its base, which gives the head if the diff is complete."""

import copy
import json
import random
from collections.abc import Mapping
from typing import Any

from stackgraph.diff import differences
from stackgraph.diff.differences import ABSENT, Path, PropertyChange, normal, opened
from stackgraph.diff.graphs import StackDiff, inputs_of
from stackgraph.diff.moves import Pairing, pairing
from stackgraph.graph.document import STACK_TYPE, Graph, Resource, read_graph
from stackgraph.graph.values import mapped


def meaning(graph: Graph) -> dict[str, Any]:
    """Returns everything that a diff reports about a graph, in a form that is equal for equivalent graphs."""
    return {r.urn: _meaning(r, normal(inputs_of(r)), r.options) for r in graph.resources} | {
        "outputs": normal(opened(graph.outputs))
    }


def applied(diff: StackDiff) -> dict[str, Any]:
    """Returns the meaning of the base after the changes of the diff."""
    assert diff.base is not None
    both = [(change.before, change.after) for change in diff.changes if change.before and change.after]
    names = pairing(diff.base, diff.head).names if diff.head else {}
    pairs = Pairing({after.urn: before.urn for before, after in both}, names)
    found: dict[str, Any] = {}
    for change in diff.changes:
        before, after = change.before, change.after
        if after is None:
            continue
        if before is None:
            found[after.urn] = _meaning(after, normal(inputs_of(after)), after.options)
            continue
        inputs = _changed(pairs.translated(inputs_of(before)), (*change.properties, *change.ignored))
        options = {key: mapped(value, pairs.urn) for key, value in before.options.items() if key != "aliases"}
        waits = after if change.dependencies else _translated(before, pairs)
        new = Resource(after.urn, after.type, after.name, after.parent, waits.custom, waits.remote, waits.provider)
        new = Resource(**{**vars(new), "dependencies": waits.dependencies, "property_dependencies": waits.property_dependencies})
        found[after.urn] = _meaning(new, normal(inputs), _changed(options, change.options))
    return found | {"outputs": normal(_changed(pairs.translated(opened(diff.base.outputs)), diff.outputs))}


def _meaning(resource: Resource, inputs: Any, options: Mapping[str, Any]) -> Any:
    kept = {key: value for key, value in options.items() if key != "aliases"}
    waits = {key: sorted(urns) for key, urns in resource.property_dependencies.items() if urns}
    return (
        resource.type,
        resource.name,
        resource.parent,
        resource.custom,
        resource.remote,
        resource.provider,
        inputs,
        normal(kept),
        sorted(resource.dependencies),
        waits,
    )


def _translated(resource: Resource, pairs: Pairing) -> Resource:
    document = resource.document()
    document["provider"] = pairs.urn(resource.provider)
    document["dependencies"] = [pairs.urn(urn) for urn in resource.dependencies]
    document["propertyDependencies"] = {
        key: [pairs.urn(urn) for urn in urns] for key, urns in resource.property_dependencies.items()
    }
    return read_graph({"schema": 1, "project": "", "stack": "", "resources": [document]}, "").resources[0]


def _changed(value: Any, changes: tuple[PropertyChange, ...]) -> Any:
    value = copy.deepcopy(value)
    for change in changes:
        value = _with(value, change.path, change.after)
    return value


def _with(value: Any, path: Path, after: Any) -> Any:
    if not path:
        return after
    step, rest = path[0], path[1:]
    if isinstance(step, differences.Key):
        items = list(value) if isinstance(value, list) else []
        keys = [differences._key(item, step.by) for item in items]
        if step not in keys:
            return [*items, after]
        place = keys.index(step)
        new = _with(items[place], rest, after)
        return [*items[:place], *([] if new is ABSENT else [new]), *items[place + 1 :]]
    if isinstance(step, int):
        return [*value[:step], _with(value[step], rest, after), *value[step + 1 :]]
    table = type(value)(value) if isinstance(value, dict) else {}
    new = _with(table.get(step), rest, after)
    if new is ABSENT:
        table.pop(step, None)
    else:
        table[step] = new
    return table


# -- edits -----------------------------------------------------------------------------------------------------------------------


def edited(graph: Graph, chance: random.Random, edits: int) -> Graph:
    """Returns the graph after some edits that a changed program could cause."""
    document = json.loads(json.dumps(graph.document(), sort_keys=True))
    for _ in range(edits):
        edit = chance.choice((_other_value, _other_value, _less, _more, _shuffled, _gone, _new, _renamed, _waits, _option))
        edit(document, chance)
    document["resources"].sort(key=lambda item: item["urn"])
    return read_graph(document, "edited")


def _resource(document: Any, chance: random.Random) -> Any:
    return chance.choice([item for item in document["resources"] if item["type"] != STACK_TYPE])


def _spots(value: Any, wanted: type | tuple[type, ...], found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        if isinstance(item, wanted):
            found.append((value, step))
        _spots(item, wanted, found)
    return found


def _other_value(document: Any, chance: random.Random) -> None:
    spots = _spots(_resource(document, chance)["inputs"], (str, int, bool), [])
    if spots:
        holder, step = chance.choice(spots)
        holder[step] = chance.choice(["other", 7, True, "2Gi", "", {"more": 1}, ["a", "b"], f"{holder[step]}-changed"])


def _less(document: Any, chance: random.Random) -> None:
    spots = _spots(_resource(document, chance)["inputs"], object, [])
    if spots:
        holder, step = chance.choice(spots)
        del holder[step]


def _more(document: Any, chance: random.Random) -> None:
    spots = _spots(_resource(document, chance)["inputs"], (dict, list), [])
    if spots:
        holder, step = chance.choice(spots)
        if isinstance(holder[step], dict):
            holder[step][chance.choice(["added", "name", "limits"])] = chance.choice(["1Gi", 1, None, [], {"x": "y"}])
        else:
            holder[step].insert(
                chance.randrange(len(holder[step]) + 1), chance.choice(["added", {"name": "added"}, {"key": "k"}])
            )


def _shuffled(document: Any, chance: random.Random) -> None:
    spots = _spots(_resource(document, chance)["inputs"], list, [])
    if spots:
        holder, step = chance.choice(spots)
        chance.shuffle(holder[step])


def _gone(document: Any, chance: random.Random) -> None:
    gone = _resource(document, chance)
    document["resources"] = [item for item in document["resources"] if item["urn"] != gone["urn"]]


def _new(document: Any, chance: random.Random) -> None:
    new = copy.deepcopy(_resource(document, chance))
    new["name"] += f"-more-{chance.randrange(10**6)}"
    new["urn"] = new["urn"].rpartition("::")[0] + f"::{new['name']}"
    document["resources"].append(new)


def _renamed(document: Any, chance: random.Random) -> None:
    """Renames a resource, with an alias and in everything that refers to it."""
    resource = _resource(document, chance)
    old_urn, old_name = resource["urn"], resource["name"]
    name = f"{old_name}-renamed"
    text = json.dumps(document, ensure_ascii=False)
    urn = f"{old_urn.rpartition('::')[0]}::{name}"
    if text.count(f'"name": "{old_name}"') != 1 or f'"{urn}"' in text:
        return
    text = text.replace(f'"{old_urn}"', f'"{urn}"').replace(f"<{old_name}.", f"<{name}.")
    document.update(json.loads(text))
    for item in document["resources"]:
        if item["urn"] == urn:
            item["name"] = name
            item["options"].setdefault("aliases", []).append({"name": old_name})


def _waits(document: Any, chance: random.Random) -> None:
    resource, other = _resource(document, chance), _resource(document, chance)
    waits = resource["dependencies"]
    if other["urn"] in waits:
        waits.remove(other["urn"])
    else:
        waits.append(other["urn"])


def _option(document: Any, chance: random.Random) -> None:
    options = _resource(document, chance)["options"]
    options.update(chance.choice([{"protect": True}, {"retainOnDelete": True}, {"ignoreChanges": ["tags", "metadata.labels"]}]))
