"""Takes away what is lost, and does what AWS does about it that no program here does.

An ended instance: the cloud controller deletes its Node once that is not Ready, and its node group starts another where it can. A
zone is cut off: its Nodes stay, and pods leave them by Kubernetes' own eviction. Spot nodes have two minutes: EKS drains those of
node groups; Karpenter drains its own where it has a queue for the notice, which here is the deletion of their NodeClaims.

Source: cloud-provider, node_lifecycle_controller.go; EC2 Auto Scaling user guide, "Auto Scaling benefits", instance distribution;
Karpenter, "Disruption", interruption.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from eks_inference.place.placement import KARPENTER_POOL_LABEL
from eks_inference_tools.placing.started_nodes import manifest
from eks_inference_tools.reading.live_objects import Object, condition_of, labels_of, name_of
from eks_inference_tools.reading.object_kinds import DEPLOYMENTS, NODES
from eks_inference_tools.reading.releases import charts
from eks_inference_tools.simulate.control_plane.control_plane import LOST_LABEL
from eks_inference_tools.simulate.day.loss import Loss, Named
from eks_inference_tools.simulate.rehearsal.node_changes import claims, evicted
from eks_inference_tools.simulate.simulation import API_SERVER, Simulation
from stackgraph.graph.values import at

_START_SECONDS = 120


@dataclass
class Striking:
    """The losses of a day, which come together. ``back`` are the seconds after which what others serve is there again."""

    simulated: Simulation
    losses: Sequence[Loss]
    back: float
    away: bool = False
    """Whether the API server is."""
    struck: bool = False
    _sizes: dict[Named, int] = field(default_factory=dict[Named, int])

    def is_lost(self, kind: str, seconds: float) -> bool:
        """Whether what is served is away, so long after the loss."""
        return 0 <= seconds < self.back and any(loss.kind == kind for loss in self.losses)

    def since(self, kind: str, struck: float, time: float) -> float:
        """When something that needs what is served can begin, at this time or once it is back."""
        return struck + self.back if self.is_lost(kind, time - struck) else time

    def waits(self, kind: str, struck: float, time: str) -> str:
        """The same as an expression of jq."""
        if not any(loss.kind == kind for loss in self.losses):
            return time
        return f"({time} | if . >= {struck:.0f} and . < {struck + self.back:.0f} then {struck + self.back:.0f} else . end)"

    def is_over(self, seconds: float) -> bool:
        """Whether all has been lost, and what others serve is back."""
        last = max((loss.notice if loss.nodes else self.back for loss in self.losses), default=0.0)
        return self.struck and seconds >= last

    def gone(self, seconds: float) -> frozenset[str]:
        """The nodes that answer no more."""
        return frozenset(name for loss in self.losses if seconds >= loss.notice for name in loss.nodes)

    def strike(self) -> None:
        api = self.simulated.plane.api
        self.struck = True
        self.simulated.karpenter.follow(
            self.simulated.graph, lambda pool, labels: any(loss.lacks(pool, labels) for loss in self.losses)
        )
        for loss in self.losses:
            for namespace, name in loss.deployments:
                found = api.get(DEPLOYMENTS, name, namespace) or {}
                self._sizes[namespace, name] = at(found, "spec", "replicas") or 0
                self._scale((namespace, name), 0)
            if not loss.notice:
                self._end(loss)
                continue
            if _hears_notices(self.simulated):
                for claim in claims(api):
                    if at(claim, "status", "nodeName") in loss.nodes:
                        api.delete("nodeclaims.karpenter.sh", name_of(claim))
        if any(loss.kind == "api-server" for loss in self.losses):
            self.away = True
            self.simulated.pause()
            self.simulated.plane.processes.stop(API_SERVER)

    def follow(self, seconds: float, nodes: Sequence[Object]) -> None:
        """Does what is due so long after the loss; without the API server only its return."""
        plane = self.simulated.plane
        if seconds >= self.back and self.away:
            plane.restart_api_server()
            self.simulated.resume()
            self.away = False
        if self.away:
            return
        if seconds >= self.back:
            for deployment, size in self._sizes.items():
                self._scale(deployment, size)
            self._sizes = {}
        there = {name_of(node): node for node in nodes}
        for loss in self.losses:
            left = loss.nodes & there.keys()
            if seconds < loss.notice:
                of_groups = {name for name in left if KARPENTER_POOL_LABEL not in labels_of(there[name])}
                for name in of_groups:
                    if not at(there[name], "spec", "unschedulable"):
                        plane.api.patch(_node(name), {"spec": {"unschedulable": True}})
                evicted(plane.api, of_groups)
            elif not loss.cut_off:
                self._end(loss, [name for name in left if LOST_LABEL not in labels_of(there[name])])
                for name in left:
                    if (condition_of(there[name], "Ready") or {}).get("status") != "True":
                        plane.api.delete(NODES, name)
            for due in [one for one in loss.due if one[0] <= seconds]:
                loss.due.remove(due)
                plane.api.create(manifest(due[1]))

    def _end(self, loss: Loss, names: Sequence[str] | None = None) -> None:
        for name in sorted(loss.nodes if names is None else names):
            labels = {LOST_LABEL: "zone" if loss.cut_off else "node"}
            self.simulated.plane.api.patch(_node(name), {"metadata": {"labels": labels}})

    def _scale(self, deployment: Named, size: int) -> None:
        namespace, name = deployment
        item = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": namespace, "name": name}}
        self.simulated.plane.api.patch(item, {"spec": {"replicas": size}})


def _node(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def _hears_notices(simulated: Simulation) -> bool:
    return any(at(chart.values, "settings", "interruptionQueue") for chart in charts(simulated.graph))
