"""The command eks-inference: every look at a stack that needs more than its program."""

COMMAND = "eks-inference"
