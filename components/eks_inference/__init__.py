"""Serve LLMs on Amazon EKS with AWS Neuron chips or NVIDIA GPUs: Pulumi components.

Everything a program needs is importable from here; each name is loaded when it is first used. ``__init__.pyi`` has the list.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
