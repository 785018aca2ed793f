"""The plugin: Pulumi runs ``python -m eks_inference`` for a package with ``PulumiPlugin.yaml`` (``pulumi.run.plugin``)."""

from eks_inference.plugin import serve

serve()
