"""The order of a rollout, what Pulumi waits for, and what a change makes of it: without a cluster."""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import pytest

from conftest import recorded
from eks_inference_tools.reading.readiness import SKIP_AWAIT, WAIT_FOR, is_awaited, is_removal_awaited, unsettled, waits_for
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.rollout import walk
from eks_inference_tools.simulate.rollout.changes import images_in, next_image, with_other_images
from eks_inference_tools.simulate.rollout.rollout import create, delete, settle, update
from eks_inference_tools.simulate.world.api_objects import ClusterObject, Opaque, cluster_objects

Manifest = dict[str, Any]

DONE = {"startTime": "2025-01-01T00:00:00Z", "conditions": [{"type": "Complete", "status": "True"}]}


@pytest.fixture(autouse=True)
def soon_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here comes late."""
    monkeypatch.setattr(walk, "QUIET_SECONDS", 0.5)


# -- an API server in memory -----------------------------------------------------------------------------------------------------


class Memory:
    """As much of an API server as a rollout asks for. ``statuses`` are what objects get, by name; ``grows`` is called with every
    list and may change them.
    """

    def __init__(self) -> None:
        self.live: dict[tuple[str, str], Manifest] = {}
        self.statuses: dict[str, Manifest] = {}
        self.calls: list[str] = []
        self.refusals: dict[str, ApiRefusal] = {}
        self.held: set[str] = set()
        self.grows: Callable[[], None] = lambda: None

    @property
    def plane(self) -> ControlPlane:
        """This, in the place of a control plane."""
        memory = self

        class Plane:
            api = cast("Api", memory)

            class processes:
                @staticmethod
                def ensure_alive() -> None:
                    """Nothing runs."""

            @staticmethod
            def await_answers() -> None:
                """Nor does it keep silent."""

        return cast("ControlPlane", Plane)

    def resource_of(self, item: Manifest) -> str:
        return f"{item['kind'].lower()}s"

    def is_namespaced(self, item: Manifest) -> bool:
        return item["kind"] != "Namespace"

    def get(self, resource: str, name: str, namespace: str = "") -> Manifest | None:
        return self.live.get((resource, name))

    def list(self, resource: str) -> list[Manifest]:
        self.grows()
        return [{**item, "status": self.statuses.get(name, {})} for (kind, name), item in self.live.items() if kind == resource]

    def apply(self, item: Manifest) -> None:
        self._take("apply", item)

    def patch(self, item: Manifest, body: Manifest, kind: str) -> None:
        assert kind == "apply"
        self._take("patch", body)

    def delete(self, resource: str, name: str, namespace: str, *, propagation: str) -> None:
        assert propagation == "Foreground"
        self.calls.append(f"delete {name}")
        if name not in self.held:
            del self.live[resource, name]

    def _take(self, verb: str, item: Manifest) -> None:
        name = item["metadata"]["name"]
        if name in self.refusals:
            raise self.refusals[name]
        self.calls.append(f"{verb} {name}")
        self.live[self.resource_of(item), name] = item


def thing(name: str, *after: str, kind: str = "core/v1:ConfigMap", called: str = "", **fields: Any) -> ClusterObject:
    version, _, short = kind.rpartition(":")
    manifest = {"apiVersion": version.removeprefix("core/"), "kind": short}
    metadata = {"name": called or name, "namespace": "demo"}
    return ClusterObject(
        urn=urn(name, kind),
        manifest={**manifest, "metadata": metadata, **fields},
        after=frozenset(urn(*one.split("@")) for one in after),
        title=f"{short} demo/{called or name}",
    )


def job(name: str, *after: str, image: str = "tool:1", called: str = "") -> ClusterObject:
    spec = {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}
    return thing(name, *after, kind="batch/v1:Job", called=called, spec=spec)


def urn(name: str, kind: str = "core/v1:ConfigMap") -> str:
    return f"urn:pulumi:test::test::some:index:Component$kubernetes:{kind}::{name}"


JOB = "@batch/v1:Job"


# -- order -----------------------------------------------------------------------------------------------------------------------


def test_objects_come_after_what_they_wait_for():
    memory = Memory()
    stack = [thing("last", "left", "right"), thing("left", "first"), thing("right", "first"), thing("first")]
    outcome = create(memory.plane, stack)
    assert outcome.is_complete
    assert memory.calls == ["apply first", "apply left", "apply right", "apply last"]
    assert {step.action for step in outcome.steps} == {"create"}


def test_what_depends_on_a_job_waits_until_it_is_complete():
    memory = Memory()
    there_when_complete = []

    def grow() -> None:
        if len(memory.live) == 2 and "beside" in memory.calls[-1]:
            there_when_complete.append(memory.calls[:])
            memory.statuses["job"] = DONE

    memory.grows = grow
    assert create(memory.plane, [job("job"), thing("behind", f"job{JOB}"), thing("beside")]).is_complete
    assert there_when_complete[0] == ["apply job", "apply beside"]
    assert memory.calls[-1] == "apply behind"


def test_what_depends_on_a_chart_waits_for_what_stands_in_for_it():
    memory = Memory()
    chart = Opaque("chart", "chart monitoring", "chart", "prometheus", "monitoring", frozenset({urn("first")}))
    behind = thing("behind")
    behind = ClusterObject(behind.urn, behind.manifest, frozenset({"chart"}), behind.title)
    stands_in = job("stands-in").manifest
    objects, stood_in = [behind, thing("first")], {"chart": [stands_in]}
    stalled = create(memory.plane, objects, [chart], stood_in=stood_in)
    assert memory.calls == ["apply first", "apply stands-in"]
    (stall,) = stalled.stalls
    assert (stall.title, stall.behind) == ("chart monitoring: Job demo/stands-in", ("ConfigMap demo/behind",))

    memory = Memory()
    memory.statuses["stands-in"] = DONE
    assert create(memory.plane, objects, [chart], stood_in=stood_in).is_complete
    assert memory.calls == ["apply first", "apply stands-in", "apply behind"]


@pytest.mark.thorough
def test_deletion_goes_the_other_way_and_looks_for_what_is_left():
    memory = Memory()
    stack = [thing("first"), thing("left", "first"), thing("right", "first"), thing("last", "left", "right")]
    assert create(memory.plane, stack).is_complete
    memory.calls.clear()
    assert delete(memory.plane, stack).is_complete
    assert memory.calls == ["delete last", "delete left", "delete right", "delete first"]

    assert create(memory.plane, stack).is_complete
    pod = {"kind": "Pod", "metadata": {"name": "left-over", "namespace": "demo"}}
    memory.live["pods", "left-over"] = pod
    (stall,) = delete(memory.plane, stack).stalls
    assert stall.waits_for == "still there: Pod demo/left-over"


def test_what_goes_with_another_object_is_left_to_kubernetes():
    memory = Memory()
    space = thing("space", kind="core/v1:Namespace")
    inside = dataclasses.replace(thing("inside", "space@core/v1:Namespace"), goes_with=space.urn)
    assert create(memory.plane, [space, inside]).is_complete
    memory.calls.clear()
    assert delete(memory.plane, [space, inside]).is_complete
    assert memory.calls == ["delete space"]

    assert update(memory.plane, [space, inside], [space]).is_complete
    assert memory.calls[-1] == "delete inside"


def test_what_is_held_holds_what_it_depends_on():
    memory = Memory()
    stack = [thing("first"), thing("held", "first")]
    stack[1].manifest["metadata"]["finalizers"] = ["example.com/one"]
    assert create(memory.plane, stack).is_complete
    memory.held.add("held")
    outcome = delete(memory.plane, stack)
    (stall,) = outcome.stalls
    assert stall.waits_for == "it is not gone yet, held by example.com/one"
    assert outcome.unreached == ("ConfigMap demo/first", "what objects leave behind")


# -- what goes wrong -------------------------------------------------------------------------------------------------------------


def test_a_refusal_ends_its_branch():
    memory = Memory()
    memory.refusals["wrong"] = ApiRefusal(422, "Invalid", "no such field")
    outcome = create(memory.plane, [thing("wrong"), thing("behind", "wrong"), thing("beside")])
    assert [(refusal.title, refusal.reason, refusal.message) for refusal in outcome.refusals] == [
        ("ConfigMap demo/wrong", "Invalid", "no such field")
    ]
    assert (memory.calls, outcome.unreached) == (["apply beside"], ("ConfigMap demo/behind",))


def test_what_needs_a_namespace_is_tried_again():
    memory = Memory()
    memory.refusals["early"] = ApiRefusal(404, "NotFound", 'namespaces "demo" not found')
    (stall,) = create(memory.plane, [thing("early")]).stalls
    assert stall.waits_for == 'namespaces "demo" not found'

    tries = []

    def grow() -> None:
        tries.append(1)
        if len(tries) > 2:
            memory.refusals.clear()

    memory.grows = grow
    assert create(memory.plane, [thing("early")]).is_complete


def test_a_failed_job_is_not_waited_for():
    memory = Memory()
    failure = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "it was active longer than that"}
    memory.statuses["job"] = {"conditions": [failure]}
    outcome = create(memory.plane, [job("job"), thing("behind", f"job{JOB}")])
    (stall,) = outcome.stalls
    assert stall.waits_for == "the Job failed ([DeadlineExceeded] it was active longer than that)"
    assert (stall.behind, outcome.unreached) == (("ConfigMap demo/behind",), ("ConfigMap demo/behind",))


def test_an_observer_sees_pods_and_ends_it():
    memory = Memory()

    class Crash(Exception): ...

    def observe(seen: Any) -> None:
        assert seen["pods"] == []
        raise Crash

    with pytest.raises(Crash):
        create(memory.plane, [thing("first")], observe=observe)


# -- changes ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Memory:
    """What is made is ready."""
    memory = Memory()
    memory.statuses = dict.fromkeys(("job", "job-aaaaaaaa", "job-bbbbbbbb"), DONE)
    return memory


def changed(memory: Memory, before: list[ClusterObject], after: list[ClusterObject]) -> list[tuple[str, str]]:
    assert create(memory.plane, before).is_complete
    memory.calls.clear()
    outcome = update(memory.plane, before, after)
    assert outcome.is_complete, outcome
    return [(step.title, step.action) for step in outcome.steps]


def test_only_what_differs_is_touched_and_order_goes_through_the_rest(memory: Memory):
    before = [thing("server", kind="apps/v1beta0:Thing", spec=1), thing("same", "server@apps/v1beta0:Thing"), job("job", "same")]
    after = [thing("server", kind="apps/v1beta0:Thing", spec=2), before[1], job("job", "same", image="tool:2")]
    assert changed(memory, before, after) == [("Thing demo/server", "update"), ("Job demo/job", "replace")]
    assert memory.calls == ["patch server", "delete job", "apply job"]


def test_another_name_is_made_before_the_old_one_goes(memory: Memory):
    before = [job("job", called="job-aaaaaaaa"), thing("behind", f"job{JOB}", data={"a": "1"})]
    after = [job("job", called="job-bbbbbbbb", image="tool:2"), thing("behind", f"job{JOB}", data={"a": "1"}, metadata2=1)]
    assert changed(memory, before, after) == [
        ("Job demo/job-bbbbbbbb", "replace"),
        ("ConfigMap demo/behind", "update"),
        ("Job demo/job-aaaaaaaa", "delete"),
    ]
    assert memory.calls == ["apply job-bbbbbbbb", "patch behind", "delete job-aaaaaaaa"]


def test_what_says_so_is_deleted_first_whatever_its_name(memory: Memory):
    """``deleteBeforeReplace``, which the load test's Job has."""
    before = [job("job", called="job-aaaaaaaa")]
    after = [dataclasses.replace(job("job", called="job-bbbbbbbb", image="tool:2"), delete_first=True)]
    assert changed(memory, before, after) == [("Job demo/job-bbbbbbbb", "replace")]
    assert memory.calls == ["delete job-aaaaaaaa", "apply job-bbbbbbbb"]


