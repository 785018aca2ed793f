"""What runs the stand-ins of controllers that cannot run here: KubeRay, LeaderWorkerSet, Karpenter, device plugins, EBS."""

import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Protocol

import requests

from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal, Object
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from stackgraph.problems import Problem

ROUND_SECONDS = 0.25

Seen = Mapping[str, list[Object]]
"""The cluster's objects by resource, as listed at the start of a round."""


class StandIn(Protocol):
    """Stands in for a controller. ``title`` names it and what it stands in for; ``reads`` are the resources it looks at."""

    @property
    def title(self) -> str: ...

    @property
    def reads(self) -> tuple[str, ...]: ...

    def reconcile(self, seen: Seen, api: Api) -> None:
        """One step from what is towards what should be. Called again and again; an ``ApiRefusal`` with status 409 (somebody
        was faster) or 404 (it went away meanwhile) is tried again in the next round.
        """
        ...


class StandIns:
    """A context in which stand-ins run, one after the other, in a thread of their own."""

    def __init__(self, api: Api, stand_ins: Iterable[StandIn]) -> None:
        self._api = api
        self._stand_ins = tuple(stand_ins)
        self._reads = tuple(dict.fromkeys(resource for one in self._stand_ins for resource in one.reads))
        self._end = threading.Event()
        self._error: BaseException | None = None
        self._failed = ""
        self._thread = threading.Thread(target=self._run, name="stand-ins", daemon=True)

    def __enter__(self) -> "StandIns":
        if self._stand_ins:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def ensure_alive(self) -> None:
        """Raises ``ComponentError`` when a stand-in failed: nothing it should have done will happen any more."""
        if self._error is not None:
            raise ComponentError([Problem(f"{self._failed} failed: {self._error}")]) from self._error

    def _run(self) -> None:
        while not self._end.wait(ROUND_SECONDS):
            try:
                self._failed = "reading the cluster for stand-ins"
                seen = {resource: self._api.list(resource) for resource in self._reads}
                for one in self._stand_ins:
                    self._failed = one.title
                    try:
                        one.reconcile(seen, self._api)
                    except ApiRefusal as refusal:
                        if refusal.status not in (404, 409):
                            raise
            except requests.RequestException as error:
                # The API server is gone: its own exit is told by whoever watches the processes.
                self._failed, self._error = "the connection to the API server", error
                return
            except Exception as error:
                self._error = error
                return
