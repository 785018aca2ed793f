"""Output of commands: destinations, progress, and the table of ``plan``."""
