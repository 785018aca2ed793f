"""Settings of NVIDIA GPU support."""

from eks_inference.spec import Spec


class NvidiaSpec(Spec):
    """The NVIDIA device plugin. The EKS AL2023 image contains driver and container runtime."""
