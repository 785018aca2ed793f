"""What a stack may cost (COST…): its budget beside its prices."""

from collections.abc import Iterator
from dataclasses import replace

from eks_inference.rules import Judgement, not_judged, rule
from eks_inference_tools.cost.budget import budget_of
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.cost.words import per_month
from eks_inference_tools.reading.clusters import PLATFORM
from eks_inference_tools.reading.graph_facts import GraphFacts

_PATH = ("budget_usd_per_month",)


@rule(
    "COST001",
    "A stack costs at most its budget.",
    fix="take fewer nodes or smaller types (`plan` lists them by price), give your own prices (key prices), or raise the budget",
    source="list prices of the catalog, or the stack's own; 730 hours a month, as AWS counts them (AWS Pricing Calculator)",
)
def stays_within_its_budget(facts: GraphFacts) -> Iterator[Judgement]:
    if (budget := budget_of(facts.graph)) is None:
        return
    urn = facts.graph.of_type(PLATFORM)[0].urn
    found = estimated(facts.graph)
    _, deployed, most = found.totals
    beyond = [total.usd_per_month > budget for total in (deployed, most)]
    first, last = (per_month(total.usd_per_month) for total in (deployed, most))
    working = (f"{first} a month as deployed, {last} at most; the budget is {per_month(budget)}",)
    if any(beyond):
        cost, when = (deployed, "as deployed") if beyond[0] else (most, "with all nodes that may start")
        yield Judgement(
            holds=False,
            path=_PATH,
            working=working,
            message=f"the stack costs {per_month(cost.usd_per_month)} a month {when}",
            given=per_month(budget),
            # Autoscalers do not stay at their most.
            severity="error" if beyond[0] else "warning",
            resource=urn,
        )
    elif most.at_least:
        unpriced = (*found.missing(), *(uncounted.shown for uncounted in found.uncounted))
        what, fix = "whether the stack stays within its budget", "give its price in the key prices"
        yield replace(not_judged(what, "the stack", _PATH, why=unpriced[0], fix=fix), resource=urn)
    else:
        yield Judgement(holds=True, path=_PATH, working=working, resource=urn)
