"""Neuron support: device arithmetic, the device plugin, the scheduler that hands out neighbouring devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_rows import VERSIONS
from eks_inference.accelerators.neuron import plan
from eks_inference.accelerators.neuron.component import DeviceScheduler, ExistingNeuronScheduler, NeuronPlugin, NeuronScheduler
from eks_inference.accelerators.neuron.plan import NeuronSpec
from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.place.placement import Taint
from golden import assert_golden
from handles import existing_cluster, placement
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.recording import record

NEURON_SHAPES = [shape for shape in instance_types().values() if shape.accelerator == "neuron"]
neuron_shapes = st.sampled_from(NEURON_SHAPES)


# -- device arithmetic ----------------------------------------------------------------------------------------------------------


@given(neuron_shapes, st.integers(1, 16))
def test_the_scheduler_is_needed_exactly_between_one_and_all(shape: InstanceType, devices: int) -> None:
    assert plan.needs_scheduler(devices, shape) == (devices in range(2, shape.devices))


@pytest.mark.parametrize(
    ("name", "devices", "needed"),
    [
        ("inf2.8xlarge", 1, False),
        ("inf2.24xlarge", 6, False),
        ("inf2.48xlarge", 1, False),
        ("inf2.48xlarge", 4, True),  # the three servers of the Llama-2 system
        ("inf2.48xlarge", 12, False),
        ("trn2.48xlarge", 8, True),
        ("trn2.48xlarge", 16, False),
    ],
)
def test_scheduler_by_known_case(name: str, devices: int, needed: bool) -> None:
    assert plan.needs_scheduler(devices, instance_type(name)) is needed


@given(neuron_shapes, st.integers(1, 64))
def test_devices_for_cores_is_the_smallest_legal_number_that_holds_them(shape: InstanceType, cores: int) -> None:
    if cores > plan.cores_of(shape.devices, shape):
        with pytest.raises(ValueError, match=f"{shape.name} has .* NeuronCores, {cores} are needed"):
            plan.devices_for_cores(cores, shape)
        return
    devices = plan.devices_for_cores(cores, shape)
    assert plan.is_legal(devices, shape)
    assert plan.cores_of(devices, shape) >= cores
    assert not [fewer for fewer in shape.legal_device_counts if fewer < devices and plan.cores_of(fewer, shape) >= cores]


@pytest.mark.parametrize(
    ("name", "cores", "devices"),
    [
        ("inf2.48xlarge", 8, 4),
        ("trn1.32xlarge", 10, 8),
        ("trn2.48xlarge", 8, 4),
        ("trn2.48xlarge", 64, 16),
        ("inf2.xlarge", 1, 1),
    ],
)
def test_devices_by_known_case(name: str, cores: int, devices: int) -> None:
    assert plan.devices_for_cores(cores, instance_type(name)) == devices


def test_only_sub_blocks_of_the_torus_are_legal_on_trn1() -> None:
    assert [devices for devices in range(17) if plan.is_legal(devices, instance_type("trn1.32xlarge"))] == [1, 4, 8, 16]


def test_a_type_without_neuron_devices_holds_no_cores() -> None:
    with pytest.raises(ValueError, match=r"g5\.xlarge has 0 NeuronCores"):
        plan.devices_for_cores(1, instance_type("g5.xlarge"))


# -- what is built --------------------------------------------------------------------------------------------------------------


CORE = placement("m6i.large", pool="core", taints=(Taint("dedicated", "core", "NoSchedule"),))
MIRRORS = {"public.ecr.aws": "registry.example/ecr-public"}


def neuron_support(version: str = "1.35", mirrors: dict[str, str] | None = None) -> Graph:
    def build() -> None:
        cluster = existing_cluster(version=version, mirrors=mirrors or {})
        plugin = NeuronPlugin("neuron", NeuronSpec(), cluster=cluster)
        NeuronScheduler("devices", plugin=plugin, placement=CORE)

    return record(build)


def pod(workload: Resource) -> dict:
    return workload.inputs["spec"]["template"]["spec"]


def container(workload: Resource) -> dict:
    (only,) = pod(workload)["containers"]
    return only


def after(graph: Graph, resource: Resource) -> set[str]:
    """Names of everything a resource is created after, however far."""
    found: set[str] = set()
    todo = [resource]
    while todo:
        for urn in todo.pop().dependencies:
            if graph.by_urn[urn].name not in found:
                found.add(graph.by_urn[urn].name)
                todo.append(graph.by_urn[urn])
    return found


def test_the_plugin_runs_on_every_neuron_type_of_the_catalog_and_on_no_other() -> None:
    affinity = pod(neuron_support().named("neuron-daemonset"))["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (types,) = [rule for rule in term["matchExpressions"] if rule["key"] == "node.kubernetes.io/instance-type"]
    assert set(types["values"]) == {shape.name for shape in NEURON_SHAPES}
    assert "trn2.48xlarge" in types["values"]


def test_no_taint_keeps_the_plugin_off_a_neuron_node() -> None:
    tolerations = pod(neuron_support().named("neuron-daemonset"))["tolerations"]
    for taint in (Taint("aws.amazon.com/neuron", "true", "NoSchedule"), Taint("hub.jupyter.org/dedicated", "user", "NoExecute")):
        assert any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: dict, taint: Taint) -> bool:
    """Kubernetes' own rule (k8s.io/component-helpers, ToleratesTaint)."""
    if toleration.get("effect") not in (None, taint.effect) or toleration.get("key") not in (None, taint.key):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value") == taint.value


