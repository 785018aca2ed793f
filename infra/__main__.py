"""The Pulumi program: builds one platform from the stack's configuration and exports its outputs."""

import pulumi

from eks_inference import InferencePlatform

platform = InferencePlatform.from_config()

for name, value in platform.outputs.items():
    pulumi.export(name, value)
