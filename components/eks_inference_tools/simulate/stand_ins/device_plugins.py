"""Stands in for the device plugins of Neuron, NVIDIA and EFA: a node offers its devices once a pod of the plugin runs on it.

Like the preflight rule, it recognizes plugins by the images of running pods: a plugin that does not tolerate a taint, or is not
installed, leaves the node without devices. Charts of plugins, whose pods are unknown, offer devices on every node whose taints
they tolerate. Devices stay once offered, though a kubelet would withdraw them after its plugin is gone for good.
"""

from eks_inference_tools.placing.nodes import hardware_of
from eks_inference_tools.reading.charts import charts
from eks_inference_tools.reading.device_claims import CLAIMED
from eks_inference_tools.reading.device_plugins import OFFERED_BY, offers, placed_by_plugin
from eks_inference_tools.reading.kinds import NODES, PODS
from eks_inference_tools.reading.live_objects import condition_of, is_leaving, name_of, node_of, taints_of
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.scheduling import tolerates
from eks_inference_tools.simulate.control_plane.api import Api, Object
from eks_inference_tools.simulate.stand_ins.loop import Seen
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text


class DevicePlugins:
    """The device plugins of a graph."""

    title = "the stand-in of the device plugins"
    reads = (NODES, PODS)

    def __init__(self, graph: Graph) -> None:
        self._charts = charts(graph)

    def reconcile(self, seen: Seen, api: Api) -> None:
        images: dict[str, list[str]] = {}
        for pod in seen[PODS]:
            if at(pod, "status", "phase") == "Running" and not is_leaving(pod):
                on = images.setdefault(node_of(pod), [])
                on += (container.image for container in PodSpec(pod.get("spec")).containers)
        for node in seen[NODES]:
            if offered := self.offered(node, images.get(name_of(node), [])):
                amounts = {name: str(number) for name, number in offered.items()}
                api.patch(node, {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status")

    def offered(self, node: Object, images: list[str]) -> dict[str, int]:
        """Returns the devices that a node running these images has to offer and does not offer yet."""
        if (condition_of(node, "Ready") or {}).get("status") != "True":
            return {}
        known = at(node, "status", "allocatable")
        return {
            name: number
            for name, number in hardware_of(node).items()
            if text(at(known, name)) != str(number)
            and name in OFFERED_BY
            and name not in CLAIMED
            and self._has_plugin(node, name, images)
        }

    def _has_plugin(self, node: Object, resource: str, images: list[str]) -> bool:
        if any(part in image for part in OFFERED_BY[resource] for image in images):
            return True
        tolerations = (placed_by_plugin(chart, resource)["tolerations"] for chart in self._charts if offers(chart, resource))
        return any(
            all(any(tolerates(one, taint) for one in items(tolerated)) for taint in taints_of(node)) for tolerated in tolerations
        )
