"""Where a server's model and compiled graphs come from and stay, its image, and what it may do in AWS."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
import yaml
from pydantic import TypeAdapter

from eks_inference.faults import SpecError
from eks_inference.serving import ray_serve
from eks_inference.serving.handle import ModelServer
from eks_inference.serving.kuberay.component import ExistingKubeRayOperator
from eks_inference.serving.ray_serve.component import RayServeVllm
from eks_inference.serving.spec import HubModel, ModelSource, S3Model, VolumeModel
from golden import assert_golden
from graphs import of_kind, stands_on
from handles import existing_cluster
from servers import (
    HEAD,
    IMAGE,
    SMALL,
    container,
    environment_of,
    head_pod,
    serve_application,
    served,
    spec_of,
    worker_pod,
    workers_on,
)
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError

ASSETS = Path(ray_serve.__file__).parent / "assets"
NAME = "vllm-llama3-inf2"
S3 = {"kind": "s3", "uri": "s3://models/llama-3-8b/v1", "id": "llama-3-8b"}
VOLUME = {"kind": "volume", "claim": "models", "path": "llama-3-8b/v1", "id": "llama-3-8b"}
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
NONE = {"kind": "none"}


def from_(model: dict, **keys: Any) -> Graph:
    """A server of that model; the base's own model is replaced, not merged into."""
    return served(SMALL | {"model": model}, **keys)


def cached(cache: dict, **keys: Any) -> Graph:
    return served(SMALL | {"compile_cache": cache}, **keys)


def statements(graph: Graph) -> dict[str, dict]:
    (policy,) = graph.of_type(ROLE_POLICY)
    return {statement["Sid"]: statement for statement in json.loads(policy.inputs["policy"])["Statement"]}


def cache_url(graph: Graph) -> str:
    """As a replica sees it: Ray fills the worker's variable in."""
    (place,) = [entry["value"] for entry in container(worker_pod(graph))["env"] if entry["name"] == "COMPILE_CACHE"]
    return serve_application(graph)["runtime_env"]["env_vars"]["NEURON_COMPILE_CACHE_URL"].replace("${COMPILE_CACHE}", place)


# -- the compile cache ----------------------------------------------------------------------------------------------------------


def test_what_a_server_may_do_in_aws() -> None:
    graph = from_(S3, settings={"kms_key_arn": "arn:aws:kms:us-west-2:111122223333:key/12345678-1234-1234-1234-123456789012"})
    (policy,) = graph.of_type(ROLE_POLICY)
    assert_golden("serving/worker-policy.json", json.dumps(json.loads(policy.inputs["policy"]), indent=2))


def test_a_bucket_of_yours_is_used_below_the_prefix_and_nowhere_else() -> None:
    graph = cached({"kind": "s3", "bucket": "compiled", "prefix": "inf2/llama"})
    assert not graph.of_type("aws:s3/bucket:Bucket")
    assert cache_url(graph).startswith("s3://compiled/inf2/llama/")
    allowed = statements(graph)
    assert allowed["KeepCompiledGraphs"]["Resource"] == "arn:aws:s3:::compiled/inf2/llama/*"
    assert set(allowed["KeepCompiledGraphs"]["Action"]) == {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}
    assert allowed["FindCompiledGraphs"]["Resource"] == "arn:aws:s3:::compiled"


@pytest.mark.parametrize("name", ["llama", "a" * 47])
def test_names_in_aws_fit_their_limits(name: str) -> None:
    graph = served(name=name)
    (bucket,) = graph.of_type("aws:s3/bucket:Bucket")
    (role,) = graph.of_type("aws:iam/role:Role")
    assert len(bucket.name) + 8 <= 63
    assert len(role.name) + 8 <= 64


def test_without_a_cache_and_with_a_model_of_the_hub_nothing_of_aws_is_needed() -> None:
    graph = cached(NONE)
    assert not [r for r in graph.resources if r.type.startswith("aws:")]
    assert "COMPILE_CACHE" not in graph.to_json()
    assert worker_pod(graph)["serviceAccountName"] == of_kind(graph, "ServiceAccount")[0].inputs["metadata"]["name"]


