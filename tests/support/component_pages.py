"""Writes a page for each public component, from its docstring, its constructor, its spec and a program that a test runs.

``component_programs.toml`` has the programs in pieces, each with the pieces that it needs. The piece of a component has the name
of its class. ``docs/components/`` has the pages.
"""

import ast
import collections.abc
import inspect
import re
import textwrap
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ForwardRef, Literal, Union, get_args, get_origin

import eks_inference
from eks_inference.component import Component, Handle
from eks_inference.specs.base import Spec
from eks_inference.specs.validation import schema_of

FOLDER = Path(__file__).parents[2] / "docs" / "components"
PIECES: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("component_programs.toml").read_text("utf-8"))
_HANDLES = "../existing-cluster.md#"
_NAME = re.compile(r"`(\w+)`")
_MODULES = {"aws": "pulumi_aws as aws", "eks": "pulumi_eks as eks", "k8s": "pulumi_kubernetes as k8s", "pulumi": "pulumi"}


@cache
def components() -> Mapping[str, type[Component]]:
    """Every public component by the name of its class."""
    named = {name: getattr(eks_inference, name) for name in dir(eks_inference)}
    return {name: one for name, one in named.items() if isinstance(one, type) and issubclass(one, Component)}


def program(name: str) -> str:
    """A whole program around a component: its imports, the pieces that it needs, and its own."""
    needed: dict[str, None] = {}

    def add(piece: str) -> None:
        for other in PIECES[piece].get("needs", ()):
            add(other)
        needed[piece] = None

    add(name)
    body = "\n".join(PIECES[piece]["program"].strip() for piece in needed)
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    modules = "\n".join(sorted(f"import {_MODULES[one]}" for one in used & _MODULES.keys()))
    ours = ", ".join(sorted(used & set(dir(eks_inference))))
    line = f"from eks_inference import {ours}"
    if len(line) > 100:
        line = "from eks_inference import (\n" + "".join(f"    {one},\n" for one in ours.split(", ")) + ")"
    return "\n\n".join(filter(None, (modules, line, body))) + "\n"


def page(name: str) -> str:
    component = components()[name]
    parts = [
        f"# {name}\n\n{prose(component.__doc__)}",
        prose(component.__init__.__doc__),
        f"```python\n{program(name)}```",
        "## Arguments\n\n" + _table_of(component),
        *_specs(component),
    ]
    if rows := [*_attributes(component)]:
        parts.append("## Attributes\n\n" + table(("attribute", "type", ""), rows))
    return "\n\n".join(filter(None, parts)) + "\n"


def contents() -> str:
    """The page that lists the others."""
    rows = ((f"[{name}]({name}.md)", _first(one.__doc__)) for name, one in sorted(components().items()))
    return f"# Components\n\n{_INTRODUCTION}\n\n{table(('component', 'builds'), rows)}\n"


def handles() -> str:
    """What says of each thing that a team already has that it is there, with its arguments, and what handles take."""
    public = [getattr(eks_inference, name) for name in dir(eks_inference) if name.startswith("Existing")]
    taken = (eks_inference.SecretRef, eks_inference.StackSettings, eks_inference.Subnet)
    text = "\n\n".join(part for one in (*(one for one in public if issubclass(one, Handle)), *taken) for part in _handle(one))
    return re.sub(r"\]\((\w+\.md)\)", r"](components/\1)", text).replace(f"]({_HANDLES}", "](#")


def _handle(of: type[Any]) -> Iterator[str]:
    yield f"### {of.__name__}\n\n{prose(of.__doc__)}"
    # A frozen model can be hashed.
    yield _fields(schema_of(of)) if issubclass(of, Spec) else _table_of(of)  # pyright: ignore[reportArgumentType]
    for name, call in inspect.getmembers(of, inspect.ismethod):
        if name.startswith("from_") and not issubclass(of, Spec):
            yield f"#### {of.__name__}.{name}\n\n{prose(call.__doc__)}\n\n{_table_of(call)}"


def _table_of(call: Callable[..., Any]) -> str:
    return table(("argument", "type", "default"), _arguments(call))


_INTRODUCTION = """\
Each component works alone and [on what you already have](../existing-cluster.md): a handle (`Existing…`) takes the place of a
component. `InferencePlatform` builds a whole stack. The pages are made from the source, and a test runs each of their programs.
Name, spec and `opts` come by position, all others by name; a spec is an object or a mapping with the same keys.
[architecture.md](../architecture.md) has the contract of all components."""


def prose(doc: str | None) -> str:
    return inspect.cleandoc(doc or "").replace("``", "`")


def _first(doc: str | None) -> str:
    return " ".join(prose(doc).split("\n\n")[0].split())


def table(head: tuple[str, ...], rows: Any) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


# -- arguments and attributes -------------------------------------------------------------------------------------------------


def _arguments(call: Callable[..., Any]) -> Iterator[tuple[str, str, str]]:
    for parameter in inspect.signature(call, eval_str=True).parameters.values():
        known = parameter.default not in (None, ()) and "factory" not in repr(parameter.default)
        default = "required" if parameter.default is parameter.empty else f"`{parameter.default}`" if known else ""
        yield f"`{parameter.name}`", _annotation(parameter.annotation), default


