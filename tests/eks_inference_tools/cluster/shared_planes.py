"""Control planes that many simulations of a process use one after another: most of a simulation was the start of two."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from conftest import STACKS, recorded
from eks_inference_tools.reading.live_objects import name_of
from eks_inference_tools.reading.object_kinds import NODES
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, Preparation, control_plane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.world.admit import install_definitions
from eks_inference_tools.simulate.world.api_objects import cluster_objects
from stackgraph.graph.values import joined

SECONDS = 60
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OF_CONTROLLERS = {"componentstatuses", "configmaps", "endpoints", "endpointslices", "events", "leases", "serviceaccounts"}
"""What controllers make by themselves, at their time. All else that a stack leaves is seen."""


class SharedPlanes:
    """``control_plane`` takes the place of the function of this name. The planes run until ``close``."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._idle: dict[tuple[str, bool], list[ControlPlane]] = defaultdict(list)
        self._reuse = False

    def close(self) -> None:
        self._running.close()

    @contextmanager
    def reused(self) -> Iterator[None]:
        """For simulations that delete their stack. What they leave keeps a plane from being used again."""
        self._reuse = True
        try:
            yield
        finally:
            self._reuse = False

    @contextmanager
    def control_plane(
        self, toolchain: Toolchain, *, version: str = "", prepare: Preparation | None = None
    ) -> Iterator[ControlPlane]:
        """Without ``prepare`` it is for admission, which applies all that it needs. What another stack has left there cannot hide
        that something is missing: creation would wait for it.
        """
        if prepare and not self._reuse:
            with control_plane(toolchain, version=version, prepare=prepare) as plane:
                yield plane
            return
        idle = self._idle[version, prepare is None]
        # Who started it may have asked for fewer programs.
        plane = replace(idle.pop(), toolchain=toolchain) if idle else self._started(toolchain, version, prepare)
        first = _there(plane.api) if prepare else frozenset()
        if prepare:
            prepare(plane)
            if (there := _there(plane.api)) != first:
                # Controllers that run look for new definitions every 30 s only.
                idle.append(plane)
                plane, first = self._started(toolchain, version, prepare), there
        yield plane
        if prepare:
            # Karpenter has ended, and what it started waits for it.
            for resource in filter(plane.api.knows, (NODES, "nodeclaims.karpenter.sh")):
                for item in plane.api.list(resource):
                    plane.api.patch(item, {"metadata": {"finalizers": None}})
                    plane.api.delete(resource, name_of(item))
            plane.processes.wait_until(lambda: not plane.api.list(NODES), seconds=SECONDS, what="the nodes are gone")
            if len(_there(plane.api)) != len(first):
                return
        idle.append(plane)

    def _started(self, toolchain: Toolchain, version: str, prepare: Preparation | None) -> ControlPlane:
        every = [item for stack in STACKS for item in cluster_objects(recorded(stack))]

        def with_definitions(plane: ControlPlane) -> None:
            install_definitions(plane, every)
            if prepare:
                prepare(plane)

        return self._running.enter_context(control_plane(toolchain, version=version, prepare=with_definitions))


PLANES = SharedPlanes()


def _there(api: Api) -> frozenset[str]:
    return frozenset(item["metadata"]["uid"] for resource in _resources(api) for item in api.list(resource))


def _resources(api: Api) -> Iterator[str]:
    for root in ("/api", "/apis"):
        for group in api.raw("GET", root, accept=DISCOVERY)["items"]:
            for resource in group["versions"][0]["resources"]:
                if {"list", "delete"} <= {*resource["verbs"]} and resource["resource"] not in OF_CONTROLLERS:
                    yield joined(resource["resource"], group["metadata"].get("name", ""), by=".")
