"""A client for the parts of GitHub's REST API that a comment needs, and the one comment on a pull request, which its first line
identifies.

Sources: GitHub's documents "Rate limits for the REST API", "Best practices for using the REST API" and "REST API endpoints for
issue comments".
"""

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from itertools import count
from typing import Any, Literal
from urllib.parse import urlencode

from stackgraph.problems import Problem, ProblemsFound

_API_VERSION = "2022-11-28"
_TIMEOUT_S = 30
_ATTEMPTS = 4
_LONGEST_WAIT_S = 120
_SECONDARY_LIMIT_WAIT_S = 60
"""The shortest wait, in GitHub's documentation, after a response that names none."""

_PAGE_SIZE = 100
_JSON_BYTES = 16 << 20

_HINTS = {
    401: "the token is invalid or has expired",
    403: "the job needs `pull-requests: write` for comments and `actions: read` for artifacts",
    404: "it does not exist, or the token may not see it",
}


class GitHubError(ProblemsFound):
    """GitHub refused a request, or could not be reached. ``status`` is the HTTP status, 0 without a response."""

    def __init__(self, problem: Problem, status: int = 0) -> None:
        super().__init__([problem])
        self.status = status


@dataclass(frozen=True)
class _Answer:
    """A response. With ``status`` 0 there was none, and ``body`` says why."""

    status: int
    headers: Message
    body: bytes

    @property
    def said(self) -> str:
        """The message of the response, on one line."""
        try:
            content = json.loads(self.body)
            details = (item.get("message") if isinstance(item, dict) else item for item in content.get("errors") or ())
            text = "; ".join(str(part) for part in (content.get("message"), *details) if part)
        except (ValueError, AttributeError, TypeError):
            text = self.body.decode("utf-8", "replace")
        return " ".join(text.split())[:300]


class GitHub:
    """One repository. ``url`` is the base of the API (``GITHUB_API_URL``), ``repository`` its ``owner/name``.

    Retries after temporary failures (5xx, no connection) and rate limits, at most three times, waiting two minutes at most.
    ``sleep`` and ``clock`` are for tests. Raises ``GitHubError``, which never contains the token.
    """

    def __init__(
        self,
        url: str,
        repository: str,
        token: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # Any other character breaks the header, and Python's error message would show the token.
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise GitHubError(Problem("not a token: it is empty or contains blanks", key="GITHUB_TOKEN"))
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
            raise GitHubError(Problem("not a repository", key="GITHUB_REPOSITORY", given=repr(repository), allowed="OWNER/NAME"))
        if not url.startswith(("https://", "http://")):
            raise GitHubError(Problem("not a URL", key="GITHUB_API_URL", given=repr(url), allowed="https://…"))
        self._base = f"{url.rstrip('/')}/repos/{repository}"
        self._token = token
        self._sleep = sleep
        self._clock = clock

    def get(self, path: str, **query: Any) -> Any:
        """An object of the repository. ``path`` is relative to the repository's."""
        return self.send("GET", f"{path}?{urlencode(query)}" if query else path)

    def pages(self, path: str) -> Iterator[Any]:
        """Every entry of a list, page after page."""
        for number in count(1):
            page = self.get(path, per_page=_PAGE_SIZE, page=number)
            yield from page
            if len(page) < _PAGE_SIZE:
                return

    def delete(self, path: str) -> None:
        """Deletes an object. Succeeds if it does not exist."""
        try:
            self._exchange("DELETE", path)
        except GitHubError as error:
            if error.status != 404:
                raise

    def download(self, path: str, *, limit: int) -> bytes:
        """A file of at most ``limit`` bytes. Follows redirects to other hosts."""
        return self._exchange("GET", path, limit=limit)

    def send(self, method: str, path: str, content: Any = None) -> Any:
        """The JSON of the response. Does not retry a POST if it is unclear whether GitHub carried it out."""
        body = self._exchange(method, path, content)
        try:
            return json.loads(body)
        except ValueError as error:
            raise GitHubError(Problem(f"{method} {path}: the response is not JSON", key="GitHub")) from error

    def _exchange(self, method: str, path: str, content: Any = None, *, limit: int = _JSON_BYTES) -> bytes:
        attempt = 1
        while not 200 <= (answer := self._once(method, path, content, limit)).status < 300:
            wait = self._wait(method, answer, attempt)
            if wait is None or wait > _LONGEST_WAIT_S or attempt == _ATTEMPTS:
                raise self._refused(method, path, answer, wait, attempt)
            self._sleep(wait)
            attempt += 1
        if len(answer.body) > limit:
            raise GitHubError(Problem(f"{method} {path}: the response has more than {limit} bytes", key="GitHub"))
        return answer.body

    def _once(self, method: str, path: str, content: Any, limit: int) -> _Answer:
        headers = {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": _API_VERSION,
            "User-Agent": "stackgraph",
        }
        data = None
        if content is not None:
            data = json.dumps(content).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self._base + path, data, headers, method=method)
        # Artifacts redirect to another host, which must not get the token.
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                    return _Answer(answer.status, answer.headers, answer.read(limit + 1))
            except urllib.error.HTTPError as error:
                with error:
                    return _Answer(error.code, error.headers, error.read(limit))
        except (OSError, http.client.HTTPException) as error:
            return _Answer(0, Message(), str(getattr(error, "reason", "") or error or type(error).__name__).encode())

    def _wait(self, method: str, answer: _Answer, attempt: int) -> float | None:
        """Seconds to wait before a retry; None if a retry would get the same response."""
        if answer.status in (403, 429):
            if (after := answer.headers.get("Retry-After", "")).isdecimal():
                return int(after)
            if answer.headers.get("X-RateLimit-Remaining") == "0":
                reset = answer.headers.get("X-RateLimit-Reset", "")
                return max(int(reset) - self._clock(), 0) + 1 if reset.isdecimal() else _SECONDARY_LIMIT_WAIT_S
            if answer.status == 429 or "rate limit" in answer.said.lower():
                return _SECONDARY_LIMIT_WAIT_S * 2 ** (attempt - 1)
        if (answer.status == 0 or answer.status >= 500) and method != "POST":
            return 2 ** (attempt - 1)
        return None

    def _refused(self, method: str, path: str, answer: _Answer, wait: float | None, attempt: int) -> GitHubError:
        said = answer.said.replace(self._token, "***")
        tried = f" ({attempt} attempts)" if attempt > 1 else ""
        if answer.status in (403, 429) and wait is not None:
            hint = f"a rate limit that resets in {wait:.0f} s; run the job again then"
        elif answer.status == 0 or answer.status >= 500:
            hint = "run the job again later"
        else:
            hint = _HINTS.get(answer.status, "")
        message = f"{method} {path.partition('?')[0]}: {answer.status or 'no response'}: {said}{tried}"
        return GitHubError(Problem(message, key="GitHub", hint=hint), answer.status)


