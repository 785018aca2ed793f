"""The Pulumi program: one platform, read from the stack's configuration."""

import pulumi

from eks_inference import InferencePlatform

platform = InferencePlatform.from_config()

for name, value in platform.outputs.items():
    pulumi.export(name, value)
