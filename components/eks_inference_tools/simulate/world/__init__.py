"""Works out what the simulation puts into the control plane: objects, definitions, nodes, pods of charts."""
