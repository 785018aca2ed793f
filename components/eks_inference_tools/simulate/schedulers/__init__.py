"""Runs a stack's second schedulers, and stands in for the Neuron scheduler extension."""
