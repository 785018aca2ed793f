"""What an API server of Kubernetes answers, on loopback, as far as a client can tell. Standard library only.

    with KubernetesApi() as server:
        server.serves("apps", "v1", Deployment="deployments")
        server.answers("GET", "/apis/apps/v1/deployments", 200, {"kind": "DeploymentList", …})
        …  # talk to server.url

Discovery is answered as the aggregated documents of Kubernetes 1.30 and later; anything that nobody gave an answer for is a 404
with a Status. Answers of one request are given in turn, the last one again and again.
"""

import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from loopback import Handler, Request, Server


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    """How an API server says no."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}


@dataclass
class KubernetesApi:
    """``requests`` lists what came so far, discovery left out; ``discoveries`` counts that."""

    certificate: Path | None = None
    """With its key beside it as ``.key``: then it speaks TLS."""
    requests: list[Request] = field(default_factory=list)
    discoveries: int = 0

    def __post_init__(self) -> None:
        self._groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self._answers: dict[tuple[str, str], list[tuple[int, Any]]] = {}
        self._server = _Server(self, _Handler)
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.certificate.with_suffix(".key"))
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://{self._server.address}"

    def serves(self, group: str, version: str, *, cluster: bool = False, **plural_of: str) -> None:
        """Adds kinds to what discovery tells. The first version of a group is the one it prefers."""
        resources = self._groups.setdefault(group, {}).setdefault(version, [])
        for kind, plural in plural_of.items():
            scope = "Cluster" if cluster else "Namespaced"
            about = {"group": group, "version": version, "kind": kind}
            resources.append({"resource": plural, "responseKind": about, "scope": scope, "verbs": ["get", "list"]})

    def answers(self, method: str, path: str, *answers: tuple[int, Any]) -> None:
        """What a request gets: a status code and a body, which is sent as JSON unless it is bytes."""
        self._answers[method, path] = list(answers)

    def asked(self) -> list[str]:
        """``GET /api/v1/pods`` and so on."""
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

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Takes no connection any more, and ends those there are."""
        self._server.stop()


class _Server(Server):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the certificate goes away."""


class _Handler(Handler):
    def _answer(self) -> None:
        code, content = cast(KubernetesApi, cast(Server, self.server).owner).answer(self.received())
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send(code, sent, {"content-type": "text/plain" if isinstance(content, bytes) else "application/json"})

    do_GET = do_POST = do_PATCH = do_DELETE = _answer
