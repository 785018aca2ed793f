"""A Pulumi program with one of its stack files: what every command that looks at a stack begins with."""

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eks_inference.faults import Fault, SpecError, format_path
from eks_inference_tools.interrupts import ending_at_once
from eks_inference_tools.presentation.progress import Progress
from stackgraph.problems import Problem, ProblemsFound, ProgramError
from stackgraph.recorder.garbage_collection import garbage_collection_off
from stackgraph.recorder.project import Document, Project, StackConfig, find_project

if TYPE_CHECKING:
    from eks_inference.stack.spec import StackSpec
    from stackgraph.graph.document import Graph

STACK_KEY = "eks-inference:stack"
"""The configuration key whose value is a ``StackSpec``."""

REGION_KEY = "aws:region"


@dataclass(frozen=True)
class StackProgram:
    """One stack of a project, read but not run."""

    project: Project
    document: Document
    config: StackConfig
    debug: bool = False
    """Whether the traceback of a program that fails is shown, on standard error."""

    @property
    def stack(self) -> str:
        return self.document.path.name.split(".", 1)[1].rpartition(".")[0]

    def spec(self) -> "StackSpec":
        """The stack object. Raises ``ProblemsFound`` with every fault, each with its line."""
        from eks_inference.stack.reading import parse_stack

        try:
            return parse_stack(self.config.values[STACK_KEY])
        except SpecError as error:
            raise ProblemsFound(self.problems(error.faults)) from error

    def record(self, *, strict: bool = False, digest: Callable[[Any], str] | None = None) -> "Graph":
        """Run the program against the recorder. Raises ``ProblemsFound``; faults of the stack object have their line.

        With ``digest`` secrets read ``[secret]`` and carry what the function makes of them.
        """
        from stackgraph.recorder.lazy_sdk import lazy_sdks

        with ending_at_once(), garbage_collection_off(), lazy_sdks():
            return self._record(strict, digest)

    def _record(self, strict: bool, digest: Callable[[Any], str] | None) -> "Graph":
        from stackgraph.recorder.recording import record

        try:
            with Progress() as progress, contextlib.redirect_stdout(sys.stderr):
                graph = record(
                    self.project.main,
                    project=self.project.name,
                    stack=self.stack,
                    config=self.config.values,
                    secret_keys=self.config.secret_keys,
                    strict=strict,
                    root=self.project.root,
                    progress=lambda count: progress.show(f"recording {self.stack}: {count} resources"),
                    digest=digest,
                )
        except ProgramError as error:
            if self.debug and error.__cause__ is not None:
                traceback.print_exception(error.__cause__, file=sys.stderr)
            faults = _faults(error)
            if not faults:
                raise
            raise ProgramError(self.problems(faults)) from error
        for warning in self.config.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        return graph

    def stack_place(self, path: Sequence[str | int]) -> str:
        """A key of the stack object, with its line in the stack file."""
        line = self.document.line(("config", STACK_KEY, *path))
        return f"{self.document.shown}:{line}: {format_path(path)}"

    def problems(self, faults: Iterable[Fault]) -> list[Problem]:
        """Faults of the stack object, each with its line in the stack file."""
        return [
            Problem(
                fault.message,
                file=self.document.shown,
                line=self.document.line(("config",) if fault.config_key else ("config", STACK_KEY, *fault.path)),
                key=fault.config_key or format_path((STACK_KEY, *fault.path)),
                given=fault.given,
                allowed=fault.allowed,
                hint=fault.hint,
                rule=fault.rule,
                working=fault.working,
            )
            for fault in faults
        ]


def programs(stacks: Sequence[str], folder: Path | None = None, *, debug: bool = False) -> Iterator[StackProgram]:
    """The named stacks of the project in or around ``folder`` (default: where the command runs); all of them when none is named.

    Raises ``ProblemsFound`` where there is no such project or stack, or a stack file cannot be read.
    """
    project = project_in(folder)
    names = stacks or project.stacks()
    if not names:
        raise ProblemsFound([Problem("no stack has a file yet", file=str(project.root))])
    return (_read(project, folder is None, name, debug) for name in names)


def program(stack: str | None, folder: Path | None = None, *, debug: bool = False) -> StackProgram:
    """One stack; may be left unnamed when the project has just one."""
    project = project_in(folder)
    names = project.stacks()
    if stack is None and len(names) != 1:
        raise ProblemsFound([Problem("name a stack", allowed=", ".join(names) or "none has a file yet")])
    return _read(project, folder is None, stack or names[0], debug)


def project_in(folder: Path | None) -> Project:
    """The project in or around a folder (default: where the command runs). Raises ``ProblemsFound`` where there is none."""
    if folder is not None and not folder.is_dir():
        allowed = "the folder of a Pulumi Python project, which has a Pulumi.yaml"
        raise ProblemsFound([Problem("there is no such folder", key="--program", given=str(folder), allowed=allowed)])
    return find_project(folder or Path.cwd())


def _read(project: Project, own: bool, stack: str, debug: bool) -> StackProgram:
    document = project.stack_file(stack)
    optional_secrets: Sequence[str] = ()
    if own and project.name == "eks-inference":
        from eks_inference.kubernetes.secrets import CONFIG_SECRETS

        optional_secrets = [f"{project.name}:{name}" for name in CONFIG_SECRETS]
    return StackProgram(project, document, project.config(document, optional_secrets), debug)


def _faults(error: BaseException) -> Sequence[Fault]:
    """The faults of the stack object behind a failure; none when it failed for another reason."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SpecError):
        cause = cause.__cause__
    return cause.faults if cause else ()