def test_data_of_a_config_map_is_replaced(memory: Memory):
    """The provider's default: enableConfigMapMutable is off."""
    assert changed(memory, [thing("one", data={"a": "1"})], [thing("one", data={"a": "2"})]) == [
        ("ConfigMap demo/one", "replace")
    ]
    assert memory.calls == ["delete one", "apply one"]


def test_what_is_obsolete_goes_last_and_backwards(memory: Memory):
    before = [thing("one"), thing("two", "one"), thing("kept")]
    assert changed(memory, before, [thing("kept"), thing("new")]) == [
        ("ConfigMap demo/new", "create"),
        ("ConfigMap demo/two", "delete"),
        ("ConfigMap demo/one", "delete"),
    ]


def test_nothing_is_deleted_after_a_failure(memory: Memory):
    before = [thing("one"), thing("two")]
    assert create(memory.plane, before).is_complete
    memory.refusals["new"] = ApiRefusal(403, "Forbidden", "no")
    assert not update(memory.plane, before, [thing("two"), thing("new")]).is_complete
    assert ("configmaps", "one") in memory.live


def test_what_is_gone_cannot_be_changed(memory: Memory):
    (refusal,) = update(memory.plane, [thing("one", spec=1)], [thing("one", spec=2)]).refusals
    assert refusal.reason == "NotFound"


