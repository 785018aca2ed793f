"""One comment on a pull request, found again by its first line.

GitHub shows a line ``<!-- … -->`` to nobody, so it can mark whose comment it is. Whoever may write comments may write the same
line: a comment counts only when its author is the expected one too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stackgraph.github.api import GitHub, GitHubError

LONGEST_BODY = 65_536
"""Characters of a comment; the API answers a longer one with "Body is too long (maximum is 65536 characters)"."""


@dataclass(frozen=True)
class Outcome:
    """What was done; ``url`` is the comment's page where there is one now."""

    done: Literal["created", "updated", "unchanged", "removed", "absent"]
    url: str = ""


def length(text: str) -> int:
    """Characters as GitHub may count them: UTF-16 code units are never fewer than any other kind but bytes."""
    return len(text.encode("utf-16-le")) // 2


def put(github: GitHub, pull_request: int, body: str, *, author: str) -> Outcome:
    """Makes the author's comment whose first line is that of ``body``, or changes it to ``body``."""
    existing = _own(github, pull_request, body, author)
    if not existing:
        return Outcome("created", _create(github, pull_request, body, author)["html_url"])
    first, *others = existing
    _remove(github, others)
    if _same(first["body"], body):
        return Outcome("unchanged", first["html_url"])
    github.patch(f"/issues/comments/{first['id']}", {"body": body})
    return Outcome("updated", first["html_url"])


def remove(github: GitHub, pull_request: int, marker: str, *, author: str) -> Outcome:
    """Removes the author's comments whose first line is ``marker``."""
    existing = _own(github, pull_request, marker, author)
    _remove(github, existing)
    return Outcome("removed" if existing else "absent")


def _create(github: GitHub, pull_request: int, body: str, author: str) -> Any:
    path = f"/issues/{pull_request}/comments"
    try:
        return github.post(path, {"body": body})
    except GitHubError as error:
        if 400 <= error.status < 500:
            raise
        # It may have been made all the same: a second one would stay for ever.
        made = _own(github, pull_request, body, author)
        return made[0] if made else github.post(path, {"body": body})


def _own(github: GitHub, pull_request: int, body: str, author: str) -> list[Any]:
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


def _same(one: str, other: str) -> bool:
    return one.replace("\r\n", "\n").strip() == other.strip()
