"""The bases of components and handles: arguments of a wrong type are faults, before anything is registered."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    ForwardRef,
    Literal,
    Protocol,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)
from weakref import WeakKeyDictionary

import pulumi
from pulumi.runtime import get_root_resource
from pydantic import TypeAdapter, ValidationError

from eks_inference.faults import Fault, SpecError, did_you_mean
from eks_inference.place.placement import Placement
from eks_inference.place.wiring import Home, home_of, joined, strangers
from eks_inference.rules import Rule, refuse
from eks_inference.specs.base import Spec, one_of


def rendered(render: Callable[[Any], str], document: Any) -> pulumi.Input[str]:
    """Returns the text of a document: as an Output where it holds one, else plain. ``render`` sees no Outputs."""
    return pulumi.Output.from_input(document).apply(render) if _holds_output(document) else render(document)


def carried(text: str, by: Sequence[pulumi.Resource]) -> pulumi.Output[str]:
    """Returns a text that a preview knows as an Output: what uses it comes after these resources and goes before them."""
    return pulumi.Output.all(*(resource.urn for resource in by)).apply(lambda _: text)


def _holds_output(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_output, value.values()))
    return any(map(_holds_output, value)) if isinstance(value, list | tuple) else isinstance(value, pulumi.Output)


class Component(pulumi.ComponentResource):
    """A component that compares its arguments with the annotations of its constructor, and with each other (``wiring``).

    Raises ``SpecError`` with every fault, before anything is registered. A subclass may have any constructor: what it passes to
    ours is compared as well.
    """

    home: Home
    """The cluster, network and region of its arguments."""
    judges_parts: ClassVar[bool] = False
    """Whether it told what rules say of the components inside it."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        arguments = _compared(cls.__init__, given, named)
        made = super().__new__(cls)
        made.home = joined(map(home_of, arguments.values()))
        made._claim(arguments.get("name"), arguments.get("opts"))
        return made

    def _claim(self, name: Any, opts: pulumi.ResourceOptions | None) -> None:
        """Raises ``SpecError`` when another component has the same URN: name, type and types of parents.

        Pulumi would say so later, of an object inside, and without a line of the program.
        """
        parent = opts.parent if opts else None
        self._lineage: tuple[Any, ...] = (*getattr(parent, "_lineage", (parent,)), type(self))
        if name is None or (root := get_root_resource()) is None:
            return
        ours = _components.setdefault(root, {})
        # A constructor that raises registers nothing.
        if getattr(ours.get((name, self._lineage)), "_name", None):
            message = f"another {type(self).__name__} of the program has this name"
            hint = "give one of them another name, or build each in a program of its own: Pulumi's URN holds no names of parents"
            raise SpecError([Fault((), message, given=name, hint=hint)])
        ours[name, self._lineage] = self

    def _judge(self, name: str, rules: Iterable[Rule[Any]], subject: object, silenced: Mapping[str, str]) -> None:
        """Raises ``SpecError`` with every error of the rules, and warns of the rest."""
        told = refuse(rules, subject, silenced)
        if not any(getattr(one, "judges_parts", False) for one in self._lineage):
            for text in told:
                pulumi.log.warn(f"{name}: {text}")

    if not TYPE_CHECKING:  # type checkers read the constructor itself

        def __init_subclass__(cls, **options: Any) -> None:
            super().__init_subclass__(**options)
            if isinstance(constructor := vars(cls).get("__init__"), types.FunctionType):
                cls.__init__ = _Constructor(constructor)


_components: WeakKeyDictionary[pulumi.Resource, dict[tuple[Any, ...], Component]] = WeakKeyDictionary()
"""The components of each program, by name and lineage. A program is known by its stack resource."""


@dataclass(frozen=True)
class _Constructor:
    """A constructor that compares its arguments when a subclass calls it.

    ``Component.__new__`` does so for the class that is made: a frame around its constructor would become the place of the
    resource in the engine.
    """

    function: Callable[..., None]

    def __get__(self, made: Any, owner: type | None = None) -> Callable[..., None]:
        if made is None:
            return self.function
        constructor = self.function.__get__(made)
        return constructor if type(made).__init__ is self.function else partial(self._called, made)

    def _called(self, made: Component, *given: Any, **named: Any) -> None:
        made.home = joined(map(home_of, _compared(self.function, given, named).values()))
        self.function(made, *given, **named)


