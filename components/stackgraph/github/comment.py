"""Creates, updates and removes one comment on a pull request, which its first line identifies.

GitHub does not display a line ``<!-- … -->``, so it can mark a comment. Since anyone who may comment can write the same line, a
comment counts only if its author is the expected one, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stackgraph.github.api import GitHub, GitHubError


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
