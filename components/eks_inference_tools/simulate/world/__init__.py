"""What the simulation puts into the control plane: objects, definitions, nodes, sizes of charts."""
