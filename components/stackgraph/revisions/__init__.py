"""Records and compares the stacks of two revisions of a repository."""
