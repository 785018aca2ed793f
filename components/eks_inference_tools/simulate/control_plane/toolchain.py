"""The programs and definitions that a simulated control plane is made of: what is pinned, and where it is on this machine.

Programs on PATH are used when their version fits; all else comes from the cache, where ``eks-inference cluster-tools`` puts it.
Nothing is built or fetched here, and no program is started whose version is known already.
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
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from eks_inference_tools.user_cache import user_cache
from stackgraph.problems import Problem, ProblemsFound

COMMAND = "eks-inference cluster-tools"
DEFINITIONS = "definitions"
"""The name under which the custom resource definitions are asked for, beside those of tools."""

_HERE = Path(__file__).parent
_VERSION = re.compile(r"(?<![\w.])v?(\d+)\.(\d+)\.(\d+)")

Version = tuple[int, int, int]


# -- what is pinned --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """A Go module of ours with the programs that are built from it."""

    name: str
    module: str
    folder: Path
    version: str
    """Of its programs, as they print it."""
    go: str
    """The oldest Go that builds it."""
    tags: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def key(self) -> str:
        """Tells apart what is built from other pins, with other flags or for other machines."""
        digest = hashlib.sha256(repr((sys.platform, platform.machine(), self.flags)).encode())
        for file in ("go.mod", "go.sum"):
            digest.update((self.folder / file).read_bytes())
        return f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments of ``go build``."""
        major, minor, _ = self.version.split(".")
        set_ = {name: text.format(version=self.version, major=major, minor=minor) for name, text in self.variables.items()}
        link = " ".join(["-s", "-w", *(f"-X {name}={text}" for name, text in set_.items())])
        return ("-trimpath", f"-tags={','.join(self.tags)}", f"-ldflags={link}")


@dataclass(frozen=True)
class Tool:
    """A program, and the versions of it that may be used."""

    name: str
    group: Group
    package: str
    asks: tuple[str, ...]
    """Arguments that make it say its version."""
    at_least: str
    below: str

    @property
    def built(self) -> Path:
        """Where it is once it is built. A file there is whole."""
        return user_cache("tools") / self.group.key / self.name

    @property
    def range(self) -> str:
        """Versions that fit, in words."""
        return f"{self.at_least} or newer, below {self.below}"

    def fits(self, version: str) -> bool:
        """Whether a version may be used; "" is none."""
        return bool(version) and parsed(self.at_least) <= parsed(version) < parsed(self.below)


@dataclass(frozen=True)
class DefinitionSource:
    """A Go module with custom resource definitions among its files."""

    name: str
    module: str
    version: str
    sum: str
    """The hash of its files, as a go.sum has it."""
    go: str
    folder: str
    files: tuple[str, ...]


@cache
def tools() -> Mapping[str, Tool]:
    """All tools, by name."""
    table = _table()
    groups = {name: _group(name, row) for name, row in table["groups"].items()}
    return {name: _tool(name, groups[row["group"]], row) for name, row in table["tools"].items()}


@cache
def definition_sources() -> tuple[DefinitionSource, ...]:
    """Where the real definitions are from."""
    rows = _table()["definitions"].items()
    return tuple(DefinitionSource(name=name, **row | {"files": tuple(row["files"])}) for name, row in rows)


def definitions_file() -> Path:
    """Where all definitions are once they are fetched, as one JSON array."""
    digest = hashlib.sha256(json.dumps(_table()["definitions"]).encode())
    return user_cache("tools") / f"{DEFINITIONS}-{digest.hexdigest()[:16]}.json"


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


def _tool(name: str, group: Group, row: Mapping[str, Any]) -> Tool:
    below = row.get("below") or f"{parsed(row['at_least'])[0] + 1}.0.0"
    return Tool(name, group, row["package"], tuple(row["asks"]), row["at_least"], below)


def _pinned(pins: str, name: str) -> str:
    """The version that a go.mod gives a module, or Go itself."""
    found = re.search(rf"^\s*{re.escape(name)} v?(\S+)", pins, re.MULTILINE)
    assert found, name
    return found[1]


def parsed(version: str) -> Version:
    """The numbers of a version, to compare it by."""
    found = _VERSION.search(version)
    assert found, version
    return int(found[1]), int(found[2]), int(found[3])


# -- what is there ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passed:
    """A program on PATH that is not used."""

    path: Path
    version: str
    """"" where it says none."""


