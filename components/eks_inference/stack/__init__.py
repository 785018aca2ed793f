"""A whole stack as data: the contents of a stack file, how it is read, and its verdict from the rules. Pure."""
