"""The controller of LeaderWorkerSets."""
