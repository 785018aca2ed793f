"""The first flight of a stack: from nothing to its load test in rungs, under a cap, and back to nothing. docs/first-flight.md."""
