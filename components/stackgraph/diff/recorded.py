"""Reads the answer of a recording process, and caches answers for committed revisions."""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from stackgraph.diff.contents import FindingText
from stackgraph.diff.report import Recorded, StackFile
from stackgraph.graph.document import SEAL, read_graph
from stackgraph.problems import Problem, ProblemsFound

_MOST_KEPT = 200


def read_answer(answer: Any) -> Recorded:
    """The recorded stack of a process's answer. A program may have written anything in its place, which is a problem then."""
    try:
        return _recorded(answer)
    except (ProblemsFound, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        return Recorded(problems=(Problem(f"the recording process gave no valid answer: {error}"),))


def _recorded(answer: Mapping[str, Any]) -> Recorded:
    findings = answer.get("findings")
    if not {"graph", "problems"} & answer.keys():
        raise ValueError("it has neither a graph nor problems")
    return Recorded(
        graph=read_graph(answer["graph"], "answer") if "graph" in answer else None,
        problems=tuple(
            Problem(**{**_texts(problem, "line", "working"), "working": tuple(map(str, problem.get("working", ())))})
            for problem in answer.get("problems", ())
        ),
        findings=None if findings is None else tuple(FindingText(**_texts(finding)) for finding in findings),
        places=_texts(answer.get("places", {})),
        sealed_config=_texts(answer.get("sealedConfig", {})),
        file=StackFile(str(found["path"]), dict(found["config"]), {tuple(path): int(line) for path, line in found["lines"]})
        if (found := answer.get("file"))
        else None,
    )


def _texts(given: Mapping[str, Any], *others: str) -> dict[str, Any]:
    return {key: value if key in others else str(value) for key, value in given.items()}


@dataclass(frozen=True)
class Store:
    """A folder that caches answers for committed revisions.

    It never holds an answer with digests of secrets: those live no longer than one comparison.
    """

    folder: Path

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The answer for a key; None if there is none or it cannot be read."""
        file = self.folder / f"{key}.json"
        try:
            answer = json.loads(file.read_text(encoding="utf-8"))
            os.utime(file)
        except (OSError, ValueError):
            return None
        return answer

    def put(self, key: str, answer: Mapping[str, Any]) -> None:
        """Stores an answer and removes the least recently used ones. If the folder is not writable, does nothing."""
        written = json.dumps(answer)
        if "problems" in answer or json.dumps(SEAL)[:-1] in written:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False, encoding="utf-8") as file:
                file.write(written)
            os.replace(file.name, self.folder / f"{key}.json")
            newest_first = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
            for old in newest_first[_MOST_KEPT:]:
                old.unlink(missing_ok=True)
        except OSError:
            return


def key_of(*parts: str) -> str:
    """A key made of everything an answer depends on: the parts, the interpreter, installed packages, and this package."""
    digest = hashlib.sha256(_environment())
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


@cache
def _environment() -> bytes:
    digest = hashlib.sha256(sys.version.encode())
    digest.update("\n".join(sorted(f"{found.metadata['Name']}=={found.version}" for found in distributions())).encode())
    for file in sorted(Path(__file__).resolve().parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()
