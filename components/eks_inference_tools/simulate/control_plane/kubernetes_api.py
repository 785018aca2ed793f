"""A small Kubernetes API client. Objects are plain JSON documents, and resources have the names that kubectl uses."""

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
import requests.adapters

from stackgraph.graph.values import joined

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

_Served = tuple[str, str, bool]


class ApiRefusal(Exception):
    """The API server refused a request. ``reason`` and ``message`` are those of its Status (``Invalid``, ``NotFound``)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message

    @property
    def is_race(self) -> bool:
        """Whether the object was deleted (404) or changed (409) in the meantime."""
        return self.status in (404, 409)


class UnknownKind(LookupError):
    """The API server does not serve this kind or resource."""


class Api:
    """Sends requests to one API server as one user. Threads may share it.

    A ``resource`` is ``pods``, ``deployments.apps`` or ``rayservices.ray.io``. Objects carry ``apiVersion`` and ``kind``. An
    empty ``namespace`` stands for a cluster-scoped resource, and in ``list`` for all namespaces.
    """

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        self.url = url
        self._session = requests.Session()
        self._session.trust_env = False  # loopback needs neither proxy nor .netrc
        self._session.verify = str(ca_file)
        self._session.headers["Authorization"] = f"Bearer {token}"
        self._session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=_CONNECTIONS))
        self._lock = threading.Lock()
        self._discovered = 0.0
        # API version, plural name, whether namespaced: by API version and kind, and by resource.
        self._by_kind: dict[tuple[str, str], _Served] = {}
        self._by_resource: dict[str, _Served] = {}

    def close(self) -> None:
        self._session.close()

    def is_answered(self, url: str) -> bool:
        """Whether a component beside the API server answers at all. Waits for one that is slow."""
        try:
            self._session.get(url, headers={"Authorization": ""}, timeout=_TIMEOUT_SECONDS)
        except requests.RequestException:
            return False
        return True

    # -- objects ---------------------------------------------------------------------------------------------------------------

    def apply(self, item: Mapping[str, Any], *, dry_run: bool = False, manager: str = FIELD_MANAGER) -> Object:
        """Applies on the server as ``pulumi up`` does: refuses unknown and duplicate fields, takes over fields in conflict."""
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict", "dryRun": "All" if dry_run else None}
        return self.raw("PATCH", self._path_of(item), item, query=query, content=_PATCHES["apply"])

    def create(self, item: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", "dryRun": "All" if dry_run else None}
        return self.raw("POST", self._path_of(item, collection=True), item, query=query)

    def create_sub(self, item: Mapping[str, Any], subresource: str, body: Mapping[str, Any]) -> Object:
        """Posts to a subresource, such as ``token`` of a ServiceAccount or ``binding`` of a Pod."""
        return self.raw("POST", f"{self._path_of(item)}/{subresource}", body)

    def patch(self, item: Mapping[str, Any], body: Any, *, subresource: str = "", kind: str = "merge") -> Object:
        """Patches an object or a subresource of it. ``kind`` is merge, strategic or json."""
        path = self._path_of(item) + (f"/{subresource}" if subresource else "")
        return self.raw("PATCH", path, body, query={"fieldManager": FIELD_MANAGER}, content=_PATCHES[kind])

    def get(self, resource: str, name: str, namespace: str = "") -> Object | None:
        """Returns the object, or None if it does not exist."""
        try:
            return self.raw("GET", self._path(resource, namespace, name))
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return None
            raise

    def list(self, resource: str, namespace: str = "", **query: str) -> list[Object]:
        """Lists a resource, which is empty while the server does not serve it.

        Every object has the ``apiVersion`` and ``kind`` that servers omit in lists.
        """
        if not self.knows(resource):
            return []
        try:
            found = self.raw("GET", self._path(resource, namespace), query=query)
        except ApiRefusal as refusal:
            if refusal.status == 404:  # its definition has gone since
                return []
            raise
        kind = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        return [{**kind, **item} for item in found.get("items") or ()]

    def delete(self, resource: str, name: str, namespace: str = "", *, propagation: str = "Background", **more: int) -> None:
        """Deletes an object if it exists. ``more`` are further options of a deletion, such as ``gracePeriodSeconds``."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation, **more}
        try:
            self.raw("DELETE", self._path(resource, namespace, name), options)
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise

    # -- discovery -------------------------------------------------------------------------------------------------------------

    def resource_of(self, item: Mapping[str, Any]) -> str:
        """Returns ``deployments.apps`` for a Deployment. Raises ``UnknownKind``."""
        version, plural, _ = self._kind(item)
        return joined(plural, version.rpartition("/")[0], by=".")

    def is_namespaced(self, item: Mapping[str, Any]) -> bool:
        """Whether objects of this kind have a namespace. Raises ``UnknownKind``."""
        return self._kind(item)[2]

    def knows(self, resource: str) -> bool:
        try:
            self._served(self._by_resource, resource, resource)
        except UnknownKind:
            return False
        return True

    def _kind(self, item: Mapping[str, Any]) -> _Served:
        version, kind = item.get("apiVersion", ""), item.get("kind", "")
        return self._served(self._by_kind, (version, kind), f"{kind} of {version}")

    def _served(self, known: Mapping[Any, _Served], key: Any, title: str) -> _Served:
        if key not in known:
            self._discover()
        if key not in known:
            raise UnknownKind(title)
        return known[key]

    def _discover(self) -> None:
        with self._lock:
            if time.monotonic() - self._discovered < _REDISCOVERY_SECONDS:
                return
            for root in ("/api", "/apis"):
                for group in self.raw("GET", root, accept=_DISCOVERY)["items"]:
                    self._note(group)
            self._discovered = time.monotonic()

    def _note(self, group: Mapping[str, Any]) -> None:
        name = group.get("metadata", {}).get("name", "")
        preferred: dict[str, _Served] = {}
        for version in group.get("versions") or ():
            full = f"{name}/{version['version']}" if name else version["version"]
            for resource in version.get("resources") or ():
                served = (full, resource["resource"], resource["scope"] == "Namespaced")
                self._by_kind[full, resource["responseKind"]["kind"]] = served
                preferred.setdefault(joined(served[1], name, by="."), served)  # the server lists its preferred version first
        self._by_resource |= preferred

    # -- requests --------------------------------------------------------------------------------------------------------------

    def _path_of(self, item: Mapping[str, Any], *, collection: bool = False) -> str:
        version, plural, namespaced = self._kind(item)
        metadata = item.get("metadata", {})
        namespace = (metadata.get("namespace") or "default") if namespaced else ""
        return _url_path(version, plural, namespace, "" if collection else metadata["name"])

    def _path(self, resource: str, namespace: str, name: str = "") -> str:
        version, plural, namespaced = self._served(self._by_resource, resource, resource)
        return _url_path(version, plural, namespace if namespaced else "", name)

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str | None] | None = None,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Any:
        """Sends any request. Returns the answer parsed as JSON, or its text if it is not JSON."""
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
            # A server also answers "Too many requests" while it creates the storage of a new definition; of an eviction it says
            # that a budget keeps the pod.
            if answer.status_code != 429 or path.endswith("/eviction") or time.monotonic() > end:
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
