"""A plain vLLM server: its Deployment and what stands around it, on Neuron devices and on GPUs."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, recorded
from eks_inference import serving
from eks_inference.accelerators.neuron.component import ExistingNeuronScheduler
from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_type, instance_types
from eks_inference.faults import SpecError
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.observability.handle import ExistingPrometheus
from eks_inference.observability.prometheus import VllmMetrics
from eks_inference.place.nodes import allocatable
from eks_inference.place.placement import Placement, Taint
from eks_inference.serving import deployment as equal_pods
from eks_inference.serving.flags import flag
from eks_inference.serving.pod_parts import Hardware, cold_start_seconds
from eks_inference.serving.storage_plan import PodStorage
from eks_inference.serving.vllm import plan
from eks_inference.serving.vllm.component import VllmServer
from eks_inference.serving.vllm.facts import serving_facts
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.storage.handle import ExistingStore, Store
from golden import Readable, assert_golden
from graphs import kubernetes, of_kind, stands_on
from handles import existing_cluster, placement
from ports import free_ports
from readme import blocks
from servers import container
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from traffic import Outside, Pod, passes, policies_of
from variants import recorded_with
from waiting import until

NEURON = placement("inf2.48xlarge", pool="neuron", taints=(Taint("aws.amazon.com/neuron", "true", "NoSchedule"),), max_nodes=1)
GPU = placement("g5.xlarge", pool="gpu", taints=(Taint("nvidia.com/gpu", "true", "NoSchedule"),))

LLAMA2 = {
    # The source system's form: four of twelve devices, the model over their eight cores.
    "kind": "vllm",
    "model": {"id": "NousResearch/Llama-2-13b-chat-hf"},
    "engine": "neuron-2.28-vllm-0.13",
    "pool": "neuron",
    "devices": 4,
    "tensor_parallel": 8,
    "max_num_seqs": 24,
    "max_model_len": 4096,
}
QWEN3 = {
    "kind": "vllm",
    "model": {"id": "Qwen/Qwen3-8B"},
    "engine": "cuda-vllm-0.30",
    "pool": "gpu",
    "tensor_parallel": 1,
    "max_num_seqs": 32,
    "max_model_len": 8192,
}
S3_MODEL = {"kind": "s3", "uri": "s3://models/llama-2-13b/v1", "id": "llama-2-13b"}
VOLUME_MODEL = {"kind": "volume", "claim": "models", "path": "llama-2-13b/v1", "id": "llama-2-13b"}
KEDA = {"kind": "keda", "min": 1, "max": 4}


def spec_of(base: Mapping[str, Any] = LLAMA2, **keys: Any) -> VllmServerSpec:
    return VllmServerSpec.model_validate({**base, **keys})


def placed(base: Mapping[str, Any]) -> Placement:
    return NEURON if base["pool"] == "neuron" else GPU


def served(
    base: Mapping[str, Any] = LLAMA2,
    *,
    name: str = "llama2",
    on: Placement | None = None,
    scheduler: bool = True,
    token: Callable[[], Any] = lambda: None,
    api_key: Callable[[], Any] = lambda: None,
    built: Callable[[], Any] = lambda: None,
    settings: dict[str, Any] | None = None,
    kept_in: Store | None = None,
    then: Callable[[VllmServer], object] = lambda server: None,
    **keys: Any,
) -> Graph:
    spec = spec_of(base, **keys)

    def build() -> None:
        server = VllmServer(
            name,
            spec,
            cluster=existing_cluster(**(settings or {})),
            placement=on or placed(base),
            scheduler=ExistingNeuronScheduler() if scheduler else None,
            store=kept_in,
            image=built(),
            hugging_face_token=token(),
            api_key=api_key(),
        )
        then(server)

    return record(build)


def deployment(graph: Graph) -> Resource:
    (only,) = of_kind(graph, "Deployment")
    return only


def pod(graph: Graph) -> dict[str, Any]:
    return deployment(graph).inputs["spec"]["template"]["spec"]


def pod_labels(graph: Graph) -> dict[str, str]:
    return deployment(graph).inputs["spec"]["template"]["metadata"]["labels"]


def env(graph: Graph) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(pod(graph))["env"]}


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


# -- both forms, whole ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "base"), [("llama2-inf2.48xlarge", LLAMA2), ("qwen3-g5.xlarge", QWEN3)])
def test_manifests_of_both_forms(form: str, base: dict) -> None:
    graph = served(base, name=form.partition("-")[0], token=lambda: SecretRef("hugging-face", "token"))
    manifests = [
        {key: resource.inputs[key] for key in ("apiVersion", "kind", "metadata", "spec", "data") if key in resource.inputs}
        for resource in kubernetes(graph)
    ]
    for manifest in manifests:
        manifest.pop("data", None)
    assert_golden(f"vllm/{form}.yaml", yaml.dump_all(manifests, Dumper=Readable, sort_keys=False, width=1_000_000))


def test_a_chat_template_is_for_repositories_that_may_have_none_and_the_users_wins() -> None:
    own = container(pod(served(extra_args={"chat-template": "/mine.jinja"})))["args"]
    assert flag(own, "chat-template") == "/mine.jinja"
    other = container(pod(served(model={"id": "NousResearch/Llama-2-13b-hf"})))["args"]
    assert flag(other, "chat-template") is None


# -- devices and their nodes ----------------------------------------------------------------------------------------------------


def test_part_of_a_neuron_node_goes_through_the_neuron_scheduler_and_nothing_else_does() -> None:
    assert pod(served())["schedulerName"] == "my-scheduler"
    assert "schedulerName" not in pod(served(devices=12))
    assert "schedulerName" not in pod(served(QWEN3))
    part_of_four = served(QWEN3 | {"devices": 2, "tensor_parallel": 2}, on=placement("g5.12xlarge", pool="gpu"))
    assert "schedulerName" not in pod(part_of_four)


def test_part_of_a_neuron_node_without_a_scheduler_is_refused() -> None:
    with pytest.raises(ProgramError, match="NEU009"):
        served(scheduler=False)


def test_the_rules_of_serving_judge_a_server_before_anything_is_made() -> None:
    with pytest.raises(ProgramError, match=r"max_num_seqs: NEU008"):
        served(max_model_len=8192)
    with pytest.raises(ProgramError, match="GPU00"):
        served(QWEN3 | {"tensor_parallel": 2})
    with pytest.raises(ProgramError, match="NEU012"):
        served(LLAMA2 | {"engine": "cuda-vllm-0.30"})


WITH_DEVICES = sorted(name for name, shape in instance_types().items() if shape.accelerator)


@given(st.sampled_from(WITH_DEVICES), st.data())
def test_pods_that_fill_a_node_fit_it(name: str, data: st.DataObject) -> None:
    shape = instance_type(name)
    devices = data.draw(st.integers(1, shape.devices))
    sizes = equal_pods.resources(spec_of(devices=devices), placement(name))
    pods = shape.devices // devices
    usable = allocatable(shape)
    assert pods * int(sizes["cpu"]) * 1000 <= max(usable.cpu_millis - 1000, pods * 1000)
    assert pods * int(sizes["memory"].removesuffix("Gi")) * 1024 <= usable.memory_mib - 2048
    assert int(sizes["cpu"]) >= 1


def test_sizes_can_be_given() -> None:
    resources = container(pod(served(cpu="16", memory="64Gi", disk_gib=60)))["resources"]
    limits = resources["limits"]
    assert (resources["requests"]["cpu"], limits["memory"], limits["ephemeral-storage"]) == ("16", "64Gi", "60Gi")


def test_a_node_that_gives_pods_cores_of_their_own_needs_the_limit() -> None:
    kept = replace(NEURON, kubelet={"cpuManagerPolicy": "static"})
    resources = container(pod(served(on=kept)))["resources"]
    assert resources["requests"] == resources["limits"]


# -- how many, and how a change rolls out ---------------------------------------------------------------------------------------


def test_an_autoscaler_owns_the_number_of_pods() -> None:
    assert deployment(served(replicas=3)).inputs["spec"]["replicas"] == 3
    assert "replicas" not in deployment(served(autoscaling=KEDA)).inputs["spec"]


def test_two_cannot_say_how_many() -> None:
    with pytest.raises(SpecError, match="leave out replicas or autoscaling"):
        spec_of(replicas=1, autoscaling=KEDA)


def _scaled(low: int, more: int) -> dict[str, Any]:
    return {"autoscaling": {"kind": "keda", "min": low, "max": low + more}}


def manifest_of(spec: VllmServerSpec) -> dict[str, Any]:
    engine = plan.engine("s", spec, NEURON)
    return equal_pods.deployment("s", spec, NEURON, engine, labels=plan.labels("s"), image="i", storage=PodStorage())


counts = st.builds(lambda replicas: {"replicas": replicas}, st.integers(0, 6)) | st.builds(
    _scaled, st.integers(1, 3), st.integers(0, 4)
)


@given(counts, st.integers(0, 3), st.integers(1, 4))
def test_a_roll_out_takes_no_device_that_nobody_counted(count: dict, surge: int, devices: int) -> None:
    spec = spec_of(**count, surge=surge, devices=devices)
    manifest = manifest_of(spec)["spec"]
    strategy = manifest["strategy"]["rollingUpdate"]
    wanted = manifest.get("replicas", spec.most - spec.surge)
    assert wanted + strategy["maxSurge"] == spec.most
    # Kubernetes refuses a strategy that may neither add nor take away.
    assert strategy["maxSurge"] or strategy["maxUnavailable"]


def test_a_pod_gives_its_devices_back_before_its_successor_starts_unless_told_otherwise() -> None:
    strategy = deployment(served()).inputs["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}
    assert deployment(served(surge=1)).inputs["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


@given(st.integers(60, 20_000), counts, st.integers(0, 3))
def test_everything_that_waits_waits_long_enough(budget: int, count: dict, surge: int) -> None:
    spec = spec_of(**count, surge=surge, startup_timeout_seconds=budget)
    manifest = manifest_of(spec)["spec"]
    template = manifest["template"]["spec"]
    probe = template["containers"][0]["startupProbe"]
    assert budget <= probe["failureThreshold"] * probe["periodSeconds"] < budget + probe["periodSeconds"]
    startup = spec.profile.startup
    cold = startup.node_start_s + startup.image_pull_s + budget
    assert equal_pods.cold_start_seconds(spec, NEURON) == cold
    assert manifest["progressDeadlineSeconds"] >= template["terminationGracePeriodSeconds"] + cold
    waves = -(-(spec.most - surge) // surge) if surge else spec.most
    assert equal_pods.rollout_seconds(spec, NEURON) >= waves * (cold + template["terminationGracePeriodSeconds"])


def test_pulumi_waits_a_little_longer_than_kubernetes() -> None:
    graph = served(replicas=3)
    timeouts = deployment(graph).options["customTimeouts"]
    deadline = deployment(graph).inputs["spec"]["progressDeadlineSeconds"]
    startup = engine("neuron-2.28-vllm-0.13").startup
    assert deadline > cold_start_seconds(startup, startup.engine_s) > 600
    assert deadline < seconds(timeouts["create"])
    assert 3 * deadline < seconds(timeouts["update"])
    assert pod(graph)["terminationGracePeriodSeconds"] < seconds(timeouts["delete"])


def test_every_probe_asks_for_health_at_the_port_of_the_api() -> None:
    graph = served(port=9000)
    ports = container(pod(graph))["ports"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container(pod(graph))[probe]["httpGet"] == {"path": "/health", "port": ports[0]["name"]}
    assert ports == [{"name": "http", "containerPort": 9000}]
    (service,) = of_kind(graph, "Service")
    assert service.inputs["spec"]["ports"] == [{"name": "http", "port": 9000, "targetPort": "http"}]
    assert service.inputs["spec"]["selector"].items() <= pod_labels(graph).items()


# -- the model and what is compiled of it ---------------------------------------------------------------------------------------


def test_the_model_is_downloaded_before_an_engine_that_would_copy_it() -> None:
    """The loader of this generation saves what it downloads itself once more, as float32; a folder is loaded as it is."""
    template = pod(served(model={"id": "a/b", "revision": "r/1"}))
    (download,) = template["initContainers"]
    assert download["command"][2:] == ["a/b", "r/1", container(template)["args"][0]]


STORE = {"store": {}}


def kept_in_a_store(base: Mapping[str, Any] = LLAMA2, **changes: Any) -> Graph:
    return served({**base, **STORE, **changes}, kept_in=ExistingStore("efs.csi.aws.com", "fs-0a1b2c3d::fsap-0a1b2c3d"))


def test_a_store_keeps_the_model_and_the_finished_artifact() -> None:
    graph = kept_in_a_store()
    template, main = pod(graph), container(pod(graph))
    (claim,) = [volume["persistentVolumeClaim"]["claimName"] for volume in template["volumes"] if volume["name"] == "store"]
    made = graph.named("llama2-store-claim")
    assert (made.inputs["metadata"]["name"], made.inputs["spec"]["accessModes"]) == (claim, ["ReadWriteMany"])
    assert stands_on(graph, deployment(graph), made)
    (download,) = template["initContainers"]
    for one in (download, main):
        assert {"name": "store", "mountPath": "/store"} in one["volumeMounts"]
    assert download["command"][-1] == main["args"][0] == "/store/models/NousResearch/Llama-2-13b-chat-hf/main"
    python, script, folder, listens, *serve = main["command"]
    assert (python, listens, serve) == ("python3", "8000", ["vllm", "serve"])
    assert folder.startswith("/store/artifacts/")
    assert script.removeprefix("/eks-inference/") in graph.named("llama2-drain").inputs["data"]
    assert "NEURON_COMPILED_ARTIFACTS" not in env(graph)


def artifact_of(**changes: Any) -> str:
    return container(pod(kept_in_a_store(**changes)))["command"][2]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {"max_num_seqs": 8},
        {"extra_args": {"dtype": "float16"}},
        {"extra_env": {"NEURON_CC_FLAGS": "-O1"}},
        {"model": {"id": "a/b"}},
    ],
)
def test_other_settings_are_another_artifact(changes: dict) -> None:
    """The engine loads a finished artifact whatever its settings are."""
    assert artifact_of(**changes) != artifact_of()


def test_the_artifact_holds_the_weights_beside_what_the_user_sets() -> None:
    given = {"additional-config": {"override_neuron_config": {"fused_qkv": True}}}
    (line,) = [word for word in container(pod(kept_in_a_store(extra_args=given)))["args"] if "additional-config" in word]
    options = json.loads(line.partition("=")[2])["override_neuron_config"]
    assert options == {"save_sharded_checkpoint": True, "fused_qkv": True}


def test_a_store_on_gpus_keeps_the_model_only() -> None:
    graph = kept_in_a_store(QWEN3)
    assert container(pod(graph))["command"] == ["vllm", "serve"]
    assert container(pod(graph))["args"][0] == "/store/models/Qwen/Qwen3-8B/main"


def test_a_store_is_asked_for_and_given() -> None:
    with pytest.raises(ProgramError, match="go together"):
        served(LLAMA2 | STORE)
    with pytest.raises(SpecError, match="models of the Hugging Face Hub"):
        spec_of(model=S3_MODEL, **STORE)


KEEP = Path(serving.__file__).parent / "assets" / "keep_artifact.py"

ENGINE = """
import http.server, os, pathlib, sys
folder = pathlib.Path(os.environ["NEURON_COMPILED_ARTIFACTS"])
if folder.exists():
    sys.exit(40)
