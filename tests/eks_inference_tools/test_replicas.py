"""Other numbers of replicas in a simulation: what ``--scale`` sets, and the most that autoscalers may ask for."""

import copy
from collections.abc import Callable
from typing import Any

import pulumi_kubernetes as k8s
import pytest

from conftest import STACKS, recorded
from eks_inference_tools.simulate.rollout.changes import most_replicas, with_replicas
from eks_inference_tools.simulate.world.api_objects import ClusterObject, cluster_objects
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.recorder.recording import record

RAY = "vllm/vllm-llama3-inf2"


def named(objects: tuple[ClusterObject, ...], name: str) -> dict[str, Any]:
    """The spec of what is scaled by that name."""
    kinds = ("Deployment", "LeaderWorkerSet", "RayService", "StatefulSet")
    (found,) = [one for one in objects if one.kind in kinds and f"{one.namespace}/{one.name}" == name]
    return found.manifest["spec"]


def problems(objects: tuple[ClusterObject, ...], **wanted: int) -> tuple[Problem, ...]:
    with pytest.raises(ProblemsFound) as error:
        with_replicas(objects, {name.replace("_", "/"): count for name, count in wanted.items()})
    return error.value.problems


# -- setting them ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stack", "name"),
    [("inf2-llama2", "llama2-c/llama2-c"), ("trn2-di-pair", "disaggregated/llama3-70b-servers")],
)
@pytest.mark.parametrize("count", [0, 7])
def test_what_is_named_gets_its_number_and_nothing_else_changes(stack: str, name: str, count: int):
    before = cluster_objects(recorded(stack))
    kept = copy.deepcopy(before)
    after = with_replicas(before, {name: count})
    assert named(after, name)["replicas"] == count
    assert before == kept  # the graph's own objects stay as they are
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    ((old, new),) = changed
    expected = copy.deepcopy(old.manifest)
    expected["spec"]["replicas"] = count
    assert new.manifest == expected
    assert (new.urn, new.after, new.title) == (old.urn, old.after, old.title)


def test_a_stateful_set_is_scaled_too():
    def build() -> None:
        labels = {"app": "store"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "store", "image": "store:1"}]}}
        spec: Any = {"service_name": "store", "selector": {"match_labels": labels}, "template": template}
        k8s.apps.v1.StatefulSet("store", metadata={"name": "store", "namespace": "demo"}, spec=spec)

    objects = cluster_objects(record(build))
    assert named(with_replicas(objects, {"demo/store": 3}), "demo/store")["replicas"] == 3


def test_a_ray_service_gets_that_many_workers_and_may_have_them():
    objects = cluster_objects(recorded("inf2-llama3"))
    (before,) = named(objects, RAY)["rayClusterConfig"]["workerGroupSpecs"]
    assert before["maxReplicas"] == 3
    for count, most in ((2, 3), (5, 5)):
        (group,) = named(with_replicas(objects, {RAY: count}), RAY)["rayClusterConfig"]["workerGroupSpecs"]
        assert (group["replicas"], group["maxReplicas"]) == (count, most)
        assert {**group, "replicas": 0, "maxReplicas": 0} == {**before, "replicas": 0, "maxReplicas": 0}


def test_nothing_asked_for_is_nothing_changed():
    objects = cluster_objects(recorded("inf2-llama3"))
    assert with_replicas(objects, {}) == objects


def test_an_unknown_name_is_told_with_the_names_there_are_and_the_one_meant():
    (problem,) = problems(cluster_objects(recorded("inf2-llama2")), **{"llama2-c_lama2-c": 2})
    assert (problem.key, problem.given) == ("--scale", "llama2-c/lama2-c")
    assert problem.hint == "did you mean 'llama2-c/llama2-c'?"
    names = ("kube-system/k8s-neuron-scheduler", "kube-system/my-scheduler", *(f"llama2-{one}/llama2-{one}" for one in "abc"))
    assert problem.allowed == ", ".join(names)


