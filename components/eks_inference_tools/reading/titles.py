"""Titles of what this command adds to a comparison. Apart from the rest, so that whoever only posts a report loads no library."""

from stackgraph.diff.titles import Titles

COST = "cost"

TITLES = Titles(
    facts="Clusters, nodes, models",
    findings="Findings of check",
    measures=(COST,),
    measures_note="Costs are those of two fresh creations, by list prices.",
)
