"""What a user decides about the KubeRay operator."""

from typing import Any

from pydantic import Field

from eks_inference.spec import ResourceName, Spec


class KubeRayOperatorSpec(Spec):
    """The KubeRay operator. One a cluster serves every Ray workload."""

    namespace: ResourceName = Field(default="kuberay-operator", description="Namespace of the operator; made here.")
    values: dict[str, Any] = Field(default_factory=dict, description="Values of the kuberay-operator chart, merged last.")
