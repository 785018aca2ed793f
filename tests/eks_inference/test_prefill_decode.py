"""Prefill and decode servers over NIXL: their flags and pods, claims, revisions, routers, policies and autoscalers."""

import json
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from eks_inference.faults import SpecError
from eks_inference.place.placement import Placement
from eks_inference.scaling.plan import keda_queries
from eks_inference.scaling.spec import KedaSpec
from eks_inference.serving import deployment
from eks_inference.serving.flags import flag
from eks_inference.serving.pod_parts import REVISION_LABEL, Hardware
from eks_inference.serving.prefill_decode import plan, router
from eks_inference.serving.prefill_decode.component import PrefillDecodeServers
from eks_inference.serving.prefill_decode.plan import Group
from eks_inference.serving.prefill_decode.rules import group_facts
from eks_inference.serving.prefill_decode.spec import ROLES, PrefillDecodeSpec, Role
from eks_inference.serving.storage_plan import PodStorage
from handles import existing_cluster, placement
from stackgraph.diff.graphs import compare
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from stackgraph.state.engine_steps import deletes_first
from variants import recorded_with

MODEL = "unsloth/Llama-3.3-70B-Instruct"
TRN2 = {
    "model": {"id": MODEL},
    "engine": "neuron-2.32-vllm-0.24",
    "max_model_len": 8192,
    "prefill": {"pool": "p", "devices": 8, "tensor_parallel": 32, "max_num_seqs": 1},
    "decode": {"pool": "p", "devices": 8, "tensor_parallel": 32, "max_num_seqs": 8},
}
GPU = {
    "model": {"id": MODEL},
    "engine": "cuda-efa-vllm-0.30",
    "max_model_len": 8192,
    "prefill": {"pool": "p", "tensor_parallel": 8, "max_num_seqs": 16},
    "decode": {"pool": "p", "tensor_parallel": 8, "max_num_seqs": 64},
}


def on(name: str, *, claimed: bool = False) -> Placement:
    found = placement(name, pool="p")
    return replace(
        found,
        efa_interfaces=found.instance_type.efa_interfaces,
        devices="claims" if claimed else "plugin",
        logical_cores=2 if found.instance_type.neuron else None,
    )


def spec(base: dict[str, Any], **changes: Any) -> PrefillDecodeSpec:
    """A group with changes; those of a role are merged into it."""
    merged = {**base, **{key: value for key, value in changes.items() if key not in ROLES}}
    for role in ROLES:
        merged[role] = {**base[role], **changes.get(role, {})}
    return PrefillDecodeSpec.model_validate(merged)


def trn2(**changes: Any) -> Group:
    place = on("trn2.48xlarge", claimed=True)
    return plan.group("m", spec(TRN2, **changes), {"prefill": place, "decode": place})


def gpu(**changes: Any) -> Group:
    place = on("p4d.24xlarge")
    return plan.group("m", spec(GPU, **changes), {"prefill": place, "decode": place})


def manifest(group: Group, role: Role) -> dict[str, Any]:
    one = group.roles[role]
    return deployment.deployment(
        one.name,
        one.spec,
        one.placement,
        one.engine,
        labels=one.labels,
        image="image",
        storage=PodStorage(),
        revision=group.revision,
    )


def container(group: Group, role: Role) -> dict[str, Any]:
    (found,) = manifest(group, role)["spec"]["template"]["spec"]["containers"]
    return found


def environment(group: Group, role: Role) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(group, role)["env"]}


def transfer(group: Group, role: Role) -> dict[str, Any]:
    return json.loads(flag(container(group, role)["args"], "kv-transfer-config") or "{}")


# -- flags and variables ---------------------------------------------------------------------------------------------------------


def test_the_engine_has_the_time_that_the_probe_has() -> None:
    for group in (trn2(), gpu(), gpu(prefill={"startup_timeout_seconds": 7200})):
        for role_servers in group:
            probe = container(group, role_servers.role)["startupProbe"]
            seconds = int(environment(group, role_servers.role)["VLLM_ENGINE_READY_TIMEOUT_S"])
            assert 600 < seconds <= probe["failureThreshold"] * probe["periodSeconds"]


def test_windows_take_the_connector_that_moves_them_and_keep_their_memory() -> None:
    windowed = {"model": {"id": "openai/gpt-oss-20b"}}
    assert transfer(trn2(**windowed), "decode")["kv_connector"] == "NeuronNixlConnector"
    assert transfer(gpu(**windowed), "decode")["kv_connector"] == "NixlConnector"
    for group in (trn2(**windowed), gpu(**windowed)):
        assert "--no-disable-hybrid-kv-cache-manager" in container(group, "prefill")["args"]
    assert not any("hybrid" in one for one in container(gpu(), "prefill")["args"])


