"""What a user decides about support for NVIDIA GPUs."""

from eks_inference.spec import Spec


class NvidiaSpec(Spec):
    """The NVIDIA device plugin. Driver and container runtime are in the AL2023 image of EKS."""
