"""Builds what is missing of the toolchain, with Go, into the user's cache.

A file of the cache is whole or not there: all is made in a folder beside it and moved when it is done. One build runs at a time.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from eks_inference_tools.simulate.control_plane.toolchain import (
    DEFINITIONS,
    DefinitionSource,
    Tool,
    definition_sources,
    definitions_file,
    installed,
    parsed,
    tools,
    version_of,
)
from eks_inference_tools.user_cache import user_cache
from stackgraph.problems import Problem, ProblemsFound

_LAST_LINES = 15
"""Lines of a failing Go that are shown."""
_KEPT_DAYS = 60
"""After which what other pins built, and nobody used since, is removed: half a gigabyte each."""


@dataclass
class Step:
    """One thing being made, as far as it is."""

    name: str
    modules: int = 0
    """Go modules downloaded."""
    packages: int = 0
    """Go packages compiled."""
    started: float = field(default_factory=time.monotonic)
    done: bool = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


Show = Callable[[Step], None]
"""Called some times a second while a step is under way, and once when it is done."""


def build(show: Show, waiting: Callable[[], None]) -> None:
    """Builds and fetches all that is missing; nothing is started when nothing is.

    ``waiting`` is called when another build runs, which is then waited for. Raises ``ProblemsFound`` when something cannot be
    made; ``KeyboardInterrupt`` ends it, Go included, and leaves only what was finished.
    """
    if not installed().absent:
        return
    folder = user_cache("tools")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(folder / "lock", waiting), _work_folder(folder / "unfinished") as unfinished:
            if absent := installed().absent:
                _make(absent, unfinished, show)
                _forget_old(folder)
    except OSError as error:
        message, file = f"the cache cannot be used: {error.strerror}", str(error.filename or folder)
        hint = "XDG_CACHE_HOME names another place for caches"
        raise ProblemsFound([Problem(message, file=file, hint=hint)]) from error


def _make(absent: Sequence[str], unfinished: Path, show: Show) -> None:
    wanted = [tools()[name] for name in absent if name != DEFINITIONS]
    sources = definition_sources() if DEFINITIONS in absent else ()
    go = _go(wanted, sources, unfinished)
    # First what takes a second: where nothing can be downloaded, that is known at once.
    if sources:
        step = Step(DEFINITIONS)
        made = unfinished / DEFINITIONS
        found = [definition for source in sources for definition in _fetched(source, go, unfinished, step, show)]
        made.write_text(json.dumps(found), "utf-8")
        _finish(step, made, definitions_file(), show)
    for tool in wanted:
        step = Step(f"{tool.name} {tool.group.version}")
        made = unfinished / tool.name
        go.run(["build", *tool.group.flags, "-v", "-o", str(made), tool.package], tool.group.folder, step, show)
        _try(made, tool)
        _finish(step, made, tool.built, show)


def _try(made: Path, tool: Tool) -> None:
    """It runs here, and the linker put its version where the program looks for it."""
    if (said := version_of(made, tool)) != tool.group.version:
        message = f"{tool.name} was built, but does not tell its version: {tool.name} {' '.join(tool.asks)}"
        raise ProblemsFound([Problem(message, given=said or "nothing", allowed=tool.group.version)])


def _finish(step: Step, made: Path, kept: Path, show: Show) -> None:
    kept.parent.mkdir(exist_ok=True)
    os.replace(made, kept)
    step.done = True
    show(step)


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """The operators of matchers are listed as plain scalars, and one of them, "=", is special to YAML 1.1 only."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def _fetched(source: DefinitionSource, go: "_Go", folder: Path, step: Step, show: Show) -> Iterator[dict[str, Any]]:
    """The definitions of one module, whose files are those that are pinned."""
    wanted = f"{source.module}@{source.version}"
    module = json.loads(go.run(["mod", "download", "-json", wanted], folder, step, show))
    if module["Sum"] != source.sum:
        raise ProblemsFound([Problem(f"{wanted} is not what is pinned", given=module["Sum"], allowed=source.sum)])
    for name in source.files:
        text = (Path(module["Dir"]) / source.folder / f"{name}.yaml").read_bytes()
        yield yaml.load(text, _Loader)