def test_the_plugin_sees_the_nodes_logical_core_setting_but_cannot_change_it() -> None:
    daemon_set = neuron_support().named("neuron-daemonset")
    (mount,) = [mount for mount in container(daemon_set)["volumeMounts"] if mount["mountPath"] == "/opt/aws"]
    assert mount["readOnly"] is True


def test_scheduler_configuration_as_mounted() -> None:
    graph = neuron_support()
    config_map = graph.named("devices-scheduler-config").inputs
    (text,) = config_map["data"].values()
    assert_golden("accelerators/my-scheduler-config.yaml", text)
    deployment = graph.named("devices-scheduler-deployment")
    (volume,) = pod(deployment)["volumes"]
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    (mount,) = container(deployment)["volumeMounts"]
    assert f"--config={mount['mountPath']}/{next(iter(config_map['data']))}" in container(deployment)["args"]


def test_a_changed_scheduler_configuration_restarts_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    def annotations() -> dict:
        return neuron_support().named("devices-scheduler-deployment").inputs["spec"]["template"]["metadata"]["annotations"]

    before = annotations()
    changed = {**plan.scheduler_configuration(), "parallelism": 8}
    monkeypatch.setattr("eks_inference.accelerators.neuron.plan.scheduler_configuration", lambda: changed)
    assert annotations() != before


