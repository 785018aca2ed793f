"""The commands of eks-inference, a module each."""
