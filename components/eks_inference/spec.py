"""The base of every spec and the few scalar types that several domains share.

A spec is plain data that decides the *shape* of a resource graph. It never holds an Output, a secret or a resource; what is
only known while deploying enters a component through a handle (``ExistingVpc``, ``ExistingCluster``, ``SecretRef`` ...).
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Spec(BaseModel):
    """Frozen, and strict about unknown keys: a typo is an error with its key path, not a setting silently ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


ResourceName = Annotated[
    str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40, description="Lower-case letters, digits and hyphens.")
]
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
