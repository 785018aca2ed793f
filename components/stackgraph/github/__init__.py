"""The comment that a workflow keeps on a pull request. Standard library only: it runs where nothing is installed."""
