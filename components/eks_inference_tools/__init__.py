"""The command ``eks-inference``: everything that examines a stack from outside its program."""

COMMAND = "eks-inference"