def test_settling_includes_what_pulumi_does_not_wait_for():
    memory = Memory()
    skipped = job("job")
    skipped.manifest["metadata"]["annotations"] = {SKIP_AWAIT: "true"}
    assert create(memory.plane, [skipped]).is_complete
    (stall,) = settle(memory.plane, [skipped]).stalls
    assert stall.title == "Job demo/job"
    memory.statuses["job"] = DONE
    assert settle(memory.plane, [skipped]).is_complete


# -- awaits ----------------------------------------------------------------------------------------------------------------------


def live(kind: str, *, annotations: Manifest | None = None, generation: int = 1, **fields: Any) -> Manifest:
    version, _, short = kind.rpartition("/")
    metadata = {"name": "it", "namespace": "demo", "uid": "1", "generation": generation, "annotations": annotations or {}}
    return {"apiVersion": version, "kind": short, "metadata": metadata, **fields}


def replica_set(revision: str, replicas: int, ready: int) -> Manifest:
    owner = {
        "ownerReferences": [{"uid": "1", "controller": True}],
        "annotations": {"deployment.kubernetes.io/revision": revision},
    }
    return {"metadata": {"namespace": "demo", **owner}, "spec": {"replicas": replicas}, "status": {"readyReplicas": ready}}


def deployment(
    revision: str = "1", *, available: str = "True", reason: str = "NewReplicaSetAvailable", **fields: Any
) -> Manifest:
    conditions = [
        {"type": "Available", "status": available, "reason": "MinimumReplicasUnavailable", "message": "too few"},
        {"type": "Progressing", "status": "True", "reason": reason, "message": "on its way"},
    ]
    status = {"observedGeneration": 1, "conditions": conditions}
    return live(
        "apps/v1/Deployment",
        annotations={"deployment.kubernetes.io/revision": revision},
        **{"status": status, "spec": {}, **fields},
    )


