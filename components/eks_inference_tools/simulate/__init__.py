"""Runs a stack on a real control plane with simulated nodes."""
