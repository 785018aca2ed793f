"""Prefill and decode in two servers: what is compiled, started, planned and refused, and the scripts that run in the pods."""

import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import healthy
import pulumi
import pytest
import router as router_script
import yaml
from exchange import events, first_tokens, further_tokens
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.accelerators.efa.component import ExistingEfaPlugin
from eks_inference.clients.chat import Chat, Question
from eks_inference.faults import SpecError
from eks_inference.place.placement import Placement
from eks_inference.rules import Judgement, Rule, judged, left_open
from eks_inference.serving.disaggregated import jobs, pair_pods, pair_processes, parts, rules
from eks_inference.serving.disaggregated import parts as artifact
from eks_inference.serving.disaggregated.component import DisaggregatedPair
from eks_inference.serving.disaggregated.facts import hardware, serving_facts
from eks_inference.serving.disaggregated.kind import KIND
from eks_inference.serving.disaggregated.spec import CompileOptions, DisaggregatedPairSpec
from eks_inference.serving.kind import Site
from eks_inference.serving.leader_worker_sets.component import ExistingLeaderWorkerSets
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.storage.handle import ExistingStore
from eks_inference.storage.rules import StoreFacts, has_room
from golden import assert_golden
from graphs import of_kind, stands_on
from handles import existing_cluster, placement
from openai_server import OpenAIServer
from ports import free_ports
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from traffic import Outside, Pod, passes
from vectors.disaggregated import MODEL, ZONE, pair, pool
from vectors.disaggregated import placement as placed_on
from waiting import PATIENCE_S, until, until_ended

ASSETS = Path(router_script.__file__).parent
NODES = placed_on(pool())


def spec_of(**keys: Any) -> DisaggregatedPairSpec:
    good = {"kind": "disaggregated", "namespace": "disaggregated", "model": {"id": MODEL}, "pool": "di", "instances": 1}
    return DisaggregatedPairSpec.model_validate({**good, **keys})


# -- what is compiled ------------------------------------------------------------------------------------------------------------


