"""Compares a deployed stack, read with kubectl, with its recorded graph."""