def test_flags_of_a_user_come_last_and_merge_into_the_transfer() -> None:
    group = gpu(
        extra_args={"kv-transfer-config.kv_connector_extra_config.num_threads": 4, "seed": 1},
        decode={"extra_args": {"seed": 2}, "extra_env": {"FI_PROVIDER": "tcp"}},
    )
    assert transfer(group, "prefill")["kv_connector_extra_config"] == {
        "backends": ["LIBFABRIC"],
        "kv_lease_duration": 300,
        "num_threads": 4,
    }
    assert [flag(container(group, role)["args"], "seed") for role in ROLES] == ["1", "2"]
    assert [environment(group, role)["FI_PROVIDER"] for role in ROLES] == ["efa", "tcp"]


def test_prefill_ends_only_when_its_blocks_are_read_or_their_lease_is_over() -> None:
    group = gpu(kv_transfer={"lease_seconds": 120})
    assert flag(container(group, "prefill")["args"], "shutdown-timeout") == "120"
    grace = {role: manifest(group, role)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for role in ROLES}
    assert grace["prefill"] - grace["decode"] == 120
    assert flag(container(group, "decode")["args"], "shutdown-timeout") is None


def test_the_baseline_is_two_plain_servers_with_the_settings_of_decode() -> None:
    group = gpu(serving="baseline", prefill={"max_num_batched_tokens": 8192}, decode={"extra_args": {"seed": 2}})
    one, other = (container(group, role) for role in ROLES)
    assert one["args"] == other["args"]
    assert flag(one["args"], "max-num-seqs") == "64"
    assert not any("kv-transfer" in arg or "batched" in arg or "shutdown" in arg for arg in one["args"])
    assert one["securityContext"] == deployment.CONTAINER_SECURITY
    assert not any("efa" in resource for resource in one["resources"]["limits"])
    assert "--vllm-pd-disaggregation" not in router.arguments(group)


def test_what_no_group_can_be_is_refused() -> None:
    with pytest.raises(SpecError, match=r"side_channel_port: 8000 is the port of the API"):
        gpu(kv_transfer={"side_channel_port": 8000})
    with pytest.raises(SpecError, match=r"decode\.replicas"):
        gpu(decode={"replicas": 0})
    with pytest.raises(SpecError, match=r"compile_cache: 2 pods cannot share"):
        gpu(compile_cache={"kind": "volume"}, rollout="second_group")


def test_features_of_the_engine_are_refused_beside_a_flag_that_they_set() -> None:
    with pytest.raises(SpecError, match=r"decode\.extra_args: enable-prefix-caching: keys of the server set this too"):
        PrefillDecodeSpec.of(
            {**GPU, "prefix_caching": True, "decode": {**GPU["decode"], "extra_args": {"enable-prefix-caching": True}}}
        )


# -- devices ---------------------------------------------------------------------------------------------------------------------


def test_a_whole_node_takes_its_interfaces_from_the_plugin() -> None:
    for role in ROLES:
        limits = container(gpu(), role)["resources"]["limits"]
        assert (limits["nvidia.com/gpu"], limits["vpc.amazonaws.com/efa"]) == ("8", "4")
    assert container(gpu(prefill={"efa_interfaces": 2}), "prefill")["resources"]["limits"]["vpc.amazonaws.com/efa"] == "2"


@given(
    prefill=st.integers(1, 4),
    decode=st.integers(1, 6),
    beside=st.booleans(),
    scaled=st.booleans(),
)
def test_the_quota_allows_every_pod_that_a_rollout_has_at_once(prefill: int, decode: int, beside: bool, scaled: bool) -> None:
    counts = {"autoscaling": {"min": 1, "max": decode}} if scaled else {"replicas": decode}
    group = trn2(rollout="second_group" if beside else "recreate", prefill={"replicas": prefill}, decode=counts)
    hard = plan.quota(group)["spec"]["hard"]
    at_once = 2 * (prefill + decode) if beside else prefill + decode
    for device_class in ("neuron.aws.com", "efa.networking.k8s.aws"):
        assert int(hard[f"{device_class}.deviceclass.resource.k8s.io/devices"]) >= 8 * at_once


# -- security --------------------------------------------------------------------------------------------------------------------


def test_servers_are_privileged_where_they_are_told_to_be() -> None:
    assert container(gpu(kv_transfer={"security": "privileged"}), "decode")["securityContext"] == {"privileged": True}


def test_clients_reach_the_routers_and_nothing_else() -> None:
    policy = router.network_policy_of(gpu(client_namespaces={"team": "a"}), ["172.20.0.1/32"])["spec"]
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]
    assert rule["ports"] == [{"protocol": "TCP", "port": router.API_PORT}]


