"""What the servers of a graph take of the traffic that is asked of them, and what their tokens cost. Pure."""

import contextlib
from collections.abc import Iterator, Mapping

from eks_inference.faults import SpecError
from eks_inference.speed.rules import TrafficFacts
from eks_inference.speed.takes import Takes
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.cost.estimate import Estimate, Rate, Total
from eks_inference_tools.cost.words import total
from eks_inference_tools.reading.clusters import PLATFORM
from stackgraph.graph.document import Graph


def taken(graph: Graph) -> Mapping[str, Takes | str]:
    """What each server with traffic takes, or why nobody can tell."""
    found: dict[str, Takes | str] = {}
    for platform in graph.of_type(PLATFORM):
        servers, region = platform.inputs.get("servers"), platform.inputs.get("region")
        if not (isinstance(servers, Mapping) and isinstance(region, str)):
            continue
        if any(isinstance(one, Mapping) and one.get("traffic") for one in servers.values()):
            # A platform has checked its own. Another program's resource of this type may have anything there.
            with contextlib.suppress(SpecError):
                given = {key: value for key, value in platform.inputs.items() if key in StackSpec.model_fields}
                subjects = stack_facts(StackSpec.model_validate(given), region)
                found |= {str(one.server.path[1]): one.found for one in subjects if isinstance(one, TrafficFacts)}
    return found


def told(found: Mapping[str, Takes | str], cost: Estimate) -> Iterator[tuple[str, str]]:
    """Yields what servers take, and what tokens cost, each with its name."""
    known = {name: one for name, one in found.items() if isinstance(one, Takes)}
    for name, one in found.items():
        yield f"server {name}", one.told if isinstance(one, Takes) else f"traffic is not judged: {one}"
    tokens = sum(one.output_tokens_per_second for one in known.values())
    if tokens and len(known) == len(found):
        deployed = cost.totals[1]
        price = total(Total(Rate("", tokens).usd_per_million(deployed), deployed.at_least))
        yield "tokens", f"{price} a million output tokens at this traffic, as deployed"
