"""Spec of a pool's machine image: one that EKS publishes, or a custom one."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from eks_inference.late import Late
from eks_inference.spec import Form, Spec, stated


class ReleaseAmi(Spec):
    """An AL2023 image that EKS publishes, in the variant for the accelerator of the pool's instance types."""

    kind: Literal["release"] = "release"
    release_version: str | None = Field(
        default=None,
        pattern=r"^1\.\d\d\.\d+-\d{8}$",
        description="EKS AMI release, e.g. 1.35.6-20260714; it decides the Neuron or NVIDIA driver. Default: the catalog's pin.",
    )


ImageId = Annotated[Late, Form(r"ami-[0-9a-f]{8,17}", "the id of an image, such as ami-0123456789abcdef0")]


class ImageIdAmi(Spec):
    """A custom image, built from the AL2023 EKS recipe. It must contain nodeadm."""

    kind: Literal["image_id"] = Field(default="image_id", json_schema_extra=stated)
    id: ImageId = Field(description="Image id in the stack's region.")


class SsmParameterAmi(Spec):
    """A custom image whose id is in an SSM parameter of your account, read at each deployment.

    Parameters that AWS publishes (``/aws/service/…``) cannot be read this way; use ``{kind: release}`` for their images.
    """

    kind: Literal["ssm_parameter"] = Field(default="ssm_parameter", json_schema_extra=stated)
    # Source: Systems Manager API, PutParameter (Name); user guide, "Creating Parameter Store parameters": names that fail.
    name: str = Field(
        pattern=r"^([A-Za-z0-9_.-]+|(/[A-Za-z0-9_.-]+){1,15}|aws/.*)$",
        max_length=1011,
        description="Parameter name; a path begins with a slash and has up to 15 levels. Not under /aws/.",
    )

    @model_validator(mode="after")
    def _own_parameter(self) -> Self:
        if re.match(r"aws|ssm|/(aws|ssm)/", self.name, re.IGNORECASE):
            raise ValueError(
                f"given: {self.name}; names that begin with aws or ssm, and parameters under /aws/, belong to AWS: "
                "use {kind: release}"
            )
        return self


def _refuse_al2(value: Any) -> Any:
    """Refuses Amazon Linux 2. Sources: awslabs/amazon-eks-ami#2545; Neuron release notes."""
    texts = value.values() if isinstance(value, dict) else [value]
    if any(isinstance(text, str) and re.match(r"AL2_|.*amazon-linux-2(?!023)", text) for text in texts):
        fault = (
            f"given: {value!r}; Amazon Linux 2 is refused: EKS has published no AL2 image since 26 November 2025, 1.32 was the "
            "last Kubernetes version with one, and the Neuron runtime dropped it in SDK 2.20. Use {kind: release}, which is "
            "AL2023 with the driver of the pool's accelerator"
        )
        raise PydanticCustomError("NEU016", "{fault}", {"fault": fault})
    return value


ManagedAmi = Annotated[
    Annotated[ReleaseAmi | ImageIdAmi | SsmParameterAmi, Field(discriminator="kind")], BeforeValidator(_refuse_al2)
]
KarpenterAmi = Annotated[Annotated[ReleaseAmi | ImageIdAmi, Field(discriminator="kind")], BeforeValidator(_refuse_al2)]