# -- routers ---------------------------------------------------------------------------------------------------------------------


def selectors(group: Group) -> dict[str, dict[str, str]]:
    words, found = router.arguments(group), dict[str, dict[str, str]]()
    for place, word in enumerate(words):
        if word.endswith("selector"):
            values = (value for value in words[place + 1 :])
            taken = []
            for value in values:
                if value.startswith("--"):
                    break
                taken.append(value.split("=", 1))
            found[word] = dict(taken)
    return found


def test_every_flag_of_the_router_is_one_that_the_pinned_release_has() -> None:
    known = tomllib.loads((ROOT / "tests" / "vllm_router.toml").read_text())["defaults"]
    for group in (gpu(), gpu(serving="baseline"), gpu(router={"prefill_policy": "round_robin", "decode_policy": "power_of_two"})):
        used = {word for word in router.arguments(group) if word.startswith("--")}
        assert used <= known.keys()
        assert not any("=" in word for word in used), "the binary takes a flag and its value as two words"


def test_a_router_selects_exactly_the_servers_of_its_revision() -> None:
    group, changed = gpu(), gpu(extra_args={"seed": 1})
    assert group.revision != changed.revision
    words = router.arguments(group)
    asked = words[words.index("--service-discovery-port") + 1]
    assert words[words.index("--service-discovery-namespace") + 1] == group.spec.namespace_of(group.name)
    for role in ROLES:
        (container,) = manifest(group, role)["spec"]["template"]["spec"]["containers"]
        assert asked in [str(port["containerPort"]) for port in container["ports"]]
        labels = manifest(group, role)["spec"]["template"]["metadata"]["labels"]
        others = manifest(changed, role)["spec"]["template"]["metadata"]["labels"]
        wanted = selectors(group)[f"--{role}-selector"]
        assert wanted.items() <= labels.items()
        assert not wanted.items() <= others.items()
        other: Role = "decode" if role == "prefill" else "prefill"
        other_role = manifest(group, other)["spec"]["template"]["metadata"]["labels"]
        assert not wanted.items() <= other_role.items()


def test_the_router_of_the_baseline_selects_both_roles_and_no_router() -> None:
    group = gpu(serving="baseline")
    (wanted,) = selectors(group).values()
    for role in ROLES:
        assert wanted.items() <= manifest(group, role)["spec"]["template"]["metadata"]["labels"].items()
    own = router.deployment(group, on("p4d.24xlarge"), image="i")["spec"]["template"]["metadata"]["labels"]
    assert not wanted.items() <= own.items()


# -- revisions -------------------------------------------------------------------------------------------------------------------

SAME = (
    {"decode": {"replicas": 3}},
    {"prefill": {"cpu": "8"}},
    {"router": {"replicas": 3}},
    {"client_namespaces": {"a": "b"}},
    {"rollout": "second_group"},
)
ANOTHER = (
    {"image": "registry.example/vllm:0.30.1"},
    {"model": {"id": MODEL, "revision": "main2"}},
    {"max_model_len": 4096},
    {"decode": {"max_num_seqs": 32}},
    {"prefill": {"extra_env": {"A": "b"}}},
    {"kv_transfer": {"lease_seconds": 200}},
    {"kv_transfer": {"side_channel_port": 5700}},
    {"serving": "baseline"},
    {"dtype": "bfloat16"},
)


@pytest.mark.parametrize("changes", SAME, ids=str)
def test_what_servers_need_not_have_in_common_keeps_the_revision(changes: dict[str, Any]) -> None:
    assert gpu(**changes).revision == gpu().revision


@pytest.mark.parametrize("changes", ANOTHER, ids=str)
def test_what_servers_have_in_common_makes_another_revision(changes: dict[str, Any]) -> None:
    assert gpu(**changes).revision != gpu().revision


def test_deployments_of_two_revisions_share_neither_name_nor_pods() -> None:
    one, other = gpu(), gpu(max_model_len=4096)
    for role in ROLES:
        first, second = manifest(one, role), manifest(other, role)
        assert first["metadata"]["name"] == f"m-{role}-{one.revision}" != second["metadata"]["name"]
        selector = first["spec"]["selector"]["matchLabels"]
        assert selector[REVISION_LABEL] == one.revision
        assert not selector.items() <= second["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("name", "instance", "why"),
    [
        ("Llama", "p4d.24xlarge", "Kubernetes refuses this name"),
        ("llama", "m5.2xlarge", r"decode\.pool: its nodes have no accelerator for this server; given: p \(m5\.2xlarge\)"),
    ],
)
def test_a_wrong_name_and_nodes_without_devices_are_refused_before_anything_is_made(name: str, instance: str, why: str) -> None:
    def build() -> None:
        here, cluster = on(instance), existing_cluster()
        PrefillDecodeServers(
            name, spec(GPU), cluster=cluster, prefill_placement=here, decode_placement=here, router_placement=here
        )

    with pytest.raises(ProgramError, match=why):
        record(build)


