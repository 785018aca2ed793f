"""Imitates as much of the Kubernetes API as a watcher of pods asks for, on loopback.

Source: Kubernetes API concepts, "Efficient detection of changes" (kubernetes.io/docs/reference/using-api/api-concepts, 2026-11).
"""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any, Self

from asking import Exchange, Site


class PodsApi:
    """``asked`` lists (verb, path) of what was asked; other paths than pods of ``namespace`` are forbidden."""

    def __init__(self, namespace: str) -> None:
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.namespace = namespace
        self.asked: list[tuple[str, str]] = []
        self._pods: dict[str, dict[str, Any]] = {}
        self._version = itertools.count(1)
        self._events: list[tuple[int, str]] = []
        """All events so far, as lines of a watch, by resource version."""
        self._happened = asyncio.Event()
        self._site = Site(self._serve)

    async def __aenter__(self) -> Self:
        self._port = await self._site.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._site.abort()

    def kubeconfig(self, path: Path) -> str:
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        lists = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {"token": "t"}}]}
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "c", **lists}))
        return str(path)

    def pod(self, name: str, ip: str, *, ready: bool = True, ending: bool = False, **labels: str) -> None:
        """Adds or changes a pod. A graceful deletion first only sets ``deletionTimestamp``."""
        metadata = {"name": name, "namespace": self.namespace, "uid": name, "labels": labels}
        if ending:
            metadata["deletionTimestamp"] = "2026-11-23T00:00:00Z"
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"phase": "Running", "podIP": ip, "conditions": conditions}
        self._tell("MODIFIED" if name in self._pods else "ADDED", {"metadata": metadata, "status": status})

    def vanish(self, name: str) -> None:
        """As after a deletion without grace, or when the node has gone."""
        self._tell("DELETED", self._pods.pop(name))

    def _tell(self, kind: str, pod: dict[str, Any]) -> None:
        version = next(self._version)
        pod["metadata"]["resourceVersion"] = str(version)
        if kind != "DELETED":
            self._pods[pod["metadata"]["name"]] = pod
        self._events.append((version, json.dumps({"type": kind, "object": {"kind": "Pod", "apiVersion": "v1", **pod}}) + "\n"))
        self._happened.set()
        self._happened = asyncio.Event()

    async def _serve(self, exchange: Exchange) -> None:
        watch = exchange.query.get("watch") in ("true", "1")
        self.asked.append(("watch" if watch else "list" if exchange.method == "GET" else exchange.method, exchange.path))
        if exchange.path != self.path or exchange.method != "GET":
            exchange.answer(403, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403})
        elif watch:
            await self._watch(exchange)
        else:
            meta = {"resourceVersion": str(next(self._version))}
            exchange.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": [*self._pods.values()]})

    async def _watch(self, exchange: Exchange) -> None:
        """All events after the version that the list had, so none is lost between list and watch."""
        told = int(exchange.query["resourceVersion"])
        exchange.begin("application/json")
        while True:
            happened = self._happened
            for version, line in self._events:
                if version > told:
                    exchange.chunk(line)
                    told = version
            await happened.wait()
