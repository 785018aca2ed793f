"""The base of every spec and the few scalar types that several domains share.

A spec is plain data that decides the *shape* of a resource graph. It never holds an Output, a secret or a resource; what is
only known while deploying enters a component through a handle (``ExistingVpc``, ``ExistingCluster``, ``SecretRef`` ...).
"""

import re
from typing import Annotated, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field

from eks_inference.faults import Fault


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class _FrozenModels(type(BaseModel)):
    """Tells type checkers that specs are frozen, so that a spec may narrow the type of a field of its base."""


class Spec(BaseModel, metaclass=_FrozenModels):
    """Frozen, and strict about unknown keys: a typo is an error with its key path, not a setting silently ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


_DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

ResourceName = Annotated[str, Field(pattern=_DNS_LABEL, max_length=40, description="Lower-case letters, digits and hyphens.")]
"""A name that is legal as an EKS cluster name, a Kubernetes DNS label and a prefix of AWS names."""

KubernetesVersion = Annotated[str, Field(pattern=r"^1\.\d\d$", description="Kubernetes minor version, e.g. '1.35'.")]

Quantity = Annotated[
    str, Field(pattern=r"^\d+(\.\d+)?(m|[kMGT]i?)?$", description="A Kubernetes quantity: '30', '500m', '110G', '20Gi'.")
]

ZoneId = Annotated[
    str, Field(pattern=r"^[a-z]{3,5}\d-az[1-7]$", description="Id of an availability zone, e.g. usw2-az4; not us-west-2a.")
]
"""One zone in every account, which a name such as us-west-2a is not."""

Arn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:", description="An Amazon Resource Name.")]

RULE_ID = r"^[A-Z][A-Z0-9]{1,4}\d{3}$"
RuleId = Annotated[str, Field(pattern=RULE_ID, description="Id of a rule, e.g. NEU008.")]

Reason = Annotated[str, Field(pattern=r"\S+\s+\S+", description="Why, in words: who reads the report has only this.")]


def dns_label_faults(name: str, message: str, *, max_length: int) -> list[Fault]:
    """A fault with this message when a component's name cannot name its Kubernetes objects; none otherwise.

    ``max_length`` is what suffixes and other parts of those objects' names leave of the 63 characters of a DNS label.
    """
    if re.fullmatch(_DNS_LABEL, name) and len(name) <= max_length:
        return []
    return [Fault((), message, given=name, allowed=f"a DNS label of at most {max_length} characters that begins with a letter")]
