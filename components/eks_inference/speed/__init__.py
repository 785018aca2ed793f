"""How fast a model is served: the time of one step of an engine, from what it moves and computes."""
