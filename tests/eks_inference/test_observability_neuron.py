"""The Neuron monitor as resources."""

from typing import Any

import pytest

from eks_inference.accelerators.neuron.component import NeuronPlugin
from eks_inference.accelerators.neuron.plan import NeuronSpec
from eks_inference.observability.device_exporters import NeuronMonitor
from eks_inference.observability.handle import ExistingPrometheus
from eks_inference.observability.spec import NeuronMonitorSpec
from handles import existing_cluster
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record


def the_monitor(*, prometheus: bool = True, namespace: str = "neuron-monitor", **settings: Any) -> Graph:
    def build() -> None:
        cluster = existing_cluster(**settings)
        NeuronMonitor(
            "nm",
            NeuronMonitorSpec(namespace=namespace),
            plugin=NeuronPlugin("neuron", NeuronSpec(), cluster=cluster),
            metrics=ExistingPrometheus(cluster, "monitoring", {"release": "prometheus"}) if prometheus else None,
        )

    return record(build)


def test_its_namespace_alone_is_privileged() -> None:
    (namespace,) = the_monitor(namespace="elsewhere").of_type("kubernetes:core/v1:Namespace")
    assert namespace.inputs["metadata"] == {
        "name": "elsewhere",
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
    }


@pytest.mark.parametrize(
    ("prometheus", "peers"),
    [
        (True, [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]),
        (False, [{"namespaceSelector": {}}]),
    ],
)
def test_who_may_read_it(prometheus: bool, peers: list[dict[str, Any]]) -> None:
    (policy,) = the_monitor(prometheus=prometheus).of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
    assert policy.inputs["spec"]["ingress"] == [{"from": peers, "ports": [{"protocol": "TCP", "port": 8000}]}]


def test_without_prometheus_there_is_no_monitor_of_it() -> None:
    assert not [resource for resource in the_monitor(prometheus=False).resources if resource.inputs.get("kind") == "PodMonitor"]
