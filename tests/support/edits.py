"""Edits of shipped stacks, each with what a reviewer has to see and what happens then: written before anything was asked."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stackgraph.graph.document import Graph
from variants import recorded_with

ROUTER = "Deployment disaggregated/llama3-70b-router"
RAY, NEURON = "vllm-llama3-inf2", "inferentia-inf2"
STATIC = {
    "instance_families": None,
    "instance_types": ["m5.xlarge"],
    "replicas": 2,
    "node_limit": 3,
    "weight": None,
    "capacity_types": ["on_demand"],
}
OPEN_WEBUI = {"clients": {"open_webui": {"volume_gib": 20}}}
CHAT = {
    "kind": "vllm",
    "model": {"id": "Qwen/Qwen3-0.6B"},
    "engine": "cuda-vllm-0.30",
    "pool": "gpu",
    "devices": 1,
    "tensor_parallel": 1,
    "max_model_len": 2048,
}
BY_EKS, BY_KARPENTER = "AWS decides that nodes go; what their end does to pods is shown", "the same of Karpenter"
IN_RAY = "Ray's replicas live inside its workers, which do not run"


@dataclass(frozen=True)
class Edit:
    """``said`` are patterns of lines, worst first. ``happens`` is what its rehearsal shows, ``unseen`` what that cannot.

    ``few``: in quick tests.
    """

    stack: str
    has: Mapping[str, Any]
    edit: Mapping[str, Any]
    said: tuple[str, ...] = ()
    happens: frozenset[str] | None = frozenset()
    unseen: str = ""
    few: bool = False

    def graphs(self) -> tuple[Graph, Graph]:
        return recorded_with(_over(self.has, {}), self.stack), recorded_with(_over(self.has, self.edit), self.stack)


def _over(given: Any, edit: Any) -> Any:
    """One section over another; a None stays, which removes a key of the shipped stack."""
    if not isinstance(given, Mapping) or not isinstance(edit, Mapping):
        return copy.deepcopy(edit)
    return {key: _over(given.get(key), edit[key]) if key in edit else copy.deepcopy(given[key]) for key in {**given, **edit}}


def server(name: str, **edit: Any) -> dict[str, Any]:
    return {"servers": {name: edit}}


def pool(name: str, **edit: Any) -> dict[str, Any]:
    return {"pools": {name: edit}}


def endpoint(*servers: str) -> dict[str, Any]:
    return {"endpoints": {"chat": {"servers": [*servers], "keys": False}}}


def does(*happens: str) -> frozenset[str]:
    return frozenset(happens)


SEQS = server("qwen3", max_num_seqs=128)
TWO = {**pool("gpu", size=2), **server("qwen3", replicas=2)}
# The router's command has the number of sequences, and its only pod ends first, too.
PAIR_AWAY = does(
    "llama3-70b away",
    f"{ROUTER} away",
    "Job disaggregated/llama3-70b-answers again",
    "Job disaggregated/llama3-70b-compile again",
)
RAY_AWAY, QWEN_AWAY, LLAMA_AWAY = (does(f"{name} away") for name in (RAY, "qwen3", "llama2-a"))

EDITS = (
    # A server with one pod and no room: the pod ends first, or its successor waits for ever.
    Edit("smoke-gpu", {}, SEQS, ("qwen3 answers nothing .* its only pod ends before",), QWEN_AWAY),
    Edit("smoke-gpu", {}, server("qwen3", surge=1)),
    Edit(
        "smoke-gpu",
        server("qwen3", surge=1),
        SEQS,
        ("qwen3 waits for ever, and `pulumi up` fails: there is no room .* qwen3 answers on",),
        does("Deployment qwen3/qwen3 waits"),
        few=True,
    ),
    Edit("smoke-gpu", TWO, SEQS, (), does("qwen3 anew")),
    Edit("smoke-gpu", {**pool("gpu", size=2), **server("qwen3", surge=1)}, SEQS, (), does("qwen3 anew")),
    Edit(
        "smoke-gpu",
        TWO,
        server("qwen3", replicas=1),
        ("Job .* runs again", "Deployment qwen3/qwen3: 1 pod instead of 2"),
        does("qwen3 1 pods instead of 2", "Job loadtest/smoke-gpu-load-test again"),
    ),
    Edit("smoke-gpu", {}, pool("gpu", max_unavailable=1, node_repair=True)),
    Edit("smoke-gpu", {}, {"cluster": {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}}}),
    Edit("smoke-gpu", {}, server("qwen3", extra_env={"VLLM_LOGGING_LEVEL": "DEBUG"}), ("qwen3 answers nothing",), QWEN_AWAY),
    Edit(
        "smoke-gpu",
        {},
        {"clients": {"smoke_test": {"run": "again"}}},
        ("Job .* runs again",),
        does("Job qwen3-smoke-test/smoke-test again"),
    ),
    Edit(
        "inf2-llama2",
        {},
        server("llama2-a", extra_env={"NEURON_RT_LOG_LEVEL": "ERROR"}),
        ("llama2-a answers.*and loaded$",),
        LLAMA_AWAY,
    ),
    Edit(
        "trn2-di",
        {},
        server("llama3-70b", max_num_seqs=2),
        (".* answers nothing .* ends before", "Job .*answers.* runs again", "Job .*compile.* runs again"),
        PAIR_AWAY,
    ),
    Edit(
        "trn2-di-pair",
        {},
        server("llama3-70b", max_num_seqs=2),
        (
            "llama3-70b answers nothing .* its only group of 2 pods ends before",
            "Job .*answers.* runs again",
            "Job .*compile.* runs again",
        ),
        PAIR_AWAY,
    ),
    Edit(
        "gpu-opt350m",
        {},
        server("triton-server", gpu_memory_utilization=0.6),
        ("triton-server answers nothing",),
        does("triton-server away"),
    ),
    # Nodes of a managed pool: those of accelerators end first, those of the core pool last.
    Edit(
        "smoke-gpu",
        {},
        {"tags": {"team": "ml"}},
        (
            "qwen3 answers nothing .* with its node of smoke-gpu-gpu-nodes before its successor has got a node, pulled",
            "nodes of smoke-gpu-core-nodes are replaced, 1 at a time, each after .*tagSpecifications",
            "nodes of smoke-gpu-gpu-nodes are replaced, 1 at a time, each before .*tagSpecifications",
        ),
        QWEN_AWAY,
        BY_EKS,
        few=True,
    ),
    Edit("smoke-gpu", {}, pool("gpu", extra_labels={"team": "ml"})),
    Edit(
        "smoke-gpu",
        TWO,
        pool("gpu", root_volume_gib=200),
        ("nodes of smoke-gpu-gpu-nodes are replaced.*blockDeviceMappings",),
        does("qwen3 anew"),
        BY_EKS,
    ),
    # Nodes of Karpenter: what its hash holds, and what a node still satisfies.
    *(
        Edit(
            "inf2-llama3",
            {},
            pool(NEURON, **edit),
            (f"{RAY} answers nothing", f"nodes of {NEURON} drift.*10% at a time.*{why}"),
            RAY_AWAY,
            BY_KARPENTER,
        )
        for edit, why in (
            ({"root_volume_gib": 600}, "volumeSize"),
            ({"extra_labels": {"a": "b"}}, "labels"),
            ({"expire_after": "240h"}, "expireAfter"),
        )
    ),
    Edit("inf2-llama3", {}, pool(NEURON, consolidate_after="600s", weight=90)),
    Edit("inf2-llama3", {}, pool("default", instance_families=["c5", "m5", "r5", "m6i"])),
    Edit(
        "inf2-llama3",
        {},
        pool("default", instance_families=["c5", "m5"]),
        ("nodes of default: c5, m5 instead of c5, m5, r5",),  # no pod here needs one of its nodes
    ),
    Edit(
        "inf2-llama3",
        pool(NEURON, instance_families=None, instance_types=["inf2.8xlarge", "inf2.24xlarge"]),
        pool(NEURON, instance_types=["inf2.8xlarge"]),
        ("RayService vllm/.*: upgrade none", f"nodes of {NEURON} that .*instance-type.* leaves out drift.*"),
        does(),
        BY_KARPENTER,
    ),
    # Ray: in place, beside, or not at all.
    Edit("inf2-llama3", {}, server(RAY, max_num_seqs=16), (f"{RAY} answers nothing .* its only replica ends",), None, IN_RAY),
    Edit("inf2-llama3", {}, server(RAY, worker={"memory": "100G"}), ("RayService vllm/.*: upgrade none: pods keep",)),
    Edit(
        "inf2-llama3",
        server(RAY, upgrade="new_cluster"),
        server(RAY, max_num_seqs=16, worker={"memory": "100G"}),
        (),
        does(f"{RAY} anew"),
    ),
    Edit(
        "inf2-llama3",
        {},
        server(RAY, worker={"max": 4}),
        ("Job loadtest/.* runs again", "RayService vllm/.* does not get another .*[*].maxReplicas"),
        does("Job loadtest/inf2-llama3-load-test again"),
    ),
    # Autoscalers: one that allows fewer pods, and one that goes.
    Edit(
        "gpu-opt350m",
        server("triton-server", autoscaling={"min": 3}),
        server("triton-server", autoscaling={"min": 1, "max": 2}),
        ("HorizontalPodAutoscaler .*: pods above 2 end at once",),
        does("triton-server 2 pods instead of 3"),
    ),
    Edit(
        "gpu-opt350m",
        server("triton-server", autoscaling={"min": 3}),
        server("triton-server", autoscaling=None),
        ("HorizontalPodAutoscaler .* are deleted", "Deployment triton-server/triton-server: 1 pod instead of 3–4 by HPA"),
        does("triton-server 1 pods instead of 3"),  # a refusal was written down; the API server takes it
    ),
    # A pool of fixed size that Karpenter keeps has to have room for a successor.
    *(
        Edit(
            "inf2-llama3",
            {"pools": {"default": STATIC}, "karpenter": {"static_capacity": True}},
            pool("default", root_volume_gib=300, node_limit=limit),
            (f"nodes of default drift.*{said}",),
            None,
            BY_KARPENTER,
        )
        for limit, said in ((2, "stay as they are: limits.nodes 2"), (3, "10% at a time"))
    ),
    # Claims.
    Edit(
        "gpu-opt350m",
        {},
        {"observability": {"prometheus": {"volume_gib": 100}}},
        ("Release .*: the claim that exists stays at 50Gi: patch it to 100Gi first",),
        None,
        "no operator of Prometheus runs",
    ),
    Edit(
        "smoke-gpu",
        OPEN_WEBUI,
        {"clients": {"open_webui": {"volume_gib": 10}}},
        ("PersistentVolumeClaim .* smaller claim .20Gi → 10Gi",),
        does("PersistentVolumeClaim openwebui/open-webui refused"),
    ),
    Edit("smoke-gpu", OPEN_WEBUI, {"clients": {"open_webui": {"volume_gib": 40}}}),
    Edit(
        "smoke-gpu",
        OPEN_WEBUI,
        {"clients": {"open_webui": None}},
        ("PersistentVolumeClaim .* is deleted with its disk", ".* are deleted"),
        does("Namespace openwebui gone", "claim open-webui gone"),
    ),
    # A server that goes, or gets another name.
    Edit(
        "inf2-llama2",
        {},
        {"servers": {"llama2-c": None}},
        ("llama2-c is removed", "s3.Bucket", ".* are deleted"),
        does("llama2-c away for good", "Namespace llama2-c gone"),
    ),
    Edit(
        "smoke-gpu",
        {},
        {"servers": {"qwen3": None, "chat": CHAT}},
        ("chat waits .* room .* qwen3 .* last", "Job .* runs again", ".* are deleted"),
        does("Deployment chat/chat waits"),
    ),
    Edit(
        "smoke-gpu",
        {},
        {"servers": {"qwen3": None, "chat": {**CHAT, "renamed_from": "qwen3"}}},
        ("qwen3 becomes chat", "Job .* runs again", ".* are replaced", ".* are deleted"),
        None,
        "the simulation knows no aliases: it creates and deletes",
    ),
    Edit(
        "trn2-di-pair",
        {},
        server("llama3-70b", instances=1),
        (
            "llama3-70b waits .* while LeaderWorkerSet .* last, and LeaderWorkerSet .* is away while it compiles",
            "Job .*answers",
            "Job .*compile",
            "Job .*efa",
            "Job loadtest/",
            "Namespace lws-system .* every object",
            ".* are deleted",
        ),
        # Written down was the first alone: the Job that compiles takes the devices of what runs.
        does(
            "Deployment disaggregated/llama3-70b-servers waits",
            "Job disaggregated/llama3-70b-compile again",
            "Job disaggregated/llama3-70b-efa again",
            "llama3-70b away",
        ),
    ),
    # The control plane.
    Edit(
        "smoke-inf2",
        {},
        {"cluster": {"version": "1.36"}},
        (".* answers nothing .* with its node", "cluster .* 1.36 for good", "nodes of smoke-inf2-.*", "nodes of smoke-inf2-.*"),
        does("tinyllama away"),
        BY_EKS,
    ),
    # The Ray head is on the core pool.
    *(
        Edit(
            "inf2-llama3",
            server(RAY, **has),
            pool("core", **edit),
            (f"{RAY} .* with the Ray head", said, *more),
            None,
            "workers that run end with their head: nothing runs in them here",
        )
        for has, edit, said, more in (
            ({}, {"root_volume_gib": 200}, "nodes of inf2-llama3-core-nodes are replaced, 1", []),
            ({"replicas": {"min": 2}}, {"root_volume_gib": 200}, "nodes of inf2-llama3-core-nodes are replaced, 1", []),
            ({}, {"instance_types": ["m5.4xlarge"]}, "nodes of inf2-llama3-core-nodes are replaced", ["pool core"]),
        )
    ),
    Edit(
        "inf2-llama3",
        {},
        {"cluster": {"version": "1.36"}},
        (
            f"{RAY} answers nothing .* with its node of {NEURON}",
            "cluster .* 1.36 for good",
            "nodes of inf2-llama3-core-nodes",
            *(f"nodes of {name} drift.*AMI of the cluster's new version" for name in (NEURON,)),
        ),
        RAY_AWAY | does("Deployment openai-webui/open-webui away", "Deployment kube-system/k8s-neuron-scheduler away"),
        BY_KARPENTER,
    ),
    # What else a stack file can say.
    Edit(
        "smoke-gpu",
        {},
        server("qwen3", model={"id": "Qwen/Qwen3-1.7B"}),
        ("qwen3 answers nothing .*; serves Qwen/Qwen3-1.7B instead of Qwen/Qwen3-0.6B", "Job .* runs again", "Job .* runs again"),
        does("qwen3 away", "Job loadtest/smoke-gpu-load-test again", "Job qwen3-smoke-test/smoke-test again"),
    ),
    Edit("smoke-gpu", {}, server("qwen3", memory="10Gi"), ("qwen3 answers nothing",), QWEN_AWAY),
    Edit(
        "smoke-gpu",
        {},
        server("qwen3", image="registry.example.com/vllm@sha256:" + "b" * 64),
        ("qwen3 answers nothing .* its successor has pulled its image,",),
        QWEN_AWAY,
    ),
    Edit(
        "smoke-gpu",
        {},
        server("qwen3", surge=1, max_num_seqs=128),
        ("qwen3 waits for ever, and `pulumi up` fails: there is no room",),
        does("Deployment qwen3/qwen3 waits"),
    ),
    Edit("smoke-gpu", {}, server("qwen3", client_namespaces={"team": "a"}), ("NetworkPolicy qwen3/qwen3 no longer lets in",)),
    Edit(
        "smoke-gpu",
        {},
        TWO,
        ("Job .* runs again", "pool gpu costs 2.0 times as much"),
        None,
        "the simulation adds no node to a pool, so the second pod waits there",
    ),
    Edit("smoke-gpu", {}, {"accelerators": {"nvidia": False}}, ("DaemonSet kube-system/nvidia-device-plugin is deleted",)),
    Edit("smoke-gpu", {}, {"observability": {"prometheus": {}, "dcgm_exporter": {}}}),
    Edit("smoke-gpu", {}, {"network": {"nat": "per_zone"}}),
    Edit("smoke-gpu", {}, {"cluster": {"endpoint": {"public": None, "public_access_cidrs": None}}}),
    Edit(
        "smoke-gpu",
        {},
        {"cluster": {"version": "1.34"}},
        ("cluster .* EKS rejects a change from 1.35 to 1.34: `pulumi up` fails there",),
        None,
        "EKS is not here",
    ),
    Edit(
        "smoke-gpu",
        {},
        {"load_test": None},
        ("PersistentVolumeClaim .* is deleted with its disk", ".* are deleted"),
        does("Namespace loadtest gone", "claim smoke-gpu-load-test-results gone"),
    ),
    Edit(
        "smoke-gpu",
        {},
        pool("core", instance_types=["m5.xlarge"]),
        ("nodes of smoke-gpu-core-nodes are replaced .instanceTypes.; m5.xlarge instead of m5.large", "pool core costs 2.0"),
        does(),
        BY_EKS,
    ),
    Edit(
        "smoke-gpu",
        {},
        pool("gpu", capacity_type="spot"),
        ("qwen3 answers nothing .* for good where AWS has no g6.xlarge then", "nodes of smoke-gpu-gpu-nodes are replaced"),
        QWEN_AWAY,
        BY_EKS,
    ),
    Edit(
        "smoke-gpu",
        {"observability": {"fluent_bit": {"retention_days": 30}}},
        {"observability": {"fluent_bit": {"retention_days": 7}}},
        ("cloudwatch.LogGroup .* keeps logs for 7 days: older ones are deleted",),
        None,
        "CloudWatch is not here",
    ),
    Edit(
        "inf2-llama2",
        {},
        pool("neuron", root_volume_gib=800),
        (*(f"llama2-{one} answers nothing .* with its node" for one in "abc"), "nodes of inf2-llama2-neuron-nodes are replaced"),
        does(*(f"llama2-{one} away" for one in "abc")),
        BY_EKS,
    ),
    *(
        Edit(
            stack,
            {},
            server("llama3-70b", **edit),
            tuple(f"llama3-70b .{role}. answers nothing" for role in ("decode", "prefill")),
            does("llama3-70b (decode) away", "llama3-70b (prefill) away", f"{ROUTER} anew"),
        )
        for stack, edit in (
            ("trn2-nixl", {"extra_env": {"A": "b"}}),
            ("gpu-nixl", {"prefill": {"extra_args": {"max-num-batched-tokens": 4096}}}),
        )
    ),
    Edit("gpu-nixl", {}, server("llama3-70b", router={"cpu": "1"}), (), does(f"{ROUTER} anew")),
    # Without a model, and yet nobody answers without it.
    *(
        Edit(stack, has, edit, (f"{name} answers nothing until .* only pod ends",), does(f"{name} away"))
        for stack, has, edit, name in (
            ("trn2-di", {}, server("llama3-70b", router={"cpu": "3"}), ROUTER),
            ("smoke-gpu", OPEN_WEBUI, {"clients": {"open_webui": {"memory": "3Gi"}}}, "Deployment openwebui/open-webui"),
        )
    ),
    Edit(
        "gpu-nixl",
        {**pool("core", size=1), "load_test": None},
        server("llama3-70b", router={"cpu": "1"}),
        (f"{ROUTER} waits for ever, .* what runs answers on",),
        does(f"{ROUTER} waits", f"{ROUTER} anew"),  # one of two has room
    ),
    Edit("gpu-opt350m", {}, server("triton-server", autoscaling={"max": 6})),
    Edit(
        "gpu-opt350m",
        {},
        pool("gpu", size=1),
        ("triton-server may answer nothing .* if AWS chooses its node", "nodes of gpu-opt350m-gpu-nodes: 1 instead of 4"),
        does("triton-server away"),
        "AWS chooses which nodes go: those with most pods are played",
    ),
    Edit("inf2-llama3", {}, {"pools": {"trainium-trn1": None}}, ("nodes of trainium-trn1 are deleted",)),
    Edit(
        "inf2-llama3",
        {},
        pool(NEURON, capacity_types=["spot"]),
        (f"{RAY} answers nothing .* with its node", f"nodes of {NEURON} that .*capacity-type.* leaves out drift"),
        RAY_AWAY,
        BY_KARPENTER,
    ),
    Edit(
        "inf2-llama3",
        {},
        server(RAY, replicas={"max": 1}),
        ("RayService .*: at most 1 replica of .* instead of 3",),
        None,
        IN_RAY,
    ),
    *(
        Edit(
            "smoke-gpu",
            {**pool("gpu", size=2), "servers": {"other": {**CHAT, **model}}, **endpoint("qwen3", "other")},
            endpoint("qwen3"),
            said,
            None,
            "no proxy runs",
        )
        for model, said in (
            ({}, ("Service .* are deleted", "chat: 1 server instead of 2 for Qwen/Qwen3-0.6B, without other")),
            (
                {"model": {"id": "Qwen/Qwen3-1.7B"}},
                ("chat answers requests for Qwen/Qwen3-1.7B with 404", "Service .* are deleted"),
            ),
        )
    ),
)
