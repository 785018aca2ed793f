"""The base class of every spec and the scalar types that several domains share.

A spec is plain data that decides the *shape* of a resource graph. It never holds an Output, a secret or a resource. Values known
only during a deployment enter a component through a handle (``ExistingVpc``, ``ExistingCluster``, ``SecretRef`` ...).
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field

from eks_inference.faults import Fault


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class _FrozenModels(type(BaseModel)):
    """Tells type checkers that specs are frozen, so that a subclass may narrow the type of an inherited field."""


class Spec(BaseModel, metaclass=_FrozenModels):
    """Frozen, and strict about unknown keys: a typo is an error with a key path, not a silently ignored setting."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


_DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

ResourceName = Annotated[str, Field(pattern=_DNS_LABEL, max_length=40, description="Lower-case letters, digits and hyphens.")]
"""A name that is valid as an EKS cluster name, a Kubernetes DNS label and a prefix of AWS names."""

Quantity = Annotated[
    str, Field(pattern=r"^\d+(\.\d+)?(m|[kMGT]i?)?$", description="A Kubernetes quantity: '30', '500m', '110G', '20Gi'.")
]

ZoneId = Annotated[
    str, Field(pattern=r"^[a-z]{3,5}\d-az[1-7]$", description="Id of an availability zone, e.g. usw2-az4; not us-west-2a.")
]
"""An id means the same zone in every account; a name such as us-west-2a does not."""

Arn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:", description="An Amazon Resource Name.")]

RULE_ID = r"^[A-Z][A-Z0-9]{1,4}\d{3}$"
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
