"""Settings that nobody would choose and a file may have: each rule says something, or nothing, and none ends with a traceback."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from conftest import ROOT
from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import model
from eks_inference.catalog.quantization import Quantization, quantization
from eks_inference.faults import SpecError
from eks_inference.rules import Judgement
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.ray_serve.rules import RayServeFacts, replicas_find_work_and_workers
from eks_inference.serving.rules.autoscalers import metrics_are_collected
from eks_inference.serving.rules.engine_features import parsers_are_known
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.stack.facts import StackFacts
from eks_inference.stack.pool_rules import single_helpers_stay
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference.stack.rules import volumes_find_a_node
from eks_inference.stack.spec import StackSpec
from servers import spec_of
from vectors.gpu import gpu_server
from vectors.scaling import scaling, triton
from vectors.serving import trn2
from vectors.stack import head_on


def said(server: ServingFacts) -> dict[str, list[Judgement]]:
    """What rules say that does not hold, or that they cannot judge."""
    found = {rule.id: [each for each in rule.judge(server) if each.unjudged or not each.holds] for rule in server_rules()}
    return {id_: judgements for id_, judgements in found.items() if judgements}


BLOCKS: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128}
NESTED = "[" * 100_000


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pipeline-parallel-size=1000000000",),
        ("--max-num-batched-tokens=1e308",),
        *((f"--{name}={NESTED}",) for name in ("hf-overrides", "attention-config", "kv-transfer-config", "additional-config")),
        ('--hf-overrides={"rope_scaling": {"factor": 1e400, "rope_type": "linear"}}',),
        ('--hf-overrides={"rope_scaling": {"factor": NaN, "rope_type": "linear"}}',),
        ('--hf-overrides={"rope_scaling": {"factor": -4, "rope_type": "linear"}}',),
    ],
    ids=lambda one: one[0][:40],
)
def test_no_rule_ends_with_a_traceback(arguments: tuple[str, ...]) -> None:
    for server in (gpu_server(arguments=arguments), trn2(arguments=arguments)):
        assert "-" not in "".join(each.allowed for found in said(server).values() for each in found if each.allowed.isdecimal())


def states(method: str, bits: int) -> ServingFacts:
    return gpu_server("p5.48xlarge", model=replace(model("Qwen3-Next-80B-A3B"), quantization=Quantization(method, bits)))


def documented(name: str) -> ServingFacts:
    return trn2(engine=engine("neuron-2.32-vllm-0.24"), model=model(name))


def keys_in(form: str, on: str = "p6-b200.48xlarge") -> ServingFacts:
    return gpu_server(on, arguments=(f"--kv-cache-dtype={form}",))


@pytest.mark.parametrize(
    ("server", "neighbour", "rule", "of", "why"),
    [
        (keys_in("turboquant_4bit_nc", "g6e.12xlarge"), keys_in("auto"), "GPU012", "turboquant_4bit_nc", "is not known here"),
        (keys_in("nvfp4"), keys_in("fp8"), "GPU012", "KV cache nvfp4", "that FlashInfer downloads from NVIDIA when it starts"),
        (states("awq", 4), states("fp8", 8), "GPU001", "Qwen3-Next-80B-A3B, quantized to awq", "its layers with a state"),
        (documented("Seed-OSS-36B"), documented("Qwen3-32B"), "NEU013", "Seed-OSS-36B (seed_oss)", "documents list it"),
    ],
)
def test_what_nobody_examined_is_not_judged(server: ServingFacts, neighbour: ServingFacts, rule: str, of: str, why: str) -> None:
    (found,) = said(server)[rule]
    assert found.unjudged
    assert (found.unjudged.of, why in found.working[-1]) == (of, True), found
    assert rule not in said(neighbour)


@pytest.mark.parametrize(("image", "refused"), [(0, False), (5, True)])
def test_a_limit_of_images_matters_where_it_is_none(image: int, refused: bool) -> None:
    limit = f'--limit-mm-per-prompt={{"image": {image}}}'
    server = gpu_server(model_name="Gemma-3-27B", arguments=("--attention-backend=FLASH_ATTN", limit))
    assert ("GPU012" in said(server)) is refused


@pytest.mark.parametrize(
    ("connector", "variable", "refused"),
    [
        ("OffloadingConnector", {}, True),
        ("SimpleCPUOffloadConnector", {}, False),
        ("OffloadingConnector", {"VLLM_USE_SIMPLE_KV_OFFLOAD": "1"}, False),
    ],
)
def test_only_one_connector_offloads_to_shared_memory(connector: str, variable: dict[str, str], refused: bool) -> None:
    config = json.dumps({"kv_connector": connector, "kv_connector_extra_config": {"cpu_bytes_to_use": 20 << 30}})
    server = gpu_server(arguments=(f"--kv-transfer-config={config}",), environment=variable, shared_memory_mib=8 * 1024)
    shared = [item for item in said(server).get("GPU013", []) if "/dev/shm" in item.message]
    assert bool(shared) is refused


@pytest.mark.parametrize(
    ("config", "unit", "partly"),
    [
        (BLOCKS, 128, False),
        (BLOCKS | {"weight_block_size": [64, 128]}, 0, False),
        (BLOCKS | {"modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}, 128, False),
        (BLOCKS | {"modules_to_not_convert": ["self_attn"]}, 128, True),
        (AWQ | {"modules_to_not_convert": ["model.layers.0.mlp.gate_proj"]}, 128, True),
    ],
)
def test_units_of_scales_and_spared_layers(config: dict[str, Any], unit: int, partly: bool) -> None:
    found = quantization(config)
    assert found
    assert (found.unit, found.partly) == (unit, partly)


@pytest.mark.parametrize(
    ("name", "partly", "unjudged"),
    [("Qwen2.5-72B", False, False), ("Qwen2.5-72B", True, True), ("Qwen2.5-VL-7B", False, True)],  # a tower that is 3420 wide
)
def test_shards_of_a_checkpoint_that_spares_layers_are_not_judged(name: str, partly: bool, unjudged: bool) -> None:
    shape = replace(model(name), quantization=Quantization("awq", 4, 128, 20, partly=partly))
    (found, *_) = said(gpu_server(model=shape))["GPU011"]
    assert bool(found.unjudged) is unjudged


@pytest.mark.parametrize(("name", "layers", "holds"), [("GLM-4.7", 8, False), ("GLM-4.7", 92, True), ("DeepSeek-V3", 8, True)])
def test_a_stage_without_experts_is_refused_where_the_engine_refuses_it(name: str, layers: int, holds: bool) -> None:
    shape, flags = replace(model(name), layers=layers, expert_layers=layers - 3), ("--pipeline-parallel-size=4",)
    server = gpu_server(model=shape, tensor_parallel=1, extra_args={"pipeline-parallel-size": 4}, arguments=flags)
    assert ("GPU002" not in said(server)) is holds


def test_an_empty_object_for_the_plugin_is_read() -> None:
    assert "NEU028" not in said(trn2(arguments=("--additional-config={}",)))


def test_what_the_arithmetic_leaves_out_is_told() -> None:
    def unjudged(server: ServingFacts, id_: str) -> bool:
        return any(item.unjudged for item in said(server).get(id_, []))

    assert unjudged(gpu_server(environment={"VLLM_PP_LAYER_PARTITION": "60,4"}), "GPU001")
    assert unjudged(gpu_server(extra_args={"enable-eplb": True}), "GPU001")
    assert unjudged(trn2(extra_args={"data-parallel-size": 64}), "NEU008")
    assert not unjudged(gpu_server(extra_args={"data-parallel-size": 2}), "GPU001")


SMOKE: dict[str, Any] = yaml.safe_load((ROOT / "stacks/Pulumi.smoke-gpu.yaml").read_text())["config"]["eks-inference:stack"]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("pools.gpu.extra_labels", {"acme.io/team": "ml"}, ""),
        ("pools.gpu.extra_labels", {"a..b/x": "y"}, "a..b/x"),
        ("pools.core.extra_taints", [{"key": "a", "value": "b", "effect": "PreferNoSchedule"}], ""),
        ("pools.core.extra_taints", [{"key": "a", "value": "b", "effect": "NoSchedule"}], "taints that keep pods away"),
        ("servers.qwen3.model.id", "é/ü", "a repository of the Hugging Face Hub"),
        ("servers.qwen3.model.id", "gpt2", "not judged: memory"),
        ("servers.qwen3.model.id", "Qwen3-8B", "give the repository, Qwen/Qwen3-8B"),
        ("servers.qwen3.model.id", f"a/{'b' * 97}", "a repository of the Hugging Face Hub"),
        ("servers.qwen3.extra_env", {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, ""),
        ("servers.qwen3.extra_env", {"VLLM_HOST_IP": "1.2.3.4"}, "not judged: VLLM_HOST_IP of servers.qwen3.extra_env"),
        ("cluster.addon_configuration", {"vpc-cni": {"env": {"AWS_VPC_K8S_CNI_LOGLEVEL": "ERROR"}}}, "not judged: vpc-cni.env"),
        ("cluster.addon_versions", {"vpc-cni": "v0.0.1-eksbuild.1"}, "not judged: vpc-cni of cluster.addon_versions"),
        ("pools.k", {"kind": "karpenter", "instance_types": ["m5.large"], "consolidation_policy": "Balanced"}, ""),
        ("pools.gpu.kubelet", {"evictionHard": {"imagefs.available": "15%"}}, ""),
        ("pools.gpu.kubelet", {"evictionHard": {"imagefs.available": "90%"}}, "CAP002"),
        ("pools.gpu.kubelet", {"kubeReserved": {"ephemeral-storage": "225Gi"}}, "225 GiB that the kubelet keeps"),
    ],
)
def test_a_stack_with_an_odd_setting(path: str, value: Any, expected: str) -> None:
    stack = copy.deepcopy(SMOKE)
    *above, last = path.split(".")
    place = stack
    for key in above:
        place = place.setdefault(key, {})
    place[last] = value
    try:
        verdict = check_spec(parse_stack(json.dumps(stack)), "us-west-2")
    except SpecError as error:
        told = str(error)
    else:
        told = "\n".join([*map(str, verdict.faults), *(not_judged.summary for not_judged in verdict.not_judged)])
    assert expected in told if expected else not told


@pytest.mark.parametrize(("flags", "holds"), [((), True), (("--disable-log-stats",), False), (("--no-disable-log-stats",), True)])
def test_an_autoscaler_needs_an_engine_that_tells(flags: tuple[str, ...], holds: bool) -> None:
    facts = scaling()
    (found,) = metrics_are_collected.judge(replace(facts, server=replace(facts.server, arguments=flags)))
    assert found.holds is holds


def test_an_autoscaler_on_tritons_own_queue_needs_none_of_vllms_metrics() -> None:
    facts = triton(metric="nv_inference_queue_duration_ms")
    (found,) = metrics_are_collected.judge(replace(facts, server=replace(facts.server, arguments=("--disable-log-stats",))))
    assert found.holds


@pytest.mark.parametrize(("target", "most", "holds"), [(10, 3, True), (1000, 3, False), (1000, 1, True)])
def test_a_replica_works_on_what_serve_gives_it(target: float, most: int, holds: bool) -> None:
    spec = spec_of(replicas={"min": 1, "max": most, "target_ongoing_requests": target})
    first, _ = replicas_find_work_and_workers.judge(RayServeFacts((), spec))
    assert first.holds is holds


@pytest.mark.parametrize(("cpus", "severity"), [(1, None), (100, "error")])
def test_a_replica_finds_a_worker_with_its_cpus(cpus: int, severity: str | None) -> None:
    _, found = replicas_find_work_and_workers.judge(RayServeFacts((), spec_of(replicas={"min": 1, "max": 1, "cpus": cpus})))
    assert (found.holds, found.severity, found.path[-1]) == (severity is None, severity, "cpus" if severity else "max")


def test_a_build_takes_a_ray_that_has_a_wheel() -> None:
    with pytest.raises(SpecError, match="has no wheel"):
        spec_of(image={"kind": "in_cluster"}, ray_version="2.0.0")
    assert spec_of(ray_version="2.0.0").ray == "2.0.0", "an image of one's own may have it"
    assert spec_of(image={"kind": "in_cluster"}, ray_version="2.31.0").ray == "2.31.0"


@pytest.mark.parametrize(
    ("parser", "name", "holds"),
    [
        ("llama3_json", "Llama-3.1-8B", True),
        ("llama3_json", "Qwen3-8B", False),
        ("qwen3_xml", "Qwen3-30B-A3B", True),
        ("mistral", "Mixtral-8x7B", True),
        # A form that models of several families were taught.
        ("hermes", "Llama-3.1-8B", True),
        ("pythonic", "Qwen3-8B", True),
    ],
)
def test_tool_calls_are_read_in_the_form_of_their_family(parser: str, name: str, holds: bool) -> None:
    flags = ("--enable-auto-tool-choice", f"--tool-call-parser={parser}")
    found = parsers_are_known.judge(gpu_server(model=model(name), arguments=flags))
    assert all(judgement.holds for judgement in found) is holds


@pytest.mark.parametrize(("capacity", "count"), [("on_demand", 0), ("spot", 1)])
def test_dns_and_controllers_stay(capacity: str, count: int) -> None:
    stack = copy.deepcopy(SMOKE)
    stack["pools"]["core"]["capacity_type"] = capacity
    found = list(single_helpers_stay.judge(StackFacts(StackSpec.model_validate(stack), "us-west-2", {})))
    assert [judgement.path for judgement in found if not judgement.holds] == [("pools", "core")] * count
    (head,) = single_helpers_stay.judge(head_on("WhenEmptyOrUnderutilized" if count else "WhenEmpty"))
    assert (head.holds, head.message.endswith("starts anew: Karpenter may move it at any time")) == (not count, bool(count))


@pytest.mark.parametrize(("zones", "holds"), [(1, True), (2, False)])
def test_the_volume_of_a_cache_keeps_a_node_in_each_zone(zones: int, holds: bool) -> None:
    stack = copy.deepcopy(head_on("WhenEmpty").spec.inputs())
    stack["servers"]["ray"] = {**stack["servers"]["ray"], "compile_cache": {"kind": "volume"}}
    stack["servers"]["ray"]["worker"]["max"] = 1
    found = StackFacts(StackSpec.of(stack), "us-west-2", {}, zone_ids=("usw2-az1", "usw2-az2")[:zones])
    (judged,) = volumes_find_a_node.judge(found)
    assert (judged.path, judged.given, judged.allowed) == (("pools", "neuron", "size"), "1", f"at least {zones}")
    assert judged.holds is holds
    assert "the volume of server 'ray' has no node" in judged.message


@pytest.mark.parametrize(("name", "given"), [("gpu-nixl", ""), ("trn2-di", "trn2")])
def test_a_router_that_is_alone_stays_on_the_pool_that_it_has(name: str, given: str) -> None:
    """Without one of its own, that of a pair is where the pair is, and that of others on the core pool."""
    stack: dict[str, Any] = yaml.safe_load((ROOT / f"stacks/Pulumi.{name}.yaml").read_text())["config"]["eks-inference:stack"]
    stack["pools"]["web"] = {"kind": "managed", "instance_types": ["m5.large"], "size": 1, "capacity_type": "spot"}
    (server,) = stack["servers"].values()
    for router, pool in (({"pool": "web"}, "web"), ({}, given)):
        server["router"] = {**router, "replicas": 1}
        found = single_helpers_stay.judge(StackFacts(StackSpec.model_validate(stack), "us-west-2", {}))
        assert [(one.given, one.holds) for one in found] == [(pool, pool != "web")]
