"""Where a model fits: every instance type, engine, split and quantization, by price; and a stack file from one of them."""
