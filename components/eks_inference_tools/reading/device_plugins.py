"""Images and charts of the device plugins that offer Neuron devices, GPUs and EFA interfaces to pods. Pure."""

from collections.abc import Mapping
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_PLUGIN_NAME, EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE, PLUGIN_NAME
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference_tools.reading.charts import Chart
from eks_inference_tools.reading.device_claims import CLAIMED
from eks_inference_tools.reading.scalars import is_true
from stackgraph.graph.values import at

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