def _annotation(of: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(of), get_args(of)
    if origin is Annotated:
        return _annotation(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{argument}`" for argument in arguments)
    if origin in (Union, types.UnionType):
        members = (one for one in arguments if one is not types.NoneType and get_origin(one) is not collections.abc.Awaitable)
        return " or ".join(dict.fromkeys(_annotation(member) for member in members))
    if isinstance(of, ForwardRef):
        return "`Output`"
    if origin in (collections.abc.Mapping, dict):
        return "mapping" if arguments[1] is Any else f"mapping of {_annotation(arguments[1])}"
    if origin is not None:
        return f"sequence of {_annotation(arguments[0])}" if arguments else _annotation(origin)
    named = _NAME.findall(_first(of.__doc__)) if getattr(of, "_is_protocol", False) else ()
    if linked := [_link(one) for one in named if one in dir(eks_inference)]:
        return " or ".join(linked)
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(of) or f"`{getattr(of, '__name__', of)}`"


def _link(name: str) -> str:
    return f"[{name}]({_HANDLES + name.lower() if name.startswith('Existing') else f'{name}.md'})"


def _attributes(component: type[Component]) -> Iterator[tuple[str, str, str]]:
    """Public attributes with a type, and properties; those of a class before those of its bases."""
    found: dict[str, tuple[str, str, str]] = {}
    for cls in component.__mro__:
        if not cls.__module__.startswith("eks_inference.") or cls is Component:
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                found.setdefault(node.target.attr, _attribute(node.target.attr, node.annotation, ""))
            elif isinstance(node, ast.FunctionDef) and any(ast.unparse(one) == "property" for one in node.decorator_list):
                found.setdefault(node.name, _attribute(node.name, node.returns, _first(ast.get_docstring(node))))
    yield from (row for name, row in sorted(found.items()) if not name.startswith("_"))


def _attribute(name: str, annotation: ast.expr | None, doc: str) -> tuple[str, str, str]:
    return f"`{name}`", f"`{ast.unparse(annotation)}`" if annotation else "", doc


# -- specs --------------------------------------------------------------------------------------------------------------------


def _specs_of(component: type[Component]) -> list[type[Spec]]:
    spec = inspect.signature(component.__init__, eval_str=True).parameters.get("spec")
    return [one for one in _members(spec.annotation) if isinstance(one, type) and issubclass(one, Spec)] if spec else []


def _members(of: Any) -> Iterator[Any]:
    if get_origin(of) in (Annotated, Union, types.UnionType):
        for get_arg in get_args(of):
            yield from _members(get_arg)
    else:
        yield of


@cache
def _pages_of_specs() -> Mapping[str, str]:
    """By spec, the component whose page describes it."""
    return {spec.__name__: name for name, component in sorted(components().items()) for spec in _specs_of(component)}


def _specs(component: type[Component]) -> Iterator[str]:
    """A table for each spec of a component, then for the specs inside that have no page of their own."""
    for spec in _specs_of(component):
        schema = schema_of(spec)  # pyright: ignore[reportArgumentType]  # a frozen model can be hashed
        waiting, seen = [(spec.__name__, schema)], {spec.__name__}
        while waiting:
            name, place = waiting.pop(0)
            level = "##" if place is schema else "###"
            doc = prose(place.get("description", ""))
            yield "\n\n".join(filter(None, (f"{level} {name}", doc, _fields(place))))
            for inner in re.findall(r"'#/\$defs/(\w+)'", repr(place if place is not schema else schema["properties"])):
                if inner not in seen and inner not in _pages_of_specs() and "properties" in schema["$defs"][inner]:
                    seen.add(inner)
                    waiting.append((inner, schema["$defs"][inner]))


def _fields(place: Mapping[str, Any]) -> str:
    required = place.get("required", ())
    rows = [field_row(key, value, key in required) for key, value in place.get("properties", {}).items()]
    return table(("field", "type", "default", ""), rows) if rows else ""


def field_row(name: str, place: Mapping[str, Any], required: bool) -> tuple[str, str, str, str]:
    default = place.get("default")
    shown = "required" if required else "" if default in (None, {}, [], "") else f"`{_value(default)}`"
    return f"`{name}`", _type(place), shown, place.get("description", "")


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "less than"}
_NAMES = {"string": "text", "boolean": "true or false"}


def _type(place: Mapping[str, Any]) -> str:
    """What a JSON schema allows, in words."""
    if "$ref" in place:
        name = place["$ref"].rpartition("/")[2]
        return f"[{name}]({_pages_of_specs()[name]}.md)" if name in _pages_of_specs() else f"`{name}`"
    if choices := place.get("enum", [place["const"]] if "const" in place else []):
        return ", ".join(f"`{_value(choice)}`" for choice in choices)
    if members := place.get("anyOf", place.get("oneOf", ())):
        return " or ".join(dict.fromkeys(_type(member) for member in members if member.get("type") != "null"))
    if place.get("type") == "array":
        return f"list of {_type(place.get('items', {}))}"
    if place.get("type") == "object":
        values = place.get("additionalProperties") or next(iter(place.get("patternProperties", {}).values()), {})
        return f"mapping of {_type(values)}" if isinstance(values, Mapping) and values else "mapping"
    bounds = [f"{words} {place[bound]}" for bound, words in _BOUNDS.items() if bound in place]
    kind = str(place.get("type", "any"))
    return ", ".join([_NAMES.get(kind, kind), *bounds])
