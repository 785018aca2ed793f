"""What an API server would get of a graph: no token left, Pulumi's order, and a word for everything that is no object."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s
import pytest
import yaml

from conftest import recorded
from demo_program import program as demo
from eks_inference.catalog import versions
from eks_inference.cluster.plan import CREDENTIALS_VARIABLE
from eks_inference_tools.placing.placeholders import ACCOUNT, SECRET_TEXT
from eks_inference_tools.reading.readiness import SKIP_AWAIT
from eks_inference_tools.simulate.world.api_objects import (
    ClusterObject,
    Opaque,
    associated,
    cluster_objects,
    left_out,
    opaque_of,
    with_credentials,
)
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProblemsFound
from stackgraph.recorder.recording import record
from vectors.graph import WHERE, graph, pods, resource


def graph_of(program: Callable[[], None]) -> Graph:
    return record(program, project="demo", stack="dev", config={"aws:region": "eu-west-1"}, root=Path(__file__).parent)


def by_title(graph: Graph) -> dict[str, ClusterObject]:
    return {item.title: item for item in cluster_objects(graph)}


def after(graph: Graph, title: str) -> set[str]:
    """Titles of what an object or an opaque resource waits for."""
    every: tuple[ClusterObject | Opaque, ...] = (*cluster_objects(graph), *opaque_of(graph))
    titles = {item.urn: item.title for item in every}
    (found,) = [item for item in every if item.title == title]
    return {titles[urn] for urn in found.after}


def skips_await(item: ClusterObject) -> bool:
    return item.manifest["metadata"].get("annotations", {}).get(SKIP_AWAIT) == "true"


# -- the shipped stacks ----------------------------------------------------------------------------------------------------------


def test_every_object_of_a_stack_is_there_and_whole(shipped: Graph) -> None:
    objects = cluster_objects(shipped)
    assert {item.urn for item in objects} == {r.urn for r in shipped.resources if is_kubernetes_object(r)}
    assert not left_out(shipped)
    assert all(item.manifest["apiVersion"] and item.kind and item.name for item in objects)
    assert all(not item.unsure for item in objects)


def test_no_token_is_left_and_no_text_is_mistaken_for_one(shipped: Graph) -> None:
    names = {resource.name for resource in shipped.resources}
    texts = {}
    for item in cluster_objects(shipped):
        written = json.dumps(item.manifest)
        assert "[secret]" not in written, item.title
        found = re.findall(r"<([^<>]+?)(?:\.[\w.]+)?>", written)
        assert not names & set(found), item.title
        # Llama 2's chat template has marks of its own.
        found = [one for one in found if not one.endswith("SYS")]
        texts |= {item.title: found} if found else {}
    assert all(title.startswith("ConfigMap ") for title in texts), texts
    assert texts, "the placeholders that people read in configuration files should have stayed"


def test_each_object_comes_after_what_it_waits_for(shipped: Graph) -> None:
    objects, opaque = cluster_objects(shipped), opaque_of(shipped)
    known = {item.urn for item in (*objects, *opaque)}
    charts = {item.urn: item.after for item in opaque}
    made: set[str] = set()
    for item in objects:
        assert item.after <= known
        assert not {urn for urn in item.after if urn not in charts} - made, item.title
        # Through a chart, too: it has its own namespace under it.
        assert not {urn for chart in item.after if chart in charts for urn in charts[chart] if urn not in charts} - made
        made.add(item.urn)


@pytest.mark.thorough
def test_the_order_is_the_same_in_every_run(shipped: Graph) -> None:
    backwards = Graph(shipped.project, shipped.stack, tuple(reversed(shipped.resources)))
    assert [item.urn for item in cluster_objects(shipped)] == [item.urn for item in cluster_objects(backwards)]


def test_servers_wait_for_nodes_charts_and_namespaces() -> None:
    assert {"node group inf2-llama2-neuron-nodes", "Deployment kube-system/my-scheduler"} <= after(
        recorded("inf2-llama2"), "Deployment llama2-a/llama2-a"
    )
    assert "chart lws-system/lws" in after(recorded("trn2-di-pair"), "LeaderWorkerSet disaggregated/llama3-70b-servers")
    assert "Namespace monitoring" in after(recorded("inf2-llama2"), "chart monitoring/kube-prometheus-stack")
    assert "chart kube-system/karpenter" in after(recorded("inf2-llama3"), "EC2NodeClass default")


def test_what_nobody_waits_for_says_so() -> None:
    objects = by_title(recorded("inf2-llama3"))
    assert {title for title, item in objects.items() if skips_await(item)} >= {
        title for title in objects if title.startswith(("Job loadtest/", "Job vllm-llama3-inf2-smoke-test/"))
    }
    assert not skips_await(objects["Deployment openai-webui/open-webui"])


def test_values_of_aws_have_the_form_that_aws_gives_them() -> None:
    spec = by_title(recorded("inf2-llama3"))["EC2NodeClass default"].manifest["spec"]
    ids = [one["id"] for one in spec["subnetSelectorTerms"]]
    assert len(set(ids)) == 2
    assert all(re.fullmatch(r"subnet-[0-9a-f]{17}", one) for one in ids)
    assert re.fullmatch(r"sg-[0-9a-f]{17}", spec["securityGroupSelectorTerms"][0]["id"])
    assert re.fullmatch(r"inf2-llama3-karpenter-node-role-[0-9a-f]{7}", spec["role"])
    ray = by_title(recorded("inf2-llama3"))["RayService vllm/vllm-llama3-inf2"].manifest["spec"]["rayClusterConfig"]
    image = ray["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    assert re.fullmatch(rf"{ACCOUNT}\.dkr\.ecr\.us-west-2\.amazonaws\.com/[a-z0-9/._-]+:[0-9a-f]{{16}}", image)
    (store,) = (item for item in cluster_objects(recorded("trn2-di")) if item.kind == "PersistentVolume")
    volume = store.manifest["spec"]["csi"]["volumeHandle"]
    assert re.fullmatch(r"fs-[0-9a-f]{17}::fsap-[0-9a-f]{17}", volume)


def test_what_is_opaque_is_named() -> None:
    found = {item.title: item for item in opaque_of(recorded("inf2-llama3"))}
    assert {item.kind for item in found.values()} == {"chart", "add-on", "remote", "nodes"}
    chart = found["chart monitoring/kube-prometheus-stack"]
    assert (chart.kind, chart.namespace, chart.name) == ("chart", "monitoring", "kube-prometheus-stack")
    assert found["add-on amazon-cloudwatch-observability"].name == "amazon-cloudwatch-observability"
    assert found["Cluster inf2-llama3"].kind == "remote"
    assert found["node group inf2-llama3-core-nodes"].kind == "nodes"


# -- anybody's program -----------------------------------------------------------------------------------------------------------


def test_a_program_without_components_of_ours() -> None:
    graph = graph_of(demo)
    objects = by_title(graph)
    assert objects["NodePool small"].after == {objects["EC2NodeClass small"].urn, *_urns(graph, "eks:index:Cluster")}
    assert "node group inf2-nodes" in after(graph, "Deployment demo/chat")
    assert "Secret demo/chat" in objects


def _urns(graph: Graph, type_: str) -> set[str]:
    return {resource.urn for resource in graph.of_type(type_)}


def test_names_and_namespaces_that_pulumi_fills_in() -> None:
    def program() -> None:
        elsewhere = k8s.Provider("elsewhere", namespace="team", kubeconfig="{}")
        config = k8s.core.v1.ConfigMap("settings", data={"a": "b"})
        k8s.core.v1.ConfigMap("of-team", opts=pulumi.ResourceOptions(provider=elsewhere))
        k8s.core.v1.ConfigMap("reader", metadata={"name": "reader"}, data={"other": config.metadata.name, "id": config.id})
        k8s.batch.v1.Job("once", metadata={"generate_name": "once-"}, spec={"template": {}})
        k8s.core.v1.Namespace("plain")
        k8s.apiextensions.CustomResource("thing", api_version="example.com/v1", kind="Thing", spec={})

    objects = {item.urn.rpartition("::")[2]: item for item in cluster_objects(graph_of(program))}
    assert (objects["settings"].name, objects["settings"].namespace) == ("settings", "default")
    assert objects["of-team"].namespace == "team"
    assert objects["reader"].manifest["data"] == {"other": "settings", "id": "default/settings"}
    assert objects["reader"].after == {objects["settings"].urn}
    assert re.fullmatch(r"once-\w{5}", objects["once"].name)
    assert (objects["plain"].name, objects["plain"].namespace) == ("plain", "")
    assert "namespace" not in objects["thing"].manifest["metadata"], "only a schema tells whether a custom kind has one"


def test_outputs_of_any_resource_get_a_plausible_value() -> None:
    def program() -> None:
        vpc = aws.ec2.Vpc("net", cidr_block="10.0.0.0/16")
        bucket = aws.s3.Bucket("weights")
        named = aws.s3.Bucket("named", bucket=vpc.id.apply(lambda one: f"of-{one}"))
        queue = aws.sqs.Queue("jobs", name="jobs")
        cluster = eks.Cluster("plane", name="plane")
        odd = aws.ec2.Ami("odd")
        data = {
            "bucket": bucket.bucket,
            "bucketArn": bucket.arn,
            "named": named.bucket,
            "queue": queue.url,
            "topic": queue.arn,
            "endpoint": cluster.eks_cluster.endpoint,
            "odd": odd.hypervisor,
            "not": "a <b> and a <net> and <net.>",
        }
        k8s.core.v1.ConfigMap("outputs", data=data)

    (item,) = cluster_objects(graph_of(program))
    data = item.manifest["data"]
    assert re.fullmatch(r"weights-[0-9a-f]{7}", data["bucket"])
    assert data["bucketArn"] == f"arn:aws:s3:::{data['bucket']}"
    assert re.fullmatch(r"of-vpc-[0-9a-f]{17}", data["named"])
    assert data["queue"] == f"https://sqs.eu-west-1.amazonaws.com/{ACCOUNT}/jobs"
    assert data["topic"] == f"arn:aws:sqs:eu-west-1:{ACCOUNT}:jobs"
    assert re.fullmatch(r"https://[0-9A-F]{32}\.gr7\.eu-west-1\.eks\.amazonaws\.com", data["endpoint"])
    assert item.unsure == ("data.odd",)
    assert data["not"].startswith("a <b> and a <net>")


def test_secrets_are_made_up_in_the_right_encoding() -> None:
    def program() -> None:
        metadata = k8s.meta.v1.ObjectMetaArgs(namespace="demo")
        k8s.core.v1.Secret("plain", metadata=metadata, data={"a": base64.b64encode(b"really secret").decode()})
        k8s.core.v1.Secret("pull", metadata=metadata, type="kubernetes.io/dockerconfigjson", data={".dockerconfigjson": "e30="})
        env = k8s.core.v1.EnvVarArgs(name="TOKEN", value=pulumi.Output.secret("hush"))
        labels = {"who": pulumi.Output.secret("me")}
        k8s.core.v1.Pod(
            "user",
            metadata=k8s.meta.v1.ObjectMetaArgs(namespace="demo", labels=labels),
            spec=k8s.core.v1.PodSpecArgs(
                containers=[k8s.core.v1.ContainerArgs(name="one", env=[env])], priority=pulumi.Output.secret(3)
            ),
        )

    objects = by_title(graph_of(program))
    # Pulumi hides a Secret's data whole, so not even its keys are known; some types cannot do without.
    assert "data" not in objects["Secret demo/plain"].manifest
    assert json.loads(base64.b64decode(objects["Secret demo/pull"].manifest["data"][".dockerconfigjson"])) == {"auths": {}}
    pod = objects["Pod demo/user"]
    assert pod.manifest["spec"]["containers"][0]["env"] == [{"name": "TOKEN", "value": SECRET_TEXT}]
    assert pod.manifest["metadata"]["labels"] == {"who": SECRET_TEXT}
    assert "priority" not in pod.manifest["spec"]
    assert pod.unsure == ("spec.priority",)


def test_keys_of_a_secret_stay_where_they_are_known() -> None:
    inputs = {"metadata": {"name": "one"}, "data": {"a": "cmVhbA=="}, "stringData": {"b": "real"}}
    secret = Resource(urn="urn:one", type="kubernetes:core/v1:Secret", name="one", inputs=inputs)
    (item,) = cluster_objects(Graph("p", "s", (secret,)))
    assert base64.b64decode(item.manifest["data"]["a"]).decode() == item.manifest["stringData"]["b"] == SECRET_TEXT


def test_unknown_values_are_texts_where_texts_belong_and_absent_elsewhere() -> None:
    def program() -> None:
        unknown = aws.ssm.get_parameter_output(name="x")
        container = {"image": unknown.apply(lambda found: found.value)}
        spec = {"replicas": unknown.apply(lambda found: found.version), "template": {"spec": {"containers": [container]}}}
        k8s.apiextensions.CustomResource("server", api_version="example.com/v1", kind="Server", spec=spec)

    (item,) = cluster_objects(graph_of(program))
    assert "replicas" not in item.manifest["spec"]
    assert isinstance(item.manifest["spec"]["template"]["spec"]["containers"][0]["image"], str)
    assert item.unsure == ("spec.replicas", "spec.template.spec.containers.0.image")


def test_what_is_no_whole_object_is_left_out_with_a_reason() -> None:
    def program() -> None:
        k8s.core.v1.ConfigMapPatch("patch", metadata={"name": "coredns", "namespace": "kube-system"}, data={"a": "b"})
        k8s.core.v1.ConfigMapList("many", items=[{"metadata": {"name": "one"}}])
        k8s.core.v1.Service.get("dns", "kube-system/kube-dns")
        pod = k8s.core.v1.Pod("hidden", spec=pulumi.Output.secret(k8s.core.v1.PodSpecArgs(containers=[])))
        k8s.core.v1.ConfigMap("real", opts=pulumi.ResourceOptions(depends_on=[pod]))

    graph = graph_of(program)
    assert [item.title for item in cluster_objects(graph)] == ["ConfigMap default/real"]
    assert {item.title: item.reason.split(",")[0].split(":")[0] for item in left_out(graph)} == {
        "ConfigMap kube-system/coredns": "it patches an existing object",
        "ConfigMapList many": "an API server accepts no lists",
        "Pod hidden": "its spec is known only after deployment",
    }


def test_two_resources_that_make_the_same_object_are_refused() -> None:
    def program() -> None:
        for name in ("one", "two"):
            k8s.core.v1.ConfigMap(name, metadata={"name": "same", "namespace": "demo"})

    with pytest.raises(ProblemsFound, match=r"two resources create ConfigMap demo/same(?s:.*)one and two"):
        cluster_objects(graph_of(program))


def test_waiting_goes_through_components_providers_and_roles() -> None:
    class Team(pulumi.ComponentResource):
        def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
            super().__init__("demo:index:Team", name, {}, opts)
            k8s.core.v1.ConfigMap("inside", opts=pulumi.ResourceOptions(parent=self))

    def program() -> None:
        chart = k8s.helm.v3.Release("chart", chart="x", namespace="charts", name="chart")
        role = aws.iam.Role("role", assume_role_policy="{}", opts=pulumi.ResourceOptions(depends_on=[chart]))
        Team("team", pulumi.ResourceOptions(depends_on=[role]))
        provider = k8s.Provider("second", kubeconfig=role.arn)
        config = k8s.core.v1.ConfigMap("provided", opts=pulumi.ResourceOptions(provider=provider))
        k8s.core.v1.Pod("child", spec={"containers": []}, opts=pulumi.ResourceOptions(parent=config))
        k8s.core.v1.ConfigMap("gone-with", opts=pulumi.ResourceOptions(deleted_with=config))

    graph = graph_of(program)
    assert after(graph, "ConfigMap default/inside") == {"chart charts/chart"}
    assert after(graph, "ConfigMap default/provided") == {"chart charts/chart"}
    assert "ConfigMap default/provided" in after(graph, "Pod default/child")
    assert after(graph, "ConfigMap default/gone-with") == {"ConfigMap default/provided"}


def test_a_graph_of_anything_gives_objects_or_a_reason() -> None:
    kind = "kubernetes:core/v1:ConfigMap"
    odd = [
        Resource(urn=f"urn:{number}", type=kind, name=f"n{number}", inputs=inputs)
        for number, inputs in enumerate(
            ({}, {"metadata": None}, {"metadata": "<unknown>"}, {"metadata": {"name": 3}}, {"data": []})
        )
    ]
    graph = Graph("p", "s", tuple(odd))
    assert len(cluster_objects(graph)) + len(left_out(graph)) == len(odd)


@pytest.mark.parametrize(
    ("inputs", "word"),
    [({"apiVersion": 3}, "apiVersion"), ({"kind": None}, "kind"), ({"metadata": {"name": 3}}, "name")],
)
def test_what_cannot_be_named_is_left_out(inputs: dict[str, Any], word: str) -> None:
    odd = Resource(urn="urn:one", type="kubernetes:example.com/v1:Thing", name="one", inputs=inputs)
    graph = Graph("p", "s", (odd,))
    assert not cluster_objects(graph)
    assert [item.reason for item in left_out(graph)] == [f"its {word} is not a string"]


# -- schemas of ours -------------------------------------------------------------------------------------------------------------


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _references(item)


@pytest.mark.parametrize(("group", "chart"), [("ray.io", "kuberay-operator"), ("leaderworkerset.x-k8s.io", "lws")])
def test_schemas_of_ours_are_whole_and_of_the_pinned_version(group: str, chart: str) -> None:
    document = yaml.safe_load(
        resources.files("eks_inference_tools.simulate.world").joinpath(f"assets/{group}.yaml").read_text("utf-8")
    )
    assert document["group"] == group
    # A newer chart needs another look at its API reference.
    assert document["origin"].startswith("schema of ours, after ")
    assert document["origin"].endswith(f" {versions.chart(chart).version}")
    used = {*_references(document), *(row["spec"] for row in document["kinds"].values())}
    assert {name for name in used if not name.startswith("io.k8s.")} == set(document["schemas"])


@pytest.mark.parametrize(("account", "accounts"), [("runner", True), ("other", False)])
def test_pods_of_a_service_account_with_a_role_get_the_variable_of_its_credentials(account: str, accounts: bool) -> None:
    made = pods(serviceAccountName=account)
    role = resource(
        "aws:eks/podIdentityAssociation:PodIdentityAssociation", "a", {"namespace": WHERE, "serviceAccount": "runner"}
    )
    given = with_credentials(made.inputs, made, associated(graph(role, made).graph))
    (container,) = given["spec"]["template"]["spec"]["containers"]
    assert [item["name"] for item in container.get("env", ())] == [CREDENTIALS_VARIABLE] * accounts
    assert "env" not in made.inputs["spec"]["template"]["spec"]["containers"][0]
