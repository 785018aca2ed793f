"""What several domains say to Kubernetes in the same way: quantities, secrets, Pod Security, NetworkPolicies."""
