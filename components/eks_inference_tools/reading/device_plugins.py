"""Images and charts of the device plugins that offer Neuron devices, GPUs and EFA interfaces to pods. Pure."""

from typing import Any

from eks_inference.accelerators.efa.plan import EFA_PLUGIN_NAME, EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE, PLUGIN_NAME
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference_tools.reading.charts import Chart

NEURON_CHART = "neuron-helm-chart"

_NEURON_PLUGINS = (PLUGIN_NAME, NEURON_CHART)
OFFERED_BY = {
    DEVICE_RESOURCE: _NEURON_PLUGINS,
    CORE_RESOURCE: _NEURON_PLUGINS,
    GPU_RESOURCE: ("nvidia-device-plugin", "k8s-device-plugin", "gpu-operator"),
    EFA_RESOURCE: (EFA_PLUGIN_NAME,),
}
"""By extended resource: parts of the names of images and charts whose plugin offers it."""


def tolerated_by_plugin(chart: Chart) -> Any:
    """The tolerations of a chart's device plugin. Plugins tolerate all taints; the EFA plugin tolerates those in its values."""
    return chart.values.get("tolerations") if EFA_PLUGIN_NAME in chart.name else [{"operator": "Exists"}]
