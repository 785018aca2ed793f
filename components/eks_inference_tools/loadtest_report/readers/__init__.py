"""One module a tool: how its result file is known, and what of it goes where in a ``Run``."""
