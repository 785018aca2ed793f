"""Runs the stand-ins of controllers that cannot run here: KubeRay, LeaderWorkerSet, Karpenter, device plugins, EBS,
load balancers."""

import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

import requests

from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal, Object
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from stackgraph.problems import Problem

ROUND_SECONDS = 0.25

Seen = Mapping[str, list[Object]]
"""The objects of the cluster by resource, listed at the start of a round."""


class StandIn(Protocol):
    """Stands in for a controller. ``title`` names both; ``reads`` lists the resources that it reads."""

    @property
    def title(self) -> str: ...

    @property
    def reads(self) -> tuple[str, ...]: ...

    def reconcile(self, seen: Seen, api: Api) -> None:
        """Takes one step towards the desired state, once per round. It may raise an ``ApiRefusal`` that ``is_race``."""
        ...


class StandIns:
    """A context that runs stand-ins in a thread, one after another."""

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

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def ensure_alive(self) -> None:
        """Raises ``ComponentError`` if a stand-in failed: none of them runs any more."""
        if self._error is not None:
            raise ComponentError([Problem(f"{self._failed} failed: {self._error}")]) from self._error

    def _run(self) -> None:
        while not self._end.wait(ROUND_SECONDS):
            try:
                self._failed = "reading the cluster for the stand-ins"
                seen = {resource: self._api.list(resource) for resource in self._reads}
                for one in self._stand_ins:
                    self._failed = one.title
                    try:
                        one.reconcile(seen, self._api)
                    except ApiRefusal as refusal:
                        if not refusal.is_race:
                            raise
            except requests.RequestException as error:
                # Whoever watches the processes reports why the API server is gone.
                self._failed, self._error = "the connection to the API server", error
                return
            except Exception as error:
                self._error = error
                return
