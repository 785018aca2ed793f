"""Records what a Pulumi Python program registers, without CLI, plugin, credential or network; shows and compares it."""
