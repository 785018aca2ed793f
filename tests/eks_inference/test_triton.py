"""Triton with the vLLM back end on GPUs, and its rules."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from eks_inference.catalog.engines import engine, engines
from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.catalog.models import model
from eks_inference.catalog.vllm_arguments import known_arguments, successors
from eks_inference.faults import SpecError
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.observability.handle import ExistingPrometheus
from eks_inference.observability.prometheus import VllmMetrics
from eks_inference.place.placement import Placement, Taint
from eks_inference.rules import Finding, findings
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.serving.triton import plan, rules
from eks_inference.serving.triton.component import TritonServer
from eks_inference.serving.triton.rules import serving_facts, triton_facts, triton_rules
from eks_inference.serving.triton.spec import TritonServerSpec
from golden import Readable, assert_golden
from graphs import stands_on
from handles import existing_cluster, placement
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from vectors.gpu import gpu_server, t4_server

NAME = "triton-server"
GPU_TAINT = Taint("nvidia.com/gpu", "true", "NoSchedule")
GPU_SHAPES = [shape for shape in instance_types().values() if shape.accelerator == "nvidia"]
TRITON_ENGINES = [name for name, profile in engines().items() if profile.server == "triton"]

OPT = {"pool": "gpu", "model": {"id": "facebook/opt-350m"}}
SOURCE = {
    # What the source system says, in this library's words; what today's vLLM refuses included.
    **OPT,
    "model_name": "opt350m",
    "engine": "triton-24.07-vllm-0.5",
    "enforce_eager": True,
    "extra_args": {"disable-log-requests": True},
    "log_stats": False,
    "report_custom_metrics": False,
    "repository": {"kind": "s3"},
    "cache": {"kind": "host_path"},
    "prefetch": True,
    "cpu": "2",
    "memory": "12Gi",
    "autoscaling": {"kind": "hpa", "min": 1, "max": 4, "target": 10},
}


def on(name: str = "g4dn.xlarge") -> Placement:
    return placement(name, pool="gpu", taints=(GPU_TAINT,), max_nodes=4)


def spec_of(base: dict = OPT, **keys: Any) -> TritonServerSpec:
    return TritonServerSpec.model_validate({**base, **keys})


def served(
    base: dict = OPT,
    *,
    where: str = "g4dn.xlarge",
    name: str = NAME,
    token: str | SecretRef | None = None,
    monitored: bool = False,
    settings: dict[str, Any] | None = None,
    **keys: Any,
) -> Graph:
    def build() -> None:
        cluster = existing_cluster(**(settings or {}))
        server = TritonServer(name, spec_of(base, **keys), cluster=cluster, placement=on(where), hugging_face_token=token)
        if monitored:
            VllmMetrics("metrics", server=server, metrics=ExistingPrometheus(cluster, "monitoring", {"release": "prometheus"}))

    return record(build)


def deployment(graph: Graph) -> dict[str, Any]:
    return dict(graph.named(f"{NAME}-deployment").inputs)


def pod(graph: Graph) -> dict[str, Any]:
    return deployment(graph)["spec"]["template"]["spec"]


def container(graph: Graph) -> dict[str, Any]:
    (only,) = pod(graph)["containers"]
    return only


def environment(graph: Graph) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(graph)["env"]}


def manifest(resource: Resource) -> str:
    shown = {key: value for key, value in resource.inputs.items() if key in ("apiVersion", "kind", "metadata", "spec", "data")}
    return yaml.dump(shown, Dumper=Readable, sort_keys=False, width=1_000_000)


def judged(server: TritonServerSpec, where: str = "g4dn.xlarge") -> list[Finding]:
    facts = triton_facts(server, on(where), path=("servers", NAME))
    return [*findings(server_rules(), facts.serving, {}), *findings(triton_rules(), facts, {})]


# -- model repository ------------------------------------------------------------------------------------------------------------


def test_the_model_repository_of_the_default_and_of_the_source_system() -> None:
    for form, base in (("default", OPT), ("source", SOURCE)):
        for path, text in plan.repository_files(spec_of(base), instance_type("g4dn.xlarge")).items():
            assert_golden(f"triton/repository-{form}/{path}", text)


@pytest.mark.parametrize("name", TRITON_ENGINES)
def test_every_key_this_library_writes_is_one_that_the_engine_takes(name: str) -> None:
    full = spec_of(
        engine=name,
        model={"id": "facebook/opt-350m", "revision": "main"},
        max_model_len=2048,
        max_num_seqs=16,
    )
    known = known_arguments()[engine(name).vllm]
    assert plan.engine_settings(full, instance_type("g4dn.xlarge")).keys() <= known


def test_what_replaced_a_key_is_a_key_of_the_newest_release() -> None:
    older, newest = list(known_arguments().values())
    assert set(successors()) <= older - newest
    assert {text for text in successors().values() if not text.startswith("nothing")} <= newest


@given(st.sampled_from(GPU_SHAPES), st.integers(1, 8), st.integers(1, 8), st.integers(1, 2))
def test_instances_of_the_model_take_the_gpus_they_are_given(
    shape: InstanceType, gpus: int, tensor_parallel: int, pipeline: int
) -> None:
    spec = spec_of(devices=gpus, tensor_parallel=tensor_parallel, extra_args={"pipeline-parallel-size": pipeline})
    several = tensor_parallel * pipeline > 1
    assert f"kind: {'KIND_MODEL' if several else 'KIND_GPU'}\n" in plan.config_pbtxt(spec, shape)
    assert plan.copies(spec, shape) == (1 if several else gpus)
    settings = json.loads(plan.repository_files(spec, shape)[f"{spec.served_name}/1/model.json"])
    assert settings["tensor_parallel_size"] * settings["pipeline_parallel_size"] == plan.world_size(spec, shape)


@pytest.mark.parametrize(
    ("where", "keys", "kind", "copies"),
    [
        ("g4dn.xlarge", {}, "KIND_GPU", 1),
        ("g4dn.12xlarge", {}, "KIND_MODEL", 1),
        ("g4dn.12xlarge", {"tensor_parallel": 1}, "KIND_GPU", 4),
        ("g4dn.12xlarge", {"devices": 1}, "KIND_GPU", 1),
    ],
)
def test_a_copy_for_each_gpu_or_one_over_all(where: str, keys: dict, kind: str, copies: int) -> None:
    facts = triton_facts(spec_of(**keys), on(where))
    assert (facts.instance_kind, facts.serving.copies) == (kind, copies)


def test_braces_of_the_configuration_are_closed_and_its_parameters_are_the_words_the_back_end_takes() -> None:
    text = plan.config_pbtxt(spec_of(engine_health_check=True), instance_type("g4dn.xlarge"))
    for opened, closed in ("{}", "[]"):
        assert text.count(opened) == text.count(closed)
    assert re.findall(r'key: "(\w+)"', text) == ["REPORT_CUSTOM_METRICS", "ENABLE_VLLM_HEALTH_CHECK"]
    assert set(re.findall(r'string_value: "(\w+)"', text)) == {"true"}


def test_the_apis_of_an_administrator_are_closed_with_a_key_that_nobody_knows(tmp_path: Path) -> None:
    """The rendered command, with a stand-in that writes its arguments."""
    (tmp_path / "tritonserver").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "tritonserver").chmod(0o755)
    rendered = container(served())

    def started() -> list[str]:
        command, path = [*rendered["command"], *rendered["args"]], f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.splitlines()

    first, second = started(), started()
    assert first[: len(plan.ARGUMENTS)] == list(plan.ARGUMENTS)
    apis = "logging,model-repository,shared-memory,trace"
    for flag, value in zip(("--http-restricted-api", "--grpc-restricted-protocol"), first[-2:], strict=True):
        assert re.fullmatch(rf"{flag}={apis}:eks-inference-closed=[0-9a-f-]{{36}}", value)
    assert first[-1] != second[-1]


def test_a_model_from_s3_is_loaded_from_the_pods_folder() -> None:
    model = {"kind": "s3", "uri": "s3://models/opt/v1", "id": "opt-350m"}
    assert plan.engine_settings(spec_of(model=model), instance_type("g4dn.xlarge"))["model"] == "/models"
    graph = served(model=model)
    assert [one["name"] for one in pod(graph)["initContainers"]] == ["download-model"]
    (policy,) = graph.of_type("aws:iam/rolePolicy:RolePolicy")
    assert [statement["Sid"] for statement in json.loads(policy.inputs["policy"])["Statement"]] == ["ListModel", "ReadModel"]


def test_an_engine_argument_wins_its_place_in_model_json() -> None:
    settings = plan.engine_settings(spec_of(extra_args={"trust-remote-code": True}), instance_type("g4dn.xlarge"))
    assert settings["trust_remote_code"] is True


# -- what vLLM does by itself ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "name", "sequences"),
    [
        ("g4dn.xlarge", "triton-26.08-vllm-0.27", 256),
        ("p4d.24xlarge", "triton-26.08-vllm-0.27", 256),
        ("p4de.24xlarge", "triton-26.08-vllm-0.27", 256),
        ("p5.48xlarge", "triton-26.08-vllm-0.27", 1024),
        ("p5.48xlarge", "triton-24.07-vllm-0.5", 256),
    ],
)
def test_batches_that_nobody_named_are_vllms_own(where: str, name: str, sequences: int) -> None:
    assert serving_facts(spec_of(engine=name), on(where)).max_num_seqs == sequences


def test_lengths_that_nobody_named_are_the_models_own() -> None:
    assert serving_facts(spec_of(), on()).max_model_len == 2048
    assert "max_model_len" not in plan.engine_settings(spec_of(), instance_type("g4dn.xlarge"))
    assert serving_facts(spec_of(model={"id": "someone/unknown"}), on()).max_model_len == 0


def test_facts_tell_the_engines_arguments_as_flags() -> None:
    flags = serving_facts(spec_of(dtype="float16", max_model_len=1024), on()).arguments
    assert {"--dtype=float16", "--max-model-len=1024", "--gpu-memory-utilization=0.9", "--no-enforce-eager"} <= set(flags)


def test_facts_name_keys_of_the_spec() -> None:
    facts = serving_facts(spec_of(SOURCE), on(), path=("servers", NAME))
    assert facts.at("devices") == ("servers", NAME, "devices")
    assert facts.at("pods_max") == ("servers", NAME, "autoscaling", "max")
    assert facts.at("startup_timeout") == ("servers", NAME, "startup_timeout_seconds")
    assert (facts.pods_min, facts.pods_max) == (1, 4)


# -- what is made ----------------------------------------------------------------------------------------------------------------


def test_the_deployment_with_defaults() -> None:
    """That of the source system stands in the manifests of gpu-opt350m."""
    assert_golden("triton/deployment-default.yaml", manifest(served(OPT).named(f"{NAME}-deployment")))


def test_a_folder_of_the_node_is_a_named_exception() -> None:
    graph = served(cache={"kind": "host_path"})
    assert graph.named(f"{NAME}-namespace").inputs["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}
    (hand_over,) = pod(graph)["initContainers"]
    assert hand_over["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert container(graph)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    volumes = {volume["name"]: volume for volume in pod(graph)["volumes"]}
    assert volumes["downloads"]["hostPath"]["path"] == "/var/cache/huggingface"


@pytest.mark.parametrize(
    ("model", "gib"), [("facebook/opt-350m", 20), ("meta-llama/Llama-3.1-8B-Instruct", 30), ("someone/unknown", 100)]
)
def test_disk_for_downloads_is_asked_for(model: str, gib: int) -> None:
    spec = spec_of(model={"id": model})
    assert plan.cache_gib(spec) == gib
    assert plan.engine(NAME, spec, on().instance_type, tools_image="t").disk_gib > gib
    assert plan.cache_gib(spec_of(model={"id": model}, cache={"kind": "ephemeral", "size_gib": 7})) == 7
    assert plan.cache_gib(spec_of(model={"id": model}, cache={"kind": "host_path"})) == 0


def test_the_prefetch_pod_holds_no_gpu() -> None:
    graph = served(prefetch=True)
    (sleeper,) = graph.named(f"{NAME}-prefetch").inputs["spec"]["template"]["spec"]["containers"]
    assert sleeper["image"] == container(graph)["image"]
    assert not [name for name in sleeper["resources"]["limits"] if "/" in name]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in sleeper["env"]
    service = graph.named(f"{NAME}-service").inputs["spec"]["selector"]
    assert not service.items() <= graph.named(f"{NAME}-prefetch").inputs["spec"]["template"]["metadata"]["labels"].items()


def test_images_come_from_the_mirrors() -> None:
    mirrors = {"nvcr.io": "registry.example/nvcr", "public.ecr.aws": "registry.example/ecr"}
    graph = served(SOURCE, settings={"mirrors": mirrors})
    images = [one["image"] for one in (*pod(graph)["initContainers"], container(graph))]
    assert all(image.startswith("registry.example/") for image in images)
    assert container(graph)["image"] == "registry.example/nvcr/nvidia/tritonserver:24.07-vllm-python-py3"
    assert container(served(image="registry.example/triton:1"))["image"] == "registry.example/triton:1"


# -- probes, roll-outs, the number of pods ---------------------------------------------------------------------------------------


def test_a_changed_setting_of_the_model_changes_the_pods() -> None:
    def digest(**keys: Any) -> str:
        return deployment(served(**keys))["spec"]["template"]["metadata"]["annotations"]["eks-inference/repository-sha256"]

    assert digest() == digest(memory="8Gi")
    assert len({digest(), digest(dtype="float16"), digest(report_custom_metrics=False)}) == 3


# -- guards ----------------------------------------------------------------------------------------------------------------------


def test_everything_stands_before_the_first_pod() -> None:
    graph = served(SOURCE, token="hf_secret")
    pods = graph.named(f"{NAME}-deployment")
    for below in (
        "namespace",
        "network-closed",
        "network-server",
        "quota",
        "budget",
        "account",
        "service",
        "hugging-face",
        "config.pbtxt",
        "model.json",
        "server-storage",
        "server-identity",
    ):
        assert stands_on(graph, pods, graph.named(f"{NAME}-{below}")), below


# -- token and S3 ----------------------------------------------------------------------------------------------------------------


def test_the_token_is_under_the_name_that_is_read() -> None:
    graph = served(token="hf_secret")
    env = environment(graph)
    assert env["HF_TOKEN"] == {"secretKeyRef": {"name": f"{NAME}-hugging-face", "key": "token"}}
    assert "HUGGING_FACE_TOKEN" not in env
    assert "hf_secret" not in json.dumps([resource.inputs for resource in graph.resources], default=str)


def test_the_role_reads_the_repository_and_nothing_else() -> None:
    graph = served(SOURCE, repository={"kind": "s3", "bucket": "models", "prefix": "triton/opt"})
    (policy,) = graph.of_type("aws:iam/rolePolicy:RolePolicy")
    assert_golden("triton/role-policy.json", json.dumps(json.loads(policy.inputs["policy"]), indent=2))
    (association,) = graph.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    assert association.inputs["serviceAccount"] == pod(graph)["serviceAccountName"]
    assert not graph.of_type("aws:s3/bucket:Bucket")


def test_a_bucket_of_the_stack_is_private_and_goes_with_it() -> None:
    bucket = served(SOURCE).named(f"{NAME}-repository")
    assert bucket.inputs["forceDestroy"] is True
    assert served(SOURCE, settings={"protect": True}).named(f"{NAME}-repository").options["protect"] is True
    private = served(SOURCE).named(f"{NAME}-repository-private").inputs
    assert private["blockPublicPolicy"] is private["restrictPublicBuckets"] is True


def test_a_config_map_needs_no_role_and_no_bucket() -> None:
    graph = served()
    assert not [resource for resource in graph.resources if resource.package == "aws"]
    data = graph.named(f"{NAME}-repository").inputs["data"]
    (volume,) = [one["configMap"] for one in pod(graph)["volumes"] if one["name"] == "repository"]
    assert {item["path"]: data[item["key"]] for item in volume["items"]} == plan.repository_files(
        spec_of(), instance_type("g4dn.xlarge")
    )


# -- metrics ---------------------------------------------------------------------------------------------------------------------


def test_alerts_know_how_many_requests_a_pod_works_on() -> None:
    """Four copies, of 32 sequences each: Triton hands on no gauge of those that wait."""
    graph = served(tensor_parallel=1, max_num_seqs=32, where="g4dn.12xlarge", monitored=True)
    (rule,) = [resource for resource in graph.resources if resource.inputs.get("kind") == "PrometheusRule"]
    (group,) = rule.inputs["spec"]["groups"]
    assert {each["record"]: each["expr"] for each in group["rules"]}["server:requests_per_pod:limit"] == "vector(128)"


# -- refusals --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"engine": "cuda-vllm-0.30"}, r"starts vllm, .* can only start: triton-24\.07-vllm-0\.5, triton-26\.08-vllm-0\.27"),
        ({"replicas": 2, "autoscaling": {"kind": "hpa", "max": 2}}, "the autoscaler sets the number of pods; leave out replicas"),
        ({"extra_args": {"tensor-parallel-size": 2}}, "tensor-parallel-size: use tensor_parallel"),
        ({"extra_args": {"disable-log-stats": True}}, "disable-log-stats: use log_stats"),
        ({"extra_args": {"disable_log_stats": True}}, "disable-log-stats: use log_stats"),
        (
            {"cache": {"kind": "host_path"}, "model": {"kind": "volume", "claim": "m", "id": "m"}},
            "does not come from the Hugging",
        ),
        ({"dtype": "float8"}, "unknown value; given: 'float8'; allowed: auto, bfloat16, float16, float32"),
        ({"image": "nvcr.io/nvidia/tritonserver:latest"}, "may change under a running server"),
        ({"instance_type": "g4dn.xlrage"}, r"nearest: g4dn\.xlarge"),
        ({"disable_log_requests": True}, "unknown key"),
    ],
)
def test_a_wrong_spec_says_why(keys: dict, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        spec_of(**keys)


def test_the_constructor_refuses_what_the_rules_refuse() -> None:
    with pytest.raises(ProgramError, match=r"TRI004: vLLM 0\.27\.1 dropped this argument"):
        served(extra_args={"disable-log-requests": True})
    with pytest.raises(ProgramError, match=r"GPU004: the GPUs of g4dn\.xlarge have no bfloat16"):
        served(dtype="bfloat16")
    with pytest.raises(ProgramError, match=r"GPU002: no g4dn\.xlarge has 2 GPUs"):
        served(devices=2)


engine_numbers = st.integers(1 - 2**63, 2**63 - 1)  # larger ones are refused, whatever they are of
engine_values = st.one_of(st.integers(-1, 9), st.text(max_size=3), st.booleans(), st.none(), st.lists(engine_numbers, max_size=2))


@given(
    st.sampled_from(list(instance_types())),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 40)),
    st.dictionaries(st.sampled_from(["pipeline-parallel-size", "quantization", "block-size", "hf-overrides"]), engine_values),
    st.sampled_from(TRITON_ENGINES),
)
@example("inf2.xlarge", None, None, {"block-size": "%"}, "triton-26.08-vllm-0.27")
def test_rules_judge_whatever_a_spec_may_say(
    where: str, gpus: int | None, tensor_parallel: int | None, extra_args: dict[str, Any], name: str
) -> None:
    spec = spec_of(devices=gpus, tensor_parallel=tensor_parallel, extra_args=extra_args, engine=name)
    found = judged(spec, where)
    if instance_type(where).accelerator != "nvidia":
        assert any(finding.stops for finding in found), "there is no GPU"


def test_the_default_breaks_no_rule() -> None:
    assert judged(spec_of()) == []


def test_the_source_systems_own_settings_stop_nothing_and_are_told_what_is_wrong_with_them() -> None:
    found = judged(spec_of(SOURCE))
    assert sorted(finding.rule.id for finding in found) == ["TRI003", "TRI005"]
    assert not [finding for finding in found if finding.stops]


# -- what the rules say about single cases ---------------------------------------------------------------------------------------


def broken(spec: TritonServerSpec, where: str = "g4dn.xlarge") -> dict[str, str]:
    return {finding.rule.id: finding.judgement.allowed for finding in judged(spec, where)}


def test_a_key_of_a_newer_release_says_which_engine_has_it() -> None:
    (found,) = [
        finding
        for finding in judged(spec_of(engine="triton-24.07-vllm-0.5", extra_args={"async-scheduling": True}))
        if finding.rule.id == "TRI001"
    ]
    assert "vLLM 0.27.1 has it" in found.fault.hint


@pytest.mark.parametrize(
    ("key", "value", "holds"),
    [
        ("code-revision", None, True),  # str | None in vLLM 0.27.1; seed is an int
        ("seed", None, False),
        ("seed", "7", False),
        ("seed", False, False),
        ("block-size", 0, False),
        ("disable-cascade-attn", "yes", False),
        ("kv-cache-dtype", "fp8", True),
        ("kv-cache-dtype", "fp9", False),
        ("compilation-config", {"mode": 3}, True),
        ("compilation-config", '{"mode": 3}', False),
        ("served-model-name", ["a", "b"], True),
    ],
)
def test_the_values_of_keys_are_those_of_the_engine(key: str, value: Any, holds: bool) -> None:
    assert ("SRV010" not in broken(spec_of(extra_args={key: value}))) == holds


def test_dropped_keys_say_what_replaced_them() -> None:
    allowed = {
        key: broken(spec_of(extra_args={key: 1}))["TRI004"] for key in ("disable-log-requests", "rope-scaling", "swap-space")
    }
    assert allowed["rope-scaling"] == "hf_overrides"
    assert all(allowed[key].startswith("nothing") for key in ("disable-log-requests", "swap-space"))


def test_arguments_of_a_release_without_a_list_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    server = triton_facts(spec_of(extra_args={"colour": "red"}), on())
    rules_ = (rules.keys_are_known, rules.keys_are_of_this_release)
    assert [[one.holds for one in rule.judge(server)] for rule in rules_] == [[False], [True]]
    monkeypatch.setattr(rules, "known_arguments", dict)
    assert [list(rule.judge(server)) for rule in rules_] == [[], []]


@pytest.mark.parametrize("name", sorted(known_arguments()["0.5.0.post1"] - known_arguments()["0.27.1"]))
def test_every_dropped_key_is_told_as_dropped_not_as_unknown(name: str) -> None:
    ids = broken(spec_of(extra_args={name.replace("_", "-"): 1}))
    assert "TRI004" in ids
    assert "TRI001" not in ids


@pytest.mark.parametrize(
    ("profile", "dtype", "holds"),
    [
        ("cuda-vllm-0.30", "auto", True),
        ("triton-24.07-vllm-0.5", "auto", False),
        ("cuda-vllm-0.30", "bfloat16", False),
        ("cuda-vllm-0.30", "half", True),
    ],
)
def test_a_bfloat16_model_on_a_t4(profile: str, dtype: str, holds: bool) -> None:
    """Llama-3.2-1B is published in bfloat16; newer releases turn it into float16 by themselves."""
    server = t4_server(model=model("Llama-3.2-1B"), engine=engine(profile), arguments=(f"--dtype={dtype}",))
    ids = [finding.rule.id for finding in findings(server_rules(), server, {})]
    assert ("GPU004" not in ids) is holds


def test_gpus_that_no_pod_fills_are_idle() -> None:
    ids = broken(spec_of(devices=3, tensor_parallel=1), "g4dn.12xlarge")
    assert ids["GPU006"] == "1, 2, 4"


@given(st.sampled_from(GPU_SHAPES), st.sampled_from([1, 2, 4, 8]))
def test_one_token_more_than_what_a_gpu_holds_is_refused(shape: InstanceType, degree: int) -> None:
    """What the memory rule allows passes it, and more does not."""
    if degree > shape.devices:
        return
    facts = gpu_server(shape.name, "Llama-3.3-70B", tensor_parallel=degree, max_model_len=131072)
    refused = [finding for finding in findings(server_rules(), facts, {}) if finding.rule.id == "GPU001"]
    for finding in refused:
        longest = re.search(r"max_model_len up to (\d+)", finding.judgement.allowed)
        if longest:
            fits = gpu_server(shape.name, "Llama-3.3-70B", tensor_parallel=degree, max_model_len=int(longest[1]))
            assert "GPU001" not in [finding.rule.id for finding in findings(server_rules(), fits, {})]


# -- several models --------------------------------------------------------------------------------------------------------------

SEVERAL: dict[str, Any] = {
    "gpu_memory_utilization": 0.5,
    "startup_timeout_seconds": 2400,
    "further_models": {
        "qwen": {"model": {"id": "Qwen/Qwen3-0.6B"}, "gpu_memory_utilization": 0.4, "max_model_len": 4096, "max_num_seqs": 8}
    },
}


def test_each_model_has_its_files_in_one_repository() -> None:
    graph = served(**SEVERAL)
    data = graph.named(f"{NAME}-repository").inputs["data"]
    (volume,) = (one for one in pod(graph)["volumes"] if one["name"] == "repository")
    paths = {item["path"]: data[item["key"]] for item in volume["configMap"]["items"]}
    assert sorted(paths) == [
        "opt-350m/1/model.json",
        "opt-350m/config.pbtxt",
        "qwen/1/model.json",
        "qwen/config.pbtxt",
    ]
    assert len(data) == 4
    first, second = (json.loads(paths[f"{name}/1/model.json"]) for name in ("opt-350m", "qwen"))
    assert (first["model"], first["gpu_memory_utilization"]) == ("facebook/opt-350m", 0.5)
    assert (second["model"], second["gpu_memory_utilization"], second["max_num_seqs"]) == ("Qwen/Qwen3-0.6B", 0.4, 8)


def test_the_only_model_has_what_it_had() -> None:
    assert sorted(served().named(f"{NAME}-repository").inputs["data"]) == ["config.pbtxt", "model.json"]
    assert not any("load-thread" in one for one in container(served())["args"])


def test_several_models_load_one_after_the_other_and_have_room_on_the_disk() -> None:
    alone, several = served(), served(**SEVERAL)
    assert "--model-load-thread-count=1" in container(several)["args"]
    downloads = [
        next(int(one["emptyDir"]["sizeLimit"].removesuffix("Gi")) for one in pod(graph)["volumes"] if one["name"] == "downloads")
        for graph in (alone, several)
    ]
    assert downloads == [20, 40]


def test_files_of_several_models_in_a_bucket_have_names_of_their_own() -> None:
    graph = served(repository={"kind": "s3", "bucket": "models", "prefix": "triton"}, **SEVERAL)
    keys = {resource.name: resource.inputs["key"] for resource in graph.resources if "bucketObject" in resource.type}
    assert keys[f"{NAME}-qwen.model.json"] == "triton/qwen/1/model.json"
    assert len(keys) == 4


def test_features_of_the_first_model_are_not_those_of_the_others() -> None:
    server = spec_of(**SEVERAL, enforce_eager=True, extra_args={"seed": 7})
    other = plan.engine_settings(server.alone("qwen"), instance_type("g4dn.xlarge"))
    assert "seed" not in other
    assert other["enforce_eager"] is False


def test_every_model_is_judged_in_its_share_of_the_memory() -> None:
    large = {"model": {"id": "NousResearch/Meta-Llama-3-8B-Instruct"}, "gpu_memory_utilization": 0.4}
    keys: dict[str, Any] = {**SEVERAL, "further_models": {"llama": large}}
    with pytest.raises(ProgramError, match=r"further_models\.llama.*GPU001.* of 0\.4 x 14\.56 = 5\.824 GiB a GPU"):
        served(**keys)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"further_models": {"opt-350m": {"model": {"id": "Qwen/Qwen3-0.6B"}, "gpu_memory_utilization": 0.1}}},
            "has the name opt-350m",
        ),
        ({"further_models": {"a/b": {"model": {"id": "Qwen/Qwen3-0.6B"}, "gpu_memory_utilization": 0.1}}}, "a/b"),
        ({"further_models": {"a": {"model": {"id": "Qwen/Qwen3-0.6B"}}}}, "gpu_memory_utilization"),
        (
            {
                "further_models": {
                    "a": {
                        "model": {"id": "Qwen/Qwen3-0.6B"},
                        "gpu_memory_utilization": 0.1,
                        "extra_args": {"max-model-len": 5},
                    }
                }
            },
            "max-model-len: use max_model_len",
        ),
    ],
)
def test_further_models_that_make_no_sense_are_refused(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(says)):
        spec_of(**keys)
