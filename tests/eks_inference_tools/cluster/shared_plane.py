"""One control plane of a process for many simulations, each of which finds it as it was at first: most of one is the start."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from conftest import STACKS, recorded
from eks_inference_tools.reading.kinds import NAMESPACES, NODES
from eks_inference_tools.reading.live_objects import identity_of
from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, Preparation, control_plane
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.world.admit import install_definitions
from eks_inference_tools.simulate.world.objects import cluster_objects
from stackgraph.graph.values import at, joined

SECONDS = 120
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
LEFT_ALONE = {"componentstatuses", "endpoints", "endpointslices", "events", "leases", "customresourcedefinitions"}
"""What comes and goes with other objects, and definitions: controllers look for new ones every 30 s only."""

Found = Mapping[str, tuple[str, Mapping[str, Any]]]
"""Resource and object by UID."""


class SharedPlanes:
    """Control planes by version, which run until the end."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._planes: dict[str, Shared] = {}

    def close(self) -> None:
        self._running.close()

    @contextmanager
    def control_plane(
        self, toolchain: Toolchain, *, version: str = "", prepare: Preparation | None = None
    ) -> Iterator[ControlPlane]:
        """As the function of this name; what is made on it goes with the context, and all else stays."""
        if version not in self._planes:
            every = [item for stack in STACKS for item in cluster_objects(recorded(stack))]
            definitions = partial(install_definitions, objects=every)
            plane = self._running.enter_context(control_plane(toolchain, version=version, prepare=definitions))
            self._planes[version] = Shared.of(plane)
        shared = self._planes[version]
        if prepare:
            prepare(shared.plane)
        try:
            yield shared.plane
        except BaseException:
            # What it left is for nobody else.
            del self._planes[version]
            raise
        shared.clear()


@dataclass(frozen=True)
class Shared:
    plane: ControlPlane
    resources: tuple[str, ...]
    first: frozenset[str]

    @classmethod
    def of(cls, plane: ControlPlane) -> "Shared":
        resources = tuple(_resources(plane.api))
        return cls(plane, resources, frozenset(_found(plane.api, resources)))

    def clear(self) -> None:
        """Takes away what was not there at first: nodes last, because pods end on them."""
        new = {uid: one for uid, one in _found(self.plane.api, self.resources).items() if uid not in self.first}
        gone = {item["metadata"]["name"] for resource, item in new.values() if resource == NAMESPACES}
        for last in (False, True):
            part = {uid: one for uid, one in new.items() if (one[0] == NODES) is last}
            for resource, item in part.values():
                namespace, name = identity_of(item)
                if namespace not in gone and not at(item, "metadata", "ownerReferences"):
                    self.plane.api.delete(resource, name, namespace)
            self.plane.processes.wait_until(lambda part=part: not self._left(part), seconds=SECONDS, what="an empty cluster")

    def _left(self, part: Found) -> Found:
        """What is still there. Stand-ins have ended, and take nothing away any more."""
        found = _found(self.plane.api, {resource for resource, _ in part.values()})
        left = {uid: one for uid, one in found.items() if uid in part}
        for resource, item in left.values():
            if "." in resource and at(item, "metadata", "deletionTimestamp") and at(item, "metadata", "finalizers"):
                try:
                    self.plane.api.patch(item, {"metadata": {"finalizers": None}})
                except ApiRefusal as refusal:
                    if not refusal.is_race:
                        raise
        return left


def _resources(api: Api) -> Iterator[str]:
    for root in ("/api", "/apis"):
        for group in api.raw("GET", root, accept=DISCOVERY)["items"]:
            for resource in group["versions"][0]["resources"]:
                if {"list", "delete"} <= {*resource["verbs"]} and resource["resource"] not in LEFT_ALONE:
                    yield joined(resource["resource"], group["metadata"].get("name", ""), by=".")


def _found(api: Api, resources: Iterable[str]) -> Found:
    return {item["metadata"]["uid"]: (resource, item) for resource in resources for item in api.list(resource)}