@dataclass(frozen=True)
class Toolchain:
    """What is on this machine of the tools that were asked for."""

    asked: tuple[str, ...]
    paths: Mapping[str, Path]
    versions: Mapping[str, str]
    passed: Mapping[str, tuple[Passed, ...]] = field(default_factory=dict)
    """Programs of these names on PATH whose version does not fit."""

    @property
    def absent(self) -> tuple[str, ...]:
        """What was asked for and is not there."""
        return tuple(name for name in self.asked if name not in self.paths)

    def missing(self) -> str:
        """Why this cannot be used, in a line; "" when all is there."""
        if not self.absent:
            return ""
        return f"not on this machine: {', '.join(self.absent)}; `{COMMAND}` builds what is missing (once, some minutes)"

    def path(self, tool: str) -> Path:
        """The program.

        Raises ``ProblemsFound`` that names everything that is missing.
        """
        if tool not in self.paths:
            raise ProblemsFound([_missing(self.absent or (tool,))])
        return self.paths[tool]

    def definitions(self) -> tuple[dict[str, Any], ...]:
        """The real CustomResourceDefinitions of Karpenter, KEDA and the Prometheus operator.

        Raises ``ProblemsFound`` when they are not there.
        """
        try:
            return tuple(json.loads(definitions_file().read_text("utf-8")))
        except FileNotFoundError:
            raise ProblemsFound([_missing((DEFINITIONS,))]) from None
        except (OSError, ValueError) as error:
            hint = f"delete it and run `{COMMAND}` again"
            raise ProblemsFound([Problem(f"cannot be read: {error}", file=str(definitions_file()), hint=hint)]) from error


def installed(*names: str) -> Toolchain:
    """What is there of these tools; without names, of all of them and the definitions."""
    asked = names or (*tools(), DEFINITIONS)
    known = _Versions()
    paths: dict[str, Path] = {}
    versions: dict[str, str] = {}
    passed: dict[str, tuple[Passed, ...]] = {}
    for name in asked:
        if name == DEFINITIONS:
            if definitions_file().is_file():
                paths[name] = definitions_file()
            continue
        tool, unfit = tools()[name], []
        for path in _on_path(name):
            version = known.of(path, tool)
            if tool.fits(version):
                paths[name], versions[name] = path, version
                break
            unfit.append(Passed(path, version))
        else:
            if tool.built.is_file():
                paths[name], versions[name] = tool.built, tool.group.version
                _mark_used(tool.built.parent)
        passed[name] = tuple(unfit)
    known.keep()
    return Toolchain(asked, paths, versions, passed)


def _missing(names: Iterable[str]) -> Problem:
    return Problem(f"not on this machine: {', '.join(names)}", hint=f"run `{COMMAND}` once; it builds what is missing with Go")


def _mark_used(folder: Path) -> None:
    """What nobody uses for long is removed by a later build."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def _on_path(name: str) -> list[Path]:
    """Programs of a name, in the order of PATH."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    # /bin is often the same folder as /usr/bin.
    distinct = {os.path.realpath(folder): Path(folder) for folder in reversed(folders) if os.path.isabs(folder)}
    found = [folder / name for folder in reversed(distinct.values())]
    return [path for path in found if path.is_file() and os.access(path, os.X_OK)]


def version_of(path: Path, tool: Tool) -> str:
    """What a program says when it is asked, or "" where that is no version."""
    try:
        done = subprocess.run(
            [path, *tool.asks],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search(done.stdout) if done.returncode == 0 else None
    return ".".join(found.groups()) if found else ""


class _Versions:
    """Versions that programs on PATH say, remembered until the file changes."""

    def __init__(self) -> None:
        self._file = user_cache("tools") / "versions.json"
        try:
            self._known: dict[str, list[Any]] = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            self._known = {}
        self._changed = False

    def of(self, path: Path, tool: Tool) -> str:
        """As ``version_of``, which is asked only when nothing is remembered."""
        seen = path.stat()
        mark = [seen.st_mtime_ns, seen.st_size]
        match self._known.get(str(path)):
            case [*known, str(version)] if known == mark:
                return version
        version = version_of(path, tool)
        # A launcher that chooses among versions stays the same file when it chooses another.
        if version and tool.name in path.resolve().name and not _is_script(path):
            self._known[str(path)] = [*mark, version]
            self._changed = True
        return version

    def keep(self) -> None:
        """Written for the next time. A cache that cannot be written to is no fault."""
        if not self._changed:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._file.parent, delete=False, encoding="utf-8") as file:
                json.dump(self._known, file)
            os.replace(file.name, self._file)
        except OSError:
            return


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True
