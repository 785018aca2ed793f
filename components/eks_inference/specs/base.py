"""The base class of every spec and the scalar types that several domains share.

A spec is plain data that decides the *shape* of a resource graph. It never holds a secret or a resource. Values known only during
a deployment enter a component through a handle (``ExistingVpc``, ``ExistingCluster``, ``SecretRef`` ...), or as a ``Late`` text.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, cast, dataclass_transform

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    WithJsonSchema,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from eks_inference.faults import Fault, SpecError
from eks_inference.specs.late import Late
from eks_inference.specs.validation import RULE_ID, faults_of

S = TypeVar("S")
Given = S | Mapping[str, Any]
"""What a component takes as its spec: ``Given[VllmServerSpec]`` is the spec, or a mapping with the keys of a stack file."""


def stated(schema: dict[str, Any]) -> None:
    """Marks a key that tells the class of an object (``json_schema_extra``): a stack file has to say it, Python has the class."""
    del schema["default"]


def _require_stated(schema: dict[str, Any], model: type[BaseModel]) -> None:
    told = [name for name, field in model.model_fields.items() if field.json_schema_extra is stated]
    if told:
        required = {*told, *schema.get("required", ())}
        schema["required"] = [name for name in schema["properties"] if name in required]


def _as_inputs(value: Any) -> Any:
    """A dumped value with lists for tuples. Outputs stay as they are: a dump as JSON refuses them."""
    if isinstance(value, Mapping):
        return {key: _as_inputs(one) for key, one in value.items()}
    return [_as_inputs(one) for one in value] if isinstance(value, list | tuple) else value


if TYPE_CHECKING:

    @dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
    class _FrozenModels(type(BaseModel)):
        """Tells type checkers that specs are frozen, so that a subclass may narrow the type of an inherited field."""

    class _Model(BaseModel, metaclass=_FrozenModels): ...
else:
    _Model = BaseModel


class Spec(_Model):
    """Frozen, and strict about unknown keys: a typo is an error with a key path, not a silently ignored setting.

    The constructor, ``of``, ``model_validate``, ``model_validate_json`` and ``model_copy`` raise ``SpecError`` with every fault.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, json_schema_extra=_require_stated)

    if not TYPE_CHECKING:  # type checkers read a class that is called as its fields

        def __init__(self, /, *given: Any, **fields: Any) -> None:
            if given:
                hint = f"name each field, or write {type(self).__name__}.of(mapping)"
                raise SpecError([Fault((), f"{type(self).__name__} takes its fields by name", hint=hint)])
            self._made(fields, lambda data: super(Spec, self).__init__(**data) or self)

        # As in pydantic's own classes with a constructor: specs inside of others are made without a call of it.
        __init__.__pydantic_base_init__ = True

    @classmethod
    def _made(cls, data: Any, validate: Callable[[Any], Any]) -> Self:
        """Returns the spec that a validator of pydantic makes, or raises its errors as faults of ours.

        The local variable cls tells readers of a traceback what was made.
        """
        given = tuple(scalars(data))
        # Arithmetic on a number that no machine counts with would overflow.
        large = [(path, one) for path, one in given if isinstance(one, int | float) and abs(one) > _LARGEST]
        if large:
            message, allowed = "this number is too large", f"at most {_LARGEST}"
            raise SpecError([Fault(path, message, given=f"{one!r:.40}", allowed=allowed) for path, one in large])
        with faults_of(cls, data):
            made = validate(data)
        # Python and pydantic count true as 1.
        counted = [(path, one) for path, one in given if isinstance(one, bool) and type(_at(made, path)) in (int, float)]
        if counted:
            raise SpecError([Fault(path, "should be a number", given=json.dumps(one)) for path, one in counted])
        return made

    @classmethod
    def of(cls, given: "Given[Self]") -> Self:
        """Returns the spec of what a component got: the spec itself, or the one that a mapping describes."""
        return given if isinstance(given, cls) else cls.model_validate(given)

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        return cls._made(obj, partial(super().model_validate, **options))

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        try:
            data = json.loads(json_data)
        except (ValueError, TypeError, RecursionError) as error:
            raise SpecError([Fault((), f"is not JSON: {error}", allowed="a mapping, or its JSON")]) from None
        validate = super().model_validate_json
        # Not as Python, where a strict validation takes no list for a tuple.
        return cls._made(data, lambda data: validate(json.dumps(data), **options))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy with other values, which are validated like those of a new spec."""
        return type(self)(**{**{name: getattr(self, name) for name in self.model_fields_set}, **(update or {})})

    @property
    def without_effect(self) -> frozenset[str]:
        """Fields whose defaults mean nothing beside the others, so that nobody may write them."""
        return frozenset()

    def inputs(self) -> dict[str, Any]:
        """Returns the spec as inputs of a component: a preview shows what changes in it."""
        return _as_inputs(self.model_dump(exclude_none=True))


_LARGEST = 2**63 - 1


def scalars(data: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yields what is no collection inside a value, with the path of keys and positions that leads to it."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), data)]
    while waiting:
        path, here = waiting.pop()
        if isinstance(here, Mapping | list | tuple):
            waiting += [((*path, key), one) for key, one in _inside(here).items()]
        else:
            yield path, here


def _inside(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else dict(enumerate(value) if isinstance(value, list | tuple) else ())


def _at(made: Any, path: Iterable[str | int]) -> Any:
    for step in path:
        made = getattr(made, str(step), None) if isinstance(made, Spec) else _inside(made).get(step)
    return made


@cache
def _of_kinds(union: Any) -> type[Spec]:
    return create_model("OfKinds", __base__=Spec, spec=(union, ...))


def one_of(union: Any, given: Given[S]) -> S:
    """Returns the spec of what a component got whose spec is of several kinds; see ``Spec.of``."""
    if not isinstance(given, Mapping):
        return given
    if isinstance(union, type) and issubclass(union, Spec):
        # Inside of another model it would be validated without what follows from its other keys.
        return cast(S, union.of(given))
    try:
        return getattr(_of_kinds(union).model_validate({"spec": given}), "spec")  # noqa: B009
    except SpecError as error:
        raise SpecError(replace(fault, path=fault.path[1:]) for fault in error.faults) from None


@dataclass(frozen=True)
class Form:
    """The form of a text, as a pattern for the schema and in words for people: a message with the pattern alone says little."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^({self.pattern})$"}

    def _checked(self, text: Late) -> Late:
        if isinstance(text, str) and not re.fullmatch(self.pattern, text):
            raise ValueError(f"{text!r} is not {self.words}")
        return text


_DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

ResourceName = Annotated[str, Field(pattern=_DNS_LABEL, max_length=40, description="Lower-case letters, digits and hyphens.")]
"""A name that is valid as an EKS cluster name, a Kubernetes DNS label and a prefix of AWS names."""

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
ExistingName = Annotated[
    str,
    Form(
        rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*",
        "a name of Kubernetes: up to 253 lower-case letters, digits, hyphens and dots",
    ),
]
"""The name of an object that is there already (Kubernetes, "Object Names and IDs", DNS subdomain names)."""
ExistingNamespace = Annotated[str, Form(_LABEL, "a namespace: up to 63 lower-case letters, digits and hyphens")]


def namespace_fault(name: str) -> str:
    """Returns what speaks against a new namespace of this name, or an empty text.

    Source: Kubernetes, "Namespaces": the initial namespaces, and the prefix kube-, which is reserved for the system.
    """
    if name != "default" and not name.startswith("kube-"):
        return ""
    return (
        f"the namespace {name} belongs to Kubernetes: the stack would take it over, its NetworkPolicies would cut off what runs "
        "there, and its destruction would try to delete it; choose a name of your own"
    )


def _own_namespace(name: str) -> str:
    if fault := namespace_fault(name):
        raise ValueError(fault)
    return name


Namespace = Annotated[ResourceName, AfterValidator(_own_namespace)]
"""A namespace that a component creates."""

