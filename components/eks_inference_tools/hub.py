"""Reads what a repository on the Hugging Face Hub or a mirror says about its model. Bounded in time, redirects and bytes.

HF_ENDPOINT and HF_TOKEN are read as huggingface_hub reads them. The token goes to that host and to no other. Whatever the Hub
answers becomes a problem that a user can act on.

Source: huggingface.co/docs/hub/api and huggingface_hub 1.x (file_download.py: resolve URLs, X-Repo-Commit, X-Error-Code).
"""

import json
import os
import re
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any, NoReturn
from urllib.parse import quote, urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError

from eks_inference.catalog.config_json import LONGEST
from eks_inference.catalog.models import HUB, config_at
from stackgraph.graph.values import table
from stackgraph.problems import Problem, ProblemsFound

ENDPOINT_VARIABLE, TOKEN_VARIABLE = "HF_ENDPOINT", "HF_TOKEN"
SECONDS = 30
"""For everything that is read of a repository."""
_MOST_REDIRECTS = 3
_MOST_INDEX = 32 << 20
"""The largest index of weights that is read; that of DeepSeek-V3 has 9 MB."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Described:
    """What a repository says of its model at one commit."""

    commit: str
    config: bytes
    """Its config.json as it is there, and in it what hf_quant_config.json says of its weights."""
    weight_bytes: int | None
    """The size of its weights, where the Hub itself has an index of them."""
    embeds: bool
    """Whether sentence-transformers reads it, which vLLM takes as well for a model that makes embeddings (modules.json)."""


def described(repository: str, revision: str = "main") -> Described:
    """Returns what the Hub says. Raises ``ProblemsFound`` for everything else that can come."""
    answer: Future[Described] = Future()

    def ask() -> None:
        try:
            answer.set_result(_Repository(repository).at(revision))
        except BaseException as error:
            answer.set_exception(error)

    # A server that sends a byte now and then never runs into a timeout of its socket.
    Thread(target=ask, daemon=True).start()
    try:
        return answer.result(SECONDS)
    except TimeoutError:
        _refuse(f"{_endpoint()} has not answered within {SECONDS} s", repository, "try again", revision)


class _Repository:
    def __init__(self, name: str) -> None:
        self._name, self._base = name, _endpoint()
        self._token = os.environ.get(TOKEN_VARIABLE, "").strip()
        try:
            place = urlsplit(self._base)
        except ValueError:  # brackets that do not close
            place = urlsplit("")
        if place.scheme not in ("http", "https") or not place.hostname or any(one in self._base for one in "@?#"):
            # What stands before "@" or behind "?" may be a secret.
            shown = re.sub(r".*@|[?#].*", "…", self._base, flags=re.DOTALL)[:200]
            hint = f"set {ENDPOINT_VARIABLE} to one, as {HUB}; the token is in {TOKEN_VARIABLE}"
            _refuse("this is not the address of a Hub", name, hint, given=shown)
        if not (self._token.isascii() and self._token.isprintable()):
            _refuse(f"{TOKEN_VARIABLE} has characters that no token has", name, "give it the token alone")

    def at(self, revision: str) -> Described:
        config, commit = self._file("config.json", revision, LONGEST)
        if config is None:
            hint = "name a repository in the format of transformers, or write a row of your own (docs/models.md)"
            _refuse("the repository has no config.json at this revision", self._name, hint, revision)
        pinned = revision if _COMMIT.fullmatch(revision) else commit
        if not _COMMIT.fullmatch(pinned):
            _refuse(f"{self._base} does not say which commit it gave", self._name, "name a commit with --revision", revision)
        config = self._quantized(config, pinned)
        index, _ = self._file("model.safetensors.index.json", pinned, _MOST_INDEX)
        modules, _ = self._file("modules.json", pinned, LONGEST)
        return Described(pinned, config, _total(index), modules is not None)

    def _quantized(self, config: bytes, commit: str) -> bytes:
        """A config.json with what ModelOpt says in a file of its own, as the engine reads both (vLLM, ``get_config``)."""
        said = _object(config)
        if said is None or said.get("quantization_config"):
            return config
        found = _object(self._file("hf_quant_config.json", commit, LONGEST)[0])
        return config if found is None else json.dumps({**said, "quantization_config": found}, indent=2).encode()

    def _file(self, file: str, revision: str, most: int) -> tuple[bytes | None, str]:
        """A file and its commit; no file where the repository has none of this name."""
        url, commit = f"{self._base}/{self._name}/resolve/{quote(revision, safe='')}/{file}", ""
        headers = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {self._token}"} if self._token else {})}
        try:
            with requests.Session() as session:
                for _ in range(_MOST_REDIRECTS + 1):
                    with session.get(
                        url, headers=headers, timeout=(5, 10), allow_redirects=False, auth=unchanged, stream=True
                    ) as found:
                        commit = found.headers.get("X-Repo-Commit", commit)
                        if not found.is_redirect:
                            return self._content(found, file, revision, most), commit
                        url = urljoin(url, found.headers["Location"])
                        if urlsplit(url)[:2] != urlsplit(self._base)[:2]:
                            if most == _MOST_INDEX:  # the Hub keeps files of more than 10 MB elsewhere
                                return None, commit
                            hint = f"download the file from {config_at(self._name)} and give it with --config"
                            _refuse(
                                f"{self._base} leads to another host, which is not asked",
                                self._name,
                                hint,
                                urlsplit(url).hostname or "",
                            )
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            hint = f"look at {ENDPOINT_VARIABLE}, HTTPS_PROXY and the network; or give the file with --config"
            _refuse(f"{self._base} cannot be read: {type(error).__name__}", self._name, hint, file)
        _refuse(f"{self._base} leads from one address to the next", self._name, "try again", file)

    def _content(self, found: requests.Response, file: str, revision: str, most: int) -> bytes | None:
        status, code = found.status_code, found.headers.get("X-Error-Code", "")
        page = f"{HUB}/{self._name}"
        if status == 404 and code in ("", "EntryNotFound"):
            return None
        if code == "GatedRepo":
            who = "your token may not read" if self._token else "without a token you cannot read"
            _refuse(f"{who} this gated repository", self._name, f"accept its licence on {page} and set {TOKEN_VARIABLE}")
        if code == "RevisionNotFound":
            _refuse("the repository has no such revision", self._name, f"look at {page}/commits", revision)
        if status in (401, 403, 404):
            what = "the token may not read it" if self._token else f"it is private, and {TOKEN_VARIABLE} has no token"
            _refuse(f"the Hub has no such repository, or {what}", self._name, "correct the name; case counts")
        if status == 429:
            _refuse(f"{self._base} is asked too often", self._name, f"try again later, or set {TOKEN_VARIABLE}")
        if status != 200:
            _refuse(f"{self._base} answered with status {status}", self._name, "try again later", file)
        content = found.raw.read(most + 1)
        if len(content) > most:
            _refuse(f"{file} is larger than {most >> 20} MiB", self._name, "give a config.json with --config", file)
        return content


def _endpoint() -> str:
    return (os.environ.get(ENDPOINT_VARIABLE) or HUB).rstrip("/")


def _object(file: bytes | None) -> dict[str, Any] | None:
    """The JSON object in a file; None for anything else."""
    try:
        found: Any = json.loads(file or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _total(index: bytes | None) -> int | None:
    size = table((_object(index) or {}).get("metadata")).get("total_size")
    return int(size) if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < 1 << 50 else None


def unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keeps requests from adding credentials of ~/.netrc."""
    return request


def _refuse(message: str, repository: str, hint: str, given: str = "") -> NoReturn:
    raise ProblemsFound([Problem(message, key=repository, given=given, hint=hint)])
