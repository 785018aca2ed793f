"""Who decides where pods go: second schedulers, the Neuron extension, new nodes."""