def test_a_cache_on_a_volume_for_one_worker_is_of_the_default_storage_class() -> None:
    graph = cached({"kind": "volume", "size_gib": 30}, worker={"max": 1})
    (claim,) = of_kind(graph, "PersistentVolumeClaim")
    assert claim.inputs["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "30Gi"}}}
    assert claim.inputs["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    assert stands_on(graph, graph.named(f"{NAME}-rayservice"), claim)
    pod = worker_pod(graph)
    (volume,) = [v for v in pod["volumes"] if "persistentVolumeClaim" in v]
    assert volume["persistentVolumeClaim"]["claimName"] == claim.inputs["metadata"]["name"]
    (mount,) = [m for m in container(pod)["volumeMounts"] if m["name"] == volume["name"]]
    assert cache_url(graph).startswith(mount["mountPath"] + "/")
    assert not [r for r in graph.resources if r.type.startswith("aws:")]


def test_several_workers_share_a_volume_only_where_they_can() -> None:
    with pytest.raises(SpecError, match="3 pods cannot share a volume of the default storage class"):
        spec_of(SMALL | {"compile_cache": {"kind": "volume"}})
    graph = cached({"kind": "volume", "storage_class": "efs"})
    (claim,) = of_kind(graph, "PersistentVolumeClaim")
    assert claim.inputs["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim.inputs["spec"]["storageClassName"] == "efs"


def key_of(**keys: Any) -> str:
    return environment_of(spec_of(**keys))["NEURON_COMPILE_CACHE_URL"].rpartition("/")[2]


def test_a_chip_has_a_folder_of_its_own() -> None:
    assert key_of(worker={"instance_type": "trn1.2xlarge", "cpu": None, "memory": None}) != key_of()


def test_an_image_built_in_the_cluster_is_told_by_its_recipe() -> None:
    def built(**recipe: Any) -> str:
        spec = spec_of(SMALL | {"image": {"kind": "in_cluster", **recipe}})
        return environment_of(spec)["NEURON_COMPILE_CACHE_URL"]

    assert len({built(), built(build_args={"RAY_VERSION": "2.53.0"}), built(dockerfile="FROM registry.example/x:1\n")}) == 3
    assert built(timeout_minutes=90, keep_images=3) == built()


def test_a_cache_of_yours_in_the_environment_wins() -> None:
    assert environment_of(spec_of(extra_env={"NEURON_COMPILE_CACHE_URL": "/mine"}))["NEURON_COMPILE_CACHE_URL"] == "/mine"


# -- the model ------------------------------------------------------------------------------------------------------------------


def test_a_model_without_a_kind_is_of_the_hub() -> None:
    source: TypeAdapter[Any] = TypeAdapter(ModelSource)
    assert source.validate_python({"id": "a/b"}) == HubModel(id="a/b")
    assert source.validate_json('{"kind": "hugging_face", "id": "a/b"}', strict=True) == HubModel(id="a/b")
    assert isinstance(source.validate_python(S3), S3Model)
    assert isinstance(source.validate_python(VOLUME), VolumeModel)
    assert source.validate_python({**VOLUME, "path": ".cache/hub/models--a--b"}).path == ".cache/hub/models--a--b"
    for path in ("..", "a/../b", "/a", "a//b"):
        with pytest.raises(ValueError, match="path"):
            source.validate_python({**VOLUME, "path": path})


@pytest.mark.parametrize(
    "model",
    [
        {"kind": "s3", "uri": "s3://models", "id": "a"},
        {"kind": "s3", "uri": "s3://models/a/", "id": "a"},
        {"kind": "s3", "uri": "s3://models/*", "id": "a"},
        {"kind": "s3", "uri": "https://models/a", "id": "a"},
        {"kind": "volume", "claim": "models", "path": "/a", "id": "a"},
        {"kind": "volume", "claim": "models", "path": "../a", "id": "a"},
        {"kind": "ftp", "id": "a"},
    ],
)
def test_a_wrong_source_is_refused(model: dict) -> None:
    with pytest.raises(SpecError):
        spec_of(SMALL | {"model": model})


def test_the_disk_of_a_copy_is_asked_for_and_bounded() -> None:
    pod = worker_pod(from_(S3 | {"size_gib": 40}))
    (download,) = pod["initContainers"]
    assert download["resources"]["requests"]["ephemeral-storage"] == "40Gi"
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "model"]
    assert volume["emptyDir"] == {"sizeLimit": "40Gi"}


def test_the_copy_meets_pod_security_restricted_and_comes_from_the_mirror() -> None:
    graph = from_(S3, settings={"mirrors": {"public.ecr.aws": "mirror.example/ecr-public"}})
    (download,) = worker_pod(graph)["initContainers"]
    assert download["securityContext"] == container(worker_pod(graph))["securityContext"]
    assert download["image"].startswith("mirror.example/ecr-public/aws-cli/")


def test_a_model_on_a_volume_is_mounted_read_only() -> None:
    graph = from_(VOLUME)
    pod = worker_pod(graph)
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "model"]
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    (mount,) = [mount for mount in container(pod)["volumeMounts"] if mount["name"] == "model"]
    assert mount["readOnly"] is True
    assert mount["subPath"] == "llama-3-8b/v1"
    assert serve_application(graph)["runtime_env"]["env_vars"]["MODEL_FOLDER"] == mount["mountPath"]
    assert "initContainers" not in pod


@pytest.mark.parametrize("model", [S3, VOLUME])
def test_clients_ask_for_a_local_model_by_its_name(model: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (ASSETS, ASSETS.parents[1] / "assets"):
        monkeypatch.syspath_prepend(str(folder))
    import vllm_engine  # pyright: ignore[reportMissingImports]

    settings = vllm_engine.Settings.from_environment(environment_of(spec_of(SMALL | {"model": model})))
    line = vllm_engine.command_line(settings, 1)
    start = line.index("serve")
    assert line[start : start + 4] == ["serve", settings.model_folder, "--served-model-name", "llama-3-8b"]
    assert "--revision" not in line


# -- the image ------------------------------------------------------------------------------------------------------------------


def built_image() -> pulumi.Output[str]:
    """A reference that is only known once something else is there."""
    job = aws.sqs.Queue("build")
    return pulumi.Output.concat("registry.example/built:", job.arn)


BUILT = SMALL | {"image": {"kind": "in_cluster"}}


def test_an_image_built_in_the_cluster_is_what_both_run_and_is_waited_for() -> None:
    graph = served(BUILT, built=built_image)
    assert container(worker_pod(graph))["image"] == container(head_pod(graph))["image"] == "registry.example/built:<build.arn>"
    assert stands_on(graph, graph.named(f"{NAME}-rayservice"), graph.named("build"))


def test_the_head_may_have_another_image_than_the_built_one() -> None:
    graph = served(BUILT | {"head": {**SMALL["head"], "image": "registry.example/ray:2.52.1"}}, built=built_image)
    assert container(head_pod(graph))["image"] == "registry.example/ray:2.52.1"


def test_an_image_that_should_be_built_must_be_given() -> None:
    with pytest.raises(ProgramError, match="image: is built in the cluster, but the server did not receive its reference"):
        served(BUILT)


def test_an_image_is_not_given_twice() -> None:
    with pytest.raises(ProgramError, match=f"image: is given twice; given: {IMAGE}"):
        served(built=lambda: "registry.example/other:1")


# -- what clients know ----------------------------------------------------------------------------------------------------------


def test_a_server_is_what_clients_stand_on() -> None:
    from stackgraph.recorder.recording import record

    found: list[ModelServer] = []

    def build() -> None:
        spec = spec_of(SMALL | {"model": S3})
        operator, worker = ExistingKubeRayOperator(), workers_on("inf2.8xlarge")
        found.append(RayServeVllm("llama", spec, cluster=existing_cluster(), operator=operator, head=HEAD, worker=worker))

    record(build)
    (server,) = found
    assert server.model_id == "llama-3-8b"
    assert server.namespace == "vllm"
    assert server.url == "http://llama-serve-svc.vllm.svc.cluster.local:8000/v1"
    assert server.startup_seconds >= 3000
    assert server.ready


def test_manifest_with_everything_from_s3() -> None:
    pod = worker_pod(from_(S3))
    assert_golden("serving/worker-pod-s3.yaml", yaml.safe_dump(pod, sort_keys=False, width=1_000_000))
