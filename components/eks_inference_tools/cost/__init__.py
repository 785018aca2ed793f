"""Says what a recorded graph costs by list prices: at its least, as deployed, and at its most. Pure."""
