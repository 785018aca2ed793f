"""The commands of ``eks-inference``. Each is a module that implements ``stackgraph.commands.Command``."""
