"""The recorded graph: its document, and helpers to read it."""