_CPU = r"[1-9]\d*(\.\d+)?|0\.\d*[1-9]\d*|[1-9]\d*m"


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Cpu = Annotated[
    str,
    Form(_CPU, "an amount of CPU above none, such as '30', '0.5' or '500m'"),
    BeforeValidator(_number_as_text),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^({_CPU})$"}, {"type": "number", "exclusiveMinimum": 0}]}),
]
"""As in Kubernetes, a number is taken, too."""

Memory = Annotated[
    str,
    Form(
        r"([1-9]\d*(\.\d+)?|0\.\d*[1-9]\d*)[MGT]i?",
        "an amount of memory with its unit, such as '512Mi' or '110G'; Kubernetes reads a bare number as bytes",
    ),
]

Quantity = Annotated[
    str, Field(pattern=r"^\d+(\.\d+)?(m|k|[MGT]|[KMGT]i)?$", description="A Kubernetes quantity: '30', '500m', '110G', '20Gi'.")
]

LISTED = "x-listed"
"""The key of a JSON schema with the kind of values that ``stack/schema.py`` offers there."""


def listed(kind: str) -> dict[str, JsonValue]:
    """What to add to the schema of a field, so that editors offer values of the catalog."""
    return {LISTED: kind}


def follows(schema: dict[str, Any]) -> None:
    """Marks a key whose value follows from others when it is absent; the schema has no default for it."""
    del schema["default"]


ZoneId = Annotated[
    str,
    Form(
        r"[a-z]{3,5}\d-az[1-7]",
        "the id of an availability zone, such as usw2-az4, as `aws ec2 describe-availability-zones` tells",
    ),
    Field(description="Id of an availability zone, e.g. usw2-az4; not us-west-2a.", json_schema_extra=listed("Zone")),
]
"""An id means the same zone in every account; a name such as us-west-2a does not."""

KmsKeyArn = Annotated[
    Late,
    Form(
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/(mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})",
        "the ARN of a KMS key (arn:aws:kms:<region>:<account>:key/<id>), which an alias does not replace",
    ),
]
PolicyArn = Annotated[
    Late,
    Form(
        r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+",
        "the ARN of an IAM policy (arn:aws:iam::<account>:policy/<path and name>)",
    ),
]

Variable = Annotated[
    str, Form(r"[-._a-zA-Z][-._a-zA-Z0-9]*", "the name of an environment variable: letters, digits and . _ -, no digit first")
]
"""The strict form: Kubernetes takes more since 1.34, but shells and Helm charts do not."""

MOST_PODS = 1000
"""Most pods of one server: far above what a model server has, and low enough to place them one by one when they are judged."""

VolumeGib = Annotated[int, Field(le=65536)]
"""Most that a gp3 volume can have (EBS user guide, "General Purpose SSD volumes")."""

RuleId = Annotated[str, Field(pattern=RULE_ID, description="Id of a rule, e.g. NEU008.")]

Reason = Annotated[str, Field(pattern=r"\S+\s+\S+", description="Why, in words: the report shows nothing else.")]


MOST_ENTRIES = 200
"""The most pools, servers and tags: each makes resources, or stands in all of them. A preview of 200 servers takes 15 seconds."""


def repeated(values: Iterable[str]) -> list[str]:
    """Returns the values that occur more than once, sorted."""
    return sorted(value for value, count in Counter(values).items() if count > 1)


def distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    """Validates a field whose values must differ."""
    if twice := repeated(values):
        raise ValueError(f"given more than once: {', '.join(twice)}")
    return values


def dns_label_faults(name: str, message: str, *, max_length: int) -> list[Fault]:
    """Returns a fault with this message when a component's name is not valid in the names of its Kubernetes objects.

    A DNS label has 63 characters; ``max_length`` is what its other parts leave.
    """
    if re.fullmatch(_DNS_LABEL, name) and len(name) <= max_length:
        return []
    return [Fault((), message, given=name, allowed=f"a DNS label of at most {max_length} characters that begins with a letter")]
