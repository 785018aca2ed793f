"""What the servers of a graph take of the traffic that is asked of them, and what their tokens cost. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eks_inference_tools.cost.estimate import Estimate, Rate, Total
from eks_inference_tools.cost.money import total
from eks_inference_tools.reading.clusters import PLATFORM
from stackgraph.domain import Curve, Listing, Part, Plot, Row, Section
from stackgraph.graph.document import Graph
from stackgraph.graph.values import table, text


def traffic(graph: Graph, cost: Estimate) -> Iterator[tuple[str, str]]:
    """Yields what servers take, as platforms tell it, and what output tokens cost, each with what it is about."""
    taken = _taken(graph)
    yield from ((f"server {name}", text(one.get("says"))) for name, one in taken.items())
    rates = [one.get("tokensPerSecond") for one in taken.values()]
    known = [rate for rate in rates if isinstance(rate, int | float) and rate > 0]
    # What nobody knows of one server would make the tokens of the others too dear.
    if known and len(known) == len(rates):
        deployed, pods = cost.totals[1], [one["pods"] for one in taken.values() if "pods" in one]
        price = total(Total(Rate("", sum(known)).usd_per_million(_scaled(cost, pods) if pods else deployed), deployed.at_least))
        yield "output tokens", f"{price} a million at this traffic, " + ("with the pods that it needs" if pods else "as deployed")


def traffic_section(graph: Graph, cost: Estimate) -> Section:
    """How long tokens take at loads up to the most, and what the pods of each hour of a day cost."""
    rows, plots = list[tuple[str, ...]](), list[Plot]()
    for name, one in (taken := _taken(graph)).items():
        points = [tuple(map(float, point.split())) for point in text(one.get("curve", "")).split(";") if point]
        unit = text(one.get("unit"))
        for load, first, token in points:
            rows.append((name, f"{load:g} {unit}", f"{first:.3g} s", f"{token * 1e3:.3g} ms"))
        if points:
            curve = Curve(name, [(load, first) for load, first, _ in points])
            plots.append(Plot(f"{_COLUMNS[2]}, seconds: {name}", unit, [curve]))
    if any("hours" in one for one in taken.values()):
        scaling = [(one["pods"], one.get("hours")) for one in taken.values() if "pods" in one]
        by_hour = list[tuple[float, float]]()
        for hour in range(24):
            pods = [(low, hours[hour] if hours else mean, high) for (low, mean, high), hours in scaling]
            by_hour += [(edge, _scaled(cost, pods).usd_per_hour) for edge in (hour, hour + 1)]
        plots.append(Plot("Dollars an hour over a day, with the pods that it needs", "hour", [Curve("all parts", by_hour)]))
    cells = [[(Part((cell,)),) for cell in row] for row in rows]
    listings = [Listing(tuple(map(str.upper, _COLUMNS)), [Row(row) for row in rows])]
    return Section("Traffic", listings, _COLUMNS, cells, plots=plots)


_COLUMNS = ("Server", "At", "First token, p95", "Between tokens, p95")


def _taken(graph: Graph) -> Mapping[str, Mapping[str, Any]]:
    return {name: table(one) for platform in graph.of_type(PLATFORM) for name, one in table(platform.inputs.get("takes")).items()}


def _scaled(cost: Estimate, pods: Sequence[Sequence[float]]) -> Total:
    """The total with as many pods of autoscalers as needed; each has the fewest, those needed and the most."""
    idle, _, most = cost.totals
    part = sum(needed - least for least, needed, _ in pods) / sum(high - least for least, _, high in pods)
    return Total(idle.usd_per_hour + part * (most.usd_per_hour - idle.usd_per_hour), idle.at_least)
