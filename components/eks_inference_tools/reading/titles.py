"""Titles of what this command adds to a comparison. Apart from the rest, so that whoever only posts a report loads no library."""

from stackgraph.diff.titles import Titles

COST = "cost"
TIME = "first answer"
UPDATE = "pulumi up"
"""Of a stack without servers."""

TITLES = Titles(
    facts="Clusters, nodes, models",
    findings="Findings of check",
    measures=(COST, TIME, UPDATE),
    measures_note="Cost and time compare two fresh creations, by list prices and typical times. Nobody measured either.",
)