def test_the_scheduler_reaches_the_extension_through_its_service() -> None:
    graph = neuron_support()
    service = graph.named("devices-extension-service").inputs
    (extender,) = plan.scheduler_configuration()["extenders"]
    (port,) = service["spec"]["ports"]
    assert extender["urlPrefix"] == (
        f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local:{port['port']}"
    )
    extension = graph.named("devices-extension-deployment")
    assert service["spec"]["selector"].items() <= extension.inputs["spec"]["template"]["metadata"]["labels"].items()
    (listening,) = container(extension)["ports"]
    assert port["targetPort"] == listening["name"]
    assert {"name": "PORT", "value": str(listening["containerPort"])} in container(extension)["env"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_second_scheduler_is_of_the_clusters_minor_version(version: str) -> None:
    image = container(neuron_support(version).named("devices-scheduler-deployment"))["image"]
    assert image.rpartition(":")[2].startswith(f"v{version}.")


def test_a_cluster_version_without_a_scheduler_image_is_refused() -> None:
    with pytest.raises(Exception, match=r"kube-scheduler has no pin for Kubernetes 1\.20"):
        neuron_support("1.20")


def test_all_images_come_from_the_mirror() -> None:
    graph = neuron_support(mirrors=MIRRORS)
    workloads = [*graph.of_type("kubernetes:apps/v1:Deployment"), *graph.of_type("kubernetes:apps/v1:DaemonSet")]
    assert len(workloads) == 3
    for workload in workloads:
        assert container(workload)["image"].startswith("registry.example/ecr-public/")


def test_schedulers_run_on_the_core_pool() -> None:
    graph = neuron_support()
    for name in ("devices-extension-deployment", "devices-scheduler-deployment"):
        assert pod(graph.named(name))["nodeSelector"] == CORE.node_selector
        assert pod(graph.named(name))["tolerations"] == CORE.tolerations()


def test_never_two_extensions_at_once_and_never_no_scheduler() -> None:
    graph = neuron_support()
    extension = graph.named("devices-extension-deployment").inputs["spec"]
    assert (extension["replicas"], extension["strategy"]["type"]) == (1, "Recreate")
    scheduler = graph.named("devices-scheduler-deployment").inputs["spec"]
    assert scheduler["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_each_workload_comes_after_its_permissions_and_the_scheduler_after_all() -> None:
    graph = neuron_support()
    assert {"neuron-account", "neuron-role", "neuron-binding"} <= after(graph, graph.named("neuron-daemonset"))
    scheduler = after(graph, graph.named("devices-scheduler-deployment"))
    assert {
        "neuron-daemonset",
        "devices-extension-deployment",
        "devices-extension-service",
        "devices-scheduler-config",
    } <= scheduler
    bindings = [r.name for r in graph.resources if r.name.startswith("devices-scheduler-") and "Binding" in r.type]
    assert len(bindings) == 4
    assert set(bindings) <= scheduler


def test_the_scheduler_may_write_its_own_lease_and_no_other() -> None:
    (role,) = neuron_support().of_type("kubernetes:rbac.authorization.k8s.io/v1:Role")
    create, hold = role.inputs["rules"]
    assert create["verbs"] == ["create"]
    assert (hold["resourceNames"], hold["verbs"]) == (["my-scheduler"], ["get", "update"])
    assert plan.scheduler_configuration()["leaderElection"]["resourceName"] == "my-scheduler"


def test_every_binding_names_a_role_and_an_account_that_exist() -> None:
    graph = neuron_support()
    made = {
        (r.type.rpartition(":")[2], r.inputs["metadata"]["name"]) for r in graph.resources if r.type.startswith("kubernetes:")
    }
    of_kubernetes = {
        ("ClusterRole", "system:kube-scheduler"),
        ("ClusterRole", "system:volume-scheduler"),
        ("Role", "extension-apiserver-authentication-reader"),
    }
    bindings = [r for r in graph.resources if r.type.endswith("Binding")]
    assert len(bindings) == 6
    for binding in bindings:
        role = binding.inputs["roleRef"]
        assert (role["kind"], role["name"]) in made | of_kubernetes
        (subject,) = binding.inputs["subjects"]
        assert ("ServiceAccount", subject["name"]) in made


def test_everything_sits_on_the_clusters_own_provider() -> None:
    graph = neuron_support()
    objects = [r for r in graph.resources if r.type.startswith("kubernetes:")]
    assert len(objects) == 4 + 6 + 8
    assert {r.provider for r in objects} == {graph.named("c-k8s").urn}


def test_a_scheduler_the_team_already_runs_can_stand_in() -> None:
    existing: DeviceScheduler = ExistingNeuronScheduler()
    assert existing.scheduler_name == NeuronScheduler.scheduler_name == "my-scheduler"
