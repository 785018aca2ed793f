"""A whole stack as data: what a stack file may hold, how it is read, and what the rules say of it. Pure."""
