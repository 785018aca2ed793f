"""A deployed stack compared with its recorded graph, read with kubectl."""
