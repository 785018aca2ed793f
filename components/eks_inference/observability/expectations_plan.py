"""Plans what alerts compare a server with: numbers of its spec, as series. Pure; no pulumi.

The alerts themselves (assets/rules.yaml) are the same in every cluster. They join these series by ``namespace`` and ``server``.
"""

from collections.abc import Sequence
from typing import Any

from eks_inference.observability.handle import Expected


def expectations(expected: Expected, namespace: str, servers: Sequence[str]) -> dict[str, Any]:
    """Returns a rule file, and ``spec`` of a PrometheusRule. ``servers`` are the values of the label ``server``."""
    numbers = {
        "server:pods:min": expected.pods,
        "server:requests_per_pod:limit": expected.requests_per_pod,
        "server:time_to_first_token_seconds:objective": expected.objectives.time_to_first_token_seconds,
    }
    rules = [
        {"record": series, "expr": f"vector({number:g})", "labels": {"namespace": namespace, "server": server}}
        for series, number in numbers.items()
        if number is not None
        for server in servers
    ]
    return {"groups": [{"name": f"eks-inference.{expected.server}", "rules": rules}]}
