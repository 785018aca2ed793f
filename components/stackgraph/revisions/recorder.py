"""A child process of ``diff`` that records stacks at one revision.

It reads its request from standard input, as JSON, and writes a line of JSON to standard output for each stack: its name and its
answer. The recorder is that of the running command. Everything else in the repository is imported from the revision: the program,
and packages that are installed from folders of the repository.
"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from stackgraph.diff.report import ENCRYPTED
from stackgraph.graph.document import sealed
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.program import Program
from stackgraph.recorder.project import encrypted, full_key, without_secrets
from stackgraph.recorder.yaml_file import Document
from stackgraph.side_by_side import Ended, can_fork, side_by_side


@dataclass(frozen=True)
class Reader:
    """How a revision's stacks are read. A library with rules has a module of its own, whose ``main`` gives another reader."""

    program: type[Program] = Program
    packages: tuple[str, ...] = ()
    """Packages of that library. Where they are installed from the repository, they are imported from the revision."""
    findings: Callable[[Any, Any], list[dict[str, str]] | None] = lambda stack, graph: []
    """The findings of the revision's rules about a stack and its graph, by the fields of ``FindingText``; None: unknown."""


ANY_PROGRAM = Reader()


def main(reader: Reader = ANY_PROGRAM) -> None:
    asked = json.loads(sys.stdin.read())
    # Nothing that the program or a child process of it prints gets into the answers, also not after the recording.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        for answer in record_all(asked, reader):
            print(json.dumps(answer), file=answers, flush=True)
    # Threads that the program left running must not delay the comparison.
    os._exit(0)


def record_all(asked: Mapping[str, Any], reader: Reader) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Records stacks and yields their names and answers.

    ``asked`` has ``root``, the repository; ``tree``, the folder with the revision's files; ``folder``, the project's path in it;
    ``stacks``; ``own``, whether --program was left out; ``debug``, whether to print tracebacks to standard error; ``answers``,
    rows of answers; and ``key``, the hexadecimal HMAC key of secrets.

    The first stack is recorded here, and the others in processes that start with the modules that it loaded. Where there can be
    no such processes, the answer has the first stack only.
    """
    root, tree = Path(asked["root"]), Path(asked["tree"])
    if tree != root:
        _use_revision(root, tree, reader.packages)
    os.chdir(tree / asked["folder"])
    first, *others = asked["stacks"]
    yield first, record(asked, first, reader)
    if others and can_fork():
        found = side_by_side(lambda stack: record(asked, stack, reader), others)
        for stack, answer in zip(others, found, strict=True):
            failed = {"problems": [{"message": f"the recording process failed: {answer}"}]}
            yield stack, failed if isinstance(answer, Ended) else answer


def record(asked: Mapping[str, Any], name: str, reader: Reader) -> dict[str, Any]:
    """Records one stack and returns ``graph``, ``findings``, ``places``, ``sealedConfig`` and ``file``, or only ``problems``."""
    tree = Path(asked["tree"])
    folder = tree / asked["folder"]
    try:
        stack = _stack(asked, name, folder, reader.program)
        encrypted = _encrypted(stack)
        digest = _digest(bytes.fromhex(asked["key"]), encrypted)
        graph = stack.record(digest=digest)
    except ProblemsFound as error:
        return {"problems": [_problem(problem, tree) for problem in error.problems]}
    except Exception as error:
        if asked["debug"]:
            traceback.print_exc()
        return {"problems": [{"message": f"{type(error).__name__}: {error}"}]}
    document = sealed(graph.document() | {"warnings": list(graph.warnings)})
    sources = {resource.source.rpartition(":")[0] for resource in graph.resources if resource.source}
    return {
        "graph": document,
        "findings": reader.findings(stack, graph),
        "places": _places(sources, tree, stack.project.root),
        "sealedConfig": {key: hashlib.sha256(text.encode()).hexdigest() for key, text in encrypted.items()},
        "file": _stack_file(stack.document, tree),
    }


def _use_revision(root: Path, tree: Path, packages: Iterable[str]) -> None:
    """Redirects imports of packages installed from the repository to the revision. Modules of the recorder stay loaded."""
    site = Path(sys.prefix).resolve()
    for number, entry in enumerate(sys.path):
        path = Path(entry).resolve()
        if path.is_relative_to(root) and not path.is_relative_to(site) and not _is_ignored(root, path):
            sys.path[number] = str(tree / path.relative_to(root))
    for package in packages:
        ours = Path(str(sys.modules[package].__file__)).resolve()
        if ours.is_relative_to(root) and not ours.is_relative_to(site):
            for name in [name for name in sys.modules if name.partition(".")[0] == package]:
                del sys.modules[name]


def _stack(asked: Mapping[str, Any], name: str, folder: Path, program: type[Program]) -> Program:
    """Loads the stack with the revision's library, or as any other project when that library has another layout."""
    try:
        return program.one(name, None if asked["own"] else folder, debug=asked["debug"], answers=asked["answers"])
    except ImportError:
        return program.one(name, folder, debug=asked["debug"], answers=asked["answers"])


def _is_ignored(root: Path, path: Path) -> bool:
    """Whether git ignores a folder. It then holds installed packages, and no revision has it."""
    return subprocess.run(["git", "-C", str(root), "check-ignore", "--quiet", str(path)], check=False).returncode == 0


def _encrypted(stack: Program) -> dict[str, str]:
    """The encrypted values of the stack file by configuration key."""
    config = (stack.document.data or {}).get("config") or {}
    found = {full_key(str(key), stack.project.name): [*encrypted(config, key)] for key in config}
    return {
        str(key): "\n".join(str(reduce(getitem, path, config)["secure"]) for path in paths)
        for key, paths in found.items()
        if paths
    }


def _stack_file(document: Document, tree: Path) -> dict[str, Any] | None:
    """The configuration of the stack file, with the line of every key. Encrypted values are left to ``sealedConfig``."""
    path = document.path.resolve()
    if not path.is_relative_to(tree) or not path.is_file():
        return None
    lines = [(list(steps[1:]), line) for steps, line in document.lines.items() if steps[:1] == ("config",)]
    return {
        "path": str(path.relative_to(tree)),
        "config": without_secrets((document.data or {}).get("config") or {}, ENCRYPTED),
        "lines": lines,
    }


def _digest(key: bytes, encrypted: Mapping[str, str]) -> Callable[[Any], str]:
    """Returns the function that makes HMAC digests of secrets, so that they can be compared without being stored.

    The key exists only in the processes of one comparison. A configuration secret is recorded as a placeholder, so its encrypted
    value enters the digest instead.
    """

    def digest(value: Any) -> str:
        written = json.dumps(value, sort_keys=True, default=str)
        written = re.sub(r"<secret ([^>\s]+)>", lambda found: f"{found[0]}{encrypted.get(found[1], '')}", written)
        return hmac.new(key, written.encode(), hashlib.sha256).hexdigest()

    return digest


def _places(sources: set[str], tree: Path, project: Path) -> dict[str, str]:
    """Maps source files to their paths in the repository. Leaves out files that are not in it."""
    bases = [project, *(Path(entry) for entry in sys.path if entry)]
    found = {}
    for source in sources:
        for base in bases:
            file = (base / source).resolve()
            if file.is_relative_to(tree) and file.is_file():
                found[source] = str(file.relative_to(tree))
                break
    return found


def _problem(problem: Problem, tree: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        problem = Problem(**{**problem.__dict__, "file": str(Path(problem.file).relative_to(tree))})
    return {**problem.__dict__, "working": list(problem.working)}


if __name__ == "__main__":
    main()