def endpoints(*, ready: int = 0, unready: int = 0) -> Manifest:
    subset = {"addresses": [{}] * ready, "notReadyAddresses": [{}] * unready}
    return {"metadata": {"name": "it", "namespace": "demo"}, "subsets": [subset]}


def claim(phase: str, name: str = "disk") -> Manifest:
    return live("v1/PersistentVolumeClaim", spec={"storageClassName": name}, status={"phase": phase})


CLAIMED = {"template": {"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "it"}}]}}}
DISK = {"metadata": {"name": "disk"}, "volumeBindingMode": "Immediate"}
LATE = {"metadata": {"name": "disk"}, "volumeBindingMode": "WaitForFirstConsumer"}
SELECTING = {"selector": {"app": "it"}}
COUNTS = {
    "observedGeneration": 1,
    "currentNumberScheduled": 2,
    "updatedNumberScheduled": 2,
    "numberAvailable": 2,
    "numberReady": 2,
}
REVISIONS = {"currentRevision": "a", "updateRevision": "a", "observedGeneration": 1}


def seen(**lists: list[Manifest]) -> dict[str, list[Manifest]]:
    names = {
        "replicas": "replicasets.apps",
        "claims": "persistentvolumeclaims",
        "classes": "storageclasses.storage.k8s.io",
        "endpoints": "endpoints",
    }
    return {resource: lists.get(name, []) for name, resource in names.items()}


@pytest.mark.parametrize(
    ("item", "around", "expected"),
    [
        (live("v1/Namespace"), seen(), ""),
        (live("autoscaling/v2/HorizontalPodAutoscaler"), seen(), ""),
        (live("ray.io/v1/RayService"), seen(), ""),
        # Deployment
        (deployment(), seen(replicas=[replica_set("1", 1, 1)]), ""),
        (deployment(reason="ReplicaSetUpdated"), seen(replicas=[replica_set("1", 1, 1)]), ""),
        (
            deployment("2", reason="ReplicaSetUpdated"),
            seen(replicas=[replica_set("2", 1, 1)]),
            "rollout is not complete",
        ),
        (deployment("2"), seen(replicas=[replica_set("1", 1, 1)]), "no ReplicaSet of its newest revision"),
        (deployment("2"), seen(replicas=[replica_set("1", 1, 1), replica_set("2", 1, 0)]), "0 of 1 pod of"),
        (deployment(), seen(replicas=[replica_set("1", 2, 1)]), "1 of 2 pods of"),
        (deployment(available="False"), seen(replicas=[replica_set("1", 1, 1)]), "[MinimumReplicasUnavailable] too few"),
        (deployment(generation=2), seen(replicas=[replica_set("1", 1, 1)]), "its controller has not seen"),
        (deployment(status={}), seen(replicas=[replica_set("1", 1, 1)]), "its controller has not seen"),
        (deployment(spec=CLAIMED), seen(replicas=[replica_set("1", 1, 1)], claims=[claim("Bound")]), ""),
        (deployment(spec=CLAIMED), seen(replicas=[replica_set("1", 1, 1)], claims=[claim("Pending")]), "not bound: it"),
        # StatefulSet
        (
            live(
                "apps/v1/StatefulSet",
                spec={"replicas": 2},
                status={**REVISIONS, "replicas": 2, "readyReplicas": 2, "currentReplicas": 2},
            ),
            seen(),
            "",
        ),
        (
            live(
                "apps/v1/StatefulSet",
                spec={"replicas": 2},
                status={**REVISIONS, "replicas": 2, "readyReplicas": 1, "currentReplicas": 2},
            ),
            seen(),
            "1 of 2 pods",
        ),
        (
            live(
                "apps/v1/StatefulSet",
                status={**REVISIONS, "updateRevision": "b", "replicas": 1, "readyReplicas": 1, "currentReplicas": 1},
            ),
            seen(),
            "its rollout is not complete",
        ),
        # DaemonSet
        (live("apps/v1/DaemonSet", status={**COUNTS, "desiredNumberScheduled": 2}), seen(), ""),
        (live("apps/v1/DaemonSet", status={"observedGeneration": 1, "desiredNumberScheduled": 0}), seen(), ""),
        (live("apps/v1/DaemonSet", status={**COUNTS, "desiredNumberScheduled": 3}), seen(), "2 of 3 pods created"),
        (
            live("apps/v1/DaemonSet", status={**COUNTS, "desiredNumberScheduled": 2, "updatedNumberScheduled": 1}),
            seen(),
            "1 of 2 pods of the newest revision",
        ),
        (live("apps/v1/DaemonSet", status={"observedGeneration": 1}), seen(), "has not counted its nodes"),
        # Job
        (live("batch/v1/Job", status=DONE), seen(), ""),
        (live("batch/v1/Job", status={"active": 1}), seen(), "1 active, 0 succeeded, 0 failed"),
        # Service
        (live("v1/Service", spec=SELECTING), seen(endpoints=[endpoints(ready=1)]), ""),
        (live("v1/Service", spec=SELECTING), seen(endpoints=[endpoints()]), ""),
        (
            live("v1/Service", spec=SELECTING),
            seen(endpoints=[endpoints(ready=1, unready=1)]),
            "1 pod behind it",
        ),
        (live("v1/Service", spec=SELECTING), seen(), "no endpoints yet"),
        (live("v1/Service", spec={}), seen(), ""),
        (live("v1/Service", spec={**SELECTING, "clusterIP": "None"}), seen(), ""),
        (live("v1/Service", spec={**SELECTING, "type": "ExternalName"}), seen(), ""),
        # volumes
        (claim("Bound"), seen(classes=[DISK]), ""),
        (claim("Pending"), seen(classes=[DISK]), "the claim is Pending, not Bound"),
        (claim("Pending"), seen(classes=[LATE]), ""),
        (claim("Pending"), seen(), "and there is no class disk"),
        (claim("Pending", ""), seen(), "and it names no class"),
        (live("v1/PersistentVolume", status={"phase": "Available"}), seen(), ""),
        (live("v1/PersistentVolume", status={"phase": "Pending"}), seen(), "Pending, not Available"),
        # others
        (live("v1/ResourceQuota", spec={"hard": {"pods": "1"}}, status={"hard": {"pods": "1"}}), seen(), ""),
        (
            live("v1/ResourceQuota", spec={"hard": {"pods": "2"}}, status={"hard": {"pods": "1"}}),
            seen(),
            "quota controller",
        ),
        (live("v1/Pod", status={"phase": "Succeeded"}), seen(), ""),
        (
            live(
                "v1/Pod",
                status={
                    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}]
                },
            ),
            seen(),
            "[Unschedulable] full",
        ),
        # annotations
        (live("batch/v1/Job", annotations={SKIP_AWAIT: "true"}), seen(), ""),
        (live("batch/v1/Job", annotations={SKIP_AWAIT: "false"}), seen(), "not complete"),
        (
            live("karpenter.sh/v1/NodePool", annotations={WAIT_FOR: "condition=Ready"}),
            seen(),
            "condition Ready",
        ),
        (
            live(
                "karpenter.sh/v1/NodePool",
                annotations={WAIT_FOR: '["condition=Ready", "jsonpath={.status.nodes}=2"]'},
                status={"conditions": [{"type": "Ready", "status": "True"}], "nodes": 1},
            ),
            seen(),
            "its status.nodes is 1, not 2",
        ),
        (
            live(
                "karpenter.sh/v1/NodePool",
                annotations={WAIT_FOR: "condition=Upgrading=False"},
                status={"conditions": [{"type": "Upgrading", "status": "False"}]},
            ),
            seen(),
            "",
        ),
    ],
)
def test_pulumi_waits(item: Manifest, around: dict[str, list[Manifest]], expected: str):
    found = waits_for(item, around)
    assert bool(found) is bool(expected)
    assert expected in found