folder.mkdir()
(folder / "model.pt").write_text("graphs")
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""


@pytest.mark.thorough
def test_the_first_start_that_answers_names_the_artifact_and_later_ones_load_it(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(ENGINE)
    kept, number = tmp_path / "artifacts" / "abc", str(*free_ports(1))
    abandoned = tmp_path / "artifacts" / "abc.gone.part"
    abandoned.mkdir(parents=True)
    os.utime(abandoned, (0, 0))
    command = [sys.executable, str(KEEP), str(kept), number, sys.executable, str(tmp_path / "engine.py"), number]
    first = subprocess.Popen(command, start_new_session=True)
    try:
        until(kept.exists)
        assert [path.name for path in kept.parent.iterdir()] == ["abc"]
        assert (kept / "model.pt").read_text() == "graphs"
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(60)
    assert subprocess.run(command, timeout=60).returncode == 40, "the engine was given another folder"


def test_a_start_that_ends_before_it_answers_keeps_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "artifacts" / "abc"
    failing = "import os, pathlib; pathlib.Path(os.environ['NEURON_COMPILED_ARTIFACTS']).mkdir(); raise SystemExit(3)"
    command = [sys.executable, str(KEEP), str(kept), str(*free_ports(1)), sys.executable, "-c", failing]
    started = subprocess.Popen(command, start_new_session=True)
    assert started.wait(60) == 3
    os.killpg(started.pid, signal.SIGKILL)
    assert not kept.exists()


@pytest.mark.parametrize("model", [S3_MODEL, VOLUME_MODEL])
def test_a_model_folder_is_served_under_its_name_and_left_alone(model: dict) -> None:
    graph = served(model=model)
    words = container(pod(graph))["args"]
    assert words[:3] == ["/models", "--served-model-name", "llama-2-13b"]
    (mount,) = [mount for mount in container(pod(graph))["volumeMounts"] if mount["name"] == "model"]
    assert mount["readOnly"] is True
    artifacts = env(graph)["NEURON_COMPILED_ARTIFACTS"]
    assert any(mount["mountPath"] == str(Path(artifacts).parent) for mount in container(pod(graph))["volumeMounts"])


def test_a_model_in_s3_is_copied_first_and_its_disk_is_asked_for() -> None:
    graph = served(model=S3_MODEL | {"size_gib": 40}, disk_gib=60)
    (copy,) = pod(graph)["initContainers"]
    assert copy["args"][:3] == ["s3", "sync", "s3://models/llama-2-13b/v1"]
    assert container(pod(graph))["resources"]["requests"]["ephemeral-storage"] == "100Gi"
    assert {"name": "tmp", "mountPath": "/tmp"} in copy["volumeMounts"]
    (policy,) = graph.of_type("aws:iam/rolePolicy:RolePolicy")
    statements = {statement["Sid"]: statement for statement in json.loads(policy.inputs["policy"])["Statement"]}
    assert statements["ReadModel"]["Resource"] == "arn:aws:s3:::models/llama-2-13b/v1/*"


STREAMED = {"kind": "s3", "uri": "s3://models/qwen3-8b/v1", "id": "Qwen/Qwen3-8B", "streamed": True}


def test_a_streamed_model_is_read_by_the_engine_and_copied_by_nobody() -> None:
    graph = served(QWEN3, model=STREAMED, disk_gib=60, tensor_parallel=4, on=placement("g5.12xlarge", pool="gpu"))
    words = container(pod(graph))["args"]
    assert words[:3] == [STREAMED["uri"], "--served-model-name", "Qwen/Qwen3-8B"]
    assert flag(words, "load-format") == "runai_streamer"
    assert flag(words, "model-loader-extra-config") == '{"distributed": true}'
    assert "initContainers" not in pod(graph)
    assert "model" not in {volume["name"] for volume in pod(graph)["volumes"]}
    assert container(pod(graph))["resources"]["requests"]["ephemeral-storage"] == "60Gi"
    (policy,) = graph.of_type("aws:iam/rolePolicy:RolePolicy")
    statements = {statement["Sid"]: statement for statement in json.loads(policy.inputs["policy"])["Statement"]}
    assert statements["ReadModel"]["Resource"] == "arn:aws:s3:::models/qwen3-8b/v1/*"
    # The streamer lists with the folder and its slash.
    assert statements["ListModel"]["Condition"]["StringLike"]["s3:prefix"] == "qwen3-8b/v1/*"


@pytest.mark.parametrize(
    ("base", "keys", "why"),
    [
        (LLAMA2, {"model": STREAMED}, "no document says that the image of engine neuron-2.28-vllm-0.13 has the Run:ai"),
        (QWEN3, {"model": {**STREAMED, "size_gib": 40}}, "no copy of a streamed model is on the disk"),
        (QWEN3, {"model": STREAMED, "extra_args": {"load-format": "auto"}}, "load-format: keys of the server set this too"),
        (QWEN3, {"model": {**STREAMED, "uri": "s3://models/../v1"}}, "whose parts are neither . nor .., and a bucket of 3 to 63"),
        (QWEN3, {"model": {**STREAMED, "uri": "s3://models/v1/."}}, "whose parts are neither . nor .."),
    ],
)
def test_what_does_not_go_with_streaming_is_refused(base: dict, keys: dict, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        spec_of(base, **keys)


def cache_of(graph: Graph, variable: str) -> str:
    """As the kubelet fills it in: only variables that stand before are known."""
    known: dict[str, str] = {}
    for entry in container(pod(graph))["env"]:
        value = entry.get("value", "")
        known[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: known[match[1]], value)
    return known[variable]


def test_neuron_keeps_compiled_graphs_in_s3_by_content() -> None:
    graph = served()
    bucket, _, key = cache_of(graph, "NEURON_COMPILE_CACHE_URL").rpartition("/")
    assert bucket == "s3://<llama2-compile-cache.bucket>/neuron-compile-cache"
    assert re.fullmatch("[0-9a-f]{16}", key)
    other = cache_of(served(max_num_seqs=12), "NEURON_COMPILE_CACHE_URL")
    assert other.rpartition("/")[0] == bucket
    assert other.rpartition("/")[2] != key


def cache_place(spec: VllmServerSpec) -> str:
    return plan.environment(spec, NEURON)["NEURON_COMPILE_CACHE_URL"]


def test_flags_are_read_as_vllm_reads_them() -> None:
    spec = spec_of(
        extra_args={
            "max_num_batched_tokens": 8192,
            "kv-transfer-config.kv_connector": "NixlConnector",
            "kv_transfer-config.kv_connector_extra_config.port": 1,
            "served-model-name": ["a", "b"],
        }
    )
    assert spec.extra_args == {
        "max-num-batched-tokens": 8192,
        "kv-transfer-config": {"kv_connector": "NixlConnector", "kv_connector_extra_config": {"port": 1}},
        "served-model-name": ["a", "b"],
    }
    assert spec.engine_flags[-3:] == ["--served-model-name", "a", "b"]


@pytest.mark.parametrize(
    "twice",
    [
        {"max-num-seqs": 1, "max_num_seqs": 2},
        {"kv-transfer-config": {"kv_role": "kv_both"}, "kv-transfer-config.kv_role": "kv_both"},
        {"kv-transfer-config.kv_role": "kv_both", "kv-transfer-config": {}},
        {"a.b": 1, "a.b.c": 2},
        {"a.b": 1, "a.b.": 2},
        {"a.b.c": 1, "a.b": 2},
        {"a..b": 1},
    ],
)
def test_a_flag_given_twice_is_refused(twice: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="given twice"):
        spec_of(extra_args=twice)


@given(st.sampled_from(["max_num_seqs", "max_model_len", "tensor_parallel", "image", "engine", "extra_args", "model"]))
def test_what_the_compiler_sees_decides_the_folder(key: str) -> None:
    changed = {
        "max_num_seqs": 8,
        "max_model_len": 2048,
        "tensor_parallel": 4,
        "image": "registry.example/vllm:1",
        "engine": "neuron-2.31-vllm-0.16",
        "extra_args": {"dtype": "float16"},
        "model": {"id": "NousResearch/Llama-2-13b-chat-hf", "revision": "0f1e"},
    }
    assert cache_place(spec_of(**{key: changed[key]})) != cache_place(spec_of())
    unseen = spec_of(replicas=2, cpu="8", extra_env={"A": "b"}, model=LLAMA2["model"] | {"gated": True})
    assert cache_place(unseen) == cache_place(spec_of())


def test_gpus_keep_nothing_unless_there_is_a_volume() -> None:
    graph = served(QWEN3)
    assert not graph.of_type("aws:s3/bucket:Bucket")
    assert not graph.of_type("aws:iam/role:Role")
    assert env(graph)["VLLM_CACHE_ROOT"].startswith(container(pod(graph))["workingDir"])
    kept = served(QWEN3, compile_cache={"kind": "volume", "size_gib": 20})
    (claim,) = of_kind(kept, "PersistentVolumeClaim")
    (mount,) = [mount for mount in container(pod(kept))["volumeMounts"] if mount["name"] == "compile-cache"]
    assert cache_of(kept, "VLLM_CACHE_ROOT").startswith(mount["mountPath"])
    assert claim.inputs["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_a_cache_the_engine_cannot_use_or_share_is_refused() -> None:
    with pytest.raises(SpecError, match="can keep compiled graphs only in folders"):
        spec_of(QWEN3, compile_cache={"kind": "s3"})
    with pytest.raises(SpecError, match="3 pods cannot share a volume of the default storage class"):
        spec_of(compile_cache={"kind": "volume"}, replicas=3)
    with pytest.raises(SpecError, match="2 pods cannot share"):
        spec_of(compile_cache={"kind": "volume"}, surge=1)
    assert spec_of(compile_cache={"kind": "volume", "storage_class": "efs"}, replicas=3)


def test_without_a_cache_the_pod_still_writes_where_it_may() -> None:
    graph = served(compile_cache={"kind": "none"})
    assert env(graph)["NEURON_COMPILE_CACHE_URL"].startswith(container(pod(graph))["workingDir"])
    assert not graph.of_type("aws:s3/bucket:Bucket")


# -- image, flags, environment, secrets -----------------------------------------------------------------------------------------


def test_the_image_is_the_profiles_and_goes_through_the_mirrors() -> None:
    assert container(pod(served()))["image"] == engine("neuron-2.28-vllm-0.13").image
    mirrored = served(settings={"mirrors": {"public.ecr.aws": "registry.example/ecr"}})
    assert container(pod(mirrored))["image"].startswith("registry.example/ecr/neuron/")
    assert container(pod(served(image="registry.example/vllm:1")))["image"] == "registry.example/vllm:1"


def test_an_image_built_here_is_the_engines_own_unless_a_dockerfile_says_more() -> None:
    built = "111122223333.dkr.ecr.us-west-2.amazonaws.com/c/llama2-image:0123"
    graph = served(image={"kind": "in_cluster"}, built=lambda: pulumi.Output.from_input(built))
    assert container(pod(graph))["image"] == built
    spec = spec_of(image={"kind": "in_cluster"})
    assert not isinstance(spec.image, str)
    assert spec.image
    assert [line.split()[0] for line in spec.image.dockerfile_text.splitlines()] == ["ARG", "FROM"]
    text = "ARG ENGINE_IMAGE\nFROM ${ENGINE_IMAGE}\nRUN pip install --no-cache-dir sentencepiece==0.2.1\n"
    own = spec_of(image={"kind": "in_cluster", "dockerfile": text}).image
    assert own
    assert not isinstance(own, str)
    assert own.dockerfile_text == text


@pytest.mark.parametrize(
    ("image", "built", "complaint"),
    [
        ({"kind": "in_cluster"}, None, "did not receive its reference"),
        (None, "registry.example/vllm:1", "image: is given twice"),
        ("registry.example/vllm:1", "registry.example/vllm:2", "image: is given twice"),
    ],
)
def test_the_image_comes_from_one_place(image: Any, built: str | None, complaint: str) -> None:
    with pytest.raises(ProgramError, match=complaint):
        served(image=image, built=lambda: built)


def test_flags_and_variables_of_the_user_win() -> None:
    graph = served(
        extra_args={"num-gpu-blocks-override": 24, "enable-prefix-caching": False, "seed": 7},
        extra_env={"NEURON_CC_FLAGS": "-O1", "HOME": "/elsewhere"},
    )
    assert container(pod(graph))["args"][-3:] == ["--num-gpu-blocks-override=24", "--no-enable-prefix-caching", "--seed=7"]
    assert env(graph)["NEURON_CC_FLAGS"] == "-O1"
    assert env(graph)["HOME"] == "/elsewhere"


def test_tokens_and_keys_are_secrets_and_stand_nowhere_else() -> None:
    graph = served(token=lambda: "hf_geheim", api_key=lambda: "sk-geheim")
    assert env(graph)["HF_TOKEN"] == {"secretKeyRef": {"name": "llama2-hugging-face", "key": "token"}}
    assert env(graph)["VLLM_API_KEY"] == {"secretKeyRef": {"name": "llama2-api-key", "key": "key"}}
    secrets = of_kind(graph, "Secret")
    assert {secret.inputs["metadata"]["name"] for secret in secrets} == {"llama2-hugging-face", "llama2-api-key"}
    assert all(stands_on(graph, deployment(graph), secret) for secret in secrets)
    assert "geheim" not in json.dumps(graph.document())


def test_secrets_that_are_there_are_named() -> None:
    graph = served(token=lambda: SecretRef("ours", "hf"), api_key=lambda: SecretRef("ours", "api"))
    assert env(graph)["HF_TOKEN"] == {"secretKeyRef": {"name": "ours", "key": "hf"}}
    assert env(graph)["VLLM_API_KEY"] == {"secretKeyRef": {"name": "ours", "key": "api"}}
    assert not graph.of_type("kubernetes:core/v1:Secret")


# -- guards ---------------------------------------------------------------------------------------------------------------------

SERVER = Pod("llama2", {"eks-inference/server": "llama2"})
STRANGER = Pod("default", {"app": "stranger"})


def test_the_api_is_open_to_the_cluster_or_to_chosen_namespaces_and_prometheus() -> None:
    policies = policies_of(served())
    assert passes(policies, STRANGER, SERVER, 8000)
    assert not passes(policies, STRANGER, SERVER, 22)
    assert not passes(policies, Outside("198.51.100.7"), SERVER, 8000)
    chosen = policies_of(served(client_namespaces={"team": "chat"}))
    assert passes(chosen, Pod("chat", namespace_labels={"team": "chat"}), SERVER, 8000)
    assert not passes(chosen, STRANGER, SERVER, 8000)
    assert passes(chosen, Pod("monitoring"), SERVER, 8000)


def test_the_guards_stand_before_the_first_pod_and_go_after_the_last() -> None:
    graph = served(model=S3_MODEL)
    for kind in ("NetworkPolicy", "ResourceQuota", "PodDisruptionBudget", "ServiceAccount", "ConfigMap", "Service"):
        for before in of_kind(graph, kind):
            assert stands_on(graph, deployment(graph), before), kind
    (association,) = graph.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    assert stands_on(graph, deployment(graph), association)
    assert association.inputs["serviceAccount"] == pod(graph)["serviceAccountName"]


def test_pods_come_after_their_nodes_and_their_scheduler() -> None:
    def build() -> None:
        ready = [k8s.core.v1.Namespace(name) for name in ("nodes", "scheduler")]
        VllmServer(
            "llama2",
            spec_of(),
            cluster=existing_cluster(),
            placement=replace(NEURON, ready=ready[:1]),
            scheduler=ExistingNeuronScheduler(ready=ready[1:]),
        )

    graph = record(build)
    for name in ("nodes", "scheduler"):
        assert graph.named(name).urn in deployment(graph).dependencies


# -- how a pod ends -------------------------------------------------------------------------------------------------------------


# -- what else stands on a server -----------------------------------------------------------------------------------------------


def metrics(**keys: Any) -> Graph:
    def read(server: VllmServer) -> None:
        cluster = replace(existing_cluster("d"), name="c")
        prometheus = ExistingPrometheus(cluster=cluster, namespace="prom", monitor_labels={"release": "p"})
        VllmMetrics("llama2-metrics", server=server, metrics=prometheus)

    return served(then=read, **keys)


def test_prometheus_reads_the_pods_under_the_servers_name() -> None:
    graph = metrics()
    ours = [graph.named(f"llama2-metrics-{part}").inputs for part in ("pods", "policy")]
    manifests = [{key: each[key] for key in ("apiVersion", "kind", "metadata", "spec")} for each in ours]
    assert_golden("vllm/metrics.yaml", yaml.dump_all(manifests, Dumper=Readable, sort_keys=False))


def test_prometheus_comes_in_also_where_clients_are_chosen() -> None:
    policies = policies_of(metrics(client_namespaces={"team": "chat"}, metrics_namespaces=[]))
    assert passes(policies, Pod("prom"), SERVER, 8000)
    assert not passes(policies, STRANGER, SERVER, 8000)


@pytest.mark.parametrize(
    ("keys", "recorded"),
    [
        ({"replicas": 2}, {"server:pods:min": "vector(2)"}),
        ({"replicas": 0}, {"server:pods:min": "vector(0)"}),
        ({"autoscaling": KEDA}, {"server:pods:min": "vector(1)"}),
        (
            {"objectives": {"time_to_first_token_seconds": 1.5}},
            {"server:pods:min": "vector(1)", "server:time_to_first_token_seconds:objective": "vector(1.5)"},
        ),
    ],
)
def test_alerts_expect_what_the_spec_says(keys: dict[str, Any], recorded: dict[str, str]) -> None:
    rule = metrics(**keys).named("llama2-metrics-expectations").inputs
    assert rule["metadata"] == {"name": "expectations", "namespace": "llama2", "labels": {"release": "p"}}
    (group,) = rule["spec"]["groups"]
    assert {each["record"]: each["expr"] for each in group["rules"]} == recorded
    assert all(each["labels"] == {"namespace": "llama2", "server": "llama2"} for each in group["rules"])


# -- facts, names, faults -------------------------------------------------------------------------------------------------------


def test_rules_are_told_what_runs() -> None:
    spec = spec_of(surge=1, replicas=2, port=9000)
    facts = serving_facts(spec, NEURON, scheduler=True, path=("servers", "llama2"))
    assert (facts.devices, facts.tensor_parallel) == (4, 8)
    # Pods of a rollout take room, but answer nobody more.
    assert (facts.pods_min, facts.pods_max, facts.pods_beside) == (2, 2, 1)
    assert (facts.container_port, facts.service_port) == (9000, 9000)
    assert facts.cpu_millis == 63_000
    assert facts.model
    assert facts.model.name == "Llama-2-13B"
    assert facts.at("pods_max") == ("servers", "llama2", "replicas")
    scaled = serving_facts(spec_of(autoscaling=KEDA), NEURON, scheduler=True)
    assert (scaled.pods_min, scaled.pods_max) == (1, 4)
    assert scaled.at("pods_max") == ("autoscaling", "max")
    assert serving_facts(spec_of(image={"kind": "in_cluster"}), NEURON, scheduler=True).image == ""


def test_only_weights_from_the_hub_without_a_store_are_downloaded_to_the_pods_disk() -> None:
    def disk(**changes: Any) -> int | None:
        return serving_facts(spec_of(disk_gib=60, **changes), NEURON, scheduler=True).disk_gib

    assert disk() == 60
    assert disk(**STORE) is None
    assert disk(model=S3_MODEL) is None


def test_measurements_are_of_the_pods_own_devices() -> None:
    """Three servers share a node of twelve; pods of a roll-out serve nobody's measurement."""
    assert equal_pods.hardware(spec_of(replicas=2, surge=1), NEURON.instance_type) == Hardware("inf2.48xlarge", 4, 2, 2)
    assert equal_pods.hardware(spec_of(replicas=2, surge=1), NEURON.instance_type).devices == 8
    assert equal_pods.hardware(spec_of(autoscaling=KEDA), NEURON.instance_type) == Hardware("inf2.48xlarge", 4, 1, 4)
    assert equal_pods.hardware(spec_of(autoscaling=KEDA), NEURON.instance_type).devices is None
    assert equal_pods.hardware(spec_of(devices=None), NEURON.instance_type).devices_per_pod == 12


def test_a_port_that_the_service_does_not_lead_to_is_refused() -> None:
    with pytest.raises(ProgramError, match="--port"):
        served(extra_args={"port": 9000})


def test_nodes_without_a_device_are_refused_at_the_pool() -> None:
    with pytest.raises(ProgramError, match=r"pool: its nodes have no accelerator for this server; given: neuron \(m5\.2xlarge\)"):
        served(on=placement("m5.2xlarge", pool="neuron"))


@pytest.mark.parametrize("name", ["a" * 41, "Llama2", "2-llama", "llama_2", "llama2-"])
def test_names_that_kubernetes_refuses_are_refused_before_anything_is_made(name: str) -> None:
    with pytest.raises(ProgramError, match="Kubernetes refuses this name"):
        served(name=name)


def test_names_of_the_longest_server_are_legal() -> None:
    name = "a" * equal_pods.MAX_NAME_LENGTH
    graph = served(name=name, model=S3_MODEL, token=lambda: "x")
    for resource in kubernetes(graph):
        is_policy = "ValidatingAdmissionPolicy" in resource.type
        assert len(resource.inputs["metadata"]["name"]) <= (253 if is_policy else 63)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"engine": "triton-26.08-vllm-0.27"}, "starts triton, but this kind of server can only start"),
        ({"image": "registry.example/vllm:latest"}, "may change under a running server"),
        ({"port": 80}, "greater than or equal to 1024"),
        ({"autoscaling": {"kind": "hpa", "max": 2}}, "keda"),
        ({"extra_args": {"--dtype": "float16"}}, "has a wrong form"),
        ({"block_size": 4096}, "unknown key"),
    ],
)
def test_a_wrong_spec_says_why(keys: dict, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        spec_of(**keys)


# -- the stack that ships it ----------------------------------------------------------------------------------------------------

STACK = "inf2-llama2"
GUIDE = ROOT / "docs" / "stacks" / f"{STACK}.md"


def servers_of(graph: Graph) -> dict[str, dict[str, Any]]:
    """Manifests of the model servers' Deployments by name."""
    found = graph.of_type("eks-inference:index:VllmServer")
    return {server.name: dict(graph.named(f"{server.name}-deployment").inputs) for server in found}


def pod_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"]["spec"]


@pytest.mark.thorough
def test_the_settings_of_the_stacks_page_do_what_it_says() -> None:
    together, _gateway, _endpoint, longer, options, features, built, own, stored, stored_once, _claims, faster, shared = (
        yaml.safe_load(each.text) for each in blocks(GUIDE) if each.language == "yaml"
    )

    graph = recorded_with({"servers": {**together["servers"], "llama2-b": None, "llama2-c": None}}, STACK)
    (manifest,) = servers_of(graph).values()
    assert manifest["spec"]["replicas"] == 3
    assert manifest["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}

    words = container(pod_of(servers_of(recorded_with(longer, STACK))["llama2-a"]))["args"]
    assert "--max-model-len 8192 --max-num-seqs 12" in " ".join(words)
    with pytest.raises(ProgramError, match=r"NEU008.*21\.87"):
        recorded_with(longer | {"servers": {"llama2-a": longer["servers"]["llama2-a"] | {"max_num_seqs": 24}}}, STACK)

    # Of the shipped file the other servers keep theirs.
    configs = {
        name: json.loads(flag(container(pod_of(each))["args"], "additional-config") or "")["override_neuron_config"]
        for name, each in servers_of(recorded_with(options, STACK)).items()
    }
    assert configs["llama2-a"] == configs["llama2-b"] | dict.fromkeys(
        ("fused_qkv", "async_mode", "sequence_parallel_enabled"), True
    )
    assert configs["llama2-b"]["token_generation_buckets"][-1] == 4096

    words = container(pod_of(servers_of(recorded_with(features, STACK))["llama2-a"]))["args"]
    assert {"--enable-prefix-caching", "--enable-auto-tool-choice", "--tool-call-parser=pythonic"} <= {*words}
    assert json.loads(flag(words, "additional-config") or "")["override_neuron_config"]["kv_cache_quant"] is True

    graph = recorded_with(built, STACK)
    (build,) = graph.of_type("eks-inference:index:ImageBuild")
    recipe = json.dumps([each.inputs.get("data", {}) for each in of_kind(graph, "ConfigMap") if each.name.startswith(build.name)])
    assert "sentencepiece==0.2.1" in recipe
    assert "RAY_VERSION" not in recipe
    (job,) = [each for each in of_kind(graph, "Job") if each.name.startswith(build.name)]
    assert stands_on(graph, graph.named("llama2-a-deployment"), job)

    images = {name: container(pod_of(each))["image"] for name, each in servers_of(recorded_with(own, STACK)).items()}
    assert images["llama2-a"] == own["servers"]["llama2-a"]["image"] != images["llama2-b"]

    graph = recorded_with(stored, STACK)
    assert [each.name for each in graph.of_type("aws:efs/fileSystem:FileSystem")] == ["llama2-a-store-file-system"]
    kept = {name: container(pod_of(each))["args"][0].startswith("/store/") for name, each in servers_of(graph).items()}
    assert kept == {"llama2-a": True, "llama2-b": False, "llama2-c": False}

    graph = recorded_with(stored_once, STACK)
    assert [each.name for each in graph.of_type("aws:efs/fileSystem:FileSystem")] == ["inf2-llama2-models-store-file-system"]
    volumes = [each.inputs["spec"]["csi"]["volumeHandle"] for each in of_kind(graph, "PersistentVolume")]
    assert len(volumes) == 3
    assert len({*volumes}) == 1
    assert all(container(pod_of(each))["args"][0].startswith("/store/") for each in servers_of(graph).values())

    template = recorded_with(faster, STACK).named("inf2-llama2-neuron-template").inputs
    disk = template["blockDeviceMappings"][0]["ebs"]
    assert (disk["throughput"], disk["iops"]) == (1000, 16000)
    assert "FastImagePull: true" in base64.b64decode(template["userData"]).decode()

    graph = recorded_with(shared, STACK)
    assert not graph.of_type("aws:s3/bucket:Bucket")
    entries = [entry for each in servers_of(graph).values() for entry in container(pod_of(each))["env"]]
    caches = {entry["value"] for entry in entries if "CACHE" in entry["name"]}
    assert len(caches) == 2, "one place, and one key below it"


def test_a_store_that_the_stack_has_not_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"llama2-a\.shared_store: there is no store of this name"):
        recorded_with({"stores": {"models": {}}, "servers": {"llama2-a": {"shared_store": "modles"}}}, STACK)
    with pytest.raises(ProgramError, match="a server has one of them"):
        recorded_with({"stores": {"models": {}}, "servers": {"llama2-a": {"shared_store": "models", "store": {}}}}, STACK)


def test_the_commands_of_the_stacks_page_name_what_exists() -> None:
    graph = recorded(STACK)
    services = {(each.inputs["metadata"]["namespace"], each.inputs["metadata"]["name"]) for each in of_kind(graph, "Service")}
    made_by_others = {("monitoring", "kube-prometheus-stack-grafana")}
    (commands,) = (each.text.splitlines() for each in blocks(GUIDE) if each.language == "sh")
    for words in (command.split() for command in commands if command.startswith("kubectl")):
        assert (words[2], words[4].removeprefix("svc/")) in services | made_by_others
