"""Stands in for AWS Load Balancer Controller: gives Ingresses an address, and holds them until their load balancer has gone.

Modelled: groups of Ingresses that share a load balancer; the finalizer; a group whose Ingresses contradict each other, or lead to
a Service that is not there, gets nothing. Left out: what AWS says; certificates, subnets and permissions; the controller's
webhook, so pods get no readiness gate and are ready without one.

Source: kubernetes-sigs/aws-load-balancer-controller v3.5.0 (pkg/ingress: groups, finalizers, model builder).
"""

import hashlib
from collections.abc import Iterator, Sequence

from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.reading.live_objects import annotations_of, identity_of, is_leaving, labels_of
from eks_inference_tools.reading.object_kinds import INGRESSES, PODS, SERVICES
from eks_inference_tools.reading.readiness import BALANCER
from eks_inference_tools.reading.releases import charts
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, Object
from eks_inference_tools.simulate.stand_ins.loop import Seen, set_status, tell
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text

_CHART = "aws-load-balancer-controller"
_GROUP = f"{BALANCER}group.name"
# Settings of a load balancer, of which a group has one value.
_SHARED = ("scheme", "subnets", "security-groups", "load-balancer-attributes", "wafv2-acl-arn", "ssl-policy")


class LoadBalancers:
    """Serves Ingresses. If the graph installs the controller's chart, this works while the chart's pods run."""

    title = "the stand-in of AWS Load Balancer Controller"
    reads = (INGRESSES, SERVICES, PODS)

    def __init__(self, graph: Graph) -> None:
        self._releases = {chart.release for chart in charts(graph) if chart.name == _CHART}
        self.balancers: set[str] = set()
        """Groups that have a load balancer."""

    def reconcile(self, seen: Seen, api: Api) -> None:
        running = {labels_of(pod).get(STANDS_IN_FOR_LABEL) for pod in seen[PODS] if at(pod, "status", "phase") == "Running"}
        if not self._releases <= running:
            return
        groups: dict[str, list[Object]] = {}
        for ingress in seen[INGRESSES]:
            if group := text(annotations_of(ingress).get(_GROUP)):
                groups.setdefault(group, []).append(ingress)
        services = {identity_of(service): service for service in seen[SERVICES]}
        for group, members in sorted(groups.items()):
            self._serve(group, members, services, api)

    def _serve(self, group: str, members: Sequence[Object], services: dict[tuple[str, str], Object], api: Api) -> None:
        finalizer = f"group.ingress.k8s.aws/{group}"
        there = [member for member in members if not is_leaving(member)]
        if faults := list(_faults(there, services)):
            for ingress, why in faults:
                tell(api, ingress, "FailedBuildModel", why)
            return
        if there:
            self.balancers.add(group)
        else:
            self.balancers.discard(group)
        for ingress in members:
            held = items(at(ingress, "metadata", "finalizers"))
            if is_leaving(ingress):
                # Its rules have gone, and with the last one the load balancer.
                api.patch(ingress, {"metadata": {"finalizers": [one for one in held if one != finalizer]}})
            elif finalizer not in held:
                api.patch(ingress, {"metadata": {"finalizers": [*held, finalizer]}})
            else:
                address = f"internal-k8s-{hashlib.sha256(group.encode()).hexdigest()[:10]}.elb.amazonaws.com"
                set_status(api, ingress, {"loadBalancer": {"ingress": [{"hostname": address}]}})


def _faults(members: Sequence[Object], services: dict[tuple[str, str], Object]) -> Iterator[tuple[Object, str]]:
    """Yields Ingresses of a group that keep it from a load balancer, and why."""
    for ingress in members:
        for key in _SHARED:
            given, first = (annotations_of(one).get(f"{BALANCER}{key}") for one in (ingress, members[0]))
            if given != first:
                yield ingress, f"conflicting {key}: {first} | {given}"
        for rule in items(at(ingress, "spec", "rules")):
            for path in items(at(rule, "http", "paths")):
                name, port = (at(path, "backend", "service", *keys) for keys in (("name",), ("port", "number")))
                service = services.get((identity_of(ingress)[0], text(name)))
                if service is None:
                    yield ingress, f"there is no Service {name}"
                elif port not in [item.get("port") for item in items(at(service, "spec", "ports"))]:
                    yield ingress, f"Service {name} has no port {port}"