def rolled(rollout: str) -> tuple[Graph, Graph]:
    """gpu-nixl before and after a change of both roles' flags."""
    server, room = {"rollout": rollout}, {"gpu": {"size": 4}}
    before = recorded_with({"pools": room, "servers": {"llama3-70b": server}}, "gpu-nixl")
    return before, recorded_with({"pools": room, "servers": {"llama3-70b": {**server, "max_model_len": 4096}}}, "gpu-nixl")


@pytest.mark.thorough
@pytest.mark.parametrize(("rollout", "first"), [("recreate", True), ("second_group", False)])
def test_a_new_revision_replaces_both_deployments_and_moves_the_routers(rollout: str, first: bool) -> None:
    diff = compare(*rolled(rollout))
    kinds = {one.resource.name: one for one in diff.changes if one.kind != "same" and one.resource.name.startswith("llama3-70b")}
    for role in ROLES:
        change = kinds[f"llama3-70b-{role}-deployment"]
        assert (change.kind, deletes_first(change)) == ("replace", first)
    assert kinds["llama3-70b-router-deployment"].kind == "update"
    assert "llama3-70b-service" not in kinds
    after = rolled(rollout)[1]
    routers = next(resource for resource in after.resources if resource.name == "llama3-70b-router-deployment")
    new = {resource.urn for resource in after.resources if resource.name in (f"llama3-70b-{role}-deployment" for role in ROLES)}
    assert new <= {*routers.dependencies}, "routers move when both new roles answer"


# -- facts and autoscalers -------------------------------------------------------------------------------------------------------


def test_facts_name_the_keys_of_their_role() -> None:
    group = gpu(decode={"extra_args": {"seed": 1}})
    found = group_facts(group, scheduler=False, path=("servers", "m"))
    assert found.decode.server.at("devices") == ("servers", "m", "decode", "devices")
    assert found.prefill.server.at("tensor_parallel") == ("servers", "m", "prefill", "tensor_parallel")
    assert found.decode.server.under("extra_args", "seed") == ("servers", "m", "decode", "extra_args", "seed")
    assert found.prefill.transfer["kv_role"] == "kv_producer"
    assert (found.prefill.server.part, found.prefill.server.kind) == ("prefill", "prefill_decode")
    assert [role.server.efa_interfaces for role in found.roles] == [4, 4]


def test_devices_of_roles_that_differ_are_added() -> None:
    assert plan.hardware(trn2(decode={"replicas": 2})) == Hardware("trn2.48xlarge", 8, pods_min=3, pods_max=3)
    smaller = trn2(prefill={"devices": 4, "tensor_parallel": 16}, decode={"replicas": 2})
    assert plan.hardware(smaller) == Hardware("trn2.48xlarge", 4 + 2 * 8, pods_min=1, pods_max=1)


def test_each_role_scales_by_its_own_signals() -> None:
    scaled = spec(GPU, prefill={"autoscaling": {"max": 4}}, decode={"autoscaling": {"max": 2}}).scalers
    asked = {
        role: {*keda_queries(one, namespace="n", deployment="d")} for role, one in scaled.items() if isinstance(one, KedaSpec)
    }
    assert asked == {"prefill": {"waiting"}, "decode": {"kv-cache"}}
    both = spec(GPU, prefill={"autoscaling": {"max": 4, "kv_cache_use": 0.5, "first_token_seconds": 2}}).scalers
    (one,) = both.values()
    assert isinstance(one, KedaSpec)
    assert {*keda_queries(one, namespace="n", deployment="d")} == {"waiting", "kv-cache", "first-token"}


@pytest.mark.thorough
def test_an_autoscaler_scales_the_deployment_of_this_revision() -> None:
    graph = recorded_with({"servers": {"llama3-70b": {"decode": {"autoscaling": {"min": 1, "max": 2}}}}}, "gpu-nixl")
    (scaled,) = (resource for resource in graph.resources if resource.type.endswith(":ScaledObject"))
    (deployed,) = (resource for resource in graph.resources if resource.name == "llama3-70b-decode-deployment")
    assert scaled.inputs["spec"]["scaleTargetRef"]["name"] == deployed.inputs["metadata"]["name"]
    assert "replicas" not in deployed.inputs["spec"]
    assert deployed.urn in scaled.dependencies
