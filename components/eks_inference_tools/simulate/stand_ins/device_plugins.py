"""Stands in for device plugins and for drivers of dynamic resource allocation: a node offers its devices once a pod of theirs
runs there.
"""

from eks_inference.catalog.claim_drivers import driver
from eks_inference.catalog.instances import instance_types
from eks_inference.place.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.placing.started_nodes import hardware_of
from eks_inference_tools.reading.devices import CLAIMED, OFFERED_BY, RESOURCE_SLICES, offers, placed_by_plugin
from eks_inference_tools.reading.live_objects import condition_of, is_leaving, labels_of, name_of, node_of, taints_of
from eks_inference_tools.reading.object_kinds import NODES, PODS
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.releases import charts
from eks_inference_tools.reading.scheduling import tolerates
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, Object
from eks_inference_tools.simulate.stand_ins.loop import Seen
from eks_inference_tools.simulate.world.unsimulated import device_class, kinds_by_chart, slices
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text


class DevicePlugins:
    """The device plugins of a graph, for Neuron, NVIDIA and EFA.

    Like the preflight rule, it recognizes plugins by the images of running pods: a plugin that does not tolerate a taint, or is
    not installed, leaves the node without devices. Charts of plugins, whose pods are unknown, offer devices on every node whose
    taints they tolerate. Devices stay once offered, though a kubelet would withdraw them after its plugin is gone for good.
    """

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


DEVICE_CLASSES = "deviceclasses.resource.k8s.io"


class DraDrivers:
    """The drivers of a graph's charts, which publish the devices of a node.

    The real scheduler allocates from the ResourceSlices. A driver's DeviceClass, which its chart installs, is created with the
    first slice. No kubelet asks a driver to prepare an allocated device.
    """

    title = "the stand-in of the DRA drivers"
    reads = (NODES, PODS, RESOURCE_SLICES, DEVICE_CLASSES)

    def __init__(self, graph: Graph) -> None:
        kinds = kinds_by_chart()
        self._kinds = {chart.release: kinds[chart.name] for chart in charts(graph) if chart.name in kinds}

    def reconcile(self, seen: Seen, api: Api) -> None:
        running: dict[str, set[str]] = {}
        for pod in seen[PODS]:
            kind = self._kinds.get(text(labels_of(pod).get(STANDS_IN_FOR_LABEL)))
            if kind and at(pod, "status", "phase") == "Running" and not is_leaving(pod):
                running.setdefault(node_of(pod), set()).add(kind)
        there = {name_of(one) for one in (*seen[RESOURCE_SLICES], *seen[DEVICE_CLASSES])}
        for node in seen[NODES]:
            instance = instance_types().get(text(labels_of(node).get(INSTANCE_TYPE_LABEL)))
            kinds = running.get(name_of(node), set())
            if not instance or not kinds or (condition_of(node, "Ready") or {}).get("status") != "True":
                continue
            for kind, published in slices(name_of(node), instance, hardware_of(node)).items():
                found = device_class(driver(kind))
                for one in (found, published) if kind in kinds else ():
                    if name_of(one) not in there:
                        api.create(one)
                        there.add(name_of(one))
