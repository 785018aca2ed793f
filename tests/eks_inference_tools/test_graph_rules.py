"""Rules about recorded graphs, beyond one passing and one failing vector each: what must not be mistaken, and odd values."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import ROOT, recorded
from demo_program import program
from eks_inference.rules import Finding, findings
from eks_inference_tools.check.registry import graph_rules
from eks_inference_tools.reading.graph_facts import GraphFacts
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.recording import record
from vectors.graph import (
    BLOCK_TEMPLATE,
    BUCKET,
    EFA_GROUP,
    ISOLATED,
    NEURON_CHART,
    TO_ALL,
    TO_ITSELF,
    TOLERATION,
    VECTORS,
    addon,
    asking,
    auto_mode,
    autoscaler,
    chart,
    checked,
    claiming,
    cluster,
    config_map,
    container,
    efa_nodes,
    efa_template,
    graph,
    ingress_rule,
    kubernetes,
    listening,
    namespace,
    neuron_daemon,
    node_group,
    on_trn2,
    pods,
    ray_service,
    resource,
    security_group,
    server,
    service,
    tagged,
    template,
    trn2_group,
    urn_of,
)


def found(facts: GraphFacts, id_: str) -> list[Finding]:
    """What one rule has against a graph."""
    return list(findings([rule for rule in graph_rules() if rule.id == id_], facts, {}))


def messages(facts: GraphFacts, id_: str) -> str:
    return "\n".join(finding.judgement.message for finding in found(facts, id_))


# -- graphs of whole programs ----------------------------------------------------------------------------------------------------


def test_no_shipped_stack_breaks_an_error(shipped: Graph):
    broken = [finding for finding in findings(graph_rules(), GraphFacts(shipped), {}) if finding.stops]
    assert [f"{finding.rule.id} {finding.judgement.message}" for finding in broken] == []


def test_a_program_of_somebody_else_is_judged_too(tmp_path: Any):
    recorded_graph = record(program, project="demo", stack="test", config={"aws:region": "us-west-2"}, root=tmp_path)
    ids = {finding.rule.id for finding in findings(graph_rules(), GraphFacts(recorded_graph), {})}
    # Four of twelve devices by the default scheduler; EFA over three subnets; an open load balancer; plain disks.
    assert {"NEU026", "EFA005", "K8S006", "AWS005"} <= ids
    # Its cluster has a default node group inside, so the pools of the graph are not all there is.
    assert "K8S002" not in ids


def test_findings_name_the_resource(shipped: Graph):
    for finding in findings(graph_rules(), GraphFacts(shipped), {}):
        assert finding.judgement.resource in shipped.by_urn


# -- images ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "image",
    [
        "server",
        "registry.example:5000/team/server",
        "server:latest",
        "ghcr.io/open-webui/open-webui:main",
        "rayproject/ray:nightly-py311",
        "nginx:stable-alpine",
        "public.ecr.aws/eks-distro/kubernetes/kube-scheduler:v1.28.5-eks-1-28-latest",
    ],
)
def test_images_that_move(image: str):
    assert found(graph(server(image=image)), "K8S001")


@pytest.mark.parametrize(
    "image",
    [
        "server:latest@sha256:0123456789abcdef",
        "registry.example:5000/server:2.52.1-py311",
        "nvcr.io/nvidia/tritonserver:24.07-vllm-python-py3",
        "<repository.repositoryUrl>:7debca45e693c24a",
        "server:<image.version>",
        "<image.imageUri>",
        "[secret]",
    ],
)
def test_images_that_stay_or_are_not_known(image: str):
    assert not found(graph(server(image=image)), "K8S001")


@pytest.mark.parametrize(
    ("started", "killed"),
    [
        ({}, True),
        ({"args": ["--model=m"]}, True),
        ({"command": ["python3", "-m", "vllm.entrypoints.openai.api_server"]}, True),
        ({"command": ["/bin/sh", "-c"], "args": ["exec vllm serve m"]}, True),
        ({"command": ["python3", "/scripts/download.py"]}, False),
        ({"command": ["sleep", "infinity"]}, False),
    ],
)
def test_only_the_program_of_an_image_needs_its_memory(started: dict[str, Any], killed: bool) -> None:
    small = server(image="vllm/vllm-openai:v0.30.0", resources={"limits": {"memory": "512Mi"}}, **started)
    assert bool(found(graph(small), "K8S023")) == killed


@pytest.mark.parametrize(
    ("cpu", "name", "probe", "said"),
    [
        ("1m", "vllm", {"failureThreshold": 180}, "killed for its probe"),
        ("500m", "vllm", {"failureThreshold": 180}, ""),
        ("500m", "vllm", None, ""),
        (None, "vllm", {"failureThreshold": 180}, ""),
        ("1m", "ray-head", None, "killed for its probe"),
        ("20m", "ray-head", None, ""),
        # The kernel grants a hundredth of a CPU, with which a worker is healthy in time; its engine takes longer.
        ("1m", "ray-worker", None, "needs 2800 s for the engine's imports alone"),
        ("10m", "ray-worker", None, "needs 2800 s"),
        ("40m", "ray-worker", None, "needs 700 s"),
        ("50m", "ray-worker", None, ""),
    ],
)
def test_what_serves_needs_a_cpu_to_start(cpu: str | None, name: str, probe: dict[str, int] | None, said: str) -> None:
    limits = {"memory": "8Gi", **({"cpu": cpu} if cpu else {})}
    image = "vllm/vllm-openai:v0.30.0" if name == "vllm" else "ray:2.52.1"
    small = server(image=image, name=name, resources={"limits": limits}, **({"startupProbe": probe} if probe else {}))
    assert said in messages(graph(small), "K8S023")
    assert bool(messages(graph(small), "K8S023")) == bool(said)


@pytest.mark.parametrize(("cpu", "severity"), [("10m", "error"), ("30m", "")])
def test_a_ray_worker_has_its_engine_within_the_time_that_its_program_waits(cpu: str, severity: str) -> None:
    env = [{"name": "STARTUP_TIMEOUT_S", "value": "1200"}]
    worker = server(name="ray-worker", env=env, resources={"limits": {"memory": "8Gi", "cpu": cpu}})
    assert [finding.severity for finding in found(graph(worker), "K8S023")] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("installed", "severity"),
    [
        (chart(resources={"limits": {"memory": "8Mi"}}), "error"),
        (chart(resources={"limits": {"memory": "9Mi"}}), ""),
        (chart(resources={"requests": {"memory": "1Mi"}}), ""),
        (chart("oci://x/keda", resources={"operator": {"limits": {"memory": "8M"}}}), "error"),
        (chart("oci://x/keda", webhooks={"enabled": False}, resources={"webhooks": {"limits": {"memory": "8Mi"}}}), ""),
        (chart("oci://x/kube-prometheus-stack", grafana={"resources": {"limits": {"memory": "100Mi"}}}), "warning"),
        (chart("oci://x/kube-prometheus-stack", grafana={"resources": {"limits": {"memory": "512M"}}}), ""),
        (
            chart("oci://x/kube-prometheus-stack", prometheus={"prometheusSpec": {"resources": {"limits": {"memory": "20Mi"}}}}),
            "error",
        ),
        (
            chart("oci://x/kube-prometheus-stack", prometheus={"prometheusSpec": {"resources": {"limits": {"memory": "24Mi"}}}}),
            "",
        ),
        (server(name="prometheus", resources={"limits": {"memory": "8Mi"}}), ""),
        (chart("oci://x/of-others", resources={"limits": {"memory": "1Mi"}}), ""),
        (addon("coredns", resources={"limits": {"memory": "32Mi"}}), ""),
        (addon("aws-ebs-csi-driver", controller={"resources": {"limits": {"memory": "8Mi"}}}), "error"),
    ],
)
def test_what_charts_and_addons_run_has_the_memory_to_start(installed: Resource, severity: str) -> None:
    assert min((finding.severity for finding in found(graph(installed), "K8S023")), default="") == severity


@pytest.mark.parametrize("image", ["vllm/vllm-openai:v0.30.0", "ghcr.io/vllm-project/guidellm:v0.7.3"])
def test_what_serves_or_measures_with_less_than_a_cpu_is_not_judged(image: str) -> None:
    small = server(image=image, resources={"limits": {"memory": "8Gi", "cpu": "500m"}})
    (rule,) = [graph_rule for graph_rule in graph_rules() if graph_rule.id == "K8S023"]
    assert [judgement.unjudged.what for judgement in rule.judge(graph(small)) if judgement.unjudged] == ["speed"]


# -- where pods run --------------------------------------------------------------------------------------------------------------

CORE = (cluster(), node_group())


def unplaced(pod: Resource, *nodes: Resource) -> str:
    return messages(graph(*(nodes or CORE), pod), "K8S002")


def test_a_label_nearly_right_is_told():
    (finding,) = found(graph(*CORE, pods(nodeSelector={"pool": "cor"})), "K8S002")
    assert finding.judgement.allowed == "nearest label: pool=core"
    assert finding.severity == "error"


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "pool", "operator": "In", "values": ["core", "other"]}, True),
        ({"key": "pool", "operator": "NotIn", "values": ["core"]}, False),
        ({"key": "pool", "operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists"}, False),
        ({"key": "team", "operator": "DoesNotExist"}, True),
        ({"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}, False),
        ({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.2xlarge"]}, True),
        ({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a"]}, True),
        ({"key": "karpenter.sh/nodepool", "operator": "Exists"}, False),
        ({"key": "<pool.label>", "operator": "In", "values": ["x"]}, True),
    ],
)
def test_affinity(expression: dict[str, Any], fits: bool):
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    pod = pods(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    assert bool(unplaced(pod)) is not fits


@pytest.mark.parametrize(
    "beside",
    [
        resource("eks:index:ManagedNodeGroup", "more", {}, remote=True),
        resource("aws:eks/fargateProfile:FargateProfile", "fargate"),
        resource("aws:autoscaling/group:Group", "own"),
        resource("eks:index:Cluster", "with-default-group", {"version": "1.35"}, remote=True),
        resource("eks:index:Cluster", "auto", {"skipDefaultNodeGroup": True, "autoMode": {"enabled": True}}, remote=True),
    ],
)
def test_nodes_that_the_graph_does_not_show_may_take_any_pod(beside: Resource):
    facts = graph(*CORE, pods(nodeSelector={"pool": "gone"}), beside)
    assert not found(facts, "K8S002")


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"labels": "[secret]"}, "pool"),
        ({"labels": {"pool": "<pulumi.getStack>"}}, "pool"),
        # With an image or a template of their own, nodes may get labels by user data.
        ({"amiType": "CUSTOM"}, "team"),
        ({"launchTemplate": {"id": "lt-0123"}}, "team"),
    ],
)
def test_labels_that_are_not_known_may_be_any(changes: dict[str, Any], label: str):
    pod = pods(nodeSelector={label: "gone"})
    assert unplaced(pod)
    assert not unplaced(pod, cluster(), node_group(**changes))


def node_pool(*requirements: dict[str, Any], **node: Any) -> Resource:
    spec = {"nodeClassRef": {"name": "default"}, "requirements": list(requirements), **node}
    inputs = {"metadata": {"name": "inf2"}, "spec": {"template": {"metadata": {"labels": {"pool": "inf2"}}, "spec": spec}}}
    return resource("kubernetes:karpenter.sh/v1:NodePool", "inf2", inputs)


def family(*names: str) -> dict[str, Any]:
    return {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": list(names)}


def fixed(pool: Resource) -> Resource:
    """Returns a NodePool with so many nodes, whatever pods ask for."""
    return replace(pool, inputs={**pool.inputs, "spec": {**pool.inputs["spec"], "replicas": 1}})


def claims_rule(facts: GraphFacts) -> list[str]:
    (rule,) = (graph_rule for graph_rule in graph_rules() if graph_rule.id == "DRA009")
    return ["unjudged" if one.unjudged else one.severity or "error" for one in rule.judge(facts) if not one.holds or one.unjudged]


@pytest.mark.parametrize(
    ("device_class", "others", "said"),
    [
        ("neuron.aws.com", [node_pool(family("inf2"))], ["error"]),
        # Karpenter 1.15 may be told to (alpha).
        ("gpu.nvidia.com", [node_pool(family("inf2"))], ["warning"]),
        ("neuron.aws.com", [fixed(node_pool(family("inf2")))], []),
        ("gpu.nvidia.com", [auto_mode(), node_pool(family("inf2"))], ["error"]),
        ("neuron.aws.com", [auto_mode(), fixed(node_pool(family("inf2")))], []),
        ("neuron.aws.com", [auto_mode(False)], []),
        ("neuron.aws.com", [auto_mode(), resource("aws:autoscaling/group:Group", "own")], ["unjudged"]),
    ],
)
def test_claims_start_no_node(device_class: str, others: list[Resource], said: list[str]):
    pod = {"nodeSelector": {"pool": "inf2"}}
    assert claims_rule(claiming(*others, device_class=device_class, **pod)) == said


# -- what pods ask for -----------------------------------------------------------------------------------------------------------


def too_much(pod: Resource, *nodes: Resource) -> str:
    return messages(graph(cluster(), *(nodes or (trn2_group(),)), pod), "K8S003")


@pytest.mark.parametrize(
    ("amounts", "over"),
    [
        ({"cpu": "200"}, "200 cpu, trn2.48xlarge of pool trn2 has 191.45"),
        ({"memory": "2Ti"}, "2048.00 GiB memory"),
        ({"nvidia.com/gpu": 1}, "1 nvidia.com/gpu, trn2.48xlarge of pool trn2 has 0"),
        ({"vpc.amazonaws.com/efa": 16}, "16 vpc.amazonaws.com/efa, trn2.48xlarge of pool trn2 has 0"),
        ({"aws.amazon.com/neuroncore": 65}, "65 aws.amazon.com/neuroncore, trn2.48xlarge of pool trn2 has 64"),
    ],
)
def test_each_resource_has_its_limit(amounts: dict[str, Any], over: str):
    assert over in too_much(on_trn2(amounts))


@pytest.mark.parametrize("amount", ["<server.devices>", "[secret]", "many", True, None, "-3", [16], "9" * 5000])
def test_amounts_that_are_none_are_not_judged(amount: Any):
    assert not too_much(on_trn2({"aws.amazon.com/neuron": amount}))


def test_daemon_sets_of_the_graph_take_their_share():
    daemon = neuron_daemon("monitor", containers=[container(resources={"requests": {"cpu": "2"}})])
    (finding,) = found(graph(cluster(), trn2_group(), daemon, on_trn2({"cpu": "190"})), "K8S003")
    assert finding.judgement.working == (
        "Deployment app/server: cpu 190 > 189.45 (191.45 - 2 of DaemonSets) of trn2.48xlarge of pool trn2",
    )


@pytest.mark.parametrize(
    ("requests", "limits", "fault"),
    [
        ({"aws.amazon.com/neuron": 1}, {}, "has no limit"),
        ({}, {"aws.amazon.com/neuron": "500m"}, "is not a whole number"),
        ({"hugepages-2Mi": "1Gi"}, {"hugepages-2Mi": "2Gi"}, "has a request that differs from its limit"),
        ({"hugepages-2Mi": "1Gi"}, {"hugepages-2Mi": "1024Mi"}, ""),
        ({"cpu": "1"}, {"cpu": "2"}, ""),
        ({"aws.amazon.com/neuron": "<n>"}, {"aws.amazon.com/neuron": 1}, ""),
    ],
)
def test_requests_and_limits_of_devices(requests: dict[str, Any], limits: dict[str, Any], fault: str):
    told = messages(graph(server(resources={"requests": requests, "limits": limits})), "K8S011")
    assert told.endswith(fault) if fault else not told


# -- credentials -----------------------------------------------------------------------------------------------------------------

TOKEN = "hf_" + "AbCdEfGhIj" * 4
CREDENTIALS = [TOKEN, "AKIA" + "Z" * 16, "sk-" + "a1" * 20, "-----BEGIN RSA PRIVATE KEY-----", "postgres://me:hunter22@db/x"]


@pytest.mark.parametrize("value", CREDENTIALS)
@pytest.mark.parametrize(
    "place",
    [
        lambda value: server(env=[{"name": "SETTING", "value": value}]),
        lambda value: server(args=["--model", "llama", "--setting", value]),
        lambda value: server(command=["sh", "-c", f"export X='{value}' && serve"]),
        lambda value: config_map(**{"settings.yaml": f"a: 1\nb: '{value}'\n"}),
        lambda value: chart(extra=[{"args": [value]}]),
    ],
)
def test_a_credential_is_known_by_its_shape_and_never_shown(place: Any, value: str):
    (finding,) = found(graph(place(value)), "K8S004")
    assert value not in str(finding.fault) + str(finding.judgement)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GRAFANA_PASSWORD", "hunter2"),
        ("OPENAI_API_KEY", "abcdef123456"),
        ("client_secret", "q8Zk2"),
        ("DB_PASSWORD", "12345678"),
    ],
)
def test_a_credential_is_known_by_the_name_of_its_variable(name: str, value: str):
    (finding,) = found(graph(server(env=[{"name": name, "value": value}])), "K8S004")
    assert name in finding.judgement.message
    assert value not in str(finding.fault) + str(finding.judgement)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEYS", "none"),
        ("OPENAI_API_KEYS", "none;none"),
        ("OPENAI_API_KEY", "EMPTY"),
        ("HF_TOKEN", ""),
        ("HF_TOKEN", "[secret]"),
        ("HF_TOKEN", "<token.value>"),
        ("HF_TOKEN", "$(HF_TOKEN)"),
        ("WEBUI_SECRET_KEY_FILE", "/data/key"),
        ("API_TOKEN", "/var/run/secrets/token"),
        ("MAX_TOKENS", "4096"),
        ("EOS_TOKEN", "end-of-text"),
        ("SECRET_NAME", "hf-token"),
        ("PASSWORD", "your-password-here"),
        ("AWS_SECRET_ACCESS_KEY", "arn:aws:secretsmanager:us-west-2:1:secret:x"),
        ("SETTING", "AKIAIOSFODNN7EXAMPLE"),
        ("SETTING", "task-" + "a" * 30),
    ],
)
def test_what_only_points_at_a_credential_is_none(name: str, value: str):
    assert not found(graph(server(env=[{"name": name, "value": value}])), "K8S004")


PLANTED = {
    "grafana": {
        "adminPassword": "q8Zk2w",
        "grafana.ini": {
            "auth.google": {"client_secret": "GOCSPX-q8Zk2wq8Zk2w"},
            "auth.github": {"client_secret": "q8Zk2wq8Zk2w"},
            "smtp": {"password": "q8Zk2w"},
            "database": {"url": "postgres://grafana:q8Zk2w@db/grafana"},
            "security": {"secret_key": "q8Zk2wq8"},
        },
        "oauth": {"clientSecret": "q8Zk2wq8Zk2w"},
    },
    "alertmanager": {
        "config": {
            "global": {"slack_api_url": "https://hooks.slack.com/services/T0AAAAAAA/B0AAAAAAA/" + "q8Zk2wq8Zk2wq8Zk2wq8Zk2w"},
            "pagerduty": {"routing_key": "q8Zk2wq8Zk2wq8Zk"},
            "opsgenie": {"api_key": "q8Zk2wq8-Zk2w"},
            "webhook": {"bearer_token": "q8Zk2wq8Zk2w"},
            "discord": {"webhook_url": "https://discord.com/api/webhooks/123456789/" + "q8Zk2w-" * 4},
        },
        "stringConfig": "api_url: https://hooks.slack.com/services/T0AAAAAAA/B0AAAAAAA/" + "q8Zk2wq8Zk2wq8Zk2wq8Zk2w",
        "token": "xoxb-" + "1" * 20,
    },
}


def leaves_of(values: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [path] if isinstance(values, str) else [one for key, each in values.items() for one in leaves_of(each, (*path, key))]


@pytest.mark.parametrize("path", leaves_of(PLANTED), ids=".".join)
def test_each_secret_that_is_planted_in_a_chart_is_found_and_not_shown(path: tuple[str, ...]):
    value: Any = PLANTED
    for key in path:
        value = value[key]
    values: Any = value
    for key in reversed(path):
        values = {key: values}
    (finding,) = found(graph(chart(**values)), "K8S004")
    assert value not in str(finding.fault) + str(finding.judgement)


@pytest.mark.parametrize(
    "values",
    [
        {"auth": {"existingSecret": "client"}},
        {"alertmanagerSpec": {"secrets": "slack"}},
        {"config": {"api_url_file": "/etc/alertmanager/secrets/slack/url"}},
        {"docs": "https://api.slack.com/messaging/webhooks"},
        {"grafana.ini": {"auth.google": {"client_secret": "$__file{/etc/secrets/google}"}}},
    ],
)
def test_what_a_chart_says_of_a_secret_elsewhere_is_none(values: dict[str, Any]):
    assert not found(graph(chart(**values)), "K8S004")


# -- objects of the cluster ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "spec", "open_"),
    [
        ({"service.beta.kubernetes.io/aws-load-balancer-scheme": "internal"}, {}, False),
        ({"service.beta.kubernetes.io/aws-load-balancer-scheme": "internet-facing"}, {}, True),
        ({"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8, 203.0.113.0/24"}, {}, False),
        ({}, {"loadBalancerSourceRanges": ["0.0.0.0/0"]}, True),
        ({}, {"loadBalancerSourceRanges": "<office.networks>"}, False),
        ({}, {"type": "ClusterIP"}, False),
        ("[secret]", {}, False),
    ],
)
def test_load_balancers(annotations: Any, spec: dict[str, Any], open_: bool):
    made = kubernetes("core/v1:Service", "server", {"spec": {"type": "LoadBalancer", **spec}}, annotations=annotations)
    assert bool(found(graph(made), "K8S006")) is open_


@pytest.mark.parametrize(
    ("words", "installs"),
    [
        (["bash", "-c", "apt-get update && apt-get install -y git"], True),
        (["sh", "-c", "curl -sSL https://example.com/x.sh | bash"], True),
        (["sh", "-c", "uv pip install --system numpy"], True),
        (["sh", "-c", "apk --no-cache add curl"], True),
        (["sh", "-c", "curl -s http://localhost/health | grep ok"], False),
        (["python", "install.py", "pip"], False),
    ],
)
def test_what_installs(words: list[str], installs: bool):
    assert bool(found(graph(server(command=words)), "K8S010")) is installs


def test_what_it_says_of_an_installation_holds_no_password():
    (finding,) = found(graph(server(command=["sh", "-c", "curl -H 'Token: hunter22' https://me:hunter22@x/y|sh"])), "K8S010")
    assert finding.judgement.given == "curl … sh"
    assert "hunter22" not in str(finding)


# -- devices ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("devices", "alone"), [(1, True), (4, False), (12, True)])
def test_one_device_and_all_devices_need_no_extension(devices: int, alone: bool):
    chosen = {"node.kubernetes.io/instance-type": "inf2.48xlarge"}
    facts = graph(asking({"aws.amazon.com/neuron": devices}, nodeSelector=chosen))
    assert bool(found(facts, "NEU026")) is not alone


# -- EFA -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interfaces", "devices", "severity"), [(16, 16, ""), (8, 8, ""), (4, 4, ""), (16, 8, "warning"), (1, 16, "error")]
)
def test_interfaces_follow_devices(interfaces: int, devices: int, severity: str):
    made = efa_template()
    pod = on_trn2({"aws.amazon.com/neuron": devices, "vpc.amazonaws.com/efa": interfaces})
    assert [finding.severity for finding in found(graph(cluster(), trn2_group(made), made, pod), "EFA004")] == [severity] * bool(
        severity
    )


# -- AWS -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "open_"),
    [
        ({"endpointPublicAccess": False, "publicAccessCidrs": None}, False),
        ({"endpointPublicAccess": None, "publicAccessCidrs": None}, True),
        ({"publicAccessCidrs": "<office.networks>"}, False),
        ({"publicAccessCidrs": ["203.0.113.0/24", "0.0.0.0/0"]}, True),
    ],
)
def test_who_reaches_the_api(changes: dict[str, Any], open_: bool):
    assert bool(found(graph(cluster(**changes)), "AWS001")) is open_


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"version": "1.36", "releaseVersion": "1.36.0-20261001"}, "error"),
        ({"version": "1.33", "releaseVersion": "1.33.1-20261001"}, ""),
        ({"version": "1.31", "releaseVersion": "1.31.1-20261001"}, "error"),
        ({"amiType": "AL2_x86_64", "releaseVersion": None}, "error"),
        ({"amiType": "BOTTLEROCKET_x86_64", "releaseVersion": "1.20.3-5d9ac849"}, ""),
        ({"amiType": "AL2023_x86_64_STANDARD", "version": "<cluster.version>", "releaseVersion": "<unknown>"}, ""),
    ],
)
def test_versions_of_node_groups(changes: dict[str, Any], severity: str):
    assert [finding.severity for finding in found(graph(cluster(), node_group(**changes)), "AWS004")] == [severity] * bool(
        severity
    )


def test_a_name_that_pulumi_makes_says_so():
    (made,) = found(graph(resource("aws:iam/role:Role", "r" * 57, {"assumeRolePolicy": "{}"})), "AWS014")
    assert "the last 8 characters are the suffix that Pulumi adds" in made.judgement.working[1]
    (given,) = found(graph(resource("aws:s3/bucket:Bucket", "x", {"bucket": "a..b"})), "AWS013")
    assert len(given.judgement.working) == 1


@pytest.mark.parametrize(
    ("pod", "given", "allowed"),
    [
        ({"terminationGracePeriodSecond": 5}, "5", "a known field, such as terminationGracePeriodSeconds"),
        ({"containers": [container(image=None)]}, "nothing", "a value: the key is required"),
        ({"containers": [container(ports=[{"containerPort": 70000}])]}, "70000", "at most 65535"),
        ({"containers": [container(resources={"limits": {"cpu": "-1"}})]}, "-1", "a quantity that is not negative"),
        ({"containers": [container(env=[{"name": "A=B", "value": "x"}])]}, "A=B", "printable ASCII characters without ="),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/a/../b"}}]}, "/a/../b", "a path without .."),
        ({"restartPolicy": "Sometimes"}, "Sometimes", "one of Always, Never, OnFailure"),
        ({"restartPolicy": "S" * 60}, "S" * 60, "one of Always, Never, OnFailure"),
        ({"restartPolicy": "S" * 61}, "S" * 57 + "...", "one of Always, Never, OnFailure"),
    ],
)
def test_what_the_api_server_does_not_take_of_a_pod(pod: dict[str, Any], given: str, allowed: str):
    (finding,) = found(graph(checked(**pod)), "K8S019")
    assert (finding.judgement.given, finding.severity) == (given, "error")
    assert allowed in finding.judgement.allowed


def test_no_finding_shows_a_secret():
    secret = kubernetes("core/v1:Secret", "x", {"stringData": {"a key": "s3cr3t"}, "data": {"number": 123456}})
    shown = repr([finding.judgement for finding in found(graph(secret), "K8S019")])
    assert "a key" in shown
    assert "s3cr3t" not in shown
    assert "123456" not in shown


@pytest.mark.parametrize("version", [None, "", "1.7", "~1.7.0", ">=1.7.0", "*", "latest"])
def test_chart_versions_that_move(version: Any):
    assert found(graph(chart(version=version)), "HEL001")


@pytest.mark.parametrize(
    ("name", "version"), [("x", "v1.7.0-rc.1+build"), ("x", "<v>"), ("./charts/x", None), ("x-1.2.0.tgz", None)]
)
def test_chart_versions_that_stay_or_are_not_known(name: str, version: Any):
    assert not found(graph(chart(name, version)), "HEL001")


@pytest.mark.parametrize(
    ("values", "open_"),
    [
        ({"grafana": {"grafana.ini": {"auth.anonymous": {"enabled": True}}}}, True),
        ({"grafana": {"grafana.ini": {"auth.anonymous": {"enabled": False}}}}, False),
        ({"grafana": {"service": {"type": "LoadBalancer"}}}, True),
        ({"grafana": {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["203.0.113.0/24"]}}}, False),
        ({"grafana": {"service": {"type": "ClusterIP"}}}, False),
        ({"prometheus": {"service": {"type": "NodePort"}}}, True),
        ({"prometheus": {"ingress": {"enabled": True, "hosts": ["prometheus.example.com"]}}}, True),
        ({"prometheus": {"ingress": {"enabled": False}}}, False),
        ({"prometheus": {"prometheusSpec": {"enableAdminAPI": True}}}, True),
        ({"prometheus-node-exporter": {"hostNetwork": True}}, True),
        ({"prometheus-node-exporter": {"hostNetwork": False}}, False),
        ({"grafana": {"grafana.ini": {"auth.proxy": {"enabled": True}}}}, True),
    ],
)
def test_values_that_open_a_door(values: dict[str, Any], open_: bool):
    assert bool(found(graph(chart(**values)), "K8S017")) is open_


@pytest.mark.parametrize(("login", "severity"), [({}, "error"), ({"alb.ingress.kubernetes.io/auth-type": "oidc"}, "warning")])
def test_an_open_interface_is_refused_where_an_ingress_without_a_login_leads_to_it(login: dict[str, str], severity: str):
    web_ui = server(env=[{"name": "WEBUI_AUTH_TRUSTED_EMAIL_HEADER", "value": "X-Email"}])
    (finding,) = found(graph(web_ui, kubernetes("networking.k8s.io/v1:Ingress", "door", {}, annotations=login)), "K8S017")
    assert finding.severity == severity
    (finding,) = found(graph(web_ui), "K8S017")
    assert finding.severity == "warning"


@pytest.mark.parametrize(("sign_up", "open_"), [("true", True), ("false", False)])
def test_a_role_of_those_who_sign_up_counts_where_they_can(sign_up: str, open_: bool):
    env = [{"name": "DEFAULT_USER_ROLE", "value": "admin"}, {"name": "ENABLE_SIGNUP", "value": sign_up}]
    assert bool(found(graph(server(env=env)), "K8S017")) is open_


def test_images_that_nobody_looked_at_are_named_where_nodes_have_arm_processors():
    nodes = node_group(instanceTypes=["m7g.large"])
    (rule,) = (graph_rule for graph_rule in graph_rules() if graph_rule.id == "K8S024")
    (open_,) = rule.judge(graph(cluster(), nodes, server(image="acme/app:1"), chart()))
    assert open_.unjudged
    assert open_.resource == nodes.urn
    assert "app, chart kuberay-operator" in str(open_)
    assert not list(rule.judge(graph(cluster(), node_group(), server(image="acme/app:1"))))


# -- what rules say of small graphs ----------------------------------------------------------------------------------------------

ON_TRN2 = (cluster(), trn2_group())
INTOLERANT = {"key": "aws.amazon.com/neuron", "operator": "Equal", "value": "false", "effect": "NoSchedule"}
TERMS = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]} for pool in ("gone", "core")]
EITHER = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}}}
INF2_POOL = (cluster(), node_pool(family("inf2")))
INF2_TEAMS = (cluster(), node_pool(family("inf2"), {"key": "team", "operator": "In", "values": ["a", "b"]}))
INF2_SMALL = (cluster(), node_pool(family("inf2"), {**family("xlarge"), "key": "karpenter.k8s.aws/instance-size"}))
M5_POOL = (cluster(), node_pool(family("m5")))
EFA_8 = efa_template(8)
ON_16 = on_trn2({"aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": 16})
EBS_CLASS = addon("aws-ebs-csi-driver", defaultStorageClass={"enabled": True})
DEFAULT_CLASS = kubernetes(
    "storage.k8s.io/v1:StorageClass", "gp3", annotations={"storageclass.kubernetes.io/is-default-class": "true"}
)
INTERNET = {"alb.ingress.kubernetes.io/scheme": "internet-facing"}
OF_RAY = kubernetes("keda.sh/v1alpha1:ScaledObject", "s", {"spec": {"scaleTargetRef": {"kind": "RayCluster", "name": "llama"}}})
LOST = service(selector={"app": "sever"})
OF_HELM = resource("kubernetes:helm.sh/v3:Release", "release", {"chart": "x", "namespace": "app", "version": "1.0.0"})
RESTRICTED = namespace(**{"pod-security.kubernetes.io/enforce": "restricted"})
PRIVILEGED = server(securityContext={"privileged": True})
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
SIXTEEN = on_trn2({"aws.amazon.com/neuron": 16})
ON_EFA = (cluster(), efa_template(), trn2_group(efa_template()), on_trn2({"vpc.amazonaws.com/efa": 16}))
EFA_CHART = "https://aws.github.io/eks-charts/aws-efa-k8s-device-plugin"
PLUGIN = neuron_daemon("neuron-device-plugin", nodeSelector={"pool": "trn2"})
PINNED = {"enabled": True, "customScheduler": {"image": {"tag": "v1.35.6-eks-1-35-13"}}}
DETECTOR = resource(
    "aws:eks/podIdentityAssociation:PodIdentityAssociation",
    "npd",
    {"namespace": "neuron-healthcheck-system", "serviceAccount": "node-problem-detector"},
)
AMONG_ITSELF = security_group(ingress=[TO_ITSELF], egress=[TO_ITSELF])
BESIDE = [
    resource(
        f"aws:vpc/securityGroup{way}Rule:SecurityGroup{way}Rule",
        way,
        {"securityGroupId": "<efa.id>", "referencedSecurityGroupId": "<efa.id>", "ipProtocol": "-1"},
        property_dependencies={key: (urn_of(EFA_GROUP, "efa"),) for key in ("securityGroupId", "referencedSecurityGroupId")},
    )
    for way in ("Ingress", "Egress")
]
TRUSTED = efa_template(
    networkInterfaces=[{"interfaceType": "efa", "securityGroups": ["<cluster.clusterSecurityGroupId>", "<efa.id>"]}]
)
TWO_NODES = {"scalingConfig": {"minSize": 2, "desiredSize": 2, "maxSize": 2}}
ADMINISTRATOR = {"policyArn": "arn:aws:iam::aws:policy/AdministratorAccess"}
RESERVED = template(**BLOCK_TEMPLATE, placement={"groupName": "together"})
NODE_CLASS = "karpenter.k8s.aws/v1:EC2NodeClass"


def typed(name: str) -> dict[str, str]:
    return {"node.kubernetes.io/instance-type": name}


def ten(count: int, **first: Any) -> Resource:
    """Pods with so many containers that take ten devices each, after an init container that does."""
    one = container(resources={"limits": {"aws.amazon.com/neuron": 10}})
    on = {"nodeSelector": {"pool": "trn2"}, "tolerations": [TOLERATION]}
    return pods(containers=[one] * count, initContainers=[{**one, **first}], **on)


def door(annotations: dict[str, str]) -> Resource:
    return kubernetes("networking.k8s.io/v1:Ingress", "server", annotations=annotations)


def leading(selector: dict[str, str]) -> GraphFacts:
    return graph(namespace(), service(selector=selector, ports=[]), ray_service())


def secret(name: str, provider: str) -> Resource:
    return resource("kubernetes:core/v1:Secret", name, {"metadata": {"name": "x", "namespace": "y"}}, provider=provider)


def on_efa(made: Resource, *beside: Resource, **nodes: Any) -> GraphFacts:
    return graph(cluster(), trn2_group(made, **nodes), made, *beside)


@pytest.mark.parametrize(
    ("id_", "facts", "severity", "words"),
    [
        # Every container and every value of a chart is looked at.
        ("K8S001", graph(pods(initContainers=[container(name="first", image="busybox")])), "error", "init container first"),
        ("K8S001", graph(chart(operator={"image": {"tag": "master"}})), "error", "value operator.image.tag"),
        ("K8S002", graph(*ON_TRN2, pods()), "error", "does not tolerate taint aws.amazon.com/neuron=true:NoSchedule"),
        ("K8S002", graph(*ON_TRN2, pods(tolerations=[TOLERATION])), "", ""),
        ("K8S002", graph(*ON_TRN2, pods(tolerations=[{"operator": "Exists"}])), "", ""),
        ("K8S002", graph(*ON_TRN2, pods(tolerations=[INTOLERANT])), "error", ""),
        ("K8S002", graph(*CORE, pods(affinity=EITHER)), "", ""),
        ("K8S002", graph(*CORE, pods("DaemonSet", nodeSelector={"pool": "gpu"})), "warning", ""),
        # On a cluster made elsewhere.
        ("K8S002", graph(node_group(), pods(nodeSelector={"pool": "gone"})), "", ""),
        ("K8S002", graph(cluster(), pods(nodeSelector={"pool": "gone"})), "", ""),
        # A NodePool offers what its requirements leave; the catalog may not know all sizes of a family.
        ("K8S002", graph(*INF2_TEAMS, pods(nodeSelector={**typed("inf2.48xlarge"), "team": "b"})), "", ""),
        ("K8S002", graph(*INF2_TEAMS, pods(nodeSelector=typed("inf2.16xlarge"))), "error", "nodes have inf2."),
        ("K8S002", graph(*INF2_TEAMS, pods(nodeSelector={"team": "c"})), "error", ""),
        ("K8S002", graph(*INF2_SMALL, pods(nodeSelector=typed("inf2.48xlarge"))), "error", ""),
        ("K8S002", graph(*M5_POOL, pods(nodeSelector=typed("m5.metal"))), "", ""),
        ("K8S002", graph(*M5_POOL, pods(nodeSelector=typed("c5.large"))), "error", ""),
        ("K8S003", graph(*M5_POOL, asking({"cpu": "500", "memory": "4Ti"})), "", ""),
        # Interfaces are those of the launch template. Containers add up, and init containers do not unless they stay.
        (
            "K8S003",
            graph(cluster(), trn2_group(EFA_8), EFA_8, ON_16),
            "error",
            "16 vpc.amazonaws.com/efa, trn2.48xlarge of pool trn2 has 8",
        ),
        ("K8S003", graph(*ON_TRN2, ten(1)), "", ""),
        ("K8S003", graph(*ON_TRN2, ten(2)), "error", "20 aws.amazon.com/neuron"),
        ("K8S003", graph(*ON_TRN2, ten(1, restartPolicy="Always")), "error", "20 aws.amazon.com/neuron"),
        ("K8S003", graph(*INF2_POOL, asking({"aws.amazon.com/neuron": 12})), "", ""),
        ("K8S003", graph(*INF2_POOL, asking({"aws.amazon.com/neuron": 13})), "error", "13 aws.amazon.com/neuron"),
        ("K8S004", graph(server(args=["--api-key", "q8Zk2w"])), "error", "argument --api-key"),
        ("K8S004", graph(server(args=["--api-key=q8Zk2w"])), "error", "argument --api-key"),
        ("K8S004", graph(server(args=["--api-key", "--port", "8000"])), "", ""),
        ("K8S004", graph(chart(grafana={"adminPassword": "prom-operator"})), "error", "value grafana.adminPassword"),
        ("K8S004", graph(chart(grafana={"admin": {"existingSecret": "grafana-admin"}})), "", ""),
        ("K8S005", graph(EBS_CLASS, DEFAULT_CLASS), "error", "gp3, that of add-on aws-ebs-csi-driver"),
        ("K8S006", graph(door(INTERNET)), "warning", "Ingress app/server is open"),
        ("K8S006", graph(door({**INTERNET, "alb.ingress.kubernetes.io/inbound-cidrs": "203.0.113.0/24"})), "", ""),
        (
            "K8S007",
            graph(pods(), autoscaler("a"), autoscaler("b")),
            "error",
            "is scaled by HorizontalPodAutoscaler a and by HorizontalPodAutoscaler b",
        ),
        ("K8S007", graph(OF_RAY), "error", "whose pods Ray's own autoscaler sets"),
        (
            "K8S007",
            graph(replace(pods(spec={"replicas": 2}), options={"ignoreChanges": ["spec.replicas"]}), autoscaler()),
            "",
            "",
        ),
        ("K8S007", graph(pods(spec={"replicas": "<unknown>"}), autoscaler()), "", ""),
        ("K8S008", graph(namespace(), LOST, listening()), "error", "selects no pod: none in namespace app has app=sever"),
        # Its pods may come from somebody else.
        ("K8S008", graph(LOST, listening()), "", ""),
        ("K8S008", graph(namespace(), LOST, listening(), OF_HELM), "", ""),
        ("K8S008", graph(namespace(), LOST, listening(), kubernetes("databases.example.com/v1:Database", "db")), "", ""),
        # Labels of controllers are taken to be there.
        ("K8S008", leading({"ray.io/node-type": "head"}), "", ""),
        ("K8S008", leading({"ray.io/cluster": "llama-xyz"}), "", ""),
        ("K8S008", leading({"ray.io/node-type": "worker"}), "error", ""),
        ("K8S008", leading({"app": "llama"}), "error", ""),
        ("K8S008", graph(service(ports=[{"port": 80, "targetPort": 9000}]), listening()), "warning", ""),
        ("K8S008", graph(service(ports=[{"port": 80, "targetPort": "grpc"}]), listening()), "error", ""),
        ("K8S008", graph(service(ports=[{"port": 8000}]), listening()), "", ""),
        ("K8S008", graph(service(ports=[{"port": 80, "targetPort": 9000}]), server()), "", ""),
        ("K8S008", graph(service(ports=[{"port": 80, "targetPort": "<port>"}]), listening()), "", ""),
        # A server listens where its container says.
        ("K8S008", graph(listening(args=["serve", "llama", "--port", "8080"])), "error", "listens on 8080"),
        ("K8S008", graph(listening(command=["serve", "--port=8080"])), "error", "listens on 8080"),
        ("K8S008", graph(listening(args=["--port", "8000"])), "", ""),
        ("K8S008", graph(listening(args=["--port", "$(PORT)"])), "", ""),
        ("K8S009", graph(RESTRICTED, PRIVILEGED), "error", "the API server rejects its pods"),
        ("K8S009", graph(PRIVILEGED), "", ""),
        ("K8S009", graph(RESTRICTED, server()), "", ""),
        ("K8S012", graph(server(livenessProbe={}, **GPU)), "warning", "livenessProbe kills it after 30 s"),
        ("K8S012", graph(server(livenessProbe={}, startupProbe={"failureThreshold": 60}, **GPU)), "", ""),
        ("K8S012", graph(server(livenessProbe={})), "", ""),
        ("K8S012", graph(server(startupProbe={"failureThreshold": "<budget>"}, **GPU)), "", ""),
        (
            "K8S013",
            graph(*ON_TRN2, SIXTEEN, pods("DaemonSet", containers=[container(image="x/neuron-device-plugin:1.0")])),
            "error",
            ": DaemonSet app/server cannot run there",
        ),
        ("K8S013", graph(*ON_TRN2, SIXTEEN, chart(NEURON_CHART)), "", ""),
        ("K8S013", graph(*ON_EFA, chart(EFA_CHART)), "error", "cannot run there"),
        ("K8S013", graph(*ON_EFA, chart(EFA_CHART, tolerations=[TOLERATION])), "", ""),
        (
            "K8S015",
            graph(kubernetes("ray.io/v1:RayService", "llama", {"spec": {"serviceUnhealthySecondThreshold": 900}})),
            "warning",
            "serviceUnhealthySecondThreshold has no effect",
        ),
        ("K8S015", graph(ray_service("l" * 49)), "error", "its name has 49 characters"),
        ("K8S016", graph(kubernetes("core/v1:Service", "1x")), "error", ""),
        ("K8S016", graph(kubernetes("rbac.authorization.k8s.io/v1:ClusterRole", "system:x")), "", ""),
        # Two clusters may have objects of one name. Kubernetes has namespaces of its own.
        ("K8S018", graph(secret("a", "of-a"), secret("b", "of-b")), "", ""),
        ("K8S018", graph(secret("a", "of-a"), secret("b", "of-a")), "error", ""),
        ("K8S018", graph(kubernetes("core/v1:Namespace", "kube-system")), "error", "belongs to Kubernetes"),
        ("K8S018", graph(kubernetes("core/v1:Namespace", "<a.b>")), "", ""),
        ("K8S019", graph(checked(serviceAccountName="<x.name>", terminationGracePeriodSeconds="<unknown>")), "", ""),
        ("K8S019", graph(kubernetes("apps/v1:DeploymentPatch", "x", {"spec": {"replicas": -1}})), "", ""),
        ("K8S019", graph(kubernetes("example.com/v1:Thing", "x", {"anything": -1})), "", ""),
        ("HEL002", graph(chart(grafana={"replicas": 0})), "warning", ""),
        # The plugin and the DRA driver may have nodes of their own.
        ("NEU010", graph(*ON_TRN2, PLUGIN, neuron_daemon("neuron-dra-driver")), "error", ""),
        (
            "NEU010",
            graph(*ON_TRN2, node_group(), PLUGIN, neuron_daemon("neuron-dra-driver", nodeSelector={"pool": "core"})),
            "",
            "",
        ),
        ("NEU010", graph(chart(NEURON_CHART, draDriver={"enabled": True})), "error", ""),
        ("NEU010", graph(chart(NEURON_CHART, devicePlugin={"enabled": False}, draDriver={"enabled": True})), "", ""),
        ("NEU011", graph(asking({"aws.amazon.com/neurondevice": 1})), "error", "has not been offered since SDK 2.22"),
        ("NEU011", graph(asking({"aws.amazon.com/neuroncore": 2}, nodeSelector=typed("trn2.48xlarge"))), "error", ""),
        ("NEU011", graph(asking({"aws.amazon.com/neuroncore": 2}, nodeSelector=typed("inf2.8xlarge"))), "", ""),
        ("NEU017", graph(cluster(), chart(NEURON_CHART, scheduler={"enabled": True})), "warning", "1.31, the cluster 1.35"),
        ("NEU017", graph(cluster(), chart(NEURON_CHART, scheduler=PINNED)), "", ""),
        ("NEU018", graph(chart(NEURON_CHART), DETECTOR), "", ""),
        ("NEU018", graph(chart(NEURON_CHART, npd={"enabled": False})), "", ""),
        # EFA stays in a subnet and a group. Rules beside the group count; a group that the graph does not make is trusted.
        ("EFA005", efa_nodes(AMONG_ITSELF, subnetIds=["subnet-1", "subnet-2"]), "error", "in 2 subnets: EFA does not cross them"),
        ("EFA005", on_efa(efa_template(), security_group(), *BESIDE), "", ""),
        ("EFA005", on_efa(efa_template(), security_group(), BESIDE[0]), "error", "egress to itself missing"),
        ("EFA005", on_efa(efa_template(), security_group()), "error", "ingress and egress to itself missing"),
        ("EFA005", on_efa(TRUSTED, security_group(egress=[TO_ALL])), "", ""),
        ("EFA005", on_efa(efa_template(placement=None), AMONG_ITSELF, **TWO_NODES), "warning", "no placement group"),
        ("AWS002", graph(ingress_rule(22, "0.0.0.0/0")), "error", ""),
        ("AWS002", graph(security_group(ingress=[{**TO_ALL, "cidrBlocks": [], "ipv6CidrBlocks": ["::/0"]}])), "error", ""),
        ("AWS002", graph(security_group(egress=[TO_ALL])), "", ""),
        ("AWS003", graph(resource(BUCKET, "weights")), "warning", ""),
        ("AWS003", graph(resource(BUCKET, "weights", {"acl": "public-read"})), "error", ""),
        ("AWS007", graph(resource("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "admin", ADMINISTRATOR)), "error", ""),
        ("AWS009", graph(trn2_group(RESERVED), RESERVED), "warning", ""),
        (
            "AWS011",
            graph(kubernetes(NODE_CLASS, "default", {"spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}]}})),
            "warning",
            "al2023@latest",
        ),
        ("AWS012", tagged({"aws:x": "y"}), "error", "the key aws:x begins with aws:"),
        ("AWS012", tagged({"": "x"}), "error", "has 0 characters, of 1 to 128"),
        ("AWS012", tagged({"k" * 129: "x"}), "error", "has 129 characters, of 1 to 128"),
        ("AWS012", tagged({"k": "v" * 257}), "error", "the value of tag k has 257 characters"),
        ("AWS012", tagged({"k": "<>&"}), "error", "tag k: <>&: of other characters than letters"),
        ("AWS012", tagged({"k": "a,b(c)"}), "error", "tag k: a,b(c): of other"),
        ("AWS012", tagged({"Team": "a", "team": "b"}), "error", "IAM takes the key Team in one case only"),
        ("AWS012", tagged({"k" * 128: "v" * 256}), "", ""),
        # Where only IAM refuses them.
        ("AWS012", tagged({"k": "a,b"}, "aws:ec2/vpc:Vpc"), "warning", ""),
        ("AWS012", tagged({"k": "<net.id>", "l": "[secret]"}), "", ""),
        (
            "AWS012",
            graph(resource("aws:ec2/launchTemplate:LaunchTemplate", "made", {"tagSpecifications": [{"tags": {"aws:x": "y"}}]})),
            "error",
            "",
        ),
        ("AWS012", graph(kubernetes(NODE_CLASS, "gpu", {"spec": {"tags": {"aws:x": "y"}}})), "error", ""),
        ("AWS013", graph(resource(BUCKET, "x", {"bucket": "Weights"})), "error", ""),
        ("AWS013", graph(resource(BUCKET, "x", {"bucket": "<a.b>"})), "", ""),
        ("AWS014", graph(resource("aws:iam/role:Role", "r" * 70, {"namePrefix": "x", "assumeRolePolicy": "{}"})), "", ""),
        ("AWS014", graph(resource("aws:iam/role:Role", "r" * 70, {"assumeRolePolicy": "{}"}, options={"read": "r"})), "", ""),
        # The component of the provider puts a word between.
        ("AWS014", graph(resource("eks:index:Cluster", "c" * 81)), "", ""),
        ("AWS014", graph(resource("eks:index:Cluster", "c" * 82)), "error", ""),
    ],
)
def test_what_a_rule_says_of_a_small_graph(id_: str, facts: GraphFacts, severity: str, words: str):
    judged = found(facts, id_)
    assert [finding.severity for finding in judged] == [severity] * bool(severity)
    assert words in "".join(finding.judgement.message for finding in judged)


# -- odd values ------------------------------------------------------------------------------------------------------------------

ODD = st.one_of(
    st.sampled_from(["", "[secret]", "<unknown>", "<a.b>", "x\ny", "9" * 5000, "0.0.0.0/0", "1.35", "٣", "½"]),
    st.sampled_from([None, True, False, 0, -1, 1e300, float("nan")]),
    st.sampled_from([[], {}, [None], ["<a>"], {"": None}, [[]], {"a": {"b": [1]}}]),
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a document."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, child in children for path in paths(child, (*here, key)))]


def put(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """The document with something else at one place."""
    if not path:
        return odd
    if isinstance(value, dict):
        return {key: put(child, path[1:], odd) if key == path[0] else child for key, child in value.items()}
    return [put(child, path[1:], odd) if number == path[0] else child for number, child in enumerate(value)]


EVERYTHING = [
    resource_
    for id_ in sorted(VECTORS)
    for facts in (VECTORS[id_].passes(), VECTORS[id_].fails())
    for resource_ in facts.graph.resources
]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_rule_stumbles_over_odd_values(data: st.DataObject):
    """Resources of all vectors, each with something odd somewhere in it: what is not known is never a crash."""
    chosen = data.draw(st.lists(st.sampled_from(EVERYTHING), min_size=1, max_size=12, unique_by=lambda one: one.urn))
    changed = []
    for one in chosen:
        inputs = dict(one.inputs)
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.sampled_from(paths(inputs)[1:] or [("odd",)]))
            inputs = put(inputs, place, data.draw(ODD))
        changed.append(
            Resource(urn=one.urn, type=one.type, name=one.name, inputs=inputs, property_dependencies=one.property_dependencies)
        )
    facts = graph(*changed)
    for rule in graph_rules():
        for judgement in rule.judge(facts):
            assert judgement.working
            assert judgement.resource in facts.graph.by_urn


def test_the_shipped_graph_with_everything_unknown_breaks_nothing():
    graph_ = recorded("inf2-llama3")
    for token in ("<unknown>", "[secret]", None):
        blank = Graph(
            graph_.project,
            graph_.stack,
            tuple(
                Resource(urn=one.urn, type=one.type, name=one.name, custom=one.custom, inputs=dict.fromkeys(one.inputs, token))
                for one in graph_.resources
            ),
        )
        broken = findings(graph_rules(), GraphFacts(blank), {})
        assert [finding.rule.id for finding in broken if finding.severity == "error" and token is not None] == []


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("nginx:1.27", "docker.io"),
        ("vllm/vllm-openai", "docker.io"),
        ("quay.io/a/b:1.0", "quay.io"),
        ("registry:5000/a", ""),
        ("localhost/a", ""),
    ],
)
def test_only_the_first_of_several_parts_of_an_image_is_its_registry(image: str, registry: str) -> None:
    said = messages(graph(*ISOLATED, server(image=image)), "NET006")
    assert f"{registry} is on the internet" in said if registry else not said


TWO_REGIONS = ROOT / "tests" / "eks_inference" / "programs" / "two_regions.py"


@pytest.mark.thorough
@pytest.mark.parametrize(("forgotten", "refused"), [("", []), ('"size": 1}, here,', ["gpu-us-west-2-nodes"])])
def test_nodes_that_a_provider_of_another_region_makes_are_refused(forgotten: str, refused: list[str], tmp_path: Path) -> None:
    """A pool without the provider of its cluster would be in the region of the configuration."""
    text = TWO_REGIONS.read_text("utf-8")
    assert forgotten in text
    (tmp_path / "__main__.py").write_text(text.replace(forgotten, '"size": 1},') if forgotten else text)
    judged = GraphFacts(record(tmp_path, config={"aws:region": "us-east-1"}))
    assert [finding.judgement.resource.rpartition("::")[2] for finding in found(judged, "EKS003")] == refused


def test_only_stores_of_the_stack_outlive_it() -> None:
    policy = resource("aws:s3/bucketPolicy:BucketPolicy", "policy", options={"retainOnDelete": True})
    read = resource(BUCKET, "weights", options={"retainOnDelete": True, "read": {"id": "weights"}})
    assert not messages(GraphFacts(Graph("demo", "dev", (policy, read))), "KEP001")
