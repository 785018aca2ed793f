"""Loads one stack of a Pulumi project and records its program. Every command that examines a stack starts here."""

import faulthandler
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stackgraph.graph.wording import counted
from stackgraph.interrupts import ending_at_once
from stackgraph.presentation.output import stdout_kept, tell
from stackgraph.presentation.progress import Progress
from stackgraph.problems import Problem, ProblemsFound, ProgramError, printable
from stackgraph.recorder.answers import NO_ANSWERS, Answers, Given, read_answers
from stackgraph.recorder.process import garbage_collection_off
from stackgraph.recorder.project import DEFAULT_STACK, Document, Project, StackConfig, find_project

if TYPE_CHECKING:
    from stackgraph.graph.document import Graph


@dataclass(frozen=True)
class Program:
    """One stack of a project, loaded but not run.

    The commands of a library derive theirs: one that knows the library's configuration (``loaded``) and errors (``explained``).
    """

    project: Project
    document: Document
    config: StackConfig
    debug: bool = False
    """Whether to print the traceback of a failing program to standard error."""
    answers: Answers = NO_ANSWERS
    """What the functions of providers give, where a file says it."""

    @classmethod
    def loaded(
        cls, project: Project, document: Document, *, own: bool = True, debug: bool = False, answers: Answers = NO_ANSWERS
    ) -> Self:
        """A stack whose file has been read. ``own``: the project is that around the working directory, not one that was named."""
        return cls(project, document, project.config(document, (), answers.config), debug, answers)

    @classmethod
    def several(
        cls, stacks: Sequence[str], folder: Path | None = None, *, debug: bool = False, answers: Sequence[Given] = ()
    ) -> Iterator[Self]:
        """Loads the named stacks, or all stacks, of the project in or above ``folder`` (default: the working directory).

        ``answers`` are results of provider functions and values of the configuration. Raises ``ProblemsFound`` when the project
        or a stack does not exist, or a file cannot be read.
        """
        names, read = cls._reader(stacks, folder, debug, answers)
        return map(read, names)

    @classmethod
    def readable(
        cls, stacks: Sequence[str], folder: Path | None = None, *, debug: bool = False, answers: Sequence[Given] = ()
    ) -> tuple[list[Self], list[Problem]]:
        """Loads stacks like ``several``, and returns the problems of those that cannot be loaded."""
        names, read = cls._reader(stacks, folder, debug, answers)
        programs, problems = [], []
        for name in names:
            try:
                programs.append(read(name))
            except ProblemsFound as error:
                problems += error.problems
        return programs, problems

    @classmethod
    def one(cls, stack: str | None, folder: Path | None = None, *, debug: bool = False, answers: Sequence[Given] = ()) -> Self:
        """Loads one stack. ``stack`` may be None when the project has at most one."""
        if stack is None:
            names = project_in(folder).stacks()
            if len(names) > 1:
                raise ProblemsFound([Problem("name a stack", allowed=", ".join(names))])
        return next(cls.several([stack] if stack else [], folder, debug=debug, answers=answers))

    @classmethod
    def _reader(
        cls, stacks: Sequence[str], folder: Path | None, debug: bool, answers: Sequence[Given]
    ) -> tuple[Sequence[str], Callable[[str], Self]]:
        """The names of the stacks, and what loads one."""
        project, known = project_in(folder), read_answers(*answers)

        def read(name: str) -> Self:
            document = project.stack_file(name, known.config)
            return cls.loaded(project, document, own=folder is None, debug=debug, answers=known)

        return [project.stack_named(name) for name in stacks] or project.stacks() or [DEFAULT_STACK], read

    @property
    def stack(self) -> str:
        return self.document.path.name.split(".", 1)[1].rpartition(".")[0]

    def explained(self, error: ProgramError) -> ProgramError:
        """The error of a program that failed, in words of the library that it uses."""
        return error

    def record(self, *, strict: bool = False, digest: Callable[[Any], str] | None = None, needs_files: bool = False) -> "Graph":
        """Runs the program against the recorder and returns its graph.

        Secrets read ``[secret]``; with ``digest`` each also carries the digest that the function returns for its value. With
        ``strict`` outputs stay unknown, as in the engine; with ``needs_files``, files of assets must exist. Raises
        ``ProblemsFound``; faults of the stack file have their line.
        """
        from stackgraph.recorder.lazy_sdk import lazy_sdks

        try:
            with ending_at_once(), garbage_collection_off(), lazy_sdks():
                from stackgraph.recorder.recording import record

                # Where a crash of the program ends the process, Python still tells the line.
                faulthandler.enable(2, all_threads=False)
                with Progress() as progress, stdout_kept():
                    graph = record(
                        self.project.main,
                        project=self.project.name,
                        stack=self.stack,
                        config=self.config.values,
                        secret_keys=self.config.secret_keys,
                        strict=strict,
                        root=self.project.root,
                        progress=lambda count: progress.show(f"recording {self.stack}: {counted(count, 'resource')}"),
                        digest=digest,
                        answers=self.answers,
                        needs_files=needs_files,
                    )
                # Modules and graph live until the command ends. Collecting garbage among them would take a third of a preview.
                gc.freeze()
        except ProgramError as error:
            if self.debug and error.__cause__ is not None:
                sys.stderr.write(printable("".join(traceback.format_exception(error.__cause__)), keep="\n"))
            if (explained := self.explained(error)) is not error:
                raise explained from error
            raise
        for warning in self.config.warnings:
            tell(f"warning: {warning}")
        return graph


def project_in(folder: Path | None) -> Project:
    """Finds the project in or above ``folder`` (default: the working directory). Raises ``ProblemsFound`` when there is none."""
    if folder is not None and not os.path.isdir(folder):
        allowed = "the folder of a Pulumi Python project, which has a Pulumi.yaml"
        raise ProblemsFound([Problem("there is no such folder", key="--program", given=str(folder), allowed=allowed)])
    return find_project(folder or Path.cwd())
