"""The budget of a stack, and changes that leave it. Pure."""

import math
from collections.abc import Iterator

from eks_inference_tools.cost.estimate import Estimate
from eks_inference_tools.cost.words import per_month
from eks_inference_tools.reading.clusters import PLATFORM
from stackgraph.diff.domain import Danger
from stackgraph.graph.document import Graph


def budget_of(graph: Graph) -> float | None:
    """USD a month of all stacks of a graph; None without one."""
    found = [resource.inputs.get("budgetUsdPerMonth") for resource in graph.of_type(PLATFORM)]
    known = [float(one) for one in found if isinstance(one, int | float) and not isinstance(one, bool)]
    return sum(known) if known else None


def leaves_budget(before: Graph, after: Graph, old: Estimate, new: Estimate) -> Iterator[Danger]:
    """Yields a danger where a stack beyond its budget costs more than before, or where its budget was higher."""
    budget, cost, earlier = budget_of(after), new.totals[1].usd_per_month, budget_of(before)
    if budget is not None and cost > budget and (cost > old.totals[1].usd_per_month or (earlier or math.inf) > budget):
        said = f"the stack costs {per_month(cost)} a month as deployed; its budget is {per_month(budget)}"
        yield Danger("over-budget", said, effects=("budget",))
