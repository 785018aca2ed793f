"""A small client of a Kubernetes API server: objects are plain JSON documents, resources are named as kubectl names them."""

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
import requests.adapters

FIELD_MANAGER = "eks-inference"

_TIMEOUT_SECONDS = 30
_CONNECTIONS = 16
_REDISCOVERY_SECONDS = 0.5
_RETRY_SECONDS = 0.2
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PATCHES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}

Object = dict[str, Any]


class ApiRefusal(Exception):
    """The API server said no. ``reason`` is its word (``Invalid``, ``Forbidden``, ``NotFound``), ``message`` its sentence."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class UnknownKind(LookupError):
    """The API server serves no such kind or resource."""


class Api:
    """Requests to one API server as one user. May be used by several threads at once.

    A ``resource`` is written ``pods``, ``deployments.apps``, ``rayservices.ray.io``; an object says what it is by ``apiVersion``
    and ``kind``. An empty ``namespace`` means a resource of the cluster, or in ``list`` all namespaces.
    """

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        self.url = url
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy and no .netrc for loopback
        self._session.verify = str(ca_file)
        self._session.headers["Authorization"] = f"Bearer {token}"
        self._session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=_CONNECTIONS))
        self._lock = threading.Lock()
        self._asked = 0.0
        self._by_kind: dict[tuple[str, str], tuple[str, bool]] = {}
        self._by_resource: dict[str, tuple[str, str, bool]] = {}

    def close(self) -> None:
        self._session.close()

    # -- objects ---------------------------------------------------------------------------------------------------------------

    def apply(self, item: Mapping[str, Any], *, dry_run: bool = False, manager: str = FIELD_MANAGER) -> Object:
        """Server-side apply as ``pulumi up`` does it: unknown and doubled fields are refused, conflicts are won."""
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self._request("PATCH", self._path_of(item), item, query=query, content=_PATCHES["apply"])

    def create(self, item: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self._request("POST", self._path_of(item, collection=True), item, query=query)

    def create_sub(self, item: Mapping[str, Any], subresource: str, body: Mapping[str, Any]) -> Object:
        """Posts to a subresource of an object: ``token`` of a ServiceAccount, ``binding`` of a Pod."""
        return self._request("POST", f"{self._path_of(item)}/{subresource}", body)

    def patch(self, item: Mapping[str, Any], body: Any, *, subresource: str = "", kind: str = "merge") -> Object:
        """Patches an object; ``kind`` is merge, strategic or json."""
        path = self._path_of(item) + (f"/{subresource}" if subresource else "")
        return self._request("PATCH", path, body, query={"fieldManager": FIELD_MANAGER}, content=_PATCHES[kind])

    def get(self, resource: str, name: str, namespace: str = "") -> Object | None:
        """The object; None when there is none."""
        try:
            return self._request("GET", self._path(resource, namespace, name))
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return None
            raise

    def list(self, resource: str, namespace: str = "", **query: str) -> list[Object]:
        """Objects of a resource, with ``apiVersion`` and ``kind``, which the server leaves out of lists; empty for one it does
        not serve (yet).
        """
        if not self.knows(resource):
            return []
        found = self._request("GET", self._path(resource, namespace), query=query)
        kind = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        return [{**kind, **item} for item in found.get("items") or ()]

    def delete(self, resource: str, name: str, namespace: str = "", *, propagation: str = "Background") -> None:
        """Deletes an object; it is no error when it is gone already."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        try:
            self._request("DELETE", self._path(resource, namespace, name), options)
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise

    def raw(self, method: str, path: str, body: Any = None) -> Any:
        """Any request; the answer as JSON, or as text where it is none."""
        return self._request(method, path, body)

    # -- discovery -------------------------------------------------------------------------------------------------------------

    def resource_of(self, item: Mapping[str, Any]) -> str:
        """``deployments.apps`` for a Deployment. Raises ``UnknownKind``."""
        version, _, _ = self._kind(item)
        group = version.rpartition("/")[0]
        return self._by_kind[version, item["kind"]][0] + (f".{group}" if group else "")

    def is_namespaced(self, item: Mapping[str, Any]) -> bool:
        """Whether objects of that kind are in a namespace. Raises ``UnknownKind``."""
        return self._kind(item)[2]

    def knows(self, resource: str) -> bool:
        try:
            self._resource(resource)
        except UnknownKind:
            return False
        return True

    def _kind(self, item: Mapping[str, Any]) -> tuple[str, str, bool]:
        key = (item.get("apiVersion", ""), item.get("kind", ""))
        if key not in self._by_kind:
            self._discover()
        if key not in self._by_kind:
            raise UnknownKind(f"{key[1]} of {key[0]}")
        return (key[0], *self._by_kind[key])

    def _resource(self, resource: str) -> tuple[str, str, bool]:
        if resource not in self._by_resource:
            self._discover()
        if resource not in self._by_resource:
            raise UnknownKind(resource)
        return self._by_resource[resource]

    def _discover(self) -> None:
        with self._lock:
            if time.monotonic() - self._asked < _REDISCOVERY_SECONDS:
                return
            for root in ("/api", "/apis"):
                groups = self._request("GET", root, accept=_DISCOVERY)
                for group in groups["items"]:
                    self._note(group)
            self._asked = time.monotonic()

    def _note(self, group: Mapping[str, Any]) -> None:
        name = group.get("metadata", {}).get("name", "")
        known: set[str] = set()
        for version in group.get("versions") or ():
            full = f"{name}/{version['version']}" if name else version["version"]
            for resource in version.get("resources") or ():
                plural, namespaced = resource["resource"], resource["scope"] == "Namespaced"
                self._by_kind[full, resource["responseKind"]["kind"]] = (plural, namespaced)
                if plural not in known:  # the first version is the one the server prefers
                    self._by_resource[f"{plural}.{name}" if name else plural] = (full, plural, namespaced)
                    known.add(plural)

    # -- requests --------------------------------------------------------------------------------------------------------------

    def _path_of(self, item: Mapping[str, Any], *, collection: bool = False) -> str:
        version, plural, namespaced = self._kind(item)
        metadata = item.get("metadata", {})
        namespace = (metadata.get("namespace") or "default") if namespaced else ""
        return _url_path(version, plural, namespace, "" if collection else metadata["name"])

    def _path(self, resource: str, namespace: str, name: str = "") -> str:
        version, plural, namespaced = self._resource(resource)
        return _url_path(version, plural, namespace if namespaced else "", name)

    def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Any:
        end = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            answer = self._session.request(
                method,
                self.url + path,
                params=query,
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": content, "Accept": accept},
                timeout=_TIMEOUT_SECONDS,
            )
            # "Too many requests" is also what a server says of a definition whose storage it is still making.
            if answer.status_code != 429 or time.monotonic() > end:
                break
            time.sleep(_RETRY_SECONDS)
        if answer.status_code >= 400:
            raise _refusal(answer)
        try:
            return answer.json()
        except ValueError:
            return answer.text


def _url_path(version: str, plural: str, namespace: str, name: str) -> str:
    parts = ["apis" if "/" in version else "api", version]
    parts += ["namespaces", quote(namespace, safe="")] if namespace else []
    parts += [plural] + ([quote(name, safe="")] if name else [])
    return "/" + "/".join(parts)


def _refusal(answer: requests.Response) -> ApiRefusal:
    try:
        status = answer.json()
        return ApiRefusal(answer.status_code, status.get("reason", ""), status.get("message", ""))
    except (ValueError, AttributeError):
        return ApiRefusal(answer.status_code, answer.reason, answer.text.strip())