class Handle:
    """The base of handles, which are dataclasses: compares their arguments with the annotations and with each other.

    Raises ``SpecError`` with every fault.
    """

    def __new__(cls, *given: Any, **named: Any) -> Self:
        if given or named:  # a copy is made without
            _compared(cls.__init__, given, named)
        return super().__new__(cls)


Method = TypeVar("Method", bound=Callable[..., Any])


def comparing(method: Method) -> Method:
    """A method that compares its arguments like a constructor. Raises ``SpecError`` with every fault of them."""

    @wraps(method)
    def compared(*given: Any, **named: Any) -> Any:
        _compared(method, given[1:], named)
        return method(*given, **named)

    return cast(Method, compared)


def _compared(constructor: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the arguments of a constructor by name. Raises ``SpecError`` with every fault of them."""
    parameters = _signature(constructor).parameters
    arguments = dict(zip(parameters, given, strict=False)) | dict(named)
    faults = list(_argument_faults(constructor, given, named))
    wrong = {fault.path[0] for fault in faults if fault.path}
    faults += strangers({name: value for name, value in arguments.items() if name not in wrong})
    if faults:
        raise SpecError(faults)
    return arguments


@cache
def _signature(constructor: Any) -> inspect.Signature:
    _, *parameters = inspect.signature(constructor).parameters.values()
    names = getattr(inspect.unwrap(constructor), "__globals__", {})
    return inspect.Signature([parameter.replace(annotation=_evaluated(parameter.annotation, names)) for parameter in parameters])


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    """An annotation that may be a text. One that only type checkers can read stays a text, which every value meets."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except Exception:
        return annotation


def _argument_faults(constructor: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Iterator[Fault]:
    parameters = _signature(constructor).parameters
    if any(parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) for parameter in parameters.values()):
        return
    in_order = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    if len(given) > len(in_order):
        others = ", ".join(f"{name}=…" for name in parameters if name not in in_order)
        shown = ", ".join(map(_shown, given[len(in_order) :]))
        yield Fault((), f"only {', '.join(in_order)} come by position", given=shown, hint=f"pass by name: {others}")
    arguments = dict(zip(in_order, given, strict=False)) | dict(named)
    for name, value in arguments.items():
        if name in parameters:
            # "x: int = None" says what "x: int | None = None" says.
            if value is not None or parameters[name].default is not None:
                yield from _type_faults((name,), value, parameters[name].annotation)
        else:
            hint = did_you_mean(name, parameters, cutoff=0.5)
            yield Fault((name,), "unknown argument", given=_shown(value), allowed=", ".join(parameters), hint=hint)
    for name, one in parameters.items():
        if name not in arguments and one.default is one.empty:
            yield Fault((name,), "this argument is required and missing", allowed=_named(one.annotation))


def _type_faults(path: tuple[str | int, ...], value: Any, expected: Any) -> Iterator[Fault]:
    if isinstance(value, Mapping) and (spec := _given_as_mapping(expected)) is not None:
        yield from _spec_faults(spec, value)
        return
    if _fits(value, expected):
        return
    if isinstance(origin := get_origin(expected), type) and isinstance(value, origin) and not isinstance(value, str):
        for key, one, inner in _inside(value, expected):
            yield from _type_faults((*path, key), one, inner)
        return
    choices = get_args(expected) if get_origin(expected) in (Union, types.UnionType) else (expected,)
    if fault := next((fault for one in choices if get_origin(one) is Annotated and (fault := _form_fault(value, one))), ""):
        yield Fault(path, fault)
        return
    members = _members(expected)
    specs = [member for member in members if isinstance(member, type) and issubclass(member, Spec)]
    hint = ""
    if Placement in members and callable(getattr(value, "placement", None)):
        hint = "a placement is one instance type of a pool: pass pool.placement(), or pool.placement('<instance type>')"
    elif isinstance(value, Mapping) and specs:
        hint = f"pass {specs[0].__name__}(…) with these fields"
    elif lacking := [one for each in members if _is_protocol(each) for one in _lacking(value, each)]:
        told = (inspect.getdoc(members[0]) or "").replace("``", "").split("\n\n")[0]
        hint = f"it lacks {', '.join(dict.fromkeys(lacking))}; {_named(expected)}: {told}"
    given = value if get_origin(expected) is Literal and isinstance(value, str) else _shown(value)
    yield Fault(path, "the argument has a wrong type", given=given, allowed=_named(expected), hint=hint)


def _given_as_mapping(expected: Any) -> Any:
    """The spec, or the union of specs, that may be a mapping (``Given``). None for other annotations."""
    if get_origin(expected) is not Union or get_origin(get_args(expected)[-1]) is not Mapping:
        return None
    spec, *_ = get_args(expected)
    return spec if all(isinstance(member, type) and issubclass(member, Spec) for member in _members(spec)) else None


def _spec_faults(spec: Any, fields: Mapping[str, Any]) -> Sequence[Fault]:
    """The faults of a mapping, with the paths of its own keys: those of rules about a component have the same."""
    try:
        one_of(spec, fields)
    except SpecError as error:
        return error.faults
    return ()


def _fits(value: Any, expected: Any) -> bool:
    """Whether a value has the type of an annotation. A Protocol is met by what has its members; what is no type is met by all."""
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if expected is None or expected is types.NoneType:
        return value is None
    if isinstance(expected, ForwardRef):  # in pulumi.Input
        return isinstance(value, pulumi.Output)
    if origin is Annotated:
        return _fits(value, arguments[0]) and not _form_fault(value, expected)
    if origin is Literal:
        return value in arguments
    if _is_protocol(expected):
        return not isinstance(value, pulumi.Output) and not any(_lacking(value, expected))
    if isinstance(origin, type):
        # A text is a sequence of texts, but nobody means its letters.
        return (
            isinstance(value, origin)
            and not isinstance(value, str)
            and all(_fits(one, inner) for _, one, inner in _inside(value, expected))
        )
    return isinstance(value, expected) if isinstance(expected, type) else True


def _form_fault(value: Any, expected: Any) -> str:
    """What pydantic says of a text in the form that an annotation asks for. Empty: nothing."""
    try:
        TypeAdapter(expected).validate_python(value)
    except ValidationError as error:
        return error.errors()[0]["msg"].removeprefix("Value error, ") if isinstance(value, str) else ""
    return ""


def _inside(value: Any, expected: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """What a collection holds: key or position, value, and the annotation of the value."""
    arguments = get_args(expected)
    if isinstance(value, Mapping) and len(arguments) == 2:
        yield from ((str(key), one, arguments[1]) for key, one in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str) and arguments:
        yield from ((position, one, arguments[0]) for position, one in enumerate(value))


def _is_protocol(expected: Any) -> bool:
    return isinstance(expected, type) and getattr(expected, "_is_protocol", False) and expected is not Protocol


@cache
def _protocol_members(expected: type) -> tuple[str, ...]:
    bases = [one for one in expected.__mro__ if getattr(one, "_is_protocol", False)]
    return tuple(
        sorted({name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ())) if name[0] != "_"})
    )


def _lacking(value: Any, expected: type) -> Iterator[str]:
    return (name for name in _protocol_members(expected) if not hasattr(value, name))


def _members(expected: Any) -> tuple[Any, ...]:
    """The types that an annotation allows."""
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Annotated:
        return _members(arguments[0])
    return tuple(member for each in arguments for member in _members(each)) if origin in (Union, types.UnionType) else (expected,)


def _named(expected: Any) -> str:
    """The name of a type, in words."""
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin in (Union, types.UnionType, Annotated):
        return ", ".join(dict.fromkeys(_named(member) for member in _members(expected) if member is not types.NoneType))
    if isinstance(expected, ForwardRef):
        return pulumi.Output.__name__
    if origin is Mapping and arguments[-1] is Any:
        return "a mapping"
    name = getattr(expected, "__name__", str(expected))
    return f"{name} of {_named(arguments[-1])}" if arguments else name


def _shown(value: Any) -> str:
    """A value without what it holds, which may be secret: its type, and its name in Pulumi where it is a resource."""
    name = getattr(value, "_name", "") if isinstance(value, pulumi.Resource) else ""
    return f"{type(value).__name__} '{name}'" if name else "None" if value is None else type(value).__name__
