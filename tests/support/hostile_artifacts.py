"""Artifacts that the run of a pull request may leave to be posted, by what is wrong with them.

``refused`` is what the job that posts says of one; without it, a comment is posted in which everything of the artifact is inert.
"""

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from comparisons import comparison, planted
from github_api import zipped

FORGED = "f0rged"
"""In every file that nobody has to read."""

SPEECH = (
    *("@org/team", "@dependabot merge", "/lgtm", "    /approve", "\n/merge\n", "\r/retest", "#12", "GH-12", "other/repo#1"),
    *(
        "<!-- ",
        "-->",
        "<!-- sticky -->",
        "<!-- eks-inference diff: shop -->",
        "</details>",
        "</summary>",
        "<script>",
        "<img src=x>",
    ),
    *("~~~", "```", "`````diff", "`", "``", "**", "** x", "_", "*", "\\", "|", "---", "===", "# ", "> [!CAUTION]", "- "),
    *("[x](https://evil.example)", "![x](https://evil.example/x.png)", "https://evil.example", "www.evil.example", "$x$"),
    *("&#64;org", "&lt;b>", "\n\n", " ", "\u2028", "\u202e", "\u200b", "\x00", "\x1b[31m", "\ud800", "::error::x"),
)
"""What a text may try to be, other than a text."""


@dataclass(frozen=True)
class Artifact:
    """A file that somebody forged: an archive, or the files to put into one with the number of the pull request."""

    files: Mapping[str, str | bytes] | Callable[[], bytes]
    refused: str = ""

    def archive(self) -> bytes:
        return self.files() if callable(self.files) else zipped({"pull-request": "12\n", "diff.json": said(), **self.files})


def said(change: Callable[[dict[str, Any]], Any] | None = None) -> str:
    """An honest document, or one that ``change`` makes of it in place."""
    found = comparison()
    if change:
        change(found)
    return json.dumps(found)


def _document(refused: str, change: Callable[[dict[str, Any]], Any]) -> Artifact:
    return Artifact({"diff.json": said(change)}, refused)


def _speaking(*texts: str) -> Artifact:
    return Artifact({"diff.json": json.dumps(planted("".join(texts)))})


