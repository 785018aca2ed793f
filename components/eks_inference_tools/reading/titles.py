"""Titles of what this command adds to a comparison. Apart from the rest, so that whoever only posts a report loads no library."""

FACTS = "Clusters, nodes, models"
FINDINGS = "Findings of check"
