"""Runs a Pulumi program against a resource monitor of its own and records what the program registers."""
