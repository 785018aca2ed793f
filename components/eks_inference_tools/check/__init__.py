"""Rules about recorded graphs, and the report of everything that was judged."""
