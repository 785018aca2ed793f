"""Kubernetes helpers that several domains share: quantities, secrets, Pod Security, NetworkPolicies, workloads."""
