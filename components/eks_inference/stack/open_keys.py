"""Which required keys a mapping lacks. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.spec import Spec, stated
from eks_inference.stack.nested import Path


def open_keys(spec: type[Spec], given: Mapping[str, Any], under: Path = ()) -> Iterator[Path]:
    """Yields the required keys that a mapping of this spec lacks, those of its objects too."""
    for key, column in spec.model_fields.items():
        required = column.is_required() or (column.json_schema_extra is stated and key != "kind")
        inner = column.annotation
        if key not in given:
            yield from [(*under, key)] if required else ()
        elif isinstance(inner, type) and issubclass(inner, Spec) and isinstance(given[key], Mapping):
            yield from open_keys(inner, given[key], (*under, key))
