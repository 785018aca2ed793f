"""The Neuron device plugin and scheduler extension."""
