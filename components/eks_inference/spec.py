"""The base class of every spec and the scalar types that several domains share.

A spec is plain data that decides the *shape* of a resource graph. It never holds an Output, a secret or a resource. Values known
only during a deployment enter a component through a handle (``ExistingVpc``, ``ExistingCluster``, ``SecretRef`` ...).
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self, dataclass_transform

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from eks_inference.faults import Fault, SpecError
from eks_inference.validation import RULE_ID, faults_of


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class _FrozenModels(type(BaseModel)):
    """Tells type checkers that specs are frozen, so that a subclass may narrow the type of an inherited field.

    Whoever makes a spec gets faults of ours. pydantic itself makes the specs inside of others without a call of the class.
    """

    if not TYPE_CHECKING:  # type checkers read a class that is called as its fields

        def __call__(cls, *given: Any, **fields: Any) -> Any:
            if given:
                hint = "name each field: " + ", ".join(f"{name}=…" for name in cls.model_fields)
                raise SpecError([Fault((), f"{cls.__name__} takes its fields by name", given=str(len(given)), hint=hint)])
            with faults_of(cls, lambda: fields):
                return super().__call__(**fields)


class Spec(BaseModel, metaclass=_FrozenModels):
    """Frozen, and strict about unknown keys: a typo is an error with a key path, not a silently ignored setting.

    What makes a spec raises ``SpecError`` with every fault.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        with faults_of(cls, lambda: obj):
            return super().model_validate(obj, **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        with faults_of(cls, lambda: json.loads(json_data)):
            return super().model_validate_json(json_data, **options)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy with other values, which are validated like those of a new spec."""
        return type(self)(**{**{name: getattr(self, name) for name in self.model_fields_set}, **(update or {})})

    if not TYPE_CHECKING:  # type checkers know that specs are frozen

        def __setattr__(self, name: str, value: Any) -> None:
            with faults_of(type(self), lambda: {name: value}):
                super().__setattr__(name, value)


@dataclass(frozen=True)
class Form:
    """The form of a text, as a pattern for the schema and in words for people: a message with the pattern alone says little."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^({self.pattern})$"}

    def _checked(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"{text!r} is not {self.words}")
        return text


_DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

ResourceName = Annotated[str, Field(pattern=_DNS_LABEL, max_length=40, description="Lower-case letters, digits and hyphens.")]
"""A name that is valid as an EKS cluster name, a Kubernetes DNS label and a prefix of AWS names."""


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

Cpu = Annotated[
    str, Form(r"[1-9]\d*(\.\d+)?|0\.\d*[1-9]\d*|[1-9]\d*m", "an amount of CPU above none, such as '30', '0.5' or '500m'")
]
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

ZoneId = Annotated[
    str, Field(pattern=r"^[a-z]{3,5}\d-az[1-7]$", description="Id of an availability zone, e.g. usw2-az4; not us-west-2a.")
]
"""An id means the same zone in every account; a name such as us-west-2a does not."""

KmsKeyArn = Annotated[
    str,
    Form(
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/(mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})",
        "the ARN of a KMS key (arn:aws:kms:<region>:<account>:key/<id>), which an alias does not replace",
    ),
]
PolicyArn = Annotated[
    str,
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

    ``max_length`` is what the other parts of those names leave of the 63 characters of a DNS label.
    """
    if re.fullmatch(_DNS_LABEL, name) and len(name) <= max_length:
        return []
    return [Fault((), message, given=name, allowed=f"a DNS label of at most {max_length} characters that begins with a letter")]
