"""The values of a stack's spec, each with its origin; and their text as a stack file, which reads back as the same stack."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eks_inference.specs.base import Spec
from eks_inference.stack.nested import Resolved
from eks_inference.stack.spec import StackSpec
from stackgraph.recorder.yaml_file import block, flow

Origin = Literal["file", "follows", "schema"]
"""The stack file says it; it follows from what the file says and from the catalog; it is the default of the schema."""

Path = tuple[str, ...]

_INDENT = "  "
_DEFAULT = "default"
_LONGEST = 100
"""Characters of a mapping on one line."""


@dataclass(frozen=True)
class Value:
    """One value in the types of JSON. ``why`` says what an origin ``follows`` means."""

    path: Path
    value: Any
    origin: Origin
    why: str = ""


@dataclass(frozen=True)
class Section:
    """An object of the stack. ``why`` is set where the whole object follows."""

    path: Path
    entries: Mapping[str, "Value | Section"]
    why: str = ""
    said: bool = False
    """Whether the stack file has the object."""

    def values(self) -> Iterator[Value]:
        """Yields the values inside."""
        for entry in self.entries.values():
            yield from [entry] if isinstance(entry, Value) else entry.values()

    def without(self, origin: Origin) -> "Section":
        """The object without values of an origin, and without objects that had no others."""
        kept: dict[str, Value | Section] = {}
        for key, one in self.entries.items():
            if isinstance(one, Section):
                inner = one.without(origin)
                if inner.entries or one.why or one.said:
                    kept[key] = inner
            elif one.origin != origin:
                kept[key] = one
        return Section(self.path, kept, self.why, self.said)


def values_of(spec: StackSpec, given: Mapping[str, Any]) -> Section:
    """Returns every value of a stack. ``given`` is the stack object as its file has it.

    A key without a value is left out where that is its default.
    """
    return _Walk({resolved.path: resolved for resolved in spec.resolved}).section(spec, given, ())


@dataclass(frozen=True)
class _Walk:
    resolved: Mapping[Path, Resolved]

    def section(self, spec: Spec, given: Any, path: Path) -> Section:
        said = given if isinstance(given, Mapping) else {}
        entries: dict[str, Value | Section] = {}
        dumped = spec.model_dump()
        for key, column in type(spec).model_fields.items():
            if key in spec.without_effect:
                continue
            here, value = (*path, key), getattr(spec, key)
            if column.exclude or (key == "shape" and said.get("config")):
                # What a file says beside its effect: the former name of a server, a file that became a shape.
                if said.get(key) is not None:
                    entries[key] = Value(here, said[key], "file")
            elif isinstance(value, Spec):
                entries[key] = self.section(value, said.get(key), here)
            elif isinstance(value, Mapping) and value and all(isinstance(one, Spec) for one in value.values()):
                inside = said.get(key)
                entries[key] = Section(
                    here,
                    {
                        str(name): self.section(
                            one, inside.get(name) if isinstance(inside, Mapping) else None, (*here, str(name))
                        )
                        for name, one in value.items()
                    },
                    self._why(here),
                    key in said,
                )
            elif value is not None or (column.get_default(call_default_factory=False) is not None and key in said):
                # A text of the file stays as it is: a null in the values of a chart means something.
                entries[key] = Value(here, said[key], "file") if key in said else self._open(here, _plain(dumped.get(key, value)))
        # As the file has them, then what it lacks.
        order = [*(key for key in said if key in entries), *(key for key in entries if key not in said)]
        return Section(path, {key: entries[key] for key in order}, self._why(path), isinstance(given, Mapping))

    def _why(self, path: Path) -> str:
        return self.resolved[path].why if path in self.resolved else ""

    def _open(self, path: Path, value: Any) -> Value:
        """A value that the file lacks."""
        for length in range(len(path), 0, -1):
            found = self.resolved.get(path[:length])
            inside = found.value if found else None
            for key in path[length:]:
                inside = inside.get(key) if isinstance(inside, Mapping) else None
            if found and inside is not None:
                return Value(path, value, "follows", found.why)
        return Value(path, value, "schema")


def _plain(value: Any) -> Any:
    """A dumped value in the types of JSON, without keys that have no value inside of lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items() if one is not None}
    return [_plain(one) for one in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def stack_file(name: str, stack: Section, stack_key: str, others: Mapping[str, Any], secrets: Sequence[str]) -> str:
    """Returns the text. ``others`` are the other keys of the configuration, ``secrets`` those that nothing shows."""
    lines = [
        f"# Stack {name} with what its file leaves open. A value without a comment stands in the file; `{_DEFAULT}` is that",
        "# of the schema; any other comment says what decides. A key that is not here has its default, or no value.",
        "config:",
        *(_INDENT + line for key, value in others.items() for line in _written(key, value, "")),
        *(f"{_INDENT}# {key}: a secret, which is not shown" for key in secrets),
        f"{_INDENT}{stack_key}:",
        *(_INDENT * 2 + line for line in _section(stack)),
    ]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    for key, one in section.entries.items():
        if isinstance(one, Value):
            yield from _written(key, one.value, _comment(_told(one, section.why)))
        elif one.entries:
            yield f"{_key(key)}:" + _comment(one.why)
            yield from (_INDENT + line for line in _section(one))
        else:
            yield f"{_key(key)}: {{}}" + _comment(one.why or ("" if one.said else _DEFAULT))


def _written(key: str, value: Any, comment: str) -> Iterator[str]:
    """A key with its value: on one line, or a long mapping on several."""
    if isinstance(value, Mapping) and len(flow(value)) > _LONGEST:
        yield f"{_key(key)}:{comment}"
        for inner, one in value.items():
            yield from (_INDENT + line for line in _written(inner, one, ""))
    else:
        yield f"{_key(key)}: {flow(value)}{comment}"


def _told(value: Value, above: str) -> str:
    """What the comment of a value says, unless the object that it is in says it."""
    if value.origin == "schema":
        return _DEFAULT
    return value.why if value.why != above else ""


def _comment(text: str) -> str:
    return f"  # {text}" if text else ""


def _key(key: str) -> str:
    text = block({key: None}).strip()
    return flow(key) if text.startswith("? ") else text.removesuffix(": null")