def options(words: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            found[word] = []
        else:
            found[list(found)[-1]].append(word)
    return found


def test_the_compile_command_names_the_downloaded_model_and_ends_before_it_loads_anything() -> None:
    words = artifact.artifact(spec_of(model={"id": MODEL, "revision": "refs/pr/1"})).command
    assert words[:6] == ("inference_demo", "--model-type", "llama", "--task-type", "causal-lm", "run")
    assert options(words[6:])["--model-path"] == [f"/store/models/{MODEL}/refs--pr--1"]
    assert options(words[6:])["--compile-only"] == []


@pytest.mark.parametrize("longest", [8192, 6000, 256, 100])
def test_buckets_follow_from_the_longest_sequence(longest: int) -> None:
    buckets = CompileOptions().context_buckets(longest)
    assert buckets[-1] == longest
    assert list(buckets) == sorted(set(buckets))


def test_without_bucketing_no_bucket_is_named() -> None:
    assert "buckets" not in " ".join(artifact.compile_flags(spec_of(compile={"enable_bucketing": False})))


def test_an_option_that_is_a_setting_is_not_an_extra_one() -> None:
    with pytest.raises(SpecError, match="apply-seq-ids-mask, seq-len, top-k are settings of the pair"):
        spec_of(compile={"extra_args": {"top-k": 1, "seq-len": 4, "apply-seq-ids-mask": False}})
    assert "--skip-warmup" in artifact.compile_flags(spec_of(compile={"extra_args": {"skip-warmup": True}}))


COMPILED = st.fixed_dictionaries(
    {},
    optional={
        "tensor_parallel": st.sampled_from([8, 16, 32]),
        "max_num_seqs": st.integers(2, 8),
        "max_model_len": st.sampled_from([4096, 8192]),
        "image": st.sampled_from(["registry.example/vllm:1", "registry.example/vllm:2"]),
        "model": st.sampled_from([{"id": MODEL, "revision": "a"}, {"id": MODEL, "revision": "b"}, {"id": "other/model"}]),
        "compile": st.sampled_from([{"top_k": 40}, {"async_mode": False}, {"logical_nc_config": 1}, {"pad_token_id": 0}]),
    },
)
NOT_COMPILED = st.fixed_dictionaries(
    {},
    optional={
        "serving": st.just("baseline"),
        "pool": st.just("other"),
        "cpu": st.just("100"),
        "router": st.just({"replicas": 2}),
        "extra_env": st.just({"A": "b"}),
        "extra_args": st.just({"seed": 1}),
        "store": st.just({"kind": "fsx_lustre"}),
        "compile_timeout_minutes": st.just(20),
        "client_namespaces": st.just({"a": "b"}),
    },
)


@given(COMPILED, COMPILED, NOT_COMPILED)
def test_two_pairs_share_an_artifact_exactly_when_the_same_is_compiled(first: dict, second: dict, other: dict) -> None:
    one, two = spec_of(**first), spec_of(**second, **other)
    # Whether written or left to the default, a value is the same value.
    same = [
        (spec.image_reference, spec.model.id, spec.revision, spec.compile, artifact.compile_flags(spec)) for spec in (one, two)
    ]
    assert (artifact.artifact(one).key == artifact.artifact(two).key) == (same[0] == same[1])


def test_a_mirror_does_not_compile_anew() -> None:
    mirrored = built(settings={"mirrors": {"public.ecr.aws": "registry.example/ecr"}})
    plain = built()
    assert container(mirrored.named("llama-servers"))["image"].startswith("registry.example/ecr/neuron/")
    assert folder(mirrored) == folder(plain)


# -- what is started -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instances", [1, 2])
def test_processes(instances: int) -> None:
    spec = spec_of(instances=instances)
    document = pair_processes.document(spec, meeting_address=pair_pods.prefill_address("llama", spec), meeting_seconds=900)
    assert_golden(f"disaggregated/processes-{instances}.json", json.dumps(document, indent=1))


def test_processes_of_the_baselines() -> None:
    for instances, degree in ((1, "32"), (2, "64")):
        one = pair_processes.servers(spec_of(instances=instances, serving="baseline"))["baseline"]
        assert one.port == 8000
        assert one.command[one.command.index("--tensor-parallel-size") + 1] == degree
        assert "--kv-transfer-config" not in one.command
        assert not [name for name in one.environment if "SENDRECV" in name or "_IP" in name]
        # Exported, which the source system's script forgets.
        assert one.environment.get("NEURON_RT_VISIBLE_CORES") == ("0-31" if instances == 1 else None)


@given(st.sampled_from([1, 2]), st.sampled_from([None, 8, 16, 32]), st.integers(1, 64))
def test_the_two_servers_differ_in_nothing_but_their_role(instances: int, degree: int | None, sequences: int) -> None:
    spec = spec_of(instances=instances, tensor_parallel=degree, max_num_seqs=sequences)
    prefill, decode = (pair_processes.server(spec, role) for role in ("prefill", "decode"))
    assert prefill.environment.keys() == decode.environment.keys()
    differing = {name for name, value in prefill.environment.items() if decode.environment[name] != value}
    assert differing == ({"NEURON_RT_VISIBLE_CORES"} if instances == 1 else {"VLLM_HOST_IP"})
    transfers = [pair_processes.kv_transfer(spec, role) for role in ("prefill", "decode")]
    assert [(each["kv_role"], each["kv_rank"]) for each in transfers] == [("kv_producer", 0), ("kv_consumer", 1)]
    assert transfers[0]["kv_ip"] == transfers[1]["kv_ip"] == prefill.environment["NEURON_SEND_IP"]
    # Numbers both, where the source system quotes one of them.
    assert [each["neuron_core_offset"] for each in transfers] == [0, 32 if instances == 1 else 0]


def test_what_only_one_server_gets_reaches_only_that_one() -> None:
    spec = spec_of(
        extra_args={"seed": 1},
        extra_env={"NEURON_RT_LOG_LEVEL": "INFO"},
        decode={"extra_args": {"seed": 2, "max-log-len": 10}, "extra_env": {"NEURON_RT_LOG_LEVEL": "DEBUG"}},
    )
    prefill, decode = (pair_processes.server(spec, role) for role in ("prefill", "decode"))
    assert prefill.command[-1] == "--seed=1"
    assert decode.command[-2:] == ("--seed=2", "--max-log-len=10")
    assert (prefill.environment["NEURON_RT_LOG_LEVEL"], decode.environment["NEURON_RT_LOG_LEVEL"]) == ("INFO", "DEBUG")


# -- what is planned -------------------------------------------------------------------------------------------------------------


def planned(**keys: Any) -> dict[str, Any]:
    """Every object of a pair as a manifest, by what it is."""
    spec = spec_of(**keys)
    made = {"servers": pair_pods.workload("llama", spec, NODES, image=spec.image_reference)}
    if spec.serving == "pair":
        made["router"] = pair_pods.router("llama", spec, NODES, image="python:3")
        made["efa"] = jobs.efa_check("llama", spec, NODES, image=spec.image_reference).job
    made["download"] = jobs.download("llama", spec, NODES, image=spec.image_reference).job
    made["compile"] = jobs.compilation("llama", spec, NODES, image=spec.image_reference).job
    made["answers"] = jobs.answers("llama", spec, NODES, image="python:3").job
    return made


def shown(manifests: Mapping[str, Any]) -> str:
    return yaml.dump(json.loads(json.dumps(manifests)), sort_keys=False, width=120)


def test_the_longest_name_of_a_pair_leaves_its_jobs_a_name() -> None:
    name, spec = "l" * pair_pods.MAX_NAME_LENGTH, spec_of()
    assert len(jobs.compilation(name, spec, NODES, image=spec.image_reference).job["metadata"]["name"]) == 63


@pytest.mark.parametrize("instances", [1, 2])
def test_workloads(instances: int) -> None:
    made = planned(instances=instances)
    assert_golden(f"disaggregated/servers-{instances}.yaml", shown(made["servers"]))
    assert_golden(f"disaggregated/router-{instances}.yaml", shown(made["router"]))
    jobs_made = {what: made[what] for what in ("download", "compile", "efa", "answers")}
    assert_golden(f"disaggregated/jobs-{instances}.yaml", shown(jobs_made))
    guards = {
        **pair_pods.network_policies("llama", spec_of(instances=instances)),
        **pair_pods.services("llama", spec_of(instances=instances)),
    }
    assert_golden(f"disaggregated/network-{instances}.yaml", shown(guards))


@pytest.mark.parametrize("instances", [1, 2])
def test_pair_and_baseline_are_one_object_so_that_they_never_want_the_chips_at_once(instances: int) -> None:
    own, baseline = planned(instances=instances)["servers"], planned(instances=instances, serving="baseline")["servers"]
    for manifest in (own, baseline):
        template = manifest["spec"].get("template")
        if template:
            # What selects cannot be changed: it must hold for both.
            assert manifest["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert (own["kind"], own["metadata"]) == (baseline["kind"], baseline["metadata"])
    assert own["spec"].get("selector") == baseline["spec"].get("selector")
    if instances == 2:
        assert baseline["spec"]["leaderWorkerTemplate"]["size"] == 1


@pytest.mark.parametrize("keys", [{}, {"instances": 2}, {"serving": "baseline"}, {"instances": 2, "serving": "baseline"}])
def test_every_server_runs_on_all_chips_of_its_node_without_privileges(keys: dict[str, Any]) -> None:
    for pod in server_pods(planned(**keys)["servers"]):
        (only,) = pod["spec"]["containers"]
        assert only["resources"]["requests"] == only["resources"]["limits"]
        assert only["resources"]["limits"]["aws.amazon.com/neuron"] == "16"
        assert only["resources"]["limits"].get("vpc.amazonaws.com/efa") == (None if keys.get("serving") else "16")
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
        }
        assert not pod["spec"].get("hostNetwork")
        assert "schedulerName" not in pod["spec"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert volumes["tmp"] == {"name": "tmp", "emptyDir": {}}
        (store,) = [mount for mount in only["volumeMounts"] if mount["name"] == "store"]
        assert store["readOnly"] is True


def server_pods(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    spec = manifest["spec"]
    group = spec.get("leaderWorkerTemplate")
    return [spec["template"]] if group is None else [group["leaderTemplate"], group["workerTemplate"]]


def test_a_changed_script_or_setting_is_another_config_map_and_a_changed_job_another_job() -> None:
    def names(**keys: Any) -> dict[str, str]:
        own = {what: each["metadata"]["name"] for what, each in planned(**keys).items() if what not in ("servers", "router")}
        return own | {"files": pair_pods.server_files("llama", spec_of(**keys))["metadata"]["name"]}

    def changed(**keys: Any) -> set[str]:
        before, now = names(), names(**keys)
        return {what for what in now if now[what] != before[what]}

    assert changed(router={"replicas": 2}) == set()
    assert changed(max_num_seqs=8) == {"compile", "files", "answers"}
    # What only the servers do is asked again, but nothing is compiled.
    assert changed(decode={"extra_env": {"NEURON_RT_LOG_LEVEL": "INFO"}}) == {"files", "answers"}
    assert changed(serving="baseline") == {"files", "answers"}
    assert changed(model={"id": MODEL, "revision": "v2"}) == {"download", "compile", "files", "answers"}


CLIENT, PROMETHEUS = Pod("elsewhere"), Pod("monitoring")
DNS_SERVER = Pod("kube-system", {"k8s-app": "kube-dns"})
HUB = Outside("18.64.0.1")


def pod_of(role: str) -> Pod:
    return Pod("disaggregated", parts.labels("llama", role))


@pytest.mark.parametrize(
    ("keys", "source", "target", "port", "open_"),
    [
        ({"instances": 2}, CLIENT, pod_of("router"), 8000, True),
        ({"instances": 2}, CLIENT, pod_of("prefill"), 8100, False),
        ({"instances": 2}, pod_of("router"), pod_of("prefill"), 8100, True),
        ({"instances": 2}, pod_of("router"), pod_of("decode"), 8200, True),
        ({"instances": 2}, pod_of("decode"), pod_of("prefill"), 14579, True),
        ({"instances": 2}, pod_of("decode"), pod_of("prefill"), 14580, True),
        ({"instances": 2}, pod_of("decode"), pod_of("prefill"), 45645, True),
        ({"instances": 2}, pod_of("prefill"), pod_of("decode"), 45645, True),
        ({"instances": 2}, pod_of("router"), pod_of("prefill"), 14579, False),
        ({"instances": 2}, PROMETHEUS, pod_of("decode"), 8200, True),
        ({"instances": 2}, pod_of("prefill"), HUB, 443, False),
        ({"instances": 2}, pod_of("efa"), pod_of("efa"), 47592, True),
        ({"instances": 1}, pod_of("router"), pod_of("pair"), 8100, True),
        ({"instances": 1}, pod_of("router"), pod_of("pair"), 8200, True),
        ({"instances": 1}, pod_of("answers"), pod_of("router"), 8000, True),
        ({"instances": 1}, pod_of("download"), HUB, 443, True),
        ({"instances": 1}, pod_of("compile"), HUB, 443, False),
        ({"serving": "baseline"}, CLIENT, pod_of("baseline"), 8000, True),
        ({"serving": "baseline"}, pod_of("answers"), pod_of("baseline"), 8000, True),
    ],
)
def test_who_reaches_whom(keys: dict[str, Any], source: Any, target: Any, port: int, open_: bool) -> None:
    spec = spec_of(**keys)
    policies = [*pair_pods.network_policies("llama", spec).values(), *jobs.network_policies("llama", spec).values()]
    assert passes(policies, source, target, port) is open_


def test_everybody_finds_names_but_the_compiler_who_asks_for_none() -> None:
    spec = spec_of(instances=2)
    policies = [*pair_pods.network_policies("llama", spec).values(), *jobs.network_policies("llama", spec).values()]
    for role in ("router", "prefill", "decode", "download", "efa", "answers"):
        assert passes(policies, pod_of(role), DNS_SERVER, 53, "UDP"), role
    assert not passes(policies, pod_of("compile"), DNS_SERVER, 53, "UDP")


# -- what is refused -------------------------------------------------------------------------------------------------------------

RULES: dict[str, Rule[Any]] = {rule.id: rule for rule in vars(rules).values() if isinstance(rule, Rule)}


def broken(id_: str, subject: Any) -> list[Judgement]:
    return [judgement for judgement in RULES[id_].judge(subject) if not judgement.holds]


@pytest.mark.parametrize("keys", [{"instances": 1}, {"instances": 2}, {"instances": 1, "serving": "baseline"}])
def test_the_source_system_is_refused_by_no_rule(keys: dict[str, Any]) -> None:
    facts = pair(**keys)
    assert [
        (id_, found.message) for id_, rule in RULES.items() if isinstance(facts, rule.subject) for found in broken(id_, facts)
    ] == []


def cores(**own: str) -> Any:
    keys: dict[str, Any] = {role: {"extra_env": {"NEURON_RT_VISIBLE_CORES": text}} for role, text in own.items()}
    return pair(instances=1, **keys)


@pytest.mark.parametrize(
    ("id_", "subject", "says"),
    [
        (
            "DI001",
            lambda: pair(pool(instance_types=["trn1.32xlarge"], zone_ids=["use2-az3"])),
            "no set of options is known for Trn1",
        ),
        ("DI001", lambda: pair(engine="neuron-2.32-vllm-0.24"), "has no NeuronConnector"),
        ("DI002", lambda: pair(pool(logical_cores=1)), "compiled for LNC 2, and the nodes have LNC 1"),
        ("DI002", lambda: pair(decode={"extra_env": {"NEURON_COMPILED_ARTIFACTS": "/store/mine"}}), "another artifact"),
        ("DI005", lambda: pair(instances=1, tensor_parallel=64), "the servers need 128 cores on a node that has 64"),
        ("DI005", lambda: cores(decode="0,1"), "decode: cores 0,1 = 0, neuron_core_offset 32"),
        ("DI005", lambda: cores(decode="32-62"), "decode: cores 32-62 = 31, neuron_core_offset 32"),
        ("DI005", lambda: cores(decode="31"), "share cores; cores of prefill 0-31, of decode 31"),
        ("DI005", lambda: cores(prefill="63"), "share cores; cores of prefill 63, of decode 32-63"),
        ("DI006", lambda: pair(decode={"extra_args": {"kv-transfer-config": '{"kv_ip": "10.0.0.1"}'}}), "values of kv_ip"),
        ("DI007", lambda: pair(pool(zone_ids=["use2-az1", "use2-az3"])), "EFA does not cross zones"),
        ("DI007", lambda: pair(pool(placement="none")), "every request moves its KV cache between them"),
        ("DI014", lambda: pair(compile={"context_encoding_buckets": [100, 8192]}), "which do not divide [100]"),
    ],
)
def test_further_ways_to_go_wrong(id_: str, subject: Any, says: str) -> None:
    assert any(says in "; ".join((found.message, *found.working)) for found in broken(id_, subject()))


def test_a_reservation_stands_in_for_a_placement_group() -> None:
    assert not broken("DI007", pair(pool(placement="none", capacity_reservation_id="cr-0123456789abcdef0")))


def test_the_rules_of_all_servers_judge_every_server_of_a_pod() -> None:
    first, second = serving_facts(spec_of(), NODES, scheduler=False)
    assert (first.copies, first.devices, first.tensor_parallel) == (2, 16, 32)
    assert [(one.container_port, one.beside) for one in (first, second)] == [(8100, False), (8200, True)]
    assert [(pod.copies, pod.container_port) for pod in serving_facts(spec_of(instances=2), NODES, scheduler=False)] == [
        (1, 8100),
        (1, 8200),
    ]
    (baseline,) = serving_facts(spec_of(serving="baseline"), NODES, scheduler=False)
    assert (baseline.copies, baseline.efa_interfaces) == (1, 0)


@pytest.mark.parametrize(
    ("split", "network", "room"),
    [
        (True, (ZONE,), ["131.4 (model) + 131.4 (weights for tensor parallel 32) = 262.8 GiB of 1200 GiB (22%)"]),
        (False, (ZONE,), ["131.4 (model) = 131.4 GiB of 1200 GiB (11%)"]),
        (True, (), []),
    ],
)
def test_the_store_has_to_hold_the_model_and_its_split_copy(split: bool, network: tuple[str, ...], room: list[str]) -> None:
    spec = spec_of(store={"kind": "fsx_lustre"}, compile_pool="spare", compile={"save_sharded_checkpoint": split})
    pools = {"di": pool(), "spare": pool(zone_ids=["use2-az1"]), "core": pool()}
    site = Site((), NODES, pools, lambda choice: NODES, network, lambda one: one.zone_ids, scheduler=False)
    stores = [one for one in KIND.facts("llama", spec, site) if isinstance(one, StoreFacts)]
    assert [found.working[0] for store in stores for found in has_room.judge(store)] == room
    assert [list(store.pools) for store in stores] == [["di", "spare"]] * len(room)


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("own", "id_", "where"),
    [
        ({"extra_args": {"no-such-flag": 1}}, "SRV007", ("extra_args", "no-such-flag")),
        ({"extra_args": {"seed": False}}, "SRV010", ("extra_args", "seed")),
        ({"extra_args": {"api_key": "k"}}, "SRV009", ("extra_args", "api-key")),
        ({"extra_env": {"PATH": "/mine"}}, "SRV009", ("extra_env", "PATH")),
        ({"extra_args": {"port": 9999}}, "NEU022", ("extra_args", "port")),
        ({"extra_args": {"block_size": 3}}, "NEU014", ("extra_args", "block-size")),
        ({"extra_args": {"max-num-seqs": 9}}, "SRV006", ("extra_args", "max-num-seqs")),
    ],
)
def test_what_only_one_server_gets_is_judged_at_its_key(instances: int, role: str, own: Any, id_: str, where: Any) -> None:
    facts = serving_facts(spec_of(instances=instances, **{role: own}), NODES, scheduler=False)
    assert [one.path for rule, one in judged(server_rules(), facts) if rule.id == id_ and not one.holds] == [(role, *where)]


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("own", [{"extra_args": {"chat_template": "mine.jinja"}}, {"extra_args": {"quantization": "fp9"}}])
def test_what_only_one_server_gets_and_nobody_judges_is_said_to_be_open(role: str, own: Any) -> None:
    facts = serving_facts(spec_of(**{role: own}), NODES, scheduler=False)
    open_ = left_open(one for _, one in judged(server_rules(), facts))
    assert {not_judged.path[:2] for not_judged in open_} == {(role, "extra_args")}


@pytest.mark.parametrize(
    ("options", "where", "of"),
    [
        ({"extra_args": {"skip-warmup": True}}, ("extra_args", "skip-warmup"), "--skip-warmup of inference_demo"),
        ({"cc_pipeline_tiling_factor": 9}, ("cc_pipeline_tiling_factor",), "--cc-pipeline-tiling-factor of inference_demo"),
    ],
)
def test_options_of_the_compiler_are_said_to_be_open(options: Any, where: tuple[str, ...], of: str) -> None:
    (one,) = left_open(one for _, one in judged([RULES["DI002"]], [pair(compile=options)]))
    assert (one.path[2:], one.of) == (("compile", *where), of)


@pytest.mark.parametrize(
    ("keys", "devices"),
    [
        ({"instances": 1}, 16),
        ({"instances": 2}, 32),
        ({"instances": 1, "serving": "baseline"}, 8),
        ({"instances": 2, "serving": "baseline"}, 16),
    ],
)
def test_measurements_are_of_the_devices_the_model_is_split_over(keys: dict[str, Any], devices: int) -> None:
    assert hardware(spec_of(**keys), NODES).devices == devices


# -- scripts ---------------------------------------------------------------------------------------------------------------------


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ASSETS / script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A pair of one node whose compiler and servers are a few lines of Python."""
    compiler = (
        "import pathlib, sys; out = pathlib.Path(sys.argv[1]); (out / 'weights').mkdir(parents=True)\n"
        "for name in ('model.pt', 'neuron_config.json', 'weights/tp0_sharded_checkpoint.safetensors'):\n"
        "    (out / name).write_text(name)"
    )
    server = "import json, os, sys; print(json.dumps({'args': sys.argv[1:], 'env': dict(os.environ)}))"
    written = tmp_path / "pair.json"
    written.write_text(
        json.dumps(
            {
                "artifact": {
                    "folder": str(tmp_path / "artifacts" / "key"),
                    "model": str(tmp_path / "models" / "m"),
                    "inputs": {"tensor_parallel": 1, "flags": ["--apply-seq-ids-mask"]},
                    "files": ["model.pt", "neuron_config.json", "weights/tp0_sharded_checkpoint.safetensors"],
                    "command": [sys.executable, "-c", compiler, "@OUTPUT@"],
                },
                "meeting": None,
                "servers": {
                    role: {
                        "command": [sys.executable, "-c", server, role, "kv_ip=@PREFILL_ADDRESS@"],
                        "environment": {"NEURON_SEND_IP": "@PREFILL_ADDRESS@", "NEURON_RECV_IP": "@DECODE_ADDRESS@"},
                    }
                    for role in ("prefill", "decode")
                },
            }
        )
    )
    return written


def edited(plan: Path, change: Any) -> Path:
    content = json.loads(plan.read_text())
    change(content)
    plan.write_text(json.dumps(content))
    return plan


def compiled(plan: Path) -> Path:
    done = run("artifact.py", "compile", str(plan))
    assert done.returncode == 0, done.stderr
    return Path(json.loads(plan.read_text())["artifact"]["folder"])


def test_an_artifact_is_compiled_once(plan: Path) -> None:
    target = compiled(plan)
    before = (target / "model.pt").stat().st_mtime_ns
    again = run("artifact.py", "compile", str(plan))
    assert (again.returncode, "is whole" in again.stdout) == (0, True)
    assert (target / "model.pt").stat().st_mtime_ns == before
    assert run("artifact.py", "verify", str(plan)).returncode == 0


def test_a_server_does_not_start_without_its_artifact(plan: Path) -> None:
    done = run("start.py", "prefill", str(plan))
    assert done.returncode == 1
    assert "it was never compiled, or not to the end" in done.stderr
    assert "args" not in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda folder: (folder / "manifest.json").write_text("{"), "is not JSON"),
        (lambda folder: (folder / "model.pt").unlink(), "model.pt is missing"),
        (lambda folder: (folder / "model.pt").write_text("half"), "has 4 bytes, and was written with 8"),
    ],
)
def test_a_harmed_artifact_is_refused_and_compiled_anew(plan: Path, harm: Any, says: str) -> None:
    target = compiled(plan)
    harm(target)
    refused = run("artifact.py", "verify", str(plan))
    assert refused.returncode == 1
    assert says in refused.stderr
    compiled(plan)
    assert run("artifact.py", "verify", str(plan)).returncode == 0


def test_an_artifact_of_other_settings_is_refused(plan: Path) -> None:
    compiled(plan)
    edited(plan, lambda content: content["artifact"]["inputs"].update(tensor_parallel=2))
    refused = run("artifact.py", "verify", str(plan))
    assert refused.returncode == 1
    assert "compiled from something else (tensor_parallel: 1, planned: 2)" in refused.stderr


def test_a_compilation_that_fails_leaves_no_artifact(plan: Path) -> None:
    edited(plan, lambda content: content["artifact"].update(command=[sys.executable, "-c", "raise SystemExit(3)"]))
    done = run("artifact.py", "compile", str(plan))
    assert (done.returncode, "the compiler ended with 3" in done.stderr) == (1, True)
    assert not Path(json.loads(plan.read_text())["artifact"]["folder"]).exists()
    edited(plan, lambda content: content["artifact"].update(command=["true"]))
    done = run("artifact.py", "compile", str(plan))
    assert (done.returncode, "made no model.pt, neuron_config.json" in done.stderr) == (1, True)


def test_on_one_node_a_server_starts_without_a_meeting(plan: Path) -> None:
    compiled(plan)
    done = run("start.py", "prefill", str(plan), KEPT="yes")
    started = json.loads(done.stdout.splitlines()[-1])
    assert started["args"] == ["prefill", "kv_ip=@PREFILL_ADDRESS@"]
    assert started["env"]["KEPT"] == "yes"


@pytest.fixture
def free_port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that nobody listens on, nor can by chance."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def meeting(plan: Path, port: int, seconds: float = 30) -> Path:
    return edited(plan, lambda content: content.update(meeting={"address": "localhost", "port": port, "seconds": seconds}))


def begun(role: str, plan: Path, **environment: str) -> subprocess.Popen[str]:
    """A side whose word is waited for longer than in a pod: where prefill has met a decode that gave up, no other comes."""
    patient = f"import sys, start; start._ANSWER_S = {PATIENCE_S}; sys.exit(start.main(*sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", patient, role, str(plan)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ASSETS,
        env={**os.environ, "POD_IP": "127.0.0.1", **environment},
    )


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["prefill", "decode"])
def test_the_two_sides_find_each_other_whoever_comes_first(plan: Path, free_port: int, first: str) -> None:
    compiled(plan)
    meeting(plan, free_port)
    roles = ["prefill", "decode"] if first == "prefill" else ["decode", "prefill"]
    started = {role: begun(role, plan) for role in roles}
    for role, process in started.items():
        out, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
        server = json.loads(out.splitlines()[-1])
        assert server["args"] == [role, "kv_ip=127.0.0.1"]
        assert (server["env"]["NEURON_SEND_IP"], server["env"]["NEURON_RECV_IP"]) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.thorough
def test_a_name_that_leads_to_another_pod_is_not_believed(plan: Path, free_port: int) -> None:
    compiled(plan)
    prefill = begun("prefill", meeting(plan, free_port), POD_IP="10.9.9.9")
    until(lambda: answers(free_port))
    decode = begun("decode", meeting(plan, free_port, seconds=3))
    out, told = decode.communicate(timeout=60)
    prefill.kill()
    prefill.communicate()
    assert decode.returncode == 1
    assert "prefill was not there within 3 s" in told
    assert "is not prefill, which says it is 10.9.9.9" in out


@pytest.mark.thorough
def test_sides_that_would_load_different_artifacts_do_not_start(plan: Path, free_port: int, tmp_path: Path) -> None:
    compiled(plan)
    other = tmp_path / "other.json"
    other.write_text(plan.read_text())
    edited(other, lambda content: content["artifact"].update(folder=str(tmp_path / "artifacts" / "other")))
    compiled(other)
    prefill, decode = begun("prefill", meeting(plan, free_port)), begun("decode", meeting(other, free_port))
    for process in (prefill, decode):
        _, told = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "is to load" in told


def test_a_side_that_never_comes_ends_the_wait(plan: Path, free_port: int) -> None:
    compiled(plan)
    alone = begun("prefill", meeting(plan, free_port, seconds=0.2))
    _, told = alone.communicate(timeout=60)
    assert (alone.returncode, "decode did not come within 0.2 s" in told) == (1, True)


def ready(lines: Iterator[str], count: int) -> list[int]:
    """Process ids that servers tell when they have started, maybe in the middle of a line that another one writes in parts."""
    found: list[int] = []
    for line in lines:
        found += map(int, re.findall(r"pid (\d+)\n", line))
        if len(found) == count:
            break
    return found


def catches(pid: int, number: int) -> bool:
    """Whether a process has said what it does at a signal."""
    (caught,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> number - 1 & 1)


@pytest.fixture
def supervised(plan: Path) -> Iterator[subprocess.Popen[str]]:
    compiled(plan)
    # A server with a process of its own, as an engine has, that would outlive it. Each line is one write: both share a pipe.
    body = "import os, subprocess; child = subprocess.Popen(['sleep', '60']); os.write(1, b'pid %d\\n' % child.pid); child.wait()"

    def long_lived(content: dict[str, Any]) -> None:
        for server in content["servers"].values():
            server["command"] = [sys.executable, "-c", body]

    edited(plan, long_lived)
    process = subprocess.Popen(
        [sys.executable, str(ASSETS / "supervise.py"), str(plan), "prefill", "decode"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.thorough
def test_when_one_server_ends_so_does_the_other(supervised: subprocess.Popen[str]) -> None:
    assert supervised.stdout
    children = ready(iter(supervised.stdout.readline, ""), 2)
    assert len(children) == 2, supervised.communicate(timeout=60)
    victim = int(Path(f"/proc/{children[0]}/stat").read_text().split()[3])
    os.kill(victim, signal.SIGKILL)
    _, told = supervised.communicate(timeout=60)
    assert supervised.returncode == 1
    assert "ended with -9; so ends the pair" in told
    until_ended(children[1])


@pytest.mark.thorough
def test_when_the_pod_ends_both_servers_end(supervised: subprocess.Popen[str]) -> None:
    assert supervised.stdout
    children = ready(iter(supervised.stdout.readline, ""), 2)
    assert len(children) == 2, supervised.communicate(timeout=60)
    until(lambda: catches(supervised.pid, signal.SIGTERM))
    supervised.send_signal(signal.SIGTERM)
    supervised.communicate(timeout=60)
    assert supervised.returncode == 128 + signal.SIGTERM
    until_ended(*children)


def test_a_container_is_well_when_all_its_servers_are(
    silent_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(healthy, "_SECONDS", PATIENCE_S)
    silent = f"http://127.0.0.1:{silent_port}/health"
    with OpenAIServer() as one, OpenAIServer() as other:
        urls = [f"http://127.0.0.1:{server.port}/health" for server in (one, other)]
        assert healthy.main(*urls) == 0
        assert healthy.main(*urls, silent) == 1
        assert capsys.readouterr().err.startswith(silent)
        assert healthy.main(f"http://127.0.0.1:{one.port}/nothing") == 1
    assert run("healthy.py", silent).returncode == 1


HUB_STAND_IN = """
import json, os, pathlib
class HfApi:
    def model_info(self, repository, revision):
        return type("Info", (), {"sha": os.environ["HUB_COMMIT"]})
def snapshot_download(repository, **options):
    folder = pathlib.Path(options["local_dir"])
    (folder / "called.json").write_text(json.dumps([repository, options, os.environ.get("HF_TOKEN")]))
    for name in os.environ["HUB_FILES"].split():
        (folder / name).write_text(name)
"""


def downloaded(tmp_path: Path, files: str, commit: str = "c0ffee") -> subprocess.CompletedProcess[str]:
    (tmp_path / "huggingface_hub.py").write_text(HUB_STAND_IN)
    return run(
        *("../../assets/download.py", MODEL, "main", str(tmp_path / "models" / "m")),
        PYTHONPATH=str(tmp_path),
        HUB_FILES=files,
        HUB_COMMIT=commit,
        HF_TOKEN="hf_x",
    )


def test_a_model_is_downloaded_once_and_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    assert downloaded(tmp_path, "config.json").returncode == 1
    assert not (tmp_path / "models" / "m").exists()
    # The branch has moved: what the first try began with is gone on with.
    assert downloaded(tmp_path, "config.json model-1.safetensors", commit="decaf").returncode == 0
    repository, asked, token = json.loads((tmp_path / "models" / "m" / "called.json").read_text())
    assert (repository, asked["revision"], token) == (MODEL, "c0ffee", "hf_x")
    assert asked["ignore_patterns"] == ["original/*"]
    assert "*.jinja" in asked["allow_patterns"], "chat templates are files of their own"
    record = json.loads((tmp_path / "models" / "m" / "revision.json").read_text())
    assert record == {"repository": MODEL, "revision": "main", "commit": "c0ffee"}
    again = downloaded(tmp_path, "")
    assert (again.returncode, "is there already" in again.stdout, "c0ffee" in again.stdout) == (0, True, True)


def test_of_several_that_start_at_once_one_downloads(tmp_path: Path) -> None:
    """Servers of one node, and pods of one server, share what is downloaded."""
    hub = HUB_STAND_IN.replace("    (folder /", "    import time; time.sleep(0.5)\n    (folder /", 1)
    (tmp_path / "huggingface_hub.py").write_text(hub)
    script, folder = ASSETS.parents[1] / "assets" / "download.py", tmp_path / "models" / "m"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HUB_FILES": "config.json m.safetensors", "HUB_COMMIT": "c0ffee"}
    command = [sys.executable, str(script), MODEL, "main", str(folder)]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert sorted("is there already" in text for text in said) == [False, True, True]


def test_an_artifact_of_another_commit_of_the_model_is_refused(plan: Path, tmp_path: Path) -> None:
    def stored(commit: str) -> None:
        (tmp_path / "models" / "m").mkdir(parents=True, exist_ok=True)
        (tmp_path / "models" / "m" / "revision.json").write_text(json.dumps({"commit": commit}))

    compiled(plan)  # before commits were recorded
    stored("c0ffee")
    assert run("artifact.py", "verify", str(plan)).returncode == 0
    shutil.rmtree(tmp_path / "artifacts")
    compiled(plan)
    assert run("artifact.py", "verify", str(plan)).returncode == 0
    stored("decaf")
    refused = run("artifact.py", "verify", str(plan))
    assert (refused.returncode, "compiled from commit c0ffee of the model, and the store has decaf" in refused.stderr) == (
        1,
        True,
    )


FI_INFO = "#!/bin/sh\nprintf 'provider: efa\\n    domain: rdmap0-rdm\\nprovider: efa\\n    domain: rdmap1-rdm\\n'\n"
FI_PINGPONG = """#!/bin/sh
if [ $# -eq 5 ]; then echo "64 bytes to $5"; exit ${PING:-0}; fi
exec sleep 300
"""


def efa(tmp_path: Path, *arguments: str, info: str = FI_INFO, interfaces: int = 2, **environment: str) -> Any:
    for tool, text in {"fi_info": info, "fi_pingpong": FI_PINGPONG}.items():
        (tmp_path / tool).write_text(text)
        (tmp_path / tool).chmod(0o755)
    (tmp_path / "dev").mkdir()
    for number in range(interfaces):
        (tmp_path / "dev" / f"uverbs{number}").touch()
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return run("efa.py", *arguments, PATH=path, EFA_DEVICES=str(tmp_path / "dev"), **environment)


def test_efa_works_when_devices_provider_and_exchange_are_there(tmp_path: Path) -> None:
    done = efa(tmp_path, "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["2 EFA devices", "libfabric finds 2 EFA domains"]
    assert "64 bytes to 127.0.0.1" in done.stdout


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"interfaces": 1}, "1 of 2 EFA devices"),
        ({"info": "#!/bin/sh\necho 'fi_getinfo: -61' >&2; exit 1\n"}, "libfabric finds no EFA: fi_getinfo: -61"),
        ({"info": "#!/bin/sh\necho 'provider: tcp'\n"}, "libfabric finds no EFA"),
    ],
)
def test_efa_that_does_not_work_says_what_is_missing(tmp_path: Path, given_: dict[str, Any], says: str) -> None:
    done = efa(tmp_path, "2", **given_)
    assert (done.returncode, says in done.stderr) == (1, True)


def test_the_second_pod_of_the_check_calls_the_first_by_name(tmp_path: Path) -> None:
    done = efa(tmp_path, "2", "localhost", JOB_COMPLETION_INDEX="1")
    assert done.returncode == 0, done.stderr
    assert "64 bytes to 127.0.0.1" in done.stdout


# -- the router ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router here waits longer for its servers to say that they are well."""
    monkeypatch.setattr(router_script, "_HEALTH_SECONDS", PATIENCE_S)


class Routed:
    """A router between two servers that are known beforehand."""

    def __init__(self, prefill: OpenAIServer, decode: OpenAIServer) -> None:
        addresses = [f"http://127.0.0.1:{server.port}" for server in (prefill, decode)]
        self._router = router_script.Router(addresses[0], addresses[1], 0, "127.0.0.1")
        self.prefill, self.decode = prefill, decode
        self.address = f"http://127.0.0.1:{self._router.server_address[1]}"
        self._thread = threading.Thread(target=self._router.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> "Routed":
        self.prefill.__enter__()
        self.decode.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._router.shutdown()
        self._thread.join()
        self._router.server_close()
        for server in (self.prefill, self.decode):
            server.__exit__(None, None, None)

    @property
    def chat(self) -> Chat:
        return Chat(f"{self.address}/v1")


WHOLE = Question("", "How are you?", parameters={"max_tokens": 4})
STREAM = WHOLE._replace(stream=True)


def test_both_servers_get_the_request_and_prefill_is_asked_for_one_token() -> None:
    with Routed(OpenAIServer(), OpenAIServer()) as routed:
        assert routed.chat.ask(WHOLE, model="m").text == "word word1 word2 word3"
        (prefill,), (decode,) = (server.requests for server in (routed.prefill, routed.decode))
    assert prefill.headers["x-request-id"] == decode.headers["x-request-id"]
    assert prefill.headers["x-request-id"].startswith("cmpl-")
    assert prefill.body == decode.body | {"max_tokens": 1}


def test_prefill_is_asked_for_one_token_whatever_the_client_says_about_length() -> None:
    question = WHOLE._replace(parameters={"max_completion_tokens": 4, "min_tokens": 2})
    with Routed(OpenAIServer(), OpenAIServer()) as routed:
        assert routed.chat.ask(question, model="m").tokens == 4
        (asked,) = routed.prefill.questions
    assert asked["max_tokens"] == 1
    assert not {"max_completion_tokens", "min_tokens", "stream_options"} & asked.keys()


@pytest.mark.parametrize("question", [STREAM, STREAM._replace(parameters={"max_tokens": 1})])
def test_a_stream_has_every_token_once(question: Question) -> None:
    pieces: list[str] = []
    with Routed(OpenAIServer(), OpenAIServer()) as routed:
        answer = routed.chat.ask(question, model="m", show=pieces.append)
    assert pieces == ["word", " word1", " word2", " word3"][: question.parameters["max_tokens"]]
    assert answer.tokens == len(pieces)  # the count is decode's


def test_the_first_token_is_there_before_decode_has_any() -> None:
    decode, shown = OpenAIServer(), list[bool]()
    decode.lets_begin.clear()

    def show(text: str) -> None:
        shown.append(decode.lets_begin.is_set())
        decode.lets_begin.set()

    with Routed(OpenAIServer(), decode) as routed:
        routed.chat.ask(STREAM, model="m", show=show)
    assert shown == [False, True, True, True]


def completion(address: str, **body: Any) -> tuple[int, str]:
    import urllib.error
    import urllib.request

    data = json.dumps({"model": "m", "prompt": "a", "max_tokens": 3, **body}).encode()
    request = urllib.request.Request(f"{address}/v1/completions", data, {"Authorization": "Bearer k"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_completions_stream_too() -> None:
    with Routed(OpenAIServer(key="k"), OpenAIServer(key="k")) as routed:
        status, body = completion(routed.address, stream=True)
    events = [line.removeprefix("data: ") for line in body.splitlines() if line]
    choices = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert (status, events[-1]) == (200, "[DONE]")
    assert [choice["text"] for choice in choices] == ["word", " word1", " word2", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]


class Events:
    """A stream of events as a server sends it."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self._lines = [f"data: {json.dumps(event)}".encode() for event in events]

    def __iter__(self) -> Iterator[bytes]:
        return iter([*self._lines, b"", b"data: [DONE]"])


def text(index: int, words: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "text": words, "finish_reason": finish}]}


@given(
    st.lists(st.lists(st.text(max_size=6), min_size=1, max_size=5), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_whatever_the_pieces_every_answer_comes_whole_and_ends_once(answers: list[list[str]], random: Any) -> None:
    """Of several prompts; decode may send more than a token at once, or begin with none."""
    seen: dict[int, str] = {}
    first = [text(index, pieces[0], "length") for index, pieces in enumerate(answers)]
    further = []
    for index, pieces in enumerate(answers):
        cut = random.randint(1, len(pieces))
        parts = ["".join(pieces[:cut]), *pieces[cut:]]
        further.append([text(index, part, "stop" if number == len(parts) - 1 else None) for number, part in enumerate(parts)])
    mixed = [event for row in further for event in row]
    got = [
        *first_tokens(events(Events(*first)), seen),
        *further_tokens(events(Events(*mixed)), seen),
    ]
    for index, pieces in enumerate(answers):
        mine = [choice for event in got for choice in event["choices"] if choice["index"] == index]
        assert "".join(choice["text"] for choice in mine) == "".join(pieces)
        assert [choice["finish_reason"] for choice in mine if choice["finish_reason"]] == ["stop"]


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many tries as ever, without six seconds between them."""
    monkeypatch.setattr(router_script, "_RELEASE_PAUSES", tuple(0.01 * one for one in router_script._RELEASE_PAUSES))


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("fails", ["prefill", "decode"])
def test_an_error_of_either_server_is_an_error(fails: str) -> None:
    faulty = {fails: OpenAIServer(fault="http_500")}
    with Routed(faulty.get("prefill", OpenAIServer()), faulty.get("decode", OpenAIServer())) as routed:
        status, body = completion(routed.address)
        assert (status, json.loads(body)["error"]["message"]) == (500, "the engine is dead")
        status, body = completion(routed.address, stream=True)
    if fails == "prefill":
        assert status == 500
    else:  # the first token is under way
        assert "the engine is dead" in body
        assert "[DONE]" not in body


def test_when_prefill_refuses_nobody_waits_for_decode() -> None:
    with Routed(OpenAIServer(fault="http_500"), OpenAIServer(ttft_s=2 * PATIENCE_S)) as routed:
        assert completion(routed.address)[0] == 500


@pytest.mark.usefixtures("short_pauses")
def test_a_server_that_is_not_there_is_named(silent_port: int) -> None:
    with Routed(OpenAIServer(), OpenAIServer()) as routed:
        routed._router.decode = f"http://127.0.0.1:{silent_port}"
        status, body = completion(routed.address)
    assert status == 502
    assert "decode: " in body


def test_the_router_is_well_when_both_servers_are(silent_port: int) -> None:
    import urllib.error
    import urllib.request

    with Routed(OpenAIServer(), OpenAIServer(model="llama")) as routed:
        with urllib.request.urlopen(f"{routed.address}/health", timeout=2 * PATIENCE_S) as response:
            assert json.loads(response.read()) == {"prefill": "ok", "decode": "ok"}
        assert routed.chat.models() == ["llama"]
        routed._router.prefill = f"http://127.0.0.1:{silent_port}"
        with pytest.raises(urllib.error.HTTPError, match="503") as caught:
            urllib.request.urlopen(f"{routed.address}/health", timeout=2 * PATIENCE_S)
    assert "refused" in json.loads(caught.value.read())["prefill"]


def test_the_router_listens_on_every_address_and_ends_when_it_is_told(free_port: int) -> None:
    with OpenAIServer() as server:
        url = f"http://127.0.0.1:{server.port}"
        process = subprocess.Popen(
            [sys.executable, str(ASSETS / "router.py"), url, url, str(free_port)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        process.stdout.readline()
        assert Chat(f"http://127.0.0.2:{free_port}/v1").ask(WHOLE, model="m").tokens == 4
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0


# -- the last question -----------------------------------------------------------------------------------------------------------


def asked(address: str, seconds: str = "0") -> subprocess.CompletedProcess[str]:
    return run("answers.py", address, "m", seconds)


def test_a_pair_that_answers_whole_and_streamed_passes() -> None:
    with Routed(OpenAIServer(), OpenAIServer()) as routed:
        done = asked(routed.address)
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["whole", "streamed", "chat"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("http_500", "status 500"),
        ("error_body", "this is no answer"),
        ("not_json", "this is not JSON"),
        ("no_content", "the whole answer has no text"),
        ("error_event", "this is no answer"),
        ("broken_stream", "error: "),
    ],
)
def test_an_answer_that_is_none_fails_whatever_its_status(fault: Any, says: str) -> None:
    with OpenAIServer(fault=fault) as server:
        done = asked(f"http://127.0.0.1:{server.port}")
    assert done.returncode == 1
    assert says in done.stderr


def test_a_server_without_a_chat_template_fails() -> None:
    with OpenAIServer(fault="no_chat_template") as server:
        done = asked(f"http://127.0.0.1:{server.port}")
    assert (done.returncode, "status 400" in done.stderr) == (1, True)


def test_a_pair_that_never_gets_well_fails(silent_port: int) -> None:
    done = asked(f"http://127.0.0.1:{silent_port}", "0.1")
    assert (done.returncode, "not well within 0 s" in done.stderr) == (1, True)


# -- the component ---------------------------------------------------------------------------------------------------------------


def built(*, name: str = "llama", settings: Mapping[str, Any] | None = None, token: bool = False, **keys: Any) -> Graph:
    """A pair on nodes, a store and plugins that are there."""
    spec = spec_of(**keys)

    def program() -> None:
        nodes, plugin, files, controller = (
            pulumi.CustomResource("test:index:Ready", what) for what in ("nodes", "efa-plugin", "file-system", "controller")
        )
        DisaggregatedPair(
            name,
            spec,
            cluster=existing_cluster(**{"region": "us-east-2", **(settings or {})}),
            store=ExistingStore("efs.csi.aws.com", "fs-1::fsap-1", ready=(files,)),
            placement=dataclasses.replace(NODES, ready=(nodes,)),
            efa=ExistingEfaPlugin(ready=(plugin,)),
            controller=ExistingLeaderWorkerSets(ready=(controller,)) if spec.instances == 2 else None,
            hugging_face_token="hf_secret" if token else None,
        )

    return record(program)


def container(workload: Resource) -> dict[str, Any]:
    (only,) = workload.inputs["spec"]["template"]["spec"]["containers"]
    return only


def folder(graph: Graph) -> str:
    return json.loads(graph.named("llama-servers-files").inputs["data"]["pair.json"])["artifact"]["folder"]


@pytest.mark.parametrize("instances", [1, 2])
def test_each_step_waits_for_what_it_needs(instances: int) -> None:
    graph = built(instances=instances)
    order = ["llama-download", "llama-compile", "llama-servers", "llama-router", "llama-answers"]
    for before, after in itertools.pairwise(order):
        assert stands_on(graph, graph.named(after), graph.named(before)), (before, after)
    for needed in ("llama-efa", "efa-plugin", "nodes", "file-system", *(["controller"] if instances == 2 else [])):
        assert stands_on(graph, graph.named("llama-servers"), graph.named(needed)), needed
    # The check needs no model, and the model no check.
    assert not stands_on(graph, graph.named("llama-efa"), graph.named("llama-download"))


def test_the_baseline_replaces_the_pair_under_the_same_urn_and_endpoint() -> None:
    for instances in (1, 2):
        own, baseline = built(instances=instances), built(instances=instances, serving="baseline")
        assert own.named("llama-servers").urn == baseline.named("llama-servers").urn
        assert folder(own) == folder(baseline)
        services = [graph.named("llama-api-service").inputs["spec"]["ports"] for graph in (own, baseline)]
        assert services[0] == services[1]
        assert not [each.name for each in baseline.resources if each.name in ("llama-router", "llama-efa")]


def test_the_token_reaches_the_download_and_nothing_else() -> None:
    graph = built(token=True)
    holders = [
        each.name
        for each in graph.resources
        if each.type.endswith((":Job", ":Deployment")) and "HF_TOKEN" in json.dumps(each.inputs)
    ]
    assert holders == ["llama-download"]
    assert "hf_secret" not in graph.to_json()


def test_pods_read_the_config_maps_that_are_made() -> None:
    for graph in (built(instances=1), built(instances=2), built(serving="baseline")):
        made = {each.inputs["metadata"]["name"] for each in of_kind(graph, "ConfigMap")}
        read = set()
        for each in graph.resources:
            if each.type.endswith((":Job", ":Deployment", ":LeaderWorkerSet")):
                manifests = server_pods(each.inputs)
                read |= {
                    volume["configMap"]["name"] for pod in manifests for volume in pod["spec"]["volumes"] if "configMap" in volume
                }
        assert made == read


def test_a_pair_that_cannot_run_is_refused_before_anything_is_made() -> None:
    with pytest.raises(ProgramError, match=r"DI014.*context_encoding_buckets"):
        built(compile={"context_encoding_buckets": [256, 4096]})
    with pytest.raises(ProgramError, match="NEU021"):
        built(cpu="500")
    with pytest.raises(ProgramError, match="Kubernetes refuses this name"):
        built(name="Llama")


def test_a_pair_has_a_slot_for_every_router() -> None:
    with pytest.raises(SpecError, match="5 routers share 4 sequences"):
        spec_of(max_num_seqs=4, router={"replicas": 5})
    assert spec_of(max_num_seqs=4, router={"replicas": 4}).router.replicas == 4


@pytest.mark.parametrize(("of", "open_"), [(MODEL, []), ("ours/llm", ["download_timeout_minutes", "compile_timeout_minutes"])])
def test_how_long_a_model_of_unknown_size_is_moved_is_not_judged(of: str, open_: list[str]) -> None:
    assert [one.path[-1] for one in RULES["DI015"].judge(pair(model={"id": of})) if one.unjudged] == open_


def test_two_instances_need_a_controller() -> None:
    def program() -> None:
        DisaggregatedPair(
            "llama",
            spec_of(instances=2),
            cluster=existing_cluster(region="us-east-2"),
            store=ExistingStore("efs.csi.aws.com", "fs-1"),
            placement=NODES,
            efa=ExistingEfaPlugin(),
        )

    with pytest.raises(ProgramError, match="nothing turns one into pods"):
        record(program)


def test_where_the_parts_may_run_elsewhere_they_do() -> None:
    elsewhere: Placement = placement("m6i.large", pool="core")

    def program() -> None:
        DisaggregatedPair(
            "llama",
            spec_of(router={"pool": "core"}, compile_pool="spare"),
            cluster=existing_cluster(region="us-east-2"),
            store=ExistingStore("efs.csi.aws.com", "fs-1"),
            placement=NODES,
            efa=ExistingEfaPlugin(),
            compile_placement=dataclasses.replace(NODES, pool="spare", node_selector={"eks-inference/pool": "spare"}),
            router_placement=elsewhere,
        )

    graph = record(program)
    pod = {name: graph.named(f"llama-{name}").inputs["spec"]["template"]["spec"] for name in ("router", "compile", "servers")}
    assert {name: each["nodeSelector"]["eks-inference/pool"] for name, each in pod.items()} == {
        "router": "core",
        "compile": "spare",
        "servers": "di",
    }
    assert "affinity" not in pod["router"]
    assert "affinity" in built().named("llama-router").inputs["spec"]["template"]["spec"]
