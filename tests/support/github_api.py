"""Imitates the part of GitHub's REST API that comments need, on loopback. Standard library only.

    with GitHubApi() as api:
        api.pull_request(12, sha="abc", repository="fork/r")
        api.artifact(7, "stack-diff", {"comment.md": "…"})
        …  # talk to api.url with api.token

Behaves as GitHub documents: pages of 30, or of up to 100 on request; 401 for another token, 404 for what does not exist, 422 for
a comment that is too long; a redirect to another host for artifacts.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopback import Handler, Request, Served, Server

REPOSITORY = "team/stacks"
BOT = "github-actions[bot]"
_NOT_FOUND = (404, {"message": "Not Found"})


@dataclass
class Fault:
    """The answer to the next ``times`` matching requests. With ``done`` they take effect nevertheless."""

    method: str
    path: str
    status: int
    body: bytes
    headers: dict[str, str]
    times: int
    done: bool


@dataclass
class GitHubApi(Served):
    """``comments`` is by pull request of one repository. ``requests`` went to the API, ``downloads`` to the other host."""

    token: str = "ghs_loopback"
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    downloads: list[Request] = field(default_factory=list)
    archives: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pulls: dict[int, dict[str, Any]] = {}
        self._artifacts: dict[int, list[dict[str, Any]]] = {}
        self._faults: list[Fault] = []
        self._number = 1000
        self.servers = [Server(self, handler) for handler in (_Api, _Store)]

    @property
    def url(self) -> str:
        return f"http://{self.servers[0].address}"

    @property
    def store(self) -> str:
        return f"http://{self.servers[1].address}"

    @property
    def writes(self) -> list[tuple[str, str]]:
        """Methods and paths of the requests that change something."""
        return [(one.method, one.path.removeprefix(f"/repos/{REPOSITORY}")) for one in self.requests if one.method != "GET"]

    def pull_request(self, number: int, *, sha: str, repository: str | None = REPOSITORY) -> None:
        """Adds a pull request. ``repository`` None means that the fork was deleted."""
        self._pulls[number] = {"number": number, "head": {"sha": sha, "repo": repository and {"full_name": repository}}}
        self.comments.setdefault(number, [])

    def comment(self, number: int, body: str, author: str | None = BOT) -> dict[str, Any]:
        """Adds a comment. ``author`` None means that the account was deleted."""
        identity = self.next()
        made = {
            "id": identity,
            "body": body,
            "user": author and {"login": author},
            "html_url": f"https://github.example/{REPOSITORY}/pull/{number}#issuecomment-{identity}",
        }
        self.comments.setdefault(number, []).append(made)
        return made

    def artifact(
        self, run: int, name: str, files: Mapping[str, str | bytes] | bytes, *, expired: bool = False, size: int = 0
    ) -> int:
        """Adds an artifact of files, or of an archive as bytes. ``size`` is the size that the API reports."""
        archive = files if isinstance(files, bytes) else zipped(files)
        identity = self.next()
        self.archives[identity] = archive
        entry = {"id": identity, "name": name, "expired": expired, "size_in_bytes": size or len(archive)}
        self._artifacts.setdefault(run, []).append(entry)
        return identity

    def fail(
        self,
        method: str,
        path: str,
        status: int,
        message: str | bytes = "",
        *,
        headers: Mapping[str, str] | None = None,
        times: int = 1,
        done: bool = False,
    ) -> None:
        """Adds a fault. ``path`` is a pattern below the repository; a message in bytes is the whole body."""
        body = message if isinstance(message, bytes) else json.dumps({"message": message}).encode()
        self._faults.append(Fault(method, path, status, body, dict(headers or {}), times, done))

    def next(self) -> int:
        self._number += 1
        return self._number

    def fault(self, method: str, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.times and fault.method == method and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None

    def answer(self, request: Request) -> tuple[int, Any]:
        path = request.path.removeprefix(f"/repos/{REPOSITORY}")
        for method, pattern, handler in _ROUTES:
            if request.method == method and (match := re.fullmatch(pattern, path)):
                return handler(self, request, int(match[1]))
        return _NOT_FOUND

    def _list(self, request: Request, number: int) -> tuple[int, Any]:
        if number not in self.comments:
            return _NOT_FOUND
        size, page = int(request.query.get("per_page", 30)), int(request.query.get("page", 1))
        return 200, self.comments[number][size * (page - 1) : size * page]

    def _create(self, request: Request, number: int) -> tuple[int, Any]:
        if number not in self.comments:
            return _NOT_FOUND
        return _too_long(request) or (201, self.comment(number, request.body["body"]))

    def _update(self, request: Request, identity: int) -> tuple[int, Any]:
        found = self._find(identity)
        if found is None:
            return _NOT_FOUND
        if (refused := _too_long(request)) is None:
            found["body"] = request.body["body"]
        return refused or (200, found)

    def _delete(self, request: Request, identity: int) -> tuple[int, Any]:
        found = self._find(identity)
        if found is None:
            return _NOT_FOUND
        for comments in self.comments.values():
            if found in comments:
                comments.remove(found)
        return 204, None

    def _pull(self, request: Request, number: int) -> tuple[int, Any]:
        return (200, self._pulls[number]) if number in self._pulls else _NOT_FOUND

    def _left(self, request: Request, run: int) -> tuple[int, Any]:
        named = [item for item in self._artifacts.get(run, []) if item["name"] == request.query.get("name", item["name"])]
        return 200, {"total_count": len(named), "artifacts": named}

    def _archive(self, request: Request, identity: int) -> tuple[int, Any]:
        return 302, f"{self.store}/{identity}?signature=secret"

    def _find(self, identity: int) -> dict[str, Any] | None:
        return next((comment for comments in self.comments.values() for comment in comments if comment["id"] == identity), None)


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return archive.getvalue()


def _too_long(request: Request) -> tuple[int, Any] | None:
    if len(request.body["body"]) <= 65536:
        return None
    error = {"resource": "IssueComment", "code": "unprocessable", "message": "Body is too long (maximum is 65536 characters)"}
    return 422, {"message": "Validation Failed", "errors": [error]}


_ROUTES: list[tuple[str, str, Callable[[GitHubApi, Request, int], tuple[int, Any]]]] = [
    ("GET", r"/issues/(\d+)/comments", GitHubApi._list),
    ("POST", r"/issues/(\d+)/comments", GitHubApi._create),
    ("PATCH", r"/issues/comments/(\d+)", GitHubApi._update),
    ("DELETE", r"/issues/comments/(\d+)", GitHubApi._delete),
    ("GET", r"/pulls/(\d+)", GitHubApi._pull),
    ("GET", r"/actions/runs/(\d+)/artifacts", GitHubApi._left),
    ("GET", r"/actions/artifacts/(\d+)/zip", GitHubApi._archive),
]


class _Api(Handler):
    def _answer(self) -> None:
        owner, request = self.owner, self.received()
        owner.requests.append(request)
        if request.headers.get("authorization") != f"Bearer {owner.token}":
            self.send(401, b'{"message": "Bad credentials"}')
            return
        fault = owner.fault(request.method, request.path)
        status, content = owner.answer(request) if fault is None or fault.done else (0, None)
        if fault is not None and fault.status == 0:
            self.close_connection = True
            self.connection.close()
        elif fault is not None:
            self.send(fault.status, fault.body, fault.headers)
        elif status == 302:
            self.send(302, headers={"location": str(content)})
        else:
            self.send(status, b"" if content is None else json.dumps(content).encode(), {"content-type": "application/json"})

    do_GET = do_POST = do_PATCH = do_DELETE = _answer


class _Store(Handler):
    """The other host, which keeps artifacts and must not see the token."""

    def do_GET(self) -> None:
        request = self.received()
        self.owner.downloads.append(request)
        self.send(200, self.owner.archives[int(request.path.strip("/"))])
