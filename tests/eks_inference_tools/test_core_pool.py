"""The core pool that follows where a stack has none holds what every part of a stack runs there."""

from typing import Any

import pytest

from eks_inference.stack.defaults import CORE
from eks_inference_tools.placing.placed import Placing
from open_stacks import recorded_stack

TOPIC = "arn:aws:sns:us-west-2:123456789012:alerts"
EVERYTHING: dict[str, Any] = {
    "name": "mine",
    "silenced": {"AWS001": "nodes of a test"},
    "pools": {
        "gpu": {"instance_types": ["g6.xlarge"], "size": 2},
        "inf": {"instance_types": ["inf2.8xlarge"], "size": 2},
        "pair": {"instance_types": ["g6e.48xlarge"], "size": 2, "devices": "claims"},
        "more": {"kind": "karpenter", "instance_families": ["g6"]},
    },
    "stores": {"files": {}},
    "observability": {
        "prometheus": {"receiver": {"kind": "sns", "topic_arn": TOPIC}, "grafana_volume_gib": 10},
        "cloudwatch": {},
        "fluent_bit": {},
        "dcgm_exporter": {},
        "neuron_monitor": {},
    },
    "clients": {"open_webui": {}, "smoke_test": {}, "triton": {}},
    "load_test": {},
    "servers": {
        "a": {
            "pool": "gpu",
            "model": {"id": "Qwen/Qwen3-8B"},
            "autoscaling": {"kind": "keda", "min": 1, "max": 2},
            "shared_store": "files",
        },
        "b": {
            "kind": "triton",
            "pool": "gpu",
            "model": {"id": "facebook/opt-350m"},
            "autoscaling": {"kind": "hpa", "min": 1, "max": 2},
        },
    },
}
RAY = {"kind": "ray_serve_vllm", "model": {"id": "NousResearch/Meta-Llama-3-8B-Instruct"}, "worker": {"pool": "inf"}}


@pytest.mark.parametrize(
    "more", [pytest.param({}, id="controllers"), pytest.param({"r": RAY}, id="image builds and Ray", marks=pytest.mark.thorough)]
)
def test_it_holds_everything(more: dict[str, Any]) -> None:
    graph = recorded_stack({**EVERYTHING, "servers": {**EVERYTHING["servers"], **more}})
    found = Placing(graph).at("initial")
    assert not [pod.template.title for pod in found.unplaced]
    there = [pod.template.title for node in found.nodes if node.pool == CORE for pod in node.pods]
    charts = {"karpenter", "keda-operator", "prometheus-adapter", "coredns", "ebs-csi-controller", "open-webui"}
    assert not [name for name in charts if not any(title.endswith(f"/{name}") for title in there)]
