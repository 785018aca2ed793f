"""What a real API server says of every object of the stacks, and of objects with one thing wrong."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from cluster.shared_planes import SharedPlanes
from conftest import STACKS, recorded
from demo_program import program as demo
from eks_inference.catalog import versions
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.world.admit import Admission, admit
from eks_inference_tools.simulate.world.api_objects import cluster_objects, opaque_of
from eks_inference_tools.simulate.world.schemas import definitions_for, kubernetes_schemas
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record
from variants import recorded_with

pytestmark = pytest.mark.cluster

NEEDED = (
    "kubernetes:core/v1:Namespace",
    "kubernetes:core/v1:ServiceAccount",
    "kubernetes:scheduling.k8s.io/v1:PriorityClass",
)

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def plane(planes: SharedPlanes, toolchain: Toolchain) -> Iterator[ControlPlane]:
    with planes.control_plane(toolchain) as plane:
        yield plane


def graph_of(program: Callable[[], None]) -> Graph:
    return record(program, project="demo", stack="dev", config={"aws:region": "us-west-2"}, root=Path(__file__).parent)


def with_edit(stack: str, title: str, edit: Edit) -> Graph:
    """Of a stack, one object with something changed, and what pods are refused without."""
    graph = recorded(stack)
    (wanted,) = (item for item in cluster_objects(graph) if item.title == title)
    changed = copy.deepcopy(dict(graph.by_urn[wanted.urn].inputs))
    edit(changed)
    needed = [item for item in graph.resources if item.type in NEEDED and item.urn != wanted.urn]
    return Graph(graph.project, graph.stack, (*needed, replace(graph.by_urn[wanted.urn], inputs=changed)))


def refused(plane: ControlPlane, stack: str, title: str, edit: Edit) -> str:
    """What the API server says of the one thing that is wrong."""
    graph = with_edit(stack, title, edit)
    admission = admit(plane, graph)
    (refusal,) = admission.refusals
    assert title.partition(" ")[0] in refusal.title
    assert refusal.source == graph.by_urn[refusal.urn].source
    assert admission.refusals
    return refusal.message


def pod_of(inputs: dict[str, Any]) -> dict[str, Any]:
    return inputs["spec"]["template"]["spec"]


def cluster_of(inputs: dict[str, Any]) -> dict[str, Any]:
    return inputs["spec"]["rayClusterConfig"]


def worker_of(inputs: dict[str, Any]) -> dict[str, Any]:
    return cluster_of(inputs)["workerGroupSpecs"][0]


def container_of(inputs: dict[str, Any]) -> dict[str, Any]:
    return worker_of(inputs)["template"]["spec"]["containers"][0]


# -- the stacks ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", STACKS)
def test_every_object_of_a_stack_is_admitted(plane: ControlPlane, stack: str) -> None:
    graph = recorded(stack)
    admission = admit(plane, graph)
    assert not admission.refusals
    assert not admission.unchecked
    assert not admission.assumed
    assert admission.objects == sum(admission.origins.values()) == len(cluster_objects(graph))
    assert admission.templates
    assert any(origin.startswith("Kubernetes 1.") for origin in admission.origins)


def test_what_keda_scales_by_is_judged_by_kedas_definition(plane: ControlPlane) -> None:
    """No shipped stack uses KEDA; this is one with it, and then with a number where KEDA wants a text."""
    graph = recorded_with({"servers": {"llama2-a": {"autoscaling": {"kind": "keda", "min": 1, "max": 2}}}}, "inf2-llama2")
    admission = admit(plane, graph)
    assert not admission.refusals
    assert [count for origin, count in admission.origins.items() if origin.startswith("CRD of keda ")] == [1]
    (scaled,) = graph.of_type("kubernetes:keda.sh/v1alpha1:ScaledObject")
    wrong = copy.deepcopy(dict(scaled.inputs))
    wrong["spec"]["triggers"][0]["metadata"]["threshold"] = 3
    changed = replace(scaled, inputs=wrong)
    edited = replace(graph, resources=tuple(changed if resource is scaled else resource for resource in graph.resources))
    (refusal,) = admit(plane, edited).refusals
    assert ".spec.triggers[0].metadata.threshold: expected string" in refusal.message


def test_it_is_said_whose_schema_judged_what(plane: ControlPlane) -> None:
    ray, pair = (admit(plane, recorded(stack)).origins for stack in ("inf2-llama3", "trn2-di-pair"))
    # A new chart needs another look at our schema of what it brings.
    assert ray[f"schema of ours, after the API reference of KubeRay {versions.chart('kuberay-operator').version}"] == 1
    assert pair[f"schema of ours, after the API reference of LeaderWorkerSet {versions.chart('lws').version}"] == 1
    assert ray[f"CRD of karpenter-provider-aws v{versions.chart('karpenter').version}"] == 6
    assert any(origin.startswith("CRD of prometheus-operator v0.") for origin in ray)


# -- one thing wrong -------------------------------------------------------------------------------------------------------------

LLAMA2 = ("inf2-llama2", "Deployment llama2-a/llama2-a")
RAY = ("inf2-llama3", "RayService vllm/vllm-llama3-inf2")
PAIR = ("trn2-di-pair", "LeaderWorkerSet disaggregated/llama3-70b-servers")
POOL = ("inf2-llama3", "NodePool inferentia-inf2")


@pytest.mark.parametrize(
    ("what", "edit", "words"),
    [
        (LLAMA2, lambda o: o["spec"].update(replica=1), "field not declared in schema"),
        (LLAMA2, lambda o: o["spec"].update(replicas="one"), "expected numeric (int or float)"),
        (LLAMA2, lambda o: o["metadata"].update(name="x" * 254), "must be no more than 253 characters"),
        (LLAMA2, lambda o: o["metadata"].update(name="Llama2_A"), "RFC 1123 subdomain"),
        (LLAMA2, lambda o: o["spec"]["selector"]["matchLabels"].update(other="x"), "`selector` does not match template `labels`"),
        (LLAMA2, lambda o: o["metadata"].update(namespace="nowhere"), 'namespaces "nowhere" not found'),
        (LLAMA2, lambda o: pod_of(o).update(priorityClassName="importent"), "no PriorityClass with name importent was found"),
        (LLAMA2, lambda o: pod_of(o).update(serviceAccountName="nobody"), 'serviceaccount "nobody" not found'),
        (
            LLAMA2,
            lambda o: pod_of(o)["containers"][0].update(securityContext={"privileged": True}),
            'violates PodSecurity "restricted:latest": privileged',
        ),
        (("inf2-llama2", "Service llama2-a/llama2-a"), lambda o: o["spec"]["ports"][0].update(port=70000), "between 1 and 65535"),
        (
            ("inf2-llama2", "PersistentVolumeClaim loadtest/inf2-llama2-load-test-results"),
            lambda o: o["spec"]["resources"]["requests"].update(storage="10 GB"),
            "quantities must match the regular expression",
        ),
        (
            ("gpu-opt350m", "HorizontalPodAutoscaler triton-server/triton-server"),
            lambda o: o["spec"].update(minReplicas=9),
            "must be greater than or equal to `minReplicas`",
        ),
        (
            ("inf2-llama2", "PodMonitor llama2-a/vllm"),
            lambda o: o["spec"]["podMetricsEndpoints"][0].update(interval="15seconds"),
            "should match '^(0|(([0-9]+)y)?",
        ),
        (POOL, lambda o: o["spec"]["template"]["metadata"]["labels"].update({"kubernetes.io/hostname": "x"}), "restricted"),
        (POOL, lambda o: o["spec"]["disruption"].update(consolidationPolicy="Never"), "Unsupported value"),
        (POOL, lambda o: o["spec"]["template"]["spec"].pop("nodeClassRef"), "nodeClassRef"),
        (("inf2-llama3", "EC2NodeClass default"), lambda o: o["spec"].pop("amiSelectorTerms"), "amiSelectorTerms"),
        (
            ("inf2-llama3", "EC2NodeClass default"),
            lambda o: o["spec"].update(subnetSelectorTerms=[{"id": "net-1"}]),
            "should match 'subnet-[0-9a-z]+'",
        ),
    ],
)
def test_one_thing_wrong_is_refused_in_the_servers_words(
    plane: ControlPlane, what: tuple[str, str], edit: Edit, words: str
) -> None:
    assert words in refused(plane, *what, edit)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda o: o["spec"].update(serveConfig="x"), "field not declared in schema"),
        (lambda o: o["spec"].pop("rayClusterConfig"), "Required value"),
        (lambda o: o["spec"].update(upgradeStrategy={"type": "InPlace"}), "Unsupported value"),
        (lambda o: o["metadata"].update(name="r" * 48), "at most 47 characters"),
        (lambda o: worker_of(o).update(maxReplica=3), "field not declared in schema"),
        (lambda o: worker_of(o).update(minReplicas=5), "minReplicas is greater than maxReplicas"),
        (lambda o: worker_of(o)["rayStartParams"].update({"num-cpus": 4}), "expected string"),
        (lambda o: worker_of(o)["template"]["spec"].update(nodeSelectors={}), "field not declared in schema"),
        (lambda o: worker_of(o)["template"]["spec"].update(restartPolicy="Always"), "should be Never or unset"),
        (lambda o: container_of(o).pop("name"), 'omits all key fields ["name"]'),
        (lambda o: container_of(o).update(imagePullPolicy="Sometimes"), "Unsupported value"),
        (lambda o: container_of(o)["resources"]["limits"].update(memory="110 GB"), "should match"),
        (
            lambda o: container_of(o)["ports"][0].update(containerPort="http"),
            "expected numeric",
        ),
        (lambda o: cluster_of(o)["autoscalerOptions"].update(version="v3"), "Unsupported value"),
        (
            lambda o: cluster_of(o)["autoscalerOptions"].update(idleTimeoutSeconds=-1),
            "greater than or equal to 0",
        ),
    ],
)
def test_our_schema_of_a_ray_service_refuses_what_kuberay_would(plane: ControlPlane, edit: Edit, words: str) -> None:
    assert words in refused(plane, *RAY, edit)


def test_a_pod_of_a_ray_service_is_judged_like_any_other(plane: ControlPlane) -> None:
    message = refused(plane, *RAY, lambda o: container_of(o)["securityContext"].update(capabilities={"add": ["SYS_ADMIN"]}))
    assert 'violates PodSecurity "restricted:latest": unrestricted capabilities' in message


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda o: o["spec"].update(startupPolicy="Leader"), "Unsupported value"),
        (lambda o: o["spec"]["leaderWorkerTemplate"].update(size=0), "greater than or equal to 1"),
        (lambda o: o["spec"]["leaderWorkerTemplate"].update(workers={}), "field not declared in schema"),
        (lambda o: o["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"].update(hostNetworks=True), "field not declared"),
        (
            lambda o: o["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"].update(maxUnavailable="0%"),
            "maxUnavailable must not be 0 when maxSurge is 0",
        ),
        (
            lambda o: o["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"].update(maxUnavailable="120%"),
            "should match",
        ),
        (lambda o: o["spec"]["leaderWorkerTemplate"].update(subGroupPolicy={"subGroupSize": 3}), "cannot be larger than size"),
        (lambda o: o["metadata"].update(name="9-servers"), "no DNS-1035 label"),
    ],
)
def test_our_schema_of_a_leader_worker_set_refuses_what_its_webhook_would(plane: ControlPlane, edit: Edit, words: str) -> None:
    assert words in refused(plane, *PAIR, edit)


def test_a_pod_that_a_quota_has_no_room_for_is_refused(plane: ControlPlane) -> None:
    graph = recorded("inf2-llama2")
    urns = {item.urn: item.title for item in cluster_objects(graph)}
    kept = {"Namespace llama2-b", "ResourceQuota llama2-b/accelerators", "ServiceAccount llama2-b/llama2-b-server"}
    resources = []
    for resource in graph.resources:
        title = urns.get(resource.urn)
        if title == "Deployment llama2-b/llama2-b":
            inputs = copy.deepcopy(dict(resource.inputs))
            amounts = pod_of(inputs)["containers"][0]["resources"]
            for kind in amounts.values():
                kind["aws.amazon.com/neuron"] = "16"
            resources.append(replace(resource, inputs=inputs))
        elif title in kept:
            resources.append(resource)
    (refusal,) = admit(plane, Graph(graph.project, graph.stack, tuple(resources))).refusals
    assert refusal.title == "a pod of Deployment llama2-b/llama2-b"
    assert "exceeded quota: accelerators, requested: requests.aws.amazon.com/neuron=16" in refusal.message


# -- anybody's program -----------------------------------------------------------------------------------------------------------


def test_a_program_of_a_platform_team(plane: ControlPlane) -> None:
    admission = admit(plane, graph_of(demo))
    # The program is only ever previewed, so nobody had noticed what Karpenter's definition has to say.
    (refusal,) = admission.refusals
    assert refusal.title == "EC2NodeClass small"
    assert "spec.securityGroupSelectorTerms: Required value, spec.subnetSelectorTerms: Required value" in refusal.message
    assert not admission.unchecked
    assert admission.templates == 3


def test_what_has_no_schema_is_not_passed_in_silence(plane: ControlPlane) -> None:
    def program() -> None:
        k8s.apiextensions.CustomResource("thing", api_version="example.com/v1", kind="Thing", spec={"a": 1})

    admission = admit(plane, graph_of(program))
    assert (admission.objects, admission.origins, admission.unchecked) == (1, {}, ("Thing thing (Thing of example.com/v1)",))
    assert not admission.refusals


def test_a_stack_that_brings_its_own_definition_is_judged_by_it(plane: ControlPlane) -> None:
    def program() -> None:
        schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
        v1 = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"kind": "Widget", "plural": "widgets"}
        spec = {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [v1]}
        k8s.apiextensions.v1.CustomResourceDefinition(
            "widgets",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="widgets.example.org"),
            spec=pulumi.Output.from_input(spec),  # type: ignore[arg-type]  # the classes of a schema would be pages
        )
        for name, size in (("good", 1), ("bad", "large")):
            k8s.apiextensions.CustomResource(name, api_version="example.org/v1", kind="Widget", spec={"size": size})

    admission = admit(plane, graph_of(program))
    assert admission.origins["CRD of the stack"] == 1
    (refusal,) = admission.refusals
    assert (refusal.title, "expected numeric" in refusal.message) == ("Widget bad", True)


def test_what_an_unknown_chart_may_bring_is_assumed_and_told(plane: ControlPlane) -> None:
    def program(*, chart: str) -> None:
        k8s.helm.v3.Release("chart", chart=chart, name="chart", namespace="brought")
        metadata = k8s.meta.v1.ObjectMetaArgs(name="server", namespace=f"brought-by-{chart.lower()}")
        labels = {"app": "server"}
        pod = k8s.core.v1.PodSpecArgs(
            priority_class_name=f"of-{chart}",
            service_account_name="of-chart",
            runtime_class_name=f"of-{chart}",
            containers=[k8s.core.v1.ContainerArgs(name="server", image="registry.example/server:1")],
        )
        template = k8s.core.v1.PodTemplateSpecArgs(metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels), spec=pod)
        selector = k8s.meta.v1.LabelSelectorArgs(match_labels=labels)
        k8s.apps.v1.Deployment(
            "server", metadata=metadata, spec=k8s.apps.v1.DeploymentSpecArgs(selector=selector, template=template)
        )

    unknown = admit(plane, graph_of(lambda: program(chart="gpu-operator")))
    assert not unknown.refusals
    assert unknown.assumed == (
        "Namespace brought-by-gpu-operator: not in the stack; a chart may create it",
        "PriorityClass of-gpu-operator: not in the stack; a chart may create it",
        "RuntimeClass of-gpu-operator: not in the stack; a chart may create it",
        "ServiceAccount of-chart: not in the stack; a chart may create it",
    )
    odd = admit(plane, graph_of(lambda: program(chart="No_Name")))
    assert not odd.assumed
    assert [refusal.message for refusal in odd.refusals] == ['namespaces "brought-by-no_name" not found']
    known = admit(plane, graph_of(lambda: program(chart="lws")))
    assert not known.assumed
    assert [refusal.message for refusal in known.refusals] == ['namespaces "brought-by-lws" not found']


def test_claims_of_a_stateful_set_are_volumes_of_its_pods(plane: ControlPlane) -> None:
    def program() -> None:
        labels = {"app": "store"}
        mount = k8s.core.v1.VolumeMountArgs(name="data", mount_path="/data")
        container = k8s.core.v1.ContainerArgs(name="store", image="registry.example/store:1", volume_mounts=[mount])
        claim = k8s.core.v1.PersistentVolumeClaimArgs(
            metadata=k8s.meta.v1.ObjectMetaArgs(name="data"),
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteOnce"],
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": "1Gi"}),
            ),
        )
        template = k8s.core.v1.PodTemplateSpecArgs(
            metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels), spec=k8s.core.v1.PodSpecArgs(containers=[container])
        )
        k8s.apps.v1.StatefulSet(
            "store",
            spec=k8s.apps.v1.StatefulSetSpecArgs(
                service_name="store",
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
                template=template,
                volume_claim_templates=[claim],
            ),
        )

    admission = admit(plane, graph_of(program))
    assert (admission.templates, admission.refusals) == (1, ())


# -- schemas ---------------------------------------------------------------------------------------------------------------------


def test_every_kind_of_ours_is_a_definition_that_the_server_takes(plane: ControlPlane) -> None:
    def program() -> None:
        for kind in ("RayCluster", "RayJob", "RayService"):
            k8s.apiextensions.CustomResource(kind.lower(), api_version="ray.io/v1", kind=kind, spec={})
        k8s.apiextensions.CustomResource("lws", api_version="leaderworkerset.x-k8s.io/v1", kind="LeaderWorkerSet", spec={})

    definitions = definitions_for(cluster_objects(graph_of(program)), (), kubernetes_schemas(plane.api))
    assert {definition.kind[1] for definition in definitions} == {"LeaderWorkerSet", "RayCluster", "RayJob", "RayService"}
    for definition in definitions:
        assert definition.origin.startswith("schema of ours")
        plane.api.apply(definition.manifest)
        answer = plane.processes.wait_until(
            lambda definition=definition: _conditions(plane, definition.resource), seconds=120, what=definition.resource
        )
        assert "NonStructuralSchema" not in answer


def _conditions(plane: ControlPlane, name: str) -> dict[str, str]:
    found = plane.api.get("customresourcedefinitions.apiextensions.k8s.io", name) or {}
    conditions = {item["type"]: item["status"] for item in found.get("status", {}).get("conditions") or ()}
    return conditions if conditions.get("Established") == "True" else {}


def test_definitions_are_only_those_that_a_stack_needs(plane: ControlPlane, toolchain: Toolchain) -> None:
    schemas, real = kubernetes_schemas(plane.api), toolchain.definitions()
    found = {
        stack: {definition.resource for definition in definitions_for(cluster_objects(recorded(stack)), real, schemas)}
        for stack in STACKS
    }
    monitoring = {"podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com"}
    karpenter = {"ec2nodeclasses.karpenter.k8s.aws", "nodeclaims.karpenter.sh", "nodepools.karpenter.sh"}
    assert found["inf2-llama2"] == monitoring
    assert found["inf2-llama3"] == {*monitoring, *karpenter, "rayservices.ray.io"}
    assert found["trn2-di-pair"] == {*monitoring, "leaderworkersets.leaderworkerset.x-k8s.io"}
    assert opaque_of(recorded("inf2-llama3"))


def test_an_admission_counts_what_it_asked(plane: ControlPlane) -> None:
    assert admit(plane, Graph("p", "s", ())) == Admission(0, 0, {}, (), (), ())
