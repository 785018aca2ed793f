"""A bad day: requests come at a rate while nodes go, on a real control plane."""
