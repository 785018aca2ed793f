"""Records single Ray Serve servers in two sizes, and reads their objects."""

import json
from collections.abc import Callable
from typing import Any

import yaml

from eks_inference.accelerators.neuron.component import ExistingNeuronScheduler
from eks_inference.place.placement import Placement, Taint
from eks_inference.serving.kuberay.component import ExistingKubeRayOperator
from eks_inference.serving.ray_serve import plan
from eks_inference.serving.ray_serve.component import RayServeVllm
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from handles import existing_cluster, placement
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record

IMAGE = "registry.example/vllm-ray-neuron:1"
NEURON = Taint("aws.amazon.com/neuron", "true", "NoSchedule")
JUPYTER = Taint("hub.jupyter.org/dedicated", "user", "NoSchedule")
HEAD = placement("m5.2xlarge", pool="core")


def workers_on(name: str) -> Placement:
    return placement(name, pool="inferentia-inf2", taints=(NEURON, JUPYTER))


def environment_of(spec: RayServeVllmSpec) -> dict[str, str]:
    """The environment of the replicas on the shipped nodes."""
    return plan.environment(spec, workers_on(spec.worker.instance_type))


SMALL = {
    "namespace": "vllm",
    # As in the source system: one chip per node, with the model on its two cores.
    "model": {"id": "NousResearch/Meta-Llama-3-8B-Instruct"},
    "image": IMAGE,
    "tensor_parallel": 2,
    "max_model_len": 4096,
    "max_num_seqs": 10,
    "head": {"pool": "core", "cpu": "2", "memory": "20G"},
    "worker": {"pool": "inferentia-inf2", "instance_type": "inf2.8xlarge", "cpu": "30", "memory": "110G"},
}
LARGE = {
    # The "optional" form of the source, corrected: three replicas of 8 cores each use what the source left idle.
    **SMALL,
    "tensor_parallel": 8,
    "worker": {"pool": "inferentia-inf2", "instance_type": "inf2.48xlarge", "cpu": "90", "memory": "360G"},
}


def changed(base: dict, **keys: Any) -> dict:
    """Returns the base with some keys replaced; a dict is merged into the base's dict."""
    return base | {
        key: base[key] | value if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in keys.items()
    }


def spec_of(base: dict = SMALL, **keys: Any) -> RayServeVllmSpec:
    return RayServeVllmSpec.model_validate(changed(base, **keys))


def served(
    base: dict = SMALL,
    *,
    name: str = "vllm-llama3-inf2",
    on: Placement | None = None,
    scheduler: bool = False,
    token: Callable[[], Any] = lambda: None,
    api_key: Callable[[], Any] = lambda: None,
    built: Callable[[], Any] = lambda: None,
    settings: dict | None = None,
    **keys: Any,
) -> Graph:
    spec = spec_of(base, **keys)

    def build() -> None:
        RayServeVllm(
            name,
            spec,
            cluster=existing_cluster(**(settings or {})),
            operator=ExistingKubeRayOperator(),
            head=HEAD,
            worker=on or workers_on(spec.worker.instance_type),
            scheduler=ExistingNeuronScheduler() if scheduler else None,
            image=built(),
            hugging_face_token=token(),
            api_key=api_key(),
        )

    return record(build)


def ray_service(graph: Graph) -> dict:
    (found,) = graph.of_type("kubernetes:ray.io/v1:RayService")
    return dict(found.inputs)


def head_pod(graph: Graph) -> dict:
    return ray_service(graph)["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]


def worker_group(graph: Graph) -> dict:
    (group,) = ray_service(graph)["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    return group


def worker_pod(graph: Graph) -> dict:
    return worker_group(graph)["template"]["spec"]


def container(pod: dict) -> dict:
    (only,) = pod["containers"]
    return only


def serve_application(graph: Graph) -> dict:
    (application,) = yaml.safe_load(ray_service(graph)["spec"]["serveConfigV2"])["applications"]
    return application


def declared_cores(graph: Graph) -> int:
    """Reads the cores as Ray's autoscaler does (autoscaling_config.py): as JSON without the outer quotes."""
    text = worker_group(graph)["rayStartParams"]["resources"]
    return json.loads(text[1:-1].replace("\\", ""))["neuron_cores"]
