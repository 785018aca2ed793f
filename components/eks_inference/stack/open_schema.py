"""The JSON schema of a stack object without the demands of keys that follow from others (``defaults.py``). Pure."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, cast

from eks_inference.serving.kind import Kind
from eks_inference.serving.kinds import KINDS, USUAL
from eks_inference.spec import Spec
from eks_inference.stack.defaults import POOLS, USUAL_POOL
from eks_inference.stack.open_keys import open_keys

_ABSENT = "Absent: follows from the pools, the model and the catalog (docs/open-keys.md)."


def opened(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of a stack whose open keys are not filled yet."""
    found = copy.deepcopy(dict(schema))
    definitions = found["$defs"]
    for kind in KINDS.values():
        for spec, key in dict.fromkeys(_following(kind)):
            _not_demanded(definitions[spec.__name__], key)
            about = definitions[spec.__name__]["properties"][key]
            about["description"] = f"{about.get('description', '')} {_ABSENT}".strip()
    for spec, usual in ((POOLS[USUAL_POOL], USUAL_POOL), (KINDS[USUAL].spec, USUAL)):
        _not_demanded(definitions[spec.__name__], "kind")
        definitions[spec.__name__]["properties"]["kind"]["default"] = usual
    return found


def _following(kind: Kind) -> Iterator[tuple[type[Spec], str]]:
    """Yields the required keys that follow, with the specs that have them: all but the model where a kind can be searched for."""
    inner = [name for name, one in kind.spec.model_fields.items() if _is_spec(one.annotation)]
    given: Mapping[str, Any] = {name: {} for name in inner}
    for path in (*open_keys(kind.spec, {}), *open_keys(kind.spec, given)) if kind.sketched else ():
        if path != ("model",):
            yield _spec_at(kind.spec, path), path[-1]
    placed = _spec_at(kind.spec, (*kind.spec.placed_under, "pool"))
    if "pool" in placed.model_fields:
        yield placed, "pool"


def _spec_at(spec: type[Spec], path: tuple[str, ...]) -> type[Spec]:
    for key in path[:-1]:
        spec = cast(type[Spec], spec.model_fields[key].annotation)
    return spec


def _is_spec(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Spec)


def _not_demanded(definition: dict[str, Any], key: str) -> None:
    definition["required"] = [one for one in definition.get("required", ()) if one != key]
    if not definition["required"]:
        del definition["required"]
