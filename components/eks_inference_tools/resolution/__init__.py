"""A stack with every value that its file leaves open, and where each comes from."""
