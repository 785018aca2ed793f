"""Imitates a Kubernetes API server on loopback. Standard library only.

    with KubernetesApi() as server:
        server.serves("apps", "v1", Deployment="deployments")
        server.answers("GET", "/apis/apps/v1/deployments", 200, {"kind": "DeploymentList", …})
        …  # talk to server.url

Discovery has the aggregated documents of Kubernetes 1.30 and later. A request without a prepared answer gets 404 and a Status. If
a request has several answers, it gets them in turn, and then the last one every time.
"""

import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopback import Handler, Request, Served, Server


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    """Returns the Status of a refusal."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}


@dataclass
class KubernetesApi(Served):
    """``requests`` lists the requests so far except discovery; ``discoveries`` counts discovery."""

    certificate: Path | None = None
    """Turns on TLS; the key is beside it as ``.key``."""
    requests: list[Request] = field(default_factory=list)
    discoveries: int = 0

    def __post_init__(self) -> None:
        self._groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self._answers: dict[tuple[str, str], list[tuple[int, Any]]] = {}
        server = Server(self, _Handler)
        self.servers = [server]
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.certificate.with_suffix(".key"))
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://{self.servers[0].address}"

    def serves(self, group: str, version: str, *, cluster: bool = False, **plural_of: str) -> None:
        """Adds kinds to discovery. The first version of a group is the preferred one."""
        resources = self._groups.setdefault(group, {}).setdefault(version, [])
        for kind, plural in plural_of.items():
            scope = "Cluster" if cluster else "Namespaced"
            about = {"group": group, "version": version, "kind": kind}
            resources.append({"resource": plural, "responseKind": about, "scope": scope, "verbs": ["get", "list"]})

    def answers(self, method: str, path: str, *answers: tuple[int, Any]) -> None:
        """Prepares the answers of a request: status codes and bodies, which are sent as JSON unless they are bytes."""
        self._answers[method, path] = list(answers)

    def asked(self) -> list[str]:
        """Returns the requests as texts: ``GET /api/v1/pods``."""
        return [f"{request.method} {request.path}" for request in self.requests]

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.path in ("/api", "/apis") and "APIGroupDiscoveryList" in request.headers["accept"]:
            self.discoveries += request.path == "/apis"
            return 200, self._discovery(core=request.path == "/api")
        self.requests.append(request)
        found = self._answers.get((request.method, request.path), [(404, status(404, "NotFound", f"{request.path} not found"))])
        return found.pop(0) if len(found) > 1 else found[0]

    def _discovery(self, *, core: bool) -> dict[str, Any]:
        groups = {name: versions for name, versions in self._groups.items() if (not name) == core}
        items = [
            {
                "metadata": {"name": name} if name else {},
                "versions": [{"version": version, "resources": resources} for version, resources in versions.items()],
            }
            for name, versions in groups.items()
        ]
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}


class _Handler(Handler):
    def _answer(self) -> None:
        code, content = self.owner.answer(self.received())
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send(code, sent, {"content-type": "text/plain" if isinstance(content, bytes) else "application/json"})

    do_GET = do_POST = do_PATCH = do_DELETE = _answer
