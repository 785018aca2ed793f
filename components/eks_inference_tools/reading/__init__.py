"""Reads EKS facts from recorded graphs and from API servers, for check, verify and simulate."""
