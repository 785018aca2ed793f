"""The EFA device plugin: on every node with EFA, whatever its taints."""

from typing import Any

import pytest

from eks_inference.accelerators.efa.component import EfaDevices, EfaPlugin, ExistingEfaPlugin
from eks_inference.accelerators.efa.plan import EFA_PLUGIN_NAME, EFA_RESOURCE, daemon_set, efa_instance_types
from eks_inference.catalog import versions
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


def test_it_makes_the_resource_that_pods_ask_for() -> None:
    assert EfaPlugin.resource_name == EFA_RESOURCE == "vpc.amazonaws.com/efa"


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


def test_it_sees_the_devices_and_the_kubelet() -> None:
    pod = pod_of(the_plugin())
    (container,) = pod["containers"]
    paths = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(paths.values()) == {"/var/lib/kubelet/device-plugins", "/dev/infiniband", "/opt/aws/neuron"}
    assert {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]} == paths
    created = [volume["name"] for volume in pod["volumes"] if volume["hostPath"].get("type") == "DirectoryOrCreate"]
    assert created == ["neuron"], "a GPU node has no Neuron tools, and a folder that is missing keeps the pod from starting"
    assert container["securityContext"]["privileged"]
    assert pod["hostNetwork"]
    assert pod["automountServiceAccountToken"] is False


def test_the_image_is_pinned_and_may_be_mirrored() -> None:
    image = versions.image(EFA_PLUGIN_NAME)
    assert pod_of(the_plugin())["containers"][0]["image"] == image
    registry = image.partition("/")[0]
    mirrored = pod_of(the_plugin(mirrors={registry: "reg.example"}))["containers"][0]["image"]
    assert mirrored == image.replace(registry, "reg.example")


def test_its_pods_carry_the_label_they_are_selected_by() -> None:
    spec = daemon_set("image")["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_a_plugin_that_is_there_has_nothing_to_wait_for() -> None:
    existing: EfaDevices = ExistingEfaPlugin()
    assert existing.ready == ()
