"""A recorded graph in the words of a test. What is not there is an ``AssertionError`` that says what is."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stackgraph.graph.document import STACK_TYPE, FunctionCall, Graph, Resource
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import SECRET, Sealed

if TYPE_CHECKING:
    import pulumi


class Absent(KeyError):
    """A key that is not there. Its text names the keys that are."""

    def __str__(self) -> str:
        return str(self.args[0])


class Table(dict[str, Any]):
    """A mapping that names its keys, and the nearest one, when a test asks for another. ``has`` begins that sentence."""

    def __init__(self, values: Mapping[str, Any], has: str) -> None:
        super().__init__(values)
        self.has = has

    def __missing__(self, key: str) -> Any:
        near = get_close_matches(str(key), list(self), n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise Absent(f"no {key!r}: {self.has} {', '.join(map(repr, self)) or 'nothing'}{hint}")


def tables(value: Any, has: str = "there is") -> Any:
    """The value with a ``Table`` for each mapping inside."""
    if isinstance(value, Mapping):
        return Table({key: tables(item, f"at {key!r} {has}") for key, item in value.items()}, has)
    return [tables(item, has) for item in value] if isinstance(value, list | tuple) else value


_MOST_SHOWN = 20


@dataclass(frozen=True)
class RecordedStack:
    """What a program registers. ``graph`` is the recorded document, which views and diffs take.

    A type is a token (``aws:s3/bucket:Bucket``) or the class of an SDK (``aws.s3.Bucket``).
    """

    graph: Graph

    def one(self, type_: "str | type[pulumi.Resource] | None" = None, name: str | None = None) -> "RecordedResource":
        """The only resource of a type, with a logical name, or both. Raises ``AssertionError`` unless there is exactly one."""
        __tracebackhide__ = True
        found = self.all(type_, name)
        if len(found) == 1:
            return found[0]
        wanted = " ".join(filter(None, (type_ and _token(type_), name and repr(name)))) or "resource"
        if found:
            raise AssertionError(f"{len(found)} of {wanted}, and a test asked for one:\n{_listed(found)}")
        raise AssertionError(f"no {wanted} in stack {self.graph.stack}\n{self._nearest(type_ and _token(type_), name)}")

    def all(self, type_: "str | type[pulumi.Resource] | None" = None, name: str | None = None) -> "Sequence[RecordedResource]":
        """All resources of a type, with a logical name, or both; sorted by URN. Without either, all resources of the program."""
        token = type_ and _token(type_)
        return [one for one in self if (not token or one.type == token) and (name is None or one.name == name)]

    def urn(self, urn: str) -> "RecordedResource":
        """The resource with a URN. Raises ``AssertionError`` if there is none."""
        __tracebackhide__ = True
        if urn not in self.graph.by_urn:
            raise AssertionError(f"no {urn}{_did_you_mean(urn, self.graph.by_urn)}")
        return RecordedResource(self, self.graph.by_urn[urn])

    @cached_property
    def outputs(self) -> Mapping[str, Any]:
        """What the program exports. A name that it does not export raises a ``KeyError`` with those that it does."""
        return Table(tables(self.graph.outputs), f"stack {self.graph.stack} exports")

    @property
    def warnings(self) -> Sequence[str]:
        """What the program logged as warnings and errors."""
        return self.graph.warnings

    @property
    def functions(self) -> Sequence[FunctionCall]:
        """The data sources and stack references that the program asked, and whether an answer was given, computed or made up."""
        return self.graph.functions

    @cached_property
    def structure(self) -> Structure:
        return Structure(self.graph)

    def __iter__(self) -> "Iterator[RecordedResource]":
        """All resources but the stack itself and default providers."""
        shown = (one for one in self.graph.resources if one.type != STACK_TYPE and not one.is_default_provider)
        return (RecordedResource(self, resource) for resource in shown)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<RecordedStack {self.graph.stack}: {len(self)} resources>"

    def _nearest(self, token: str | None, name: str | None) -> str:
        of_type = [one for one in self if one.type == token]
        if token and of_type:
            return f"there are{_did_you_mean(name or '', [resource.name for resource in of_type])}:\n{_listed(of_type)}"
        named = [one for one in self if name is not None and one.name == name]
        if named:
            return f"what has this name:\n{_listed(named)}"
        if not len(self):
            return "it has no resources"
        types = Counter(one.type for one in self)
        near = _did_you_mean(token, types) if token else _did_you_mean(name or "", [one.name for one in self])
        lines = [f"  {count} × {type_}" for type_, count in sorted(types.items())]
        return f"there are{near}:\n" + _cut(lines)


@dataclass(frozen=True, eq=False, repr=False)
class RecordedResource:
    """One resource of a recorded stack. Two are equal when their URNs are."""

    stack: RecordedStack
    resource: Resource

    @property
    def urn(self) -> str:
        return self.resource.urn

    @property
    def type(self) -> str:
        return self.resource.type

    @property
    def name(self) -> str:
        """The logical name: the first argument of the constructor."""
        return self.resource.name

    @property
    def source(self) -> str:
        """``file:line`` of the call that made the resource."""
        return self.resource.source

    @cached_property
    def inputs(self) -> Mapping[str, Any]:
        """What the program passes, under the names of the provider (``scalingConfig``).

        ``[secret]`` stands for a secret, ``<name.property>`` for an output of another resource (``output``). A key that is not
        there raises a ``KeyError`` with those that are.
        """
        return tables(self.resource.inputs, f"{self} has")

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """Options that differ from their default: ``protect``, ``ignoreChanges``, ``retainOnDelete`` …"""
        return tables(self.resource.options, f"{self} has options")

    @property
    def secrets(self) -> frozenset[str]:
        """The paths of inputs that are secret: ``password``, ``environment.variables.TOKEN``, ``users.0.key``."""
        return frozenset(_secrets(self.resource.inputs))

    def output(self, *path: str) -> str:
        """The placeholder of an output that only a deployment knows, as it stands in inputs of others: ``<net-vpc.id>``."""
        return f"<{'.'.join((self.name, *path))}>"

    @property
    def parent(self) -> "RecordedResource | None":
        """The component around the resource; None for one at the top of the program."""
        urn = self.stack.structure.parent.get(self.urn, "")
        return self.stack.urn(urn) if urn else None

    @property
    def children(self) -> "Sequence[RecordedResource]":
        """The resources directly inside."""
        return [RecordedResource(self.stack, child) for child in self.stack.structure.children.get(self.urn, ())]

    @property
    def descendants(self) -> "Sequence[RecordedResource]":
        """The resources inside, at any depth."""
        inside = sorted(self.stack.structure.inside(self.urn), key=lambda resource: resource.urn)
        return [RecordedResource(self.stack, resource) for resource in inside]

    @property
    def provider(self) -> "RecordedResource | None":
        """The provider that the program passed; None for a default provider or a component."""
        provider = self.stack.graph.by_urn.get(self.resource.provider)
        return None if provider is None or provider.is_default_provider else RecordedResource(self.stack, provider)

    @property
    def dependencies(self) -> "Sequence[RecordedResource]":
        """What the resource depends on directly: through ``depends_on``, the outputs that it uses, and its provider."""
        return [self.stack.urn(urn) for urn in sorted(self.stack.structure.needs.get(self.urn, ()))]

    def depends_on(self, other: "RecordedResource") -> bool:
        """Whether a deployment creates the other resource first and deletes it last: directly, or through resources between."""
        waiting, seen = [self.urn], {self.urn}
        while waiting:
            needed = self.stack.structure.needs.get(waiting.pop(), frozenset()) - seen
            if other.urn in needed:
                return True
            seen |= needed
            waiting += needed
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedResource) and self.urn == other.urn

    def __hash__(self) -> int:
        return hash(self.urn)

    def __repr__(self) -> str:
        return f"{self.type} {self.name!r}"


def _token(type_: "str | type[pulumi.Resource]") -> str:
    """The token of a type. Raises ``TypeError`` for a class that has none, such as a component's own."""
    if isinstance(type_, str):
        return type_
    # The SDK's code generator puts it there (pulumi.type_token).
    found = getattr(type_, "pulumi_type", None)
    if not isinstance(found, str):
        raise TypeError(f"{type_.__name__} has no type token; pass the text that its constructor registers")
    return found


def _secrets(value: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from _secrets(item, (*path, str(position)))
    elif isinstance(value, Sealed) or value == SECRET:
        yield ".".join(path)


def _listed(resources: "Sequence[RecordedResource]") -> str:
    return _cut([f"  {resource}" + (f"  {resource.source}" if resource.source else "") for resource in resources])


def _cut(lines: Sequence[str]) -> str:
    left_out = len(lines) - _MOST_SHOWN
    return "\n".join([*lines[:_MOST_SHOWN], *([f"  … {left_out} more"] if left_out > 0 else [])])


def _did_you_mean(given: str, there: "Mapping[str, Any] | Sequence[str] | Counter[str]") -> str:
    near = get_close_matches(given, list(there), n=1, cutoff=0.4)
    return f" (did you mean {near[0]!r}?)" if near else ""
