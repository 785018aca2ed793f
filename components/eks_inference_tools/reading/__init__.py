"""What a recorded graph and a cluster hold, read once for check, verify and simulate."""