def _stack(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda found: found["stacks"][0].update(values)


def _resource(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda found: found["stacks"][0]["resources"][0].update(values)


def _told(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda found: found["stacks"][0]["resources"][0]["told"].update(values)


def _named(*names: str) -> Callable[[dict[str, Any]], Any]:
    """Resources of these names that change alike, so that one line lists them."""

    def change(found: dict[str, Any]) -> None:
        (stack,) = found["stacks"]
        (one,) = stack["resources"]
        stack["resources"] = [{**one, "told": {**one["told"], "name": name}} for name in names]

    return change


def _comment(ending: str) -> Artifact:
    """A finished comment, as a job that trusted it would post it."""
    return Artifact({"comment.md": f"<!-- eks-inference diff -->\n{FORGED}: all is well\n{ending}"})


def _twice() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        # The second name is changed afterwards, because writing a name twice warns.
        for name in ("pull-request", "diff.json", "diff.jsoN"):
            opened.writestr(name, "12" if name == "pull-request" else said())
    return archive.getvalue().replace(b"diff.jsoN", b"diff.json")


def _bzip2() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_BZIP2) as opened:
        opened.writestr("diff.json", said())
    return archive.getvalue()


def _broken() -> bytes:
    whole = zipped({"pull-request": "12", "diff.json": said()})
    return whole[:60] + b"\0" * 20 + whole[80:]


_DEEP = "[" * 200 + "]" * 200
_UNREADABLE, _SHAPE = "is not JSON in UTF-8", "not what belongs here"

ARTIFACTS: Mapping[str, Artifact] = {
    # Archives
    "no archive": Artifact(lambda: b"not a zip", "not a readable archive"),
    "a broken archive": Artifact(_broken, "not a readable archive"),
    "bzip2": Artifact(_bzip2, "a compression method that artifacts do not use"),
    "a file twice": Artifact(_twice, "has diff.json twice"),
    "thousands of files": Artifact({str(number): "" for number in range(200)}, "has more than 100 files"),
    "a bomb": Artifact({"diff.json": b" " * (9 << 20)}, "diff.json has more than 8388608 bytes"),
    "a long number": Artifact({"pull-request": "1" * (1 << 10)}, "pull-request has more than 32 bytes"),
    # The number of the pull request
    "no number": Artifact({"pull-request": ""}, "is not the number of a pull request"),
    "number 0": Artifact({"pull-request": "0"}, "is not the number of a pull request"),
    "an octal number": Artifact({"pull-request": "012"}, "is not the number of a pull request"),
    "a command as number": Artifact({"pull-request": "12; rm -rf /"}, "is not the number of a pull request"),
    "two numbers": Artifact({"pull-request": "12\n13"}, "is not the number of a pull request"),
    "a path as number": Artifact({"pull-request": "../../12"}, "is not the number of a pull request"),
    "a huge number": Artifact({"pull-request": "9" * 11}, "is not the number of a pull request"),
    "digits of another script": Artifact({"pull-request": "١٢"}, "is not the number of a pull request"),
    "a negative number": Artifact({"pull-request": "-1"}, "is not the number of a pull request"),
    # Documents that are none
    "an empty document": Artifact({"diff.json": ""}, _UNREADABLE),
    "no text": Artifact({"diff.json": b'{"a": "\xff"}'}, _UNREADABLE),
    "a list": Artifact({"diff.json": "[]"}, "allowed: an object"),
    "null": Artifact({"diff.json": "null"}, "allowed: an object"),
    "a bottomless document": Artifact({"diff.json": "[" * 100_000}, _UNREADABLE),
    "a deep value": _document("in one another", _resource(properties=[{"path": "a", "after": json.loads(_DEEP)}])),
    "a long integer": Artifact({"diff.json": "1" * 10_000}, _UNREADABLE),
    "a million values": Artifact({"diff.json": f"[{'0,' * 1_000_000}0]"}, "has more than 300000 values"),
    "a key twice": Artifact({"diff.json": said().replace('"notes"', '"headline"')}, "has a key twice"),
    # Documents of another shape
    "an old document": Artifact({"diff.json": '{"schema": 1, "changed": true, "failed": []}'}, "stacks: missing"),
    "another schema": _document("unsupported schema", lambda found: found.update(schema=2)),
    "another project": Artifact({"diff.json": json.dumps(comparison(project="shop"))}, "is of another project"),
    "an unknown key": _document("unknown key", lambda found: found.update({"\n::error::x": 1})),
    "true for one": _document(_SHAPE, _stack(opaque=True)),
    "a negative count": _document(_SHAPE, _stack(opaque=-1)),
    "infinitely many": _document(_SHAPE, _stack(opaque=float("inf"))),
    "an unheard-of change": _document(_SHAPE, _resource(kind="explode")),
    "a stack named by markup": _document(_SHAPE, _stack(stack="x | y <!-- ")),
    "a stack without a name": _document(_SHAPE, _stack(stack="")),
    "a stack twice": _document("none of them twice", lambda found: found["stacks"].append(found["stacks"][0])),
    "a file elsewhere": _document(_SHAPE, _resource(file="../../../../evil/repo/blob/x")),
    "an absolute file": _document(_SHAPE, _resource(file="//evil.example/x")),
    "a line of code that is none": _document(_SHAPE, _told(lines=["** </details> @org/team"])),
    "a line number that is none": _document(_SHAPE, _resource(source="a.py:1) @org/team")),
    "a text as list": _document(_SHAPE, _told(notes="@org/team")),
    "a long text": _document("at most 20000 characters", _told(name="x" * 30_000)),
    # Comments that somebody else wrote
    "a comment of its own": _comment(""),
    "a comment that hides what follows": _comment("<!-- "),
    "a comment with an open fence": _comment("~~~"),
    "a comment with another project's mark": Artifact({"comment.md": f"<!-- eks-inference diff: shop -->\n{FORGED}"}),
    "a comment with another bot's mark": Artifact({"comment.md": f"<!-- sticky -->\n{FORGED}"}),
    "a page": Artifact({"report.html": f"<script>{FORGED}</script>", "../../evil.py": FORGED}),
    # Texts that are something else
    "a forged headline and mark": _document("", lambda found: found.update(headline=FORGED, marker=f"<!-- {FORGED} -->")),
    "forged figures": _document("", _stack(changed=False, status="failed", summary={"delete": 0})),
    "mentions": _speaking("@org/team @someone"),
    "a bot's order": _speaking("@dependabot merge"),
    "commands": _speaking("/lgtm", "\n/approve\n", "    /merge"),
    "another bot's mark": _speaking("<!-- sticky -->"),
    "an open comment": _speaking("<!-- "),
    "open fences": _speaking("```\n~~~\n````diff"),
    "markup": _speaking("</details></summary><script>alert(1)</script><img src=x>"),
    "links and images": _speaking("[x](https://evil.example) ![x](https://evil.example/x.png) www.evil.example"),
    "references to issues": _speaking("#12 GH-12 other/repo#1 https://github.com/other/repo/issues/1"),
    "escapes of a terminal and directions": _speaking("\x1b[31m\u202e\u2066\x07\x00"),
    "half a character": _speaking("\ud800"),
    "mathematics": _speaking("$\\color{white}x$ $$y$$"),
    "code that begins in one name and ends in another": _document("", _named("", "<img src=x> ` [x](https://evil.example)")),
    "a table and an alert": _speaking("| a | b |\n|---|---|\n> [!CAUTION]\n> x"),
}
