"""What a recorded stack costs."""
