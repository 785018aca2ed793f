"""What a user decides about support for NVIDIA GPUs."""

from pydantic import Field

from eks_inference.spec import ResourceName, Spec


class NvidiaSpec(Spec):
    """The NVIDIA device plugin. Driver and container runtime are in the AL2023 image of EKS."""


class DcgmExporterSpec(Spec):
    """NVIDIA's DCGM exporter: use, memory, power, temperature and errors of GPUs for Prometheus, from every node with some."""

    namespace: ResourceName = Field(default="dcgm-exporter", description="Namespace of the exporter; made here.")
