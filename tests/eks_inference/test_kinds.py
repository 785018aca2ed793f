"""Kinds of model servers: what is the same for all, and what it takes to add one."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import another_kind
import eks_inference
from conftest import ROOT
from eks_inference.faults import SpecError
from eks_inference.serving import deployment, pod_parts
from eks_inference.serving.kinds import KINDS
from eks_inference.serving.ray_serve.plan import worker_resources
from eks_inference.serving.ray_serve.protection import quota as ray_quota
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.shape import ReplicatedServerSpec
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.specs.validation import RENAMED
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.spec import register_kind
from graphs import children_of, of_kind
from handles import placement
from plain_stack import PLAIN, STACK, plain_kind
from servers import SMALL
from stackgraph.problems import ProgramError
from stackgraph.recorder.project import find_project
from variants import recorded_with

# -- another kind ----------------------------------------------------------------------------------------------------------------


def test_the_kind_of_the_tests_is_one_short_file() -> None:
    assert len(Path(another_kind.__file__).read_text().splitlines()) <= 150


def test_a_kind_that_is_registered_is_previewed_scraped_and_scaled() -> None:
    with plain_kind():
        graph = recorded_with(PLAIN, STACK)
    (server,) = [resource for resource in of_kind(graph, "Deployment") if resource.inputs["metadata"]["name"] == "plain"]
    assert server.inputs["spec"]["template"]["spec"]["containers"][0]["ports"] == [{"name": "http", "containerPort": 8100}]
    (scaled,) = of_kind(graph, "ScaledObject")
    assert scaled.inputs["spec"]["scaleTargetRef"]["name"] == "plain"
    monitors = [resource for resource in of_kind(graph, "PodMonitor") if resource.inputs["metadata"]["namespace"] == "plain"]
    assert [monitor.inputs["spec"]["selector"]["matchLabels"] for monitor in monitors] == [{pod_parts.SERVER_LABEL: "plain"}]
    assert graph.outputs["endpoints"] == {"plain": "http://plain.plain.svc.cluster.local:8100/v1"}
    assert "kubectl -n plain port-forward svc/plain 8100" in graph.outputs["next"]
    assert "eks-inference chat" in graph.outputs["next"]
    assert children_of(graph, "SmokeTest"), "clients of the OpenAI API take it for one of theirs"
    assert not [resource for resource in graph.resources if "TritonServer" in resource.type]


def test_a_kind_that_is_registered_is_checked() -> None:
    too_many = {**PLAIN["servers"]["plain"], "devices": 5}
    with plain_kind(), pytest.raises(ProgramError, match=r"servers\.plain\.devices: GPU\d+: .*\n +given: 5"):
        recorded_with({**PLAIN, "servers": {**PLAIN["servers"], "plain": too_many}}, STACK)


def test_a_kind_that_is_not_registered_is_named_with_those_that_are() -> None:
    with pytest.raises(SpecError) as caught:
        parse_stack(stack_with({"a": {"kind": "plain", "pool": "gpu"}}))
    (fault,) = caught.value.faults
    assert (fault.path, fault.given) == (("servers", "a", "kind"), "'plain'")
    assert set(fault.allowed.split(", ")) == set(KINDS) == {"ray_serve_vllm", "vllm", "triton", "disaggregated", "prefill_decode"}


def test_the_name_of_a_kind_is_taken_once() -> None:
    with pytest.raises(ValueError, match="already"):
        register_kind(KINDS["vllm"])
    with pytest.raises(SpecError, match="should be a Kind; given: dict"):
        register_kind({})  # pyright: ignore[reportArgumentType]


# -- what is the same for all kinds ----------------------------------------------------------------------------------------------


def stack_with(servers: dict[str, Any]) -> str:
    project = find_project(ROOT)
    spec = json.loads(project.config(project.stack_file("gpu-opt350m")).values["eks-inference:stack"])
    return json.dumps(spec | {"servers": servers, "clients": {}})


@pytest.mark.parametrize("kind", [name for name, one in KINDS.items() if "alternatives" not in one.spec.model_fields])
def test_kinds_without_alternatives_name_the_way(kind: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_stack(stack_with({"a": {"kind": kind, "alternatives": []}}))
    (hint,) = (fault.hint for fault in caught.value.faults if fault.path == ("servers", "a", "alternatives"))
    assert "a second server of the same model" in hint


def test_fields_of_all_kinds_have_one_name_and_one_type() -> None:
    """What two kinds call the same is the same: a count is a count, a duration has its unit in its name."""
    for kind in KINDS.values():
        assert not RENAMED.keys() & kind.spec.model_fields.keys()
        assert {"namespace", "model", "engine", "image", "extra_args", "extra_env"} <= kind.spec.model_fields.keys()


counts = st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(1, 4))


@given(counts, st.sampled_from(["vllm", "triton"]))
def test_quotas_count_pods_that_still_end_and_bounds_count_surge_once(count: tuple[int, int, int], kind: str) -> None:
    replicas, surge, devices = count
    common = {"model": {"id": "facebook/opt-350m"}, "pool": "p", "replicas": replicas, "surge": surge, "devices": devices}
    spec: ReplicatedServerSpec = (
        TritonServerSpec.model_validate(common)
        if kind == "triton"
        else VllmServerSpec.model_validate(
            {**common, "kind": "vllm", "engine": "cuda-vllm-0.30", "tensor_parallel": 1, "max_model_len": 9, "max_num_seqs": 1}
        )
    )
    hard = deployment.quota("s", spec, placement("g4dn.12xlarge"))["spec"]["hard"]
    # So many there are, those of a roll-out among them, and as many as it replaces at a time still end.
    assert hard == {"requests.nvidia.com/gpu": str((replicas + surge + max(surge, 1)) * devices)}
    waves = -(-replicas // max(surge, 1))
    nodes = placement("g4dn.12xlarge")
    assert deployment.rollout_seconds(spec, nodes) == waves * deployment.progress_seconds(spec, nodes)


@given(st.integers(1, 3), st.integers(0, 4), st.sampled_from(["none", "new_cluster"]))
def test_the_quota_of_ray_lets_workers_come_back_while_others_end(fewest: int, more: int, upgrade: str) -> None:
    worker = {**SMALL["worker"], "min": fewest, "initial": fewest, "max": fewest + more}
    spec = RayServeVllmSpec.model_validate({**SMALL, "worker": worker, "upgrade": upgrade})
    (devices,) = ray_quota("s", spec)["spec"]["hard"].values()
    clusters = 2 if upgrade == "new_cluster" else 1
    assert worker_resources(spec.worker)["aws.amazon.com/neuron"] == "1"
    assert int(devices) == clusters * (fewest + more) + max(more, 1)


@pytest.mark.thorough
def test_nobody_asks_of_which_kind_a_server_is_outside_its_own_folder() -> None:
    """Neither by the class of its spec or component nor by the name of its kind."""
    library = Path(eks_inference.__file__).parent
    classes = {kind.spec.__name__ for kind in KINDS.values()} | {
        "VllmServer",
        "TritonServer",
        "RayServeVllm",
        "DisaggregatedPair",
    }
    # ``clients.triton`` asks one kind's own protocol, and takes the server it is given for one that speaks it.
    allowed = {"clients/component.py"}
    for path in library.rglob("*.py"):
        place = path.relative_to(library)
        if (place.parts[0] == "serving" and len(place.parts) > 2) or str(place) in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                assert not {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)} & classes, (place, node.lineno)
            if isinstance(node, ast.Compare) and "kind" in ast.unparse(node.left):
                literals = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                assert not literals & set(KINDS), (place, node.lineno)
