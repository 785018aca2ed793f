"""Views of a recorded graph: tree, page, manifests, diagrams. They work for any Pulumi Python program."""
