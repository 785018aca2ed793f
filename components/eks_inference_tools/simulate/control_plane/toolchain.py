"""Finds the programs and definitions of a simulated control plane: what is pinned, and where it is on this machine.

Programs on PATH are used if their version fits. Everything else comes from the cache that ``tool_build`` fills.
This module builds and fetches nothing, and runs a program only to learn a version that it does not know yet.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eks_inference_tools import COMMAND
from stackgraph.problems import Problem, ProblemsFound, user_cache

BUILD = "make cluster-tools"


def tools_folder() -> Path:
    """Where built tools are kept."""
    return user_cache(COMMAND) / "tools"


"""Builds all of them. A command builds those that it needs (``tool_build.provided``)."""

DEFINITIONS = "definitions"
"""The name that stands for the custom resource definitions where tools are named."""

_HERE = Path(__file__).parent
_VERSION = re.compile(r"(?<![\w.])v?(\d+)\.(\d+)\.(\d+)")

Version = tuple[int, int, int]


# -- what is pinned --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """One of our Go modules, from which programs are built: pins, and for some a main package of ours.

    ``version`` is the one that the programs print, ``go`` the oldest Go that builds them.
    """

    name: str
    module: str
    folder: Path
    version: str
    go: str
    tags: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def key(self) -> str:
        """Names the build folder: differs for other pins, other sources, other flags and other machines."""
        digest = hashlib.sha256(repr((sys.platform, platform.machine(), self.flags)).encode())
        for file in sorted(self.folder.glob("*.*")):
            digest.update(file.read_bytes())
        return f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments for ``go build``."""
        major, minor, _ = self.version.split(".")
        assigned = {name: text.format(version=self.version, major=major, minor=minor) for name, text in self.variables.items()}
        link = " ".join(["-s", "-w", *(f"-X {name}={text}" for name, text in assigned.items())])
        # Debug information would be compiled into each package and then dropped by the linker.
        return ("-trimpath", f"-tags={','.join(self.tags)}", "-gcflags=all=-dwarf=false", f"-ldflags={link}")


@dataclass(frozen=True)
class Tool:
    """A program, and which versions of it may be used. ``asks`` are the arguments that make it print its version."""

    name: str
    group: Group
    package: str
    asks: tuple[str, ...]
    at_least: str
    below: str

    @property
    def built(self) -> Path:
        """The path of the built program. A file there is complete."""
        return tools_folder() / self.group.key / self.name

    @property
    def range(self) -> str:
        """The versions that fit, in words."""
        return f"{self.at_least} or newer, below {self.below}"

    def fits(self, version: str) -> bool:
        """Whether a version may be used; ``""`` is unknown and does not fit."""
        return bool(version) and parsed(self.at_least) <= parsed(version) < parsed(self.below)


@dataclass(frozen=True)
class DefinitionSource:
    """A Go module whose files include custom resource definitions. ``sum`` is their hash in the form of go.sum."""

    name: str
    module: str
    version: str
    sum: str
    go: str
    folder: str
    files: tuple[str, ...]


@cache
def tools() -> Mapping[str, Tool]:
    """Returns all tools by name."""
    table = _table()
    groups = {name: _group(name, row) for name, row in table["groups"].items()}
    return {
        name: Tool(
            name,
            groups[row["group"]],
            row["package"],
            tuple(row["asks"]),
            row["at_least"],
            row.get("below") or f"{parsed(row['at_least'])[0] + 1}.0.0",
        )
        for name, row in table["tools"].items()
    }


@cache
def definition_sources() -> tuple[DefinitionSource, ...]:
    """Returns the modules that the projects' own definitions come from."""
    rows = _table()["definitions"].items()
    return tuple(DefinitionSource(name=name, **row | {"files": tuple(row["files"])}) for name, row in rows)


def definitions_file() -> Path:
    """Returns where the fetched definitions are kept, as one JSON array."""
    digest = hashlib.sha256(json.dumps(_table()["definitions"]).encode())
    return tools_folder() / f"{DEFINITIONS}-{digest.hexdigest()[:16]}.json"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((_HERE / "toolchain.toml").read_text("utf-8"))


def _group(name: str, row: Mapping[str, Any]) -> Group:
    folder = _HERE / "tools" / name
    pins = (folder / "go.mod").read_text("utf-8")
    return Group(
        name=name,
        module=row["module"],
        folder=folder,
        version=row.get("version") or _pinned(pins, row["module"]),
        go=_pinned(pins, "go"),
        tags=tuple(row.get("tags", ())),
        variables=row.get("variables", {}),
    )


