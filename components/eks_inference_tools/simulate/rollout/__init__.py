"""Creates, updates and deletes a stack in the order and with the awaits of Pulumi."""
