"""Builds the missing parts of the toolchain with Go, into the user's cache.

Files in the cache are always complete: each is made in a folder beside it and moved when it is done. One build runs at a time.
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
    Toolchain,
    definition_sources,
    definitions_file,
    installed,
    parsed,
    tools,
    tools_folder,
    version_of,
)
from stackgraph.graph.wording import counted
from stackgraph.interrupts import ending_cleanly
from stackgraph.presentation.progress import Progress
from stackgraph.problems import Problem, ProblemsFound

_LAST_LINES = 15  # of the output of a failed Go command
_KEPT_DAYS = 60  # without use, then builds of other pins (half a gigabyte each) are removed


@dataclass
class Step:
    """One item that is being built or fetched, with the Go modules downloaded and the packages compiled so far.

    It is the item ``number`` of ``total``.
    """

    name: str
    number: int
    total: int
    modules: int = 0
    packages: int = 0
    started: float = field(default_factory=time.monotonic)
    done: bool = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


Show = Callable[[Step], None]
"""Called several times a second while a step runs, and once when it is done."""


_CPU_MINUTES = 24
"""CPU time of building everything with a fresh Go, measured on two cores in November 2026; KEDA takes 7 of them."""


def provided(*names: str) -> Toolchain:
    """Returns these tools, without names all of them, and builds those that are not on this machine before, with progress."""
    if (found := installed(*names)).absent:
        with Progress() as progress, ending_cleanly():
            progress.keep(_outlook(len(found.absent)))
            build(
                lambda step: (progress.keep if step.done else progress.show)(_state(step)),
                lambda: progress.keep("another build is in progress; waiting for it"),
                names,
            )
    return installed(*names)


def _outlook(items: int) -> str:
    cores = os.cpu_count() or 1
    most = f"at most about {_CPU_MINUTES / cores:.0f} min on {counted(cores, 'core')}, less where Go has built some before"
    return f"{counted(items, 'item')} to make, once: {most}; Ctrl-C keeps what is finished"


def _state(step: Step) -> str:
    counts = [counted(count, what) for count, what in ((step.modules, "module"), (step.packages, "package")) if count]
    state = f"{step.number} of {step.total}, {step.name}: {'done' if step.done else 'building'}"
    return ", ".join([state, *counts, f"{step.seconds:.0f} s"])


def build(show: Show, waiting: Callable[[], None], names: Sequence[str] = ()) -> None:
    """Builds and fetches what is missing of these, by default of all. Starts no program if nothing is.

    Calls ``waiting`` if another build is running, and then waits for it. Raises ``ProblemsFound`` if something cannot be built or
    fetched. ``KeyboardInterrupt`` ends it together with Go and keeps only what was finished.
    """
    if not installed(*names).absent:
        return
    folder = tools_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(folder / "lock", waiting), _work_folder(folder / "unfinished") as unfinished:
            if absent := installed(*names).absent:
                _make(absent, unfinished, show)
                _forget_old(folder)
    except OSError as error:
        message, file = f"cannot use the cache: {error.strerror}", str(error.filename or folder)
        hint = "set XDG_CACHE_HOME to move the cache"
        raise ProblemsFound([Problem(message, file=file, hint=hint)]) from error


def _make(absent: Sequence[str], unfinished: Path, show: Show) -> None:
    wanted = [tools()[name] for name in absent if name != DEFINITIONS]
    sources = definition_sources() if DEFINITIONS in absent else ()
    go = _go(wanted, sources, unfinished)
    # The definitions take a second: without network access they fail at once.
    if sources:
        step = Step(DEFINITIONS, 1, len(absent))
        made = unfinished / DEFINITIONS
        found = [definition for source in sources for definition in _fetched(source, go, unfinished, step, show)]
        made.write_text(json.dumps(found), "utf-8")
        _finish(step, made, definitions_file(), show)
    for number, tool in enumerate(wanted, start=1 + bool(sources)):
        step = Step(f"{tool.name} {tool.group.version}", number, len(absent))
        made = unfinished / tool.name
        go.run(["build", *tool.group.flags, "-v", "-o", str(made), tool.package], tool.group.folder, step, show)
        # The program runs here, and the linker put its version where the program looks for it.
        if (said := version_of(made, tool)) != tool.group.version:
            message = f"{tool.name} was built but does not print its version: {tool.name} {' '.join(tool.asks)}"
            raise ProblemsFound([Problem(message, given=said or "nothing", allowed=tool.group.version)])
        _finish(step, made, tool.built, show)


def _finish(step: Step, made: Path, kept: Path, show: Show) -> None:
    kept.parent.mkdir(exist_ok=True)
    os.replace(made, kept)
    step.done = True
    show(step)


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """Reads a plain ``=``, an operator in the lists of matchers, as a string. YAML 1.1 gives it a special meaning."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def _fetched(source: DefinitionSource, go: "_Go", folder: Path, step: Step, show: Show) -> Iterator[dict[str, Any]]:
    """Yields the definitions of one module after checking the hash of its files."""
    wanted = f"{source.module}@{source.version}"
    module = json.loads(go.run(["mod", "download", "-json", wanted], folder, step, show))
    if module["Sum"] != source.sum:
        raise ProblemsFound([Problem(f"{wanted} does not match its pinned hash", given=module["Sum"], allowed=source.sum)])
    for name in source.files:
        text = (Path(module["Dir"]) / source.folder / f"{name}.yaml").read_bytes()
        yield yaml.load(text, _Loader)