def test_every_unknown_name_is_told_at_once():
    found = problems(cluster_objects(recorded("inf2-llama2")), **{"x_zzz": 1, "llama2-a_llama2-a": 1, "y_zzz": 1})
    assert [(problem.given, problem.hint) for problem in found] == [("x/zzz", ""), ("y/zzz", "")]


def test_what_has_no_replicas_cannot_be_scaled():
    objects = tuple(one for one in cluster_objects(recorded("inf2-llama2")) if one.kind == "DaemonSet")
    assert objects
    (problem,) = problems(objects, **{f"{objects[0].namespace}_{objects[0].name}": 2})
    assert problem.allowed == "nothing in this stack"


# -- the most --------------------------------------------------------------------------------------------------------------------


def scaled_by(build: Callable[[], Any]) -> dict[str, int]:
    return dict(most_replicas(record(build)))


def autoscaler(minimum: int | None = 1, maximum: Any = 4) -> None:
    name = "server"
    spec: Any = {"scale_target_ref": {"api_version": "apps/v1", "kind": "Deployment", "name": name}, "max_replicas": maximum}
    if minimum is not None:
        spec["min_replicas"] = minimum
    k8s.autoscaling.v2.HorizontalPodAutoscaler(name, metadata={"name": name, "namespace": "demo"}, spec=spec)


def test_the_most_is_the_autoscalers_upper_bound():
    assert scaled_by(lambda: autoscaler(1, 4)) == {"demo/server": 4}
    assert scaled_by(lambda: autoscaler(None, 3)) == {"demo/server": 3}
    assert scaled_by(lambda: autoscaler(2, 2)) == {"demo/server": 2}


def test_a_bound_that_only_a_deployment_knows_is_left_out():
    def build() -> None:
        made = k8s.core.v1.ConfigMap("bounds", metadata={"name": "bounds", "namespace": "demo"})
        autoscaler(1, made.metadata.apply(lambda metadata: len(metadata.uid or "")))

    assert scaled_by(build) == {}


def test_kedas_most_is_its_own_or_its_default():
    def build(**spec: Any) -> None:
        k8s.apiextensions.CustomResource(
            "scaled",
            api_version="keda.sh/v1alpha1",
            kind="ScaledObject",
            metadata={"name": "scaled", "namespace": "demo"},
            spec={"scaleTargetRef": {"name": "server"}, **spec},
        )

    assert scaled_by(lambda: build(maxReplicaCount=5)) == {"demo/server": 5}
    assert scaled_by(build) == {"demo/server": 100}


def ray_service(*groups: dict[str, Any], autoscaling: bool = True) -> Callable[[], None]:
    def build() -> None:
        config = {"workerGroupSpecs": list(groups), **({"enableInTreeAutoscaling": True} if autoscaling else {})}
        k8s.apiextensions.CustomResource(
            "ray",
            api_version="ray.io/v1",
            kind="RayService",
            metadata={"name": "ray", "namespace": "demo"},
            spec={"rayClusterConfig": config},
        )

    return build


def test_rays_own_autoscaler_counts_where_it_is_on():
    assert scaled_by(ray_service({"maxReplicas": 3})) == {"demo/ray": 3}
    assert scaled_by(ray_service({"maxReplicas": 3}, {"maxReplicas": 5}, {})) == {"demo/ray": 5}
    assert scaled_by(ray_service({"maxReplicas": 3}, autoscaling=False)) == {}
    assert scaled_by(ray_service({}, {})) == {}


def test_the_most_of_the_shipped_stacks():
    assert {stack: most_replicas(recorded(stack)) for stack in STACKS if most_replicas(recorded(stack))} == {
        "gpu-opt350m": {"triton-server/triton-server": 4},
        "inf2-llama3": {RAY: 3},
    }


def test_fewer_ray_workers_than_the_least_can_be_asked_for():
    (item,) = [item for item in with_replicas(cluster_objects(recorded("inf2-llama3")), {RAY: 0}) if item.kind == "RayService"]
    (group,) = item.manifest["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"]) == (0, 0)
