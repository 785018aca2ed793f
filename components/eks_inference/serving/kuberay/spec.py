"""What a user decides about the KubeRay operator."""

from typing import Any

from pydantic import Field

from eks_inference.specs.base import Namespace, Spec


class KubeRayOperatorSpec(Spec):
    """The KubeRay operator. One per cluster serves every Ray workload."""

    namespace: Namespace = Field(default="kuberay-operator", description="Namespace to create for the operator.")
    values: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of the kuberay-operator chart, beside ours; only what is below image or resources replaces ours.",
    )
