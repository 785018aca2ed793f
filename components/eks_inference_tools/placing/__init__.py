"""Works out the nodes that a graph's pools start, and the pods on them. Pure."""
