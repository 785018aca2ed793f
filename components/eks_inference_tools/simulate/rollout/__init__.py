"""Create, update and delete in Pulumi's order with Pulumi's awaits."""
