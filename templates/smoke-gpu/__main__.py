"""The stack that stands in the stack's file, below eks-inference:stack."""

import pulumi

from eks_inference import InferencePlatform

platform = InferencePlatform.from_config()

for name, value in platform.outputs.items():
    pulumi.export(name, value)