def test_removal_is_waited_for_but_where_the_annotation_holds_for_it():
    skipping = {SKIP_AWAIT: "true"}
    assert not is_removal_awaited(live("batch/v1/Job", annotations=skipping))
    assert is_removal_awaited(live("batch/v1/CronJob", annotations=skipping))
    assert is_removal_awaited(live("batch/v1/Job"))
    assert not is_awaited(live("batch/v1/CronJob"))


def test_an_operator_says_when_it_is_done():
    ready = [{"type": "Ready", "status": "True"}, {"type": "UpgradeInProgress", "status": "False"}]
    status = {"observedGeneration": 1, "conditions": ready}
    assert unsettled(live("ray.io/v1/RayService", status=status), seen()) == ""
    assert unsettled(live("ray.io/v1/RayService", generation=2, status=status), seen())
    upgrading = [ready[0], {"type": "UpgradeInProgress", "status": "True"}]
    state = unsettled(live("ray.io/v1/RayService", status={**status, "conditions": upgrading}), seen())
    assert state == "its condition UpgradeInProgress is not False"


def test_a_service_needs_endpoints_in_the_end():
    service = live("v1/Service", spec=SELECTING)
    assert unsettled(service, seen(endpoints=[endpoints()])) == "no ready pod is behind it"
    assert unsettled(service, seen(endpoints=[endpoints(ready=1)])) == ""


