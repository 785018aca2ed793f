"""Pods in the place of those of charts and add-ons: what the catalog knows of them, and what the graph's own values change."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import recorded
from eks_inference.catalog import charts as catalog
from eks_inference.catalog import versions
from eks_inference.catalog.charts import Footprint, WorkloadFootprint
from eks_inference.catalog.tables import rows, table
from eks_inference.kubernetes.workloads import enforce
from eks_inference_tools.placing.footprint import IMAGE_HOST, STANDS_IN_FOR_LABEL, footprints, without_footprint
from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.reading.object_kinds import KINDS
from eks_inference_tools.reading.scalars import quantity
from eks_inference_tools.simulate.world.unsimulated import unsimulated
from eks_inference_tools.verify.observed import Observed
from eks_inference_tools.verify.release_checks import addon_workloads, release_workloads
from pod_standards import breaches
from stackgraph.graph.document import CHART_TYPE, Graph
from stackgraph.graph.values import at
from vectors.graph import graph, resource

ALL = {
    **{f"chart {name}": one for name, one in catalog.charts().items()},
    **{f"add-on {n}": o for n, o in catalog.addons().items()},
}
WORKLOADS = [(name, workload) for name, one in ALL.items() for workload in one.workloads]
RESOURCES = {kind: kubectl for kubectl, kind in KINDS.items()}
Object = Mapping[str, Any]


def release(chart: str, values: Mapping[str, Any] | None = None, **inputs: Any) -> Graph:
    given_to = {"chart": chart, "name": chart, "namespace": "there", "version": "1", "values": values or {}, **inputs}
    return graph(resource("kubernetes:helm.sh/v3:Release", chart, given_to)).graph


def addon(name: str, configuration: str | None = None) -> Graph:
    return graph(resource("aws:eks/addon:Addon", name, {"addonName": name, "configurationValues": configuration})).graph


def made(of: Graph) -> tuple[Object, ...]:
    return tuple(item for items in footprints(of).values() for item in items)


def pod_of(item: Object) -> Mapping[str, Any]:
    return item["spec"]["template"]["spec"]


def named(of: Graph, name: str) -> Object:
    (found,) = (item for item in made(of) if item["metadata"]["name"] == name and "template" in item.get("spec", {}))
    return found


def workloads(of: Graph) -> list[Object]:
    return [item for item in made(of) if item["apiVersion"] == "apps/v1"]


# -- the catalog -----------------------------------------------------------------------------------------------------------------


def test_everything_that_the_library_can_install_has_a_footprint() -> None:
    assert rows(table("versions.toml")["charts"]).keys() == catalog.charts().keys()
    assert rows(table("versions.toml")["addons"]).keys() == catalog.addons().keys()


@pytest.mark.parametrize("name", sorted(catalog.charts()))
def test_the_footprint_of_a_chart_is_of_the_version_that_is_installed(name: str) -> None:
    assert f" {versions.chart(name).version}" in catalog.charts()[name].source


def test_a_name_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(KeyError, match="nearest: karpenter"):
        versions.chart("karpentr")
    with pytest.raises(KeyError, match="nearest: coredns"):
        versions.addon("core-dns", "1.35")


@pytest.mark.parametrize(("name", "workload"), WORKLOADS, ids=[f"{name} {workload.name}" for name, workload in WORKLOADS])
def test_a_row_makes_sense(name: str, workload: WorkloadFootprint) -> None:
    assert workload.kind in ("DaemonSet", "Deployment", "StatefulSet")
    assert workload.containers
    for container in workload.containers:
        assert container.at, "values can say its resources"
        for amount in (container.cpu, container.memory):
            assert not amount or (quantity(amount) or 0) > 0
        assert not container.image or versions.image(container.image)
    if workload.kind == "DaemonSet":
        assert (workload.replicas, workload.replicas_at, workload.claim) == (1, "", "")
    assert bool(workload.claim) == bool(workload.claim_at)
    assert workload.priority in ("", "system-cluster-critical", "system-node-critical")


@pytest.mark.parametrize("name", sorted(catalog.addons()))
def test_workloads_of_add_ons_are_those_that_verify_looks_for(name: str) -> None:
    found = Observed("", by_resource(made(addon(name))))
    for wanted in expected_of(addon(name)).addons:
        assert len(list(addon_workloads(wanted, found))) == len(wanted.workloads)


# -- shipped stacks --------------------------------------------------------------------------------------------------------------


def by_resource(items: tuple[Object, ...]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for item in items:
        if item["kind"] in RESOURCES:
            found.setdefault(RESOURCES[item["kind"]], []).append(item)
    return found


def test_every_chart_and_add_on_of_a_stack_is_stood_in_for(shipped: Graph) -> None:
    assert without_footprint(shipped) == ()
    expected, found = expected_of(shipped), Observed("", by_resource(made(shipped)))
    assert len(expected.releases) == len(shipped.of_type(CHART_TYPE))
    for wanted in expected.releases:
        assert bool(list(release_workloads(wanted, found))) == (wanted.chart != "karpenter-crd")
    names = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in made(shipped)]
    assert len(set(names)) == len(names)


def test_pods_of_stand_ins_are_admitted_by_their_namespaces(shipped: Graph) -> None:
    (label,) = enforce("restricted")
    levels = {
        at(one.inputs, "metadata", "name"): at(one.inputs, "metadata", "labels", label)
        for one in shipped.of_type("kubernetes:core/v1:Namespace")
    }
    for item in workloads(shipped):
        if levels.get(item["metadata"]["namespace"]) == "restricted":
            assert not breaches(pod_of(item)), item["metadata"]["name"]


def test_everything_says_what_it_stands_in_for(shipped: Graph) -> None:
    for item in made(shipped):
        assert item["metadata"]["labels"][STANDS_IN_FOR_LABEL]
        for claim in item["spec"].get("volumeClaimTemplates", ()) if "spec" in item else ():
            assert claim["metadata"]["labels"][STANDS_IN_FOR_LABEL]
    for item in workloads(shipped):
        template = item["spec"]["template"]
        assert template["metadata"]["labels"][STANDS_IN_FOR_LABEL] == item["metadata"]["labels"][STANDS_IN_FOR_LABEL]
        assert item["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        pinned = {versions.image(name) for name in ("kuberay-operator", "lws")}
        assert all(container["image"] in pinned or IMAGE_HOST in container["image"] for container in pod_of(item)["containers"])


# Pods of hooks end before anything else starts, and what is switched off is not there.
_NOT_READ = {"prometheusOperator.admissionWebhooks.patch"}


def tables_with(values: Any, keys: frozenset[str], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Places of a chart's values that have one of the keys."""
    if isinstance(values, Mapping):
        for key, inside in values.items():
            if key in keys:
                yield ".".join(path), str(key)
            else:
                yield from tables_with(inside, keys, (*path, str(key)))


