"""Serve LLMs on Amazon EKS with AWS Neuron chips or NVIDIA GPUs: Pulumi components.

A program imports everything from here. ``__init__.pyi`` lists the names; each is loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
