"""Drivers that offer devices for claims (dynamic resource allocation)."""
