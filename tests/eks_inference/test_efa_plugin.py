"""The EFA device plugin: on every node with EFA, whatever its taints."""

from typing import Any

import pytest

from eks_inference.accelerators.efa.component import EfaDevices, EfaPlugin
from eks_inference.accelerators.efa.plan import efa_instance_types
from eks_inference.catalog.instances import instance_types
from eks_inference.place.placement import INSTANCE_TYPE_LABEL
from handles import existing_cluster
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record


def the_plugin(**settings: Any) -> Graph:
    def build() -> None:
        plugin: EfaDevices = EfaPlugin("efa", cluster=existing_cluster(**settings))
        assert len(plugin.ready) == 1

    return record(build)


def pod_of(graph: Graph) -> dict[str, Any]:
    return graph.named("efa-daemonset").inputs["spec"]["template"]["spec"]


def test_its_nodes_are_those_with_efa_and_no_others() -> None:
    (term,) = pod_of(the_plugin())["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    chosen = {expression["key"]: expression for expression in term["matchExpressions"]}
    assert chosen[INSTANCE_TYPE_LABEL]["values"] == efa_instance_types()
    assert {"trn1.32xlarge", "trn2.48xlarge", "trn2u.48xlarge", "p5.48xlarge"} <= set(efa_instance_types())
    assert not [name for name in efa_instance_types() if not instance_types()[name].efa_interfaces]
    assert "inf2.48xlarge" not in efa_instance_types()


@pytest.mark.parametrize("taint", ["aws.amazon.com/neuron", "nvidia.com/gpu", "something/else"])
def test_it_tolerates_what_the_chart_forgets(taint: str) -> None:
    tolerations = pod_of(the_plugin())["tolerations"]
    assert any(one["operator"] == "Exists" and one.get("key") in (None, taint) and "effect" not in one for one in tolerations)
