"""The offline preview: record what a Pulumi program registers, without CLI, plugin, credential or network, and draw it.

Imports nothing of the rest of the library: it works for any Pulumi Python program.
"""
