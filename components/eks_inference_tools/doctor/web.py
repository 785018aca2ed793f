"""Asks public registries and the Hugging Face Hub over HTTPS. Bounded in time, redirects and bytes; sends credentials nowhere
but the token to the Hub."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from eks_inference_tools.doctor.questions import Answer, HubFile, Manifest, Unanswered
from eks_inference_tools.hub import unchanged
from stackgraph.graph.values import text

_SECONDS = (5, 15)
_MOST_BYTES = 64 * 1024
_MOST_REDIRECTS = 3

_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_ADDRESSES = {"docker.io": "https://registry-1.docker.io"}
"""Where a registry answers, if not at its own name (Docker Hub, "Registry API")."""

_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class Web:
    """``addresses`` replaces the addresses of hosts, for mirrors and tests."""

    def __init__(self, token: str = "", addresses: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._addresses = {**_ADDRESSES, **(addresses or {})}

    @property
    def has_token(self) -> bool:
        return bool(self._token)

    def answer(self, asked: Manifest | HubFile) -> Answer:
        """Asks one question. Raises nothing that a server or the network causes."""
        try:
            return self._manifest(asked) if isinstance(asked, Manifest) else self._hub_file(asked)
        except (requests.RequestException, HTTPError, ValueError) as error:
            return Unanswered(f"{asked.shown.partition('/')[0]} did not answer: {type(error).__name__}")

    def _at(self, host: str) -> str:
        return self._addresses.get(host, f"https://{host}")

    def _manifest(self, asked: Manifest) -> Answer:
        """Gets a manifest's headers, with an anonymous token where the registry asks for one (distribution specification)."""
        url = f"{self._at(asked.host)}/v2/{asked.repository}/manifests/{asked.reference}"
        found = _head(url, {"Accept": _ACCEPT})
        if found.status_code == 401 and (token := self._anonymous(asked, found.headers.get("WWW-Authenticate", ""))):
            found = _head(url, {"Accept": _ACCEPT, "Authorization": f"Bearer {token}"})
        if found.status_code == 200:
            return {"digest": found.headers.get("Docker-Content-Digest", "")}
        if found.status_code == 404:
            return None
        if found.status_code in (401, 403):
            return Unanswered("the registry asks for a login: it is private, or does not exist")
        return Unanswered(_status(asked.host, found.status_code))

    def _anonymous(self, asked: Manifest, challenge: str) -> str:
        """A token for anybody, from where the registry says. Empty when it gives none."""
        scheme, _, rest = challenge.partition(" ")
        told = dict(_CHALLENGE.findall(rest))
        realm = told.get("realm", "")
        if scheme.lower() != "bearer" or urlsplit(realm).scheme != urlsplit(self._at(asked.host)).scheme:
            return ""
        given = {"service": told.get("service", ""), "scope": told.get("scope") or f"repository:{asked.repository}:pull"}
        with _session() as session, session.get(realm, params=given, timeout=_SECONDS, auth=unchanged, stream=True) as found:
            body = found.raw.read(_MOST_BYTES, decode_content=True) if found.status_code == 200 else b"{}"
        document: Any = json.loads(body)
        token = (document.get("token") or document.get("access_token")) if isinstance(document, dict) else ""
        return token if isinstance(token, str) and token.isascii() and token.isprintable() else ""

    def _hub_file(self, asked: HubFile) -> Answer:
        """Follows no redirect, so the token goes to no other host."""
        url = f"{self._at('huggingface.co')}/{asked.repository}/resolve/{asked.revision}/config.json"
        found = _head(url, {"Authorization": f"Bearer {self._token}"} if self._token else {}, redirects=False)
        if found.status_code < 400:
            return {"found": True}
        if found.status_code in (401, 403):
            code = text(found.headers.get("X-Error-Code"))
            return {"refused": {"GatedRepo": "its licence was not accepted"}.get(code, code or f"status {found.status_code}")}
        return None if found.status_code == 404 else Unanswered(_status("huggingface.co", found.status_code))


def _head(url: str, headers: Mapping[str, str], *, redirects: bool = True) -> requests.Response:
    with (
        _session() as session,
        session.head(url, headers=dict(headers), timeout=_SECONDS, allow_redirects=redirects, auth=unchanged) as found,
    ):
        return found


def _session() -> requests.Session:
    session = requests.Session()
    session.max_redirects = _MOST_REDIRECTS
    return session


def _status(host: str, status: int) -> str:
    return f"{host} is asked too often: try again later" if status == 429 else f"{host} answered with status {status}"
