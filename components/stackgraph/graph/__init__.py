"""The recorded graph as a document, and how to read it."""