# GitHub does not display a line ``<!-- … -->``, so it can mark a comment. Since anyone who may comment can write the same line, a
# comment counts only if its author is the expected one, too.


@dataclass(frozen=True)
class Outcome:
    """What was done. ``url`` is the address of the comment, if there is one now."""

    done: Literal["created", "updated", "unchanged", "removed", "absent"]
    url: str = ""


def put(github: GitHub, pull_request: int, body: str, *, author: str) -> Outcome:
    """Creates the author's comment with the first line of ``body``, or updates it to ``body``."""
    existing = _own(github, pull_request, body, author)
    if not existing:
        return Outcome("created", _create(github, pull_request, body, author)["html_url"])
    first, *others = existing
    _remove(github, others)
    if first["body"].replace("\r\n", "\n").strip() == body.replace("\r\n", "\n").strip():
        return Outcome("unchanged", first["html_url"])
    github.send("PATCH", f"/issues/comments/{first['id']}", {"body": body})
    return Outcome("updated", first["html_url"])


def remove(github: GitHub, pull_request: int, marker: str, *, author: str) -> Outcome:
    """Removes the author's comments whose first line is ``marker``."""
    existing = _own(github, pull_request, marker, author)
    _remove(github, existing)
    return Outcome("removed" if existing else "absent")


def _create(github: GitHub, pull_request: int, body: str, author: str) -> Any:
    path = f"/issues/{pull_request}/comments"
    try:
        return github.send("POST", path, {"body": body})
    except GitHubError as error:
        if 400 <= error.status < 500:
            raise
        # GitHub may have created the comment all the same, and nothing would ever remove a second one.
        made = _own(github, pull_request, body, author)
        return made[0] if made else github.send("POST", path, {"body": body})


def _own(github: GitHub, pull_request: int, body: str, author: str) -> list[Any]:
    """The author's comments with the same first line as ``body``."""
    return [
        comment
        for comment in github.pages(f"/issues/{pull_request}/comments")
        if (comment["user"] or {}).get("login") == author and _first_line(comment["body"]) == _first_line(body)
    ]


def _remove(github: GitHub, comments: Sequence[Any]) -> None:
    for comment in comments:
        github.delete(f"/issues/comments/{comment['id']}")


def _first_line(text: str | None) -> str:
    return (text or "").lstrip().partition("\n")[0].strip()
