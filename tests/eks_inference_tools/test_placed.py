"""Pods that no order finds room for are errors, those whose room depends on the order are warnings, and others are neither."""

from typing import Any

import pytest

from eks_inference.rules import judged
from eks_inference_tools.check.registry import graph_rules
from eks_inference_tools.placing.placed import Placing, Waiting
from stackgraph.graph.document import Resource
from vectors.graph import cluster, graph, node_group, resource

RULE = tuple(rule for rule in graph_rules() if rule.id == "K8S022")
TWO = {"minSize": 2, "desiredSize": 2, "maxSize": 2}
"""Two m5.2xlarge: 8 CPUs each, of which pods get 7.91."""


def made(name: str, cpu: str, *needs: Resource, kind: str = "apps/v1:Deployment", pods: int = 1) -> Resource:
    spec = {
        "containers": [{"name": "c", "image": "r.example/c:1", "resources": {"requests": {"cpu": cpu}}}],
        "restartPolicy": "Never",
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    count = {"parallelism": pods} if kind.endswith("Job") else {"replicas": pods}
    body: dict[str, Any] = {"metadata": {"name": name, "namespace": "app"}, "spec": {**count, "template": template}}
    return resource(f"kubernetes:{kind}", name, body, dependencies=tuple(need.urn for need in needs))


def job(name: str, cpu: str, *needs: Resource) -> Resource:
    return made(name, cpu, *needs, kind="batch/v1:Job")


SMALL, SERVER = made("small", "1", pods=2), made("server", "7")
FIRST = job("compile", "7")


@pytest.mark.parametrize(
    ("made_here", "told"),
    [
        pytest.param([SERVER, made("other", "7")], {}, id="each has a node"),
        pytest.param([made("server", "4", pods=3)], {"server": "error"}, id="one pod a node, and three pods"),
        pytest.param(
            [made("server", "6"), made("other", "5", pods=2)], {"other": "error"}, id="half a node and more, of two servers"
        ),
        pytest.param([made("server", "3", pods=4), SERVER], {"server": "error"}, id="more than both nodes have"),
        # The scheduler spreads the small pods over both nodes if they come first.
        pytest.param([SMALL, made("server", "7", SMALL)], {"server": "warning"}, id="small pods come first"),
        pytest.param([FIRST, made("server", "7", FIRST, pods=2)], {}, id="a Job ends before the server that stands on it"),
        pytest.param([made("server", "5", pods=2), job("other", "5")], {"other": "warning"}, id="a Job beside servers"),
        pytest.param(
            [held := made("server", "5", pods=2), job("load", "5", held)], {"load": "error"}, id="a Job after the servers"
        ),
    ],
)
def test_order(made_here: list[Resource], told: dict[str, str]) -> None:
    facts = graph(cluster(), node_group(scalingConfig=TWO), *made_here)
    found = [one for _, one in judged(RULE, (facts,)) if not one.holds]
    assert {judgement.resource.rpartition("::")[2]: judgement.severity for judgement in found} == told


def test_what_limits_of_a_pool_allow_is_a_bound() -> None:
    """Karpenter starts no third node of 8 CPUs within 20."""
    pool = {"metadata": {"name": "p"}, "spec": {"limits": {"cpu": "20"}, "template": {"spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "p"},
        "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.2xlarge"]}],
    }}}}  # fmt: skip
    for pods, over in ((2, False), (3, True)):
        server = made("server", "5", pods=pods)
        facts = graph(cluster(), resource("kubernetes:karpenter.sh/v1:NodePool", "p", pool), server)
        waiting = Waiting(Placing(facts.graph))
        assert bool(waiting.overfull(waiting.pods)) == over, pods


@pytest.mark.parametrize(
    ("made_here", "takers"),
    [
        ([made("server", "4", pods=3)], "2 pods of Deployment app/server (cpu 4 each)"),
        (
            [made("large", "6"), made("other", "5", pods=2), made("small", "100m")],
            "1 pod of Deployment app/large (cpu 6 each), 1 pod of Deployment app/other (cpu 5 each), "
            "1 pod of Deployment app/small (cpu 0.1 each)",
        ),
        (
            [made("agent", "3", kind="apps/v1:DaemonSet"), made("server", "4", pods=3)],
            "2 pods of Deployment app/server (cpu 4 each), 2 pods of DaemonSet app/agent (cpu 3 each)",
        ),
    ],
)
def test_who_has_the_room_is_told(made_here: list[Resource], takers: str) -> None:
    facts = graph(cluster(), node_group(scalingConfig=TWO), *made_here)
    (found,) = [one for _, one in judged(RULE, (facts,)) if not one.holds]
    assert found.message.endswith(f"; most room is taken by {takers}")
