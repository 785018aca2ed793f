"""Stands in for drivers of dynamic resource allocation: a node publishes its devices once a pod of the driver runs on it.

The real scheduler allocates from the ResourceSlices. A driver's DeviceClass, which its chart installs, is created with the first
slice. No kubelet asks a driver to prepare an allocated device.
"""

from eks_inference.catalog.claims import driver
from eks_inference.catalog.instances import instance_types
from eks_inference.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.placing.nodes import hardware_of
from eks_inference_tools.reading.charts import charts
from eks_inference_tools.reading.device_claims import RESOURCE_SLICES
from eks_inference_tools.reading.kinds import NODES, PODS
from eks_inference_tools.reading.live_objects import condition_of, is_leaving, labels_of, name_of, node_of
from eks_inference_tools.simulate.control_plane.api import Api
from eks_inference_tools.simulate.stand_ins.loop import Seen
from eks_inference_tools.simulate.world.resource_slices import device_class, kinds_by_chart, slices
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, text

DEVICE_CLASSES = "deviceclasses.resource.k8s.io"


class DraDrivers:
    """The drivers of a graph's charts."""

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
