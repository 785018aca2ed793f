"""What is read from a graph about clusters, nodes, workloads, models and endpoints."""

from dataclasses import replace
from typing import Any

import pytest

from eks_inference_tools.reading.cluster_words import nodes
from eks_inference_tools.reading.served_models import requested
from eks_inference_tools.reading.stack_sections import overview_of
from odd_graphs import component, graph_of, kubernetes_object, recorded, urn
from stackgraph.graph.document import Graph, Resource


@pytest.fixture
def graph() -> Graph:
    return recorded()


def test_capacity(graph: Graph) -> None:
    core, accelerated, small = overview_of(graph).capacity
    assert (core.size, core.nodes, core.instance_types, core.interfaces) == ("2", 2, ("m6i.large",), "")
    assert (accelerated.size, accelerated.interfaces) == ("1 (1–3)", "8 EFA interfaces")
    assert accelerated.taints == small.taints == ("aws.amazon.com/neuron=true:NoSchedule",)
    assert (small.manager, small.families, small.capacity_types) == ("Karpenter", ("inf2",), ("spot", "on-demand"))
    assert (small.root_disk, small.requirements) == ("500Gi gp3 root disk", ("instance-size not 48xlarge",))


@pytest.mark.parametrize(("sizes", "said"), [("abcd", "a or b or c or d"), ("abcde", "a or b or c or 2 more")])
def test_a_single_further_instance_type_is_shown_and_several_are_counted(graph: Graph, sizes: str, said: str) -> None:
    core = replace(overview_of(graph).capacity[0], size="2", instance_types=tuple(sizes))
    assert nodes(core) == f"2 × {said}"


def test_workloads(graph: Graph) -> None:
    chat, worker, head = overview_of(graph).workloads
    assert (chat.title, chat.replicas, chat.accelerators) == (
        "Deployment demo/chat",
        "1–4 by HPA",
        {"aws.amazon.com/neuron": "4"},
    )
    assert (chat.cpu, chat.memory) == ("40.1", "100Gi")
    assert (worker.part, worker.replicas, worker.pods) == ("worker inf2", "1–3 by Ray", 1)
    assert (head.part, head.accelerators) == ("head", {})
    assert requested((chat, worker, head)) == {"aws.amazon.com/neuron": 5}


def test_models_of_components_and_of_pods_each_once(graph: Graph) -> None:
    found = {fact.model: (fact.owner, fact.owner_type) for fact in overview_of(graph).models}
    assert found == {
        "meta-llama/Llama-2-7b-hf": ("servers", "Servers"),
        "NousResearch/Meta-Llama-3-8B-Instruct": ("demo/llama", "RayService"),
    }


def test_a_model_belongs_to_the_innermost_component_that_names_it() -> None:
    found = graph_of(
        component("platform", inputs={"servers": {"a": {"model": "org/m"}}}),
        component("server", parent="platform", inputs={"model": {"id": "org/m"}, "max_model_len": 4096}),
    )
    (fact,) = overview_of(found).models
    assert (fact.owner, fact.settings) == ("server", {"max_model_len": "4096"})


@pytest.mark.parametrize(
    ("inputs", "model", "settings"),
    [
        ({"model": {"id": "org/m", "revision": "v1"}, "model_name": "m"}, "org/m", {"revision": "v1", "model_name": "m"}),
        ({"modelName": "m", "modelId": "org/m", "dtype": "auto"}, "org/m", {"dtype": "auto", "modelName": "m"}),
        ({"model_name": "org/m", "model": "org/m"}, "org/m", {}),
        ({"model_name": "m"}, "m", {}),
    ],
)
def test_a_component_names_a_model_once_whatever_it_calls_it(inputs: dict, model: str, settings: dict[str, str]) -> None:
    (fact,) = overview_of(graph_of(component("server", inputs=inputs))).models
    assert (fact.model, fact.settings) == (model, settings)


@pytest.mark.parametrize(
    ("container", "model"),
    [
        ({"args": ["--model", "org/m", "--port=8000"]}, "org/m"),
        ({"args": ["--model=org/m"]}, "org/m"),
        (
            {"args": ["/scratch/models/org/m", "--served-model-name", "org/m", "--port=8000"], "command": ["vllm", "serve"]},
            "org/m",
        ),
        ({"command": ["bash", "-c", "exec vllm serve 'org/m' --port 8000"]}, "org/m"),
        ({"env": [{"name": "MODEL_ID", "value": "org/m"}]}, "org/m"),
        ({"env": [{"name": "MODEL_ID", "value": "[secret]"}]}, None),
        ({"command": ["bash", "-c", 'vllm serve "$MODEL" --port 8000']}, None),
    ],
)
def test_models_on_command_lines(container: dict[str, Any], model: str | None) -> None:
    pod = kubernetes_object("core/v1:Pod", "p", spec={"containers": [container]})
    assert [fact.model for fact in overview_of(graph_of(pod)).models] == ([model] if model else [])


def test_leader_and_workers_of_a_set_are_counted() -> None:
    pod = {"spec": {"containers": [{"resources": {"limits": {"aws.amazon.com/neuron": 16}}}]}}
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "leaderTemplate": pod, "workerTemplate": pod}}
    found = overview_of(graph_of(kubernetes_object("leaderworkerset.x-k8s.io/v1:LeaderWorkerSet", "pair", spec=spec))).workloads
    assert [(w.part, w.replicas, w.pods) for w in found] == [("leader", "2", 2), ("worker", "2 × 2", 4)]
    assert requested(found) == {"aws.amazon.com/neuron": 96}


@pytest.mark.parametrize(
    ("spec", "annotations", "outside", "type_"),
    [
        ({}, {}, False, "ClusterIP"),
        ({"clusterIP": "None"}, {}, False, "headless"),
        ({"type": "NodePort"}, {}, True, "NodePort"),
        ({"type": "LoadBalancer"}, {}, True, "LoadBalancer"),
        (
            {"type": "LoadBalancer"},
            {"service.beta.kubernetes.io/aws-load-balancer-scheme": "internal"},
            True,
            "LoadBalancer, internal",
        ),
        ("<unknown>", "[secret]", True, "<unknown>"),
    ],
)
def test_who_reaches_a_service(spec: Any, annotations: Any, outside: bool, type_: str) -> None:
    service = kubernetes_object("core/v1:Service", "s", spec=spec, metadata={"name": "s", "annotations": annotations})
    (endpoint,) = overview_of(graph_of(service)).endpoints
    assert (endpoint.outside, endpoint.type) == (outside, type_)


def test_a_cluster_is_public_unless_told_otherwise() -> None:
    found = overview_of(graph_of(Resource(urn("k"), "eks:index:Cluster", "k", custom=False, remote=True))).clusters
    assert [cluster.access for cluster in found] == ["endpoint public to 0.0.0.0/0"]