def _pinned(pins: str, name: str) -> str:
    """Returns the version of a module, or of Go itself, in the text of a go.mod."""
    found = re.search(rf"^\s*{re.escape(name)} v?(\S+)", pins, re.MULTILINE)
    assert found, name
    return found[1]


def parsed(version: str) -> Version:
    """Returns the numbers of a version, for comparisons."""
    found = _VERSION.search(version)
    assert found, version
    return int(found[1]), int(found[2]), int(found[3])


# -- what is installed ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Toolchain:
    """Which of the requested tools are on this machine."""

    asked: tuple[str, ...]
    paths: Mapping[str, Path]
    versions: Mapping[str, str]

    @property
    def absent(self) -> tuple[str, ...]:
        """The names that were requested and not found."""
        return tuple(name for name in self.asked if name not in self.paths)

    def missing(self) -> str:
        """Returns why this toolchain cannot be used, in one line; ``""`` if it is complete."""
        if not self.absent:
            return ""
        return f"not on this machine: {', '.join(self.absent)}; `{BUILD}` builds what is missing (once, some minutes)"

    def path(self, tool: str) -> Path:
        """Returns the path of a program. Raises ``ProblemsFound`` with the names of everything that is missing."""
        if tool not in self.paths:
            raise ProblemsFound([_missing(self.absent or (tool,))])
        return self.paths[tool]

    def definitions(self) -> tuple[dict[str, Any], ...]:
        """Returns the projects' own CRDs of Karpenter, KEDA and the Prometheus operator.

        Raises ``ProblemsFound`` if they are missing.
        """
        try:
            return tuple(json.loads(definitions_file().read_text("utf-8")))
        except FileNotFoundError:
            raise ProblemsFound([_missing((DEFINITIONS,))]) from None
        except (OSError, ValueError) as error:
            hint = "delete it and run the command again"
            raise ProblemsFound([Problem(f"cannot be read: {error}", file=str(definitions_file()), hint=hint)]) from error


def installed(*names: str) -> Toolchain:
    """Looks for these tools; without names, for all of them and the definitions."""
    asked = names or (*tools(), DEFINITIONS)
    paths: dict[str, Path] = {}
    versions: dict[str, str] = {}
    for name in asked:
        if name == DEFINITIONS:
            if definitions_file().is_file():
                paths[name] = definitions_file()
            continue
        tool = tools()[name]
        for path in _on_path(name):
            version = _known_version(path, tool)
            if tool.fits(version):
                paths[name], versions[name] = path, version
                break
        else:
            if tool.built.is_file():
                paths[name], versions[name] = tool.built, tool.group.version
                with contextlib.suppress(OSError):
                    os.utime(tool.built.parent)  # a later build removes what has long been unused
    return Toolchain(asked, paths, versions)


def _missing(names: Iterable[str]) -> Problem:
    return Problem(f"not on this machine: {', '.join(names)}", hint=f"run `{BUILD}` once; it builds what is missing with Go")


def _on_path(name: str) -> list[Path]:
    """Returns the programs of this name in the order of PATH."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = [Path(folder) / name for folder in folders if os.path.isabs(folder)]
    return [path for path in found if path.is_file() and os.access(path, os.X_OK)]


def version_of(path: Path, tool: Tool) -> str:
    """Runs a program and returns the version it prints, or ``""`` if it prints none."""
    try:
        done = subprocess.run(
            [path, *tool.asks],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=60,  # a machine that has just built it may still be writing
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search(done.stdout) if done.returncode == 0 else None
    return ".".join(found.groups()) if found else ""


def _known_version(path: Path, tool: Tool) -> str:
    """Returns the version of a program on PATH, which is cached until its file changes."""
    cache_file = tools_folder() / "versions.json"
    try:
        known: dict[str, list[Any]] = json.loads(cache_file.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    seen = path.stat()
    mark = [seen.st_mtime_ns, seen.st_size]
    match known.get(str(path)):
        case [*marked, str(version)] if marked == mark:
            return version
    version = version_of(path, tool)
    # A launcher that selects a version remains the same file when it selects another, so its version is not cached.
    if version and tool.name in path.resolve().name:
        with contextlib.suppress(OSError), path.open("rb") as program:
            if program.read(2) != b"#!":
                cache_file.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile("w", dir=cache_file.parent, delete=False, encoding="utf-8") as file:
                    json.dump(known | {str(path): [*mark, version]}, file)
                os.replace(file.name, cache_file)
    return version
