"""Reads claims of devices (dynamic resource allocation), and which images and charts offer devices: plugins and drivers. Pure."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_PLUGIN_NAME, EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE, PLUGIN_NAME
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.catalog.claim_drivers import Driver, drivers
from eks_inference.place.claimed_devices import claimed_resource
from eks_inference_tools.reading.object_kinds import group_kind, name_of, namespace_of
from eks_inference_tools.reading.releases import Chart
from eks_inference_tools.reading.scalars import is_true, whole
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text

# Claimed devices count as resources with the name that quotas give them (``gpu.nvidia.com.deviceclass.resource.k8s.io/devices``),
# so that everything that counts what pods take and nodes offer also counts these.

GROUP = "resource.k8s.io"
RESOURCE_CLAIMS = "resourceclaims.resource.k8s.io"
RESOURCE_SLICES = "resourceslices.resource.k8s.io"

CLAIMED: Mapping[str, Driver] = {claimed_resource(one.device_class): one for one in drivers().values()}
"""The drivers of the catalog by the resource that their devices count as."""

OF_KIND: Mapping[str, str] = {kind: claimed_resource(one.device_class) for kind, one in drivers().items()}
"""The same resources by kind of device: ``neuron``, ``nvidia``, ``efa``."""

Amounts = Mapping[str, Decimal]
Templates = Mapping[tuple[str, str], Amounts]
"""What a claim of each ResourceClaimTemplate asks for, by namespace and name."""


def shown(resource: str) -> str:
    """Returns the resource as people read it: claimed devices by their class."""
    return resource.removesuffix(claimed_resource(""))


def asked(claim_spec: Any) -> dict[str, Decimal]:
    """Returns what the spec of a claim asks for. Leaves out requests whose number only an allocation tells."""
    found: dict[str, Decimal] = {}
    for request in items(at(claim_spec, "devices", "requests")):
        exactly = at(request, "exactly")
        count = whole(at(exactly, "count")) if at(exactly, "count") is not None else 1
        is_exact = count is not None and at(exactly, "allocationMode") in (None, "ExactCount")
        if (device_class := text(at(exactly, "deviceClassName"))) and is_exact:
            name = claimed_resource(device_class)
            found[name] = found.get(name, Decimal()) + (count or 0)
    return found


def claim_templates(graph: Graph) -> Templates:
    """Returns what the ResourceClaimTemplates of a graph ask for."""
    return {
        (namespace_of(one) or "default", name_of(one)): asked(at(one.inputs.get("spec"), "spec"))
        for one in graph.resources
        if is_kubernetes_object(one) and group_kind(one) == (GROUP, "ResourceClaimTemplate")
    }


def claimed(pod_spec: Any, namespace: str, templates: Templates) -> dict[str, Decimal]:
    """Returns what one pod claims by templates. A claim that several pods share (``resourceClaimName``) is nobody's."""
    found: dict[str, Decimal] = {}
    for claim in items(at(pod_spec, "resourceClaims")):
        for name, count in templates.get((namespace, text(at(claim, "resourceClaimTemplateName"))), {}).items():
            found[name] = found.get(name, Decimal()) + count
    return found


def allocated(claim: Any) -> Iterator[tuple[str, str]]:
    """Yields driver and name of each device that a scheduler allocated to a ResourceClaim."""
    for result in items(at(claim, "status", "allocation", "devices", "results")):
        yield text(at(result, "driver")), text(at(result, "device"))


NEURON_CHART = "neuron-helm-chart"

_NEURON_PLUGINS = (PLUGIN_NAME, NEURON_CHART)
OFFERED_BY = {
    DEVICE_RESOURCE: _NEURON_PLUGINS,
    CORE_RESOURCE: _NEURON_PLUGINS,
    GPU_RESOURCE: ("nvidia-device-plugin", "k8s-device-plugin", "gpu-operator"),
    EFA_RESOURCE: (EFA_PLUGIN_NAME,),
    **{resource: (driver.chart,) for resource, driver in CLAIMED.items()},
}
"""Parts of the names of images and charts by what they offer: a plugin an extended resource, a driver devices for claims."""

# One chart has both; by its values.
_SWITCHES = {True: ("draDriver", False), False: ("devicePlugin", True)}


def offers(chart: Chart, resource: str) -> bool:
    """Whether a chart installs what offers this resource, as far as its name and values tell."""
    if not any(part in chart.name for part in OFFERED_BY[resource]):
        return False
    key, default = _SWITCHES[resource in CLAIMED]
    given = at(chart.values, key, "enabled")
    return NEURON_CHART not in chart.name or (default if given is None else is_true(given))


def placed_by_plugin(chart: Chart, resource: str) -> Mapping[str, Any]:
    """Where what a chart installs for a resource can run, as the spec of a pod says it.

    Plugins tolerate all taints; the EFA plugin tolerates those in its values. Drivers run where the values say.
    """
    if resource in CLAIMED:
        found = (at(chart.values, key) for key in ("draDriver", "kubeletPlugin"))
        given = next((one for one in found if one), chart.values)
        return {key: at(given, key) for key in ("nodeSelector", "tolerations", "affinity") if at(given, key)}
    return {"tolerations": chart.values.get("tolerations") if EFA_PLUGIN_NAME in chart.name else [{"operator": "Exists"}]}
