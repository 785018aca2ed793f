"""A new revision of prefill and decode servers whose devices are claimed, through the real controllers and the real scheduler."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from eks_inference.serving.pod_parts import REVISION_LABEL, SERVER_LABEL
from eks_inference.serving.prefill_decode.plan import ROLE_LABEL
from eks_inference.serving.prefill_decode.spec import ROLES
from eks_inference_tools.reading.devices import RESOURCE_CLAIMS, allocated
from eks_inference_tools.reading.live_objects import Seen, is_leaving, is_ready, labels_of
from eks_inference_tools.reading.object_kinds import PODS
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.rollout import rollout
from eks_inference_tools.simulate.rollout.walk import Outcome
from eks_inference_tools.simulate.simulation import Simulation, simulation
from eks_inference_tools.simulate.world.api_objects import cluster_objects
from variants import recorded_with

pytestmark = pytest.mark.cluster

STACK, SERVER = "trn2-nixl", "llama3-70b"
ROUTER = "router"


@dataclass
class Groups:
    """What of the group was there at each moment of an update."""

    ready: list[frozenset[tuple[str, str]]] = field(default_factory=list)
    """(role, revision) of pods that are ready and do not end."""
    there: list[frozenset[tuple[str, str]]] = field(default_factory=list)
    """The same of every pod."""

    def observe(self, seen: Seen) -> None:
        pods = [pod for pod in seen[PODS] if labels_of(pod).get(SERVER_LABEL) == SERVER and ROLE_LABEL in labels_of(pod)]
        named = [(pod, (labels_of(pod)[ROLE_LABEL], labels_of(pod)[REVISION_LABEL])) for pod in pods]
        self.there.append(frozenset(name for _, name in named))
        self.ready.append(frozenset(name for pod, name in named if is_ready(pod) and not is_leaving(pod)))

    def complete(self) -> list[set[str]]:
        """At each moment, the revisions of which a router, a prefill and a decode server answered."""
        parts = (*ROLES, ROUTER)
        return [{revision for _, revision in now if {(part, revision) for part in parts} <= now} for now in self.ready]


@contextmanager
def running(toolchain: Toolchain, section: dict[str, Any]) -> Iterator[Simulation]:
    with simulation(recorded_with(section, STACK), toolchain) as simulated:
        assert not simulated.admission.refusals
        created = simulated.create()
        assert created.is_complete, created
        yield simulated


def updated(simulated: Simulation, section: dict[str, Any]) -> tuple[Outcome, Groups]:
    """Runs ``pulumi up`` of the stack with other settings of decode, which make another revision."""
    seen = Groups()
    other = {**section, "servers": {SERVER: {**section.get("servers", {}).get(SERVER, {}), "decode": {"max_num_seqs": 4}}}}
    objects = cluster_objects(recorded_with(other, STACK))
    outcome = rollout.update(simulated.plane, simulated.objects, objects, simulated.opaque, observe=seen.observe)
    simulated.objects = objects
    return outcome, seen


def revisions(simulated: Simulation) -> set[str]:
    pods = simulated.plane.api.list(PODS)
    return {labels_of(pod)[REVISION_LABEL] for pod in pods if labels_of(pod).get(SERVER_LABEL) == SERVER}


def claimed(simulated: Simulation) -> list[int]:
    """Devices and interfaces of each allocated claim."""
    return sorted(len(found) for claim in simulated.plane.api.list(RESOURCE_CLAIMS) if (found := list(allocated(claim))))


BESIDE = {"pools": {"trn2": {"size": 2}}, "servers": {SERVER: {"rollout": "second_group"}}}
NO_ROOM = {"servers": {SERVER: {"rollout": "second_group"}}, "silenced": {"DI044": "what happens then is the test"}}


def test_a_second_group_comes_beside_the_first_and_some_group_is_complete_at_every_moment(toolchain: Toolchain) -> None:
    with running(toolchain, BESIDE) as simulated:
        (first,) = revisions(simulated)
        outcome, seen = updated(simulated, BESIDE)
        assert outcome.is_complete, outcome
        assert rollout.settle(simulated.plane, simulated.objects).is_complete
        (second,) = revisions(simulated)
        assert second != first
        complete = seen.complete()
        assert all(complete), "at some moment no group was complete"
        assert complete[0] == {first}
        assert complete[-1] == {second}
        answering = [now for now in seen.ready if (ROUTER, second) in now]
        assert answering
        assert all({(role, second) for role in ROLES} <= now for now in answering), "its router comes after its servers"
        assert claimed(simulated) == [16, 16], "eight chips and eight interfaces each; the old claims are gone"


def test_without_room_the_old_group_ends_first_and_no_two_revisions_of_a_role_are_there_together(toolchain: Toolchain) -> None:
    with running(toolchain, {}) as simulated:
        (first,) = revisions(simulated)
        outcome, seen = updated(simulated, {})
        assert outcome.is_complete, outcome
        assert rollout.settle(simulated.plane, simulated.objects).is_complete
        (second,) = revisions(simulated)
        for role in ROLES:
            assert not [now for now in seen.there if {(role, first), (role, second)} <= now], "so nothing answers in between"
        assert claimed(simulated) == [16, 16]


def test_a_second_group_without_room_waits_for_a_node_and_the_first_goes_on(toolchain: Toolchain) -> None:
    """Which DI044 refuses."""
    with running(toolchain, NO_ROOM) as simulated:
        (first,) = revisions(simulated)
        outcome, seen = updated(simulated, NO_ROOM)
        assert not outcome.is_complete
        assert len(outcome.stalls) == len(ROLES), outcome
        for stall in outcome.stalls:
            assert any("Insufficient" in words or "cannot allocate" in words for words in stall.words), stall.words
        assert all(first in now for now in seen.complete()), "the first group answered all the time"
