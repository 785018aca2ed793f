"""Rules that judge model servers of every kind."""
