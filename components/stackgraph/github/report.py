"""Reads the report that a run for a pull request left as an artifact. The artifact is untrusted: unreviewed code made it.

The run, its commit and the repository of that commit come from the event, which GitHub wrote. The artifact names the pull
request, which must have that very commit, and has the comparison as data. Its texts are never posted unchanged.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from stackgraph.diff.saved import MOST_BYTES
from stackgraph.github.rest_api import GitHub
from stackgraph.problems import Problem, ProblemsFound

NUMBER, DIFF = "pull-request", "diff.json"
"""The files to read from the artifact: the number of the pull request and the comparison."""

_ARCHIVE_BYTES = 16 << 20
_MOST_FILES = 100
_FILE_BYTES = {NUMBER: 32, DIFF: MOST_BYTES}


@dataclass(frozen=True)
class Run:
    """The run of a ``workflow_run`` event."""

    id: int
    event: str
    head_sha: str
    head_repository: str
    """``owner/name``; empty if it was deleted."""
    url: str

    @property
    def files(self) -> str:
        """The base URL of the commit's files."""
        return f"{self.url.partition('/actions/runs/')[0]}/blob/{self.head_sha}"

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> "Run":
        """The run of an event. Raises ``ProblemsFound`` for any other kind of event."""
        try:
            run = event["workflow_run"]
            repository = (run["head_repository"] or {}).get("full_name", "")
            return cls(int(run["id"]), run["event"], run["head_sha"], repository, run["html_url"])
        except (KeyError, TypeError, ValueError) as error:
            problem = Problem("not the event of a finished run", key="GITHUB_EVENT_PATH", allowed="on: workflow_run")
            raise ProblemsFound([problem]) from error


@dataclass(frozen=True)
class Report:
    """The number of a pull request, and the JSON of a comparison, which may be anything."""

    pull_request: int
    diff: bytes


def left_by(github: GitHub, run: Run, artifact: str) -> Report | None:
    """The report in the artifact of that name; None if the run left none. Raises ``ProblemsFound`` if it is invalid."""
    found = github.get(f"/actions/runs/{run.id}/artifacts", name=artifact, per_page=100)["artifacts"]
    valid = [one for one in found if one["name"] == artifact and not one["expired"]]
    if not valid:
        return None
    # A repeated run has an artifact for each attempt.
    newest = max(valid, key=lambda one: one["id"])
    if newest["size_in_bytes"] > _ARCHIVE_BYTES:
        _refuse(f"has {newest['size_in_bytes']} bytes", allowed=f"at most {_ARCHIVE_BYTES}")
    return read(github.download(f"/actions/artifacts/{newest['id']}/zip", limit=_ARCHIVE_BYTES))


def read(archive: bytes) -> Report | None:
    """The report in a zip archive; None if it has no comparison because that failed."""
    files = _files(archive)
    number = files.get(NUMBER, b"").decode("ascii", "replace").strip()
    if not re.fullmatch(r"[1-9][0-9]{0,9}", number):
        _refuse(f"{NUMBER} is not the number of a pull request", given=repr(number))
    return Report(int(number), files[DIFF]) if DIFF in files else None


def check_pull_request(github: GitHub, run: Run, number: int) -> bool:
    """Whether the run's commit is still the head of the pull request.

    Raises ``ProblemsFound`` if the pull request comes from another repository: the artifact names one that is not its own.
    """
    head = github.get(f"/pulls/{number}")["head"]
    if not run.head_repository or (head["repo"] or {}).get("full_name") != run.head_repository:
        _refuse(f"names pull request {number}, which is not of {run.head_repository or 'a repository that still exists'}")
    return head["sha"] == run.head_sha


def _files(archive: bytes) -> dict[str, bytes]:
    """The known files of the archive, none of them unpacked beyond its size limit."""
    files = {}
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            if len(opened.infolist()) > _MOST_FILES:
                _refuse(f"has more than {_MOST_FILES} files")
            for info in opened.infolist():
                limit = _FILE_BYTES.get(info.filename)
                if limit is None:
                    continue
                if info.filename in files:
                    _refuse(f"has {info.filename} twice")
                # Other methods unpack whole blocks before a limit can stop them.
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    _refuse(f"{info.filename} has a compression method that artifacts do not use")
                with opened.open(info) as file:
                    files[info.filename] = file.read(limit + 1)
                if len(files[info.filename]) > limit:
                    _refuse(f"{info.filename} has more than {limit} bytes")
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        _refuse(f"is not a readable archive: {error}")
    return files


def _refuse(message: str, *, given: str = "", allowed: str = "") -> NoReturn:
    raise ProblemsFound([Problem(message, key="artifact", given=given, allowed=allowed)])