def test_all_that_our_components_say_of_pods_is_read(shipped: Graph) -> None:
    for installed in shipped.of_type(CHART_TYPE):
        footprint = catalog.charts()[installed.inputs["chart"].rpartition("/")[2]]
        places = {place for workload in footprint.workloads for place in workload.place_at}
        resources = {path for workload in footprint.workloads for container in workload.containers for path in container.at}
        values, name = installed.inputs["values"], installed.name
        for path, key in tables_with(values, frozenset(("nodeSelector", "tolerations", "affinity", "priorityClassName"))):
            assert path in places | _NOT_READ, f"{name}: {key} at {path or 'the top'}"
        for path, _ in tables_with(values, frozenset(("resources",))):
            if not path.endswith("volumeClaimTemplate.spec"):
                assert path in _NOT_READ or f"{path}.resources".removeprefix(".") in resources, name
        counts = {"replicas", "replicaCount"}
        for path, key in tables_with(values, frozenset(counts)):
            assert f"{path}.{key}".removeprefix(".") in {workload.replicas_at for workload in footprint.workloads}, name


def test_the_two_controllers_of_karpenter_keep_apart() -> None:
    karpenter = named(recorded("inf2-llama3"), "karpenter")
    assert karpenter["spec"]["replicas"] == 2
    assert pod_of(karpenter)["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    (term,) = at(pod_of(karpenter), "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    assert term["labelSelector"]["matchLabels"] == karpenter["spec"]["selector"]["matchLabels"]
    assert pod_of(karpenter)["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"


def test_prometheus_claims_its_volume() -> None:
    prometheus = named(recorded("gpu-opt350m"), "prometheus-kube-prometheus-stack-prometheus")
    (claim,) = prometheus["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "gp3"
    assert prometheus["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"


# -- values win ------------------------------------------------------------------------------------------------------------------


def requests(item: Object) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in pod_of(item)["containers"]:
        for name, amount in container["resources"].get("requests", {}).items():
            total[name] = total.get(name, Decimal()) + (quantity(amount) or 0)
    return total


def test_requests_are_the_catalogs_where_nothing_is_said() -> None:
    assert requests(named(release("lws"), "lws-controller-manager")) == {"cpu": 1, "memory": 2**30}
    assert requests(named(addon("aws-ebs-csi-driver"), "ebs-csi-controller")) == {"cpu": Decimal("0.06"), "memory": 240 * 2**20}
    assert requests(named(addon("vpc-cni"), "aws-node")) == {"cpu": Decimal("0.05")}
    assert requests(named(addon("eks-pod-identity-agent"), "eks-pod-identity-agent")) == {}


def test_values_of_a_release_win() -> None:
    place = {"nodeSelector": {"pool": "core"}, "tolerations": [{"key": "core", "operator": "Exists"}]}
    values = {"replicaCount": 3, "resources": {"requests": {"cpu": "2"}}, **place}
    changed = named(release("lws", values), "lws-controller-manager")
    assert changed["spec"]["replicas"] == 3
    assert requests(changed) == {"cpu": 2}
    assert {key: pod_of(changed)[key] for key in place} == place


def test_configuration_of_an_add_on_wins() -> None:
    coredns = named(
        addon("coredns", '{"replicaCount": 0, "resources": {"limits": {"memory": "1Gi"}}, "tolerations": []}'), "coredns"
    )
    assert coredns["spec"]["replicas"] == 0
    assert pod_of(coredns)["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert pod_of(coredns)["tolerations"] == []
    ebs = named(addon("aws-ebs-csi-driver", '{"controller": {"resources": {"requests": {"cpu": "1"}}}}'), "ebs-csi-controller")
    assert requests(ebs) == {"cpu": 6}


def test_a_place_for_all_gives_way_to_that_of_one_part() -> None:
    values = {"nodeSelector": {"pool": "all"}, "operator": {"nodeSelector": {"pool": "own"}}}
    assert pod_of(named(release("keda", values), "keda-operator"))["nodeSelector"] == {"pool": "own"}
    assert pod_of(named(release("keda", values), "keda-admission-webhooks"))["nodeSelector"] == {"pool": "all"}


def test_what_is_switched_off_is_not_there() -> None:
    def names(values: Mapping[str, Any]) -> set[str]:
        return {item["metadata"]["name"] for item in made(release("kube-prometheus-stack", values))}

    alertmanager = "alertmanager-kube-prometheus-stack-alertmanager"
    assert alertmanager in names({})
    assert names({}) - names({"alertmanager": {"enabled": False}}) == {alertmanager}
    assert "node-exporter" not in {item["metadata"]["name"] for item in made(addon("amazon-cloudwatch-observability"))}
    insights = made(addon("amazon-cloudwatch-observability", '{"otelContainerInsights": {"enabled": true}}'))
    assert "node-exporter" in {item["metadata"]["name"] for item in insights}


def test_a_volume_that_is_switched_on_is_claimed_and_mounted() -> None:
    storage = {"grafana": {"persistence": {"enabled": True, "size": "5Gi", "storageClassName": "gp3"}}}
    found = release("kube-prometheus-stack", storage)
    (claim,) = (item for item in made(found) if item["kind"] == "PersistentVolumeClaim")
    grafana = pod_of(named(found, "kube-prometheus-stack-grafana"))
    assert grafana["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["resources"]["requests"] == {"storage": "5Gi"}
    assert not [item for item in made(release("kube-prometheus-stack")) if item["kind"] == "PersistentVolumeClaim"]


def test_values_that_are_not_known_yet_count_as_unsaid() -> None:
    values = {"resources": "<unknown>", "replicaCount": "[secret]", "tolerations": "<unknown>"}
    assert named(release("lws", values), "lws-controller-manager") == named(release("lws"), "lws-controller-manager")


def test_namespaces_come_with_what_makes_them() -> None:
    assert next(item["kind"] for item in made(addon("amazon-cloudwatch-observability"))) == "Namespace"
    assert [item["kind"] for item in made(release("lws", createNamespace=True))] == ["Namespace", "Deployment"]
    assert [item["kind"] for item in made(addon("coredns"))] == ["Deployment"]
    exporter = named(release("kube-prometheus-stack", {"prometheus-node-exporter": {"namespaceOverride": "elsewhere"}}), EXPORTER)
    assert exporter["metadata"]["namespace"] == "elsewhere"


EXPORTER = "kube-prometheus-stack-prometheus-node-exporter"


def test_a_chart_that_the_catalog_does_not_know_is_said() -> None:
    unknown = release("https://charts.example/gpu-operator")
    assert made(unknown) == ()
    assert without_footprint(unknown) == ("chart gpu-operator",)
    assert any("chart gpu-operator" in one.why for one in unsimulated(unknown))


def test_what_is_only_looked_up_is_not_stood_in_for() -> None:
    looked_up = resource("aws:eks/addon:Addon", "coredns", {"addonName": "coredns"}, options={"read": "cluster:coredns"})
    assert made(graph(looked_up).graph) == ()


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)


def paths_of(footprint: Footprint) -> Iterator[str]:
    for workload in footprint.workloads:
        yield from (workload.replicas_at, workload.claim_at, workload.claim_kept_at, workload.namespace_at)
        yield from (path for path, _ in workload.enabled_at)
        yield from (path for container in workload.containers for path in container.at)


@given(st.sampled_from(sorted(catalog.charts())), st.data())
def test_no_value_of_a_chart_is_too_odd(name: str, data: st.DataObject) -> None:
    values: Any = {}
    for path in sorted({path for path in paths_of(catalog.charts()[name]) if path}):
        *above, last = path.split(".")
        here = values
        for key in above:
            inside = here.get(key)
            here[key] = inside if isinstance(inside, dict) else {}
            here = here[key]
        here[last] = data.draw(ODD)
    for item in made(release(name, values)):
        assert item["metadata"]["name"]