# -- Go --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Go:
    program: str
    temporary: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """The user's environment, with settings that keep the pins, need no C compiler and ignore Go workspaces.

        The compiler collects its garbage less often: a fifth less CPU time for a quarter more memory, 0.6 GB at most.
        """
        ours = {"GOFLAGS": "-mod=readonly", "GO111MODULE": "on", "GOWORK": "off", "CGO_ENABLED": "0", "GOGC": "400"}
        return {**os.environ, **ours, "GOTMPDIR": str(self.temporary)}

    def run(self, arguments: Sequence[str], folder: Path, step: Step, show: Show) -> str:
        """Returns the output. Kills Go before it returns or raises, Ctrl-C included.

        Raises ``ProblemsFound`` with the last lines that Go printed.
        """
        process = subprocess.Popen(
            [self.program, *arguments],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Ctrl-C reaches this process only, which then kills Go and the compilers that Go started.
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
            # Kills the compilers, too. Go's caches survive that, and its temporary files are in our own folder.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for reader in readers:
                reader.join()
        if not process.returncode:
            return "".join(printed)
        # `go mod download -json` reports errors on standard output.
        with contextlib.suppress(ValueError, AttributeError):
            said.append(str(json.loads("".join(printed)).get("Error", "")))
        room = f"free some gigabytes: most in the folders of `go env GOMODCACHE GOCACHE`, the rest in {tools_folder()}"
        hint = room if any("no space left on device" in line for line in said) else ""
        verb = " ".join(arguments[:2]) if arguments[0] == "mod" else arguments[0]
        message = f"{step.name}: `{self.program} {verb}` failed"
        raise ProblemsFound([Problem(message, working=tuple(said[-_LAST_LINES:]), hint=hint)])


def _follow(lines: IO[str], step: Step, said: list[str]) -> None:
    """Counts the modules and packages in Go's progress, and keeps all other lines."""
    for line in lines:
        if line.startswith("go: downloading "):
            step.modules += 1
        elif re.fullmatch(r"[\w./~+-]+\n", line):
            step.packages += 1
        else:
            said.append(line.rstrip())


def _go(wanted: Sequence[Tool], sources: Sequence[DefinitionSource], folder: Path) -> _Go:
    """Returns a Go that is new enough for these tools and sources, or raises ``ProblemsFound``.

    ``folder`` becomes a module that requires this version, so that a Go that can download newer toolchains does so there.
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
    go = _Go(os.path.abspath(program), folder)
    asked = [program, "env", "GOVERSION"]
    done = subprocess.run(asked, cwd=folder, env=go.environment, capture_output=True, text=True, errors="replace", check=False)
    found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    if done.returncode or not found:
        said = tuple(done.stderr.splitlines()[-_LAST_LINES:])
        raise ProblemsFound([Problem(what, given=f"{program} does not print its version", working=said, hint=hint)])
    if tuple(int(number or 0) for number in found.groups()) < parsed(needed):
        raise ProblemsFound([Problem(what, given=f"{program} is {found[0]}", hint=hint)])
    return go


# -- the cache -------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _only_one(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds a file lock, which the kernel releases if this process dies."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """Provides an empty folder on the same disk, without what a killed build left there."""
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
