"""What the servers of a graph take of the traffic that is asked of them, and what their tokens cost. Pure."""

from collections.abc import Iterator, Sequence

from eks_inference_tools.cost.estimate import Estimate, Rate, Total
from eks_inference_tools.cost.words import total
from eks_inference_tools.reading.clusters import PLATFORM
from stackgraph.graph.document import Graph
from stackgraph.graph.values import table, text


def traffic(graph: Graph, cost: Estimate) -> Iterator[tuple[str, str]]:
    """Yields what servers take, as platforms tell it, and what output tokens cost, each with what it is about."""
    taken = {
        name: table(one) for platform in graph.of_type(PLATFORM) for name, one in table(platform.inputs.get("takes")).items()
    }
    yield from ((f"server {name}", text(one.get("says"))) for name, one in taken.items())
    rates = [one.get("tokensPerSecond") for one in taken.values()]
    known = [rate for rate in rates if isinstance(rate, int | float) and rate > 0]
    # What nobody knows of one server would make the tokens of the others too dear.
    if known and len(known) == len(rates):
        deployed, pods = cost.totals[1], [one["pods"] for one in taken.values() if "pods" in one]
        price = total(Total(Rate("", sum(known)).usd_per_million(_scaled(cost, pods) if pods else deployed), deployed.at_least))
        yield "output tokens", f"{price} a million at this traffic, " + ("with the pods that it needs" if pods else "as deployed")


def _scaled(cost: Estimate, pods: Sequence[Sequence[float]]) -> Total:
    """The total with as many pods of autoscalers as needed; each has the fewest, those needed and the most."""
    idle, _, most = cost.totals
    part = sum(needed - least for least, needed, _ in pods) / sum(high - least for least, _, high in pods)
    return Total(idle.usd_per_hour + part * (most.usd_per_hour - idle.usd_per_hour), idle.at_least)