# -- other images ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "other"),
    [
        ("registry.example:5000/vllm", "registry.example:5000/vllm:next"),
        ("registry.example:5000/vllm:v1", "registry.example:5000/vllm:v1-next"),
        (f"vllm:{'x' * 128}", f"vllm:{'x' * 123}-next"),
    ],
)
def test_another_tag(image: str, other: str):
    assert next_image(image) == other


def test_another_digest():
    name, _, digest = next_image(f"vllm:v1@sha256:{'0' * 64}").partition("@")
    assert (name, len(digest)) == ("vllm:v1", len("sha256:") + 64)
    assert digest != f"sha256:{'0' * 64}"


def sides_of(stack: str) -> tuple[tuple[ClusterObject, ...], tuple[ClusterObject, ...]]:
    """The objects of a stack, and those with other images."""
    graph = recorded(stack)
    untouched = graph.to_json()
    after = with_other_images(graph)
    assert graph.to_json() == untouched
    return cluster_objects(graph), cluster_objects(after)


def test_every_image_of_a_shipped_stack_is_another(stack: str):
    before, after = sides_of(stack)
    old, new = ({image for item in objects for image in images_in(item.manifest)} for objects in (before, after))
    assert old
    assert not old & new
    assert [(item.urn, item.kind, item.after) for item in after] == [(item.urn, item.kind, item.after) for item in before]


def test_names_that_stand_for_content_are_others_wherever_they_are():
    before, others = sides_of("inf2-llama2")
    after = {item.urn: item for item in others}
    renamed = {item.name: after[item.urn].name for item in before if item.name != after[item.urn].name}
    (test,) = (item for item in before if item.kind == "Job")
    (script,) = (item for item in before if item.kind == "ConfigMap" and item.name == test.name)
    assert set(renamed) == {test.name}
    pod = after[test.urn].manifest["spec"]["template"]["spec"]
    assert renamed[script.name] in [volume.get("configMap", {}).get("name") for volume in pod["volumes"]]
    assert after[test.urn].title == f"Job {test.namespace}/{renamed[test.name]}"
    assert len(renamed[test.name]) == len(test.name)


def test_a_name_that_stands_for_itself_is_kept():
    before, others = sides_of("trn2-di-pair")
    after = {item.urn: item for item in others}
    kept = [item.name for item in before if item.kind == "Job" and after[item.urn].name == item.name]
    assert kept == ["llama3-70b-efa"]


@pytest.fixture(params=["gpu-opt350m", "inf2-llama3", "trn2-di-pair"])
def stack(request: pytest.FixtureRequest) -> str:
    return request.param
