"""Two revisions of a repository, recorded and compared."""