# -- Go --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Go:
    program: str
    temporary: Path

    def run(self, arguments: Sequence[str], folder: Path, step: Step, show: Show) -> str:
        """What it prints. Ends with this process, by Ctrl-C at the latest; raises ``ProblemsFound`` with its last words."""
        process = subprocess.Popen(
            [self.program, *arguments],
            cwd=folder,
            env=_environment(self.temporary),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Ctrl-C is for this process, which then ends Go and the compilers it started.
            start_new_session=True,
        )
        assert process.stdout
        assert process.stderr
        printed: list[str] = []
        said: list[str] = []
        readers = [
            threading.Thread(target=printed.extend, args=(process.stdout,)),
            threading.Thread(target=_follow, args=(process.stderr, step, said)),
        ]
        try:
            for reader in readers:
                reader.start()
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.2)
                    break
                show(step)
        finally:
            _end(process)
            for reader in readers:
                reader.join()
        if process.returncode:
            raise ProblemsFound([_failed(step, self.program, arguments, [*said, *_error_in(printed)])])
        return "".join(printed)


def _follow(lines: IO[str], step: Step, said: list[str]) -> None:
    """Counts what Go tells of its work, and keeps what else it says."""
    for line in lines:
        if line.startswith("go: downloading "):
            step.modules += 1
        elif re.fullmatch(r"[\w./~+-]+\n", line):
            step.packages += 1
        else:
            said.append(line.rstrip())


def _error_in(printed: Sequence[str]) -> list[str]:
    """``go mod download -json`` says on standard output what went wrong."""
    with contextlib.suppress(ValueError, AttributeError):
        return [str(json.loads("".join(printed)).get("Error", ""))]
    return []


def _failed(step: Step, program: str, arguments: Sequence[str], said: Sequence[str]) -> Problem:
    text = "\n".join(said)
    hint = ""
    if "no space left on device" in text:
        hint = (
            f"some gigabytes are needed, most of them where `go env GOMODCACHE GOCACHE` tells, the rest in {user_cache('tools')}"
        )
    verb = " ".join(arguments[:2]) if arguments[0] == "mod" else arguments[0]
    return Problem(f"{step.name}: `{program} {verb}` failed", working=tuple(said[-_LAST_LINES:]), hint=hint)


def _end(process: "subprocess.Popen[str]") -> None:
    """At once, with the compilers: Go's caches can bear it, and its temporary files are in our own folder."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _go(wanted: Sequence[Tool], sources: Sequence[DefinitionSource], folder: Path) -> _Go:
    """Go, new enough for what is to be made. Raises ``ProblemsFound`` otherwise.

    ``folder`` becomes a module that needs as much, so that a Go that fetches newer ones of itself does so there.
    """
    needed = max([tool.group.go for tool in wanted] + [source.go for source in sources], key=parsed)
    names = [DEFINITIONS] * bool(sources) + [tool.name for tool in wanted]
    what = f"Go {needed} or newer is needed for {', '.join(names)}"
    instead = [f"{tool.name} {tool.range}" for tool in wanted]
    hint = "; ".join(["install it from https://go.dev/dl"] + ["or put on PATH: " + "; ".join(instead)] * bool(instead))
    program = shutil.which("go")
    if not program:
        raise ProblemsFound([Problem(what, given="no `go` on PATH", hint=hint)])
    (folder / "go.mod").write_text(f"module eks-inference/tools\n\ngo {needed}\n", "utf-8")
    done = subprocess.run(
        [program, "env", "GOVERSION"],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    if done.returncode or not found:
        said = tuple(done.stderr.splitlines()[-_LAST_LINES:])
        raise ProblemsFound([Problem(what, given=f"{program} could not give one", working=said, hint=hint)])
    if tuple(int(number or 0) for number in found.groups()) < parsed(needed):
        raise ProblemsFound([Problem(what, given=f"{program} is {found[0]}", hint=hint)])
    return _Go(os.path.abspath(program), folder)


def _environment(temporary: Path) -> Mapping[str, str]:
    """That of the user, but that pins are kept, nothing of C is needed, and no workspace around here counts."""
    ours = {"GOFLAGS": "-mod=readonly", "GO111MODULE": "on", "GOWORK": "off", "CGO_ENABLED": "0", "GOTMPDIR": str(temporary)}
    return {**os.environ, **ours}


# -- the cache -------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _only_one(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """The lock ends with the process that has it, however that ends."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """A folder on the same disk, with nothing in it that an earlier build left there when it was killed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _forget_old(folder: Path) -> None:
    used = {definitions_file(), *(tool.built.parent for tool in tools().values())}
    for made in folder.glob(f"*-{'[0-9a-f]' * 16}*"):
        if made not in used and time.time() - made.stat().st_mtime > _KEPT_DAYS * 86_400:
            shutil.rmtree(made) if made.is_dir() else made.unlink()
