"""Loads one stack of a Pulumi project and records its program. Every command that examines a stack starts here."""

import faulthandler
import gc
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import eks_inference
from eks_inference.faults import Fault, SpecError, format_path
from eks_inference_tools.interrupts import ending_at_once
from eks_inference_tools.presentation.output import stdout_kept
from eks_inference_tools.presentation.progress import Progress
from stackgraph.problems import Problem, ProblemsFound, ProgramError, printable
from stackgraph.recorder.answers import NO_ANSWERS, Answers, Given, read_answers
from stackgraph.recorder.bounded_yaml import compose
from stackgraph.recorder.garbage_collection import garbage_collection_off
from stackgraph.recorder.project import DEFAULT_STACK, Document, Project, StackConfig, encrypted, find_project
from stackgraph.recorder.yaml_file import shown_path

if TYPE_CHECKING:
    from eks_inference.stack.spec import StackSpec
    from stackgraph.graph.document import Graph

_LIBRARY = str(Path(eks_inference.__file__).parent)
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")})


def problems_of_program(error: SpecError, root: Path) -> list[Problem]:
    """The faults of a program, each at the line that called the library and with what it made: ``Vpc 'net': zone_ids``."""
    file, line, made = "", 0, ""
    for frame, number in _frames(error):
        path = frame.f_code.co_filename
        if path.startswith(_LIBRARY):
            made = made or _made(frame)
        elif not path.startswith((*_INSTALLED, "<")):
            file, line, made = shown_path(Path(path), root), number, ""
    return [
        Problem(
            fault.message,
            file=file,
            line=line,
            key=": ".join(filter(None, (made, format_path(fault.path) or fault.config_key))),
            given=fault.given,
            allowed=fault.allowed,
            hint=fault.hint,
            rule=fault.rule,
            working=fault.working,
        )
        for fault in error.faults
    ]


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames of an error, the outermost first. An error that was raised anew continues with the one it stands for."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and (cause is error or isinstance(cause, SpecError)) and id(cause) not in seen:
        seen.add(id(cause))
        yield from traceback.walk_tb(cause.__traceback__)
        cause = cause.__cause__


def _made(frame: FrameType) -> str:
    """What a call of the library makes: ``ManagedPool 'gpu'`` or ``ManagedPoolSpec``. Empty for a plain function."""
    known = frame.f_locals
    cls = known.get("cls", type(known["self"]) if "self" in known else None)
    if not isinstance(cls, type):
        return ""
    name = known.get("name", next(iter(known.get("given", ())), known.get("named", {}).get("name")))
    return f"{cls.__name__} '{name}'" if isinstance(name, str) else cls.__name__


STACK_KEY = "eks-inference:stack"
"""The configuration key of the stack object, a ``StackSpec``."""

SILENCED_KEY = "eks-inference:silenced"
"""The configuration key that silences rules in a program without a stack object: ids → reasons."""

REGION_KEY = "aws:region"
PROFILE_KEY = "aws:profile"


@dataclass(frozen=True)
class StackProgram:
    """One stack of a project, loaded but not run."""

    project: Project
    document: Document
    config: StackConfig
    debug: bool = False
    """Whether to print the traceback of a failing program to standard error."""
    answers: Answers = NO_ANSWERS
    """What the functions of providers give, where a file says it."""

    @property
    def stack(self) -> str:
        return self.document.path.name.split(".", 1)[1].rpartition(".")[0]

    def spec(self) -> "StackSpec | None":
        """Parses the stack object; None when the stack has none. Raises ``ProblemsFound`` with every fault and its line."""
        if STACK_KEY not in self.config.values:
            return None

        from eks_inference.stack.reading import parse_stack

        try:
            return parse_stack(self.config.values[STACK_KEY], self.project.root)
        except SpecError as error:
            raise ProblemsFound(self.problems(error.faults)) from error

    def silenced(self, spec: "StackSpec | None") -> Mapping[str, str]:
        """Returns the rules that the stack silences, with the reasons. Raises ``ProblemsFound`` for another shape."""
        if spec or SILENCED_KEY not in self.config.values:
            return spec.silenced if spec else {}
        from eks_inference.specs.settings import SharedSettings

        given = self.config.values[SILENCED_KEY]
        try:
            return SharedSettings.model_validate_json(f'{{"silenced": {given}}}').silenced
        except SpecError as error:
            allowed = "an object: ids of rules, each with a reason of a few words, e.g. {AWS001: behind a VPN}"
            fault = Fault((), "not a list of silenced rules", given=given, allowed=allowed, config_key=SILENCED_KEY)
            raise ProblemsFound(self.problems([fault])) from error

    def silenced_path(self, spec: "StackSpec | None") -> tuple[str, ...]:
        """Where the stack file silences rules."""
        return ("config", STACK_KEY, "silenced") if spec else ("config", SILENCED_KEY)

    def record(self, *, strict: bool = False, digest: Callable[[Any], str] | None = None, needs_files: bool = False) -> "Graph":
        """Runs the program against the recorder and returns its graph.

        Secrets read ``[secret]``; with ``digest`` each also carries the digest that the function returns for its value. With
        ``strict`` outputs stay unknown, as in the engine; with ``needs_files``, files of assets must exist. Raises
        ``ProblemsFound``; faults of the stack object have their line.
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
                        progress=lambda count: progress.show(f"recording {self.stack}: {count} resources"),
                        digest=digest,
                        answers=self.answers,
                        needs_files=needs_files,
                    )
                # Modules and graph live until the command ends. Collecting garbage among them would take a third of a preview.
                gc.freeze()
        except ProgramError as error:
            if self.debug and error.__cause__ is not None:
                sys.stderr.write(printable("".join(traceback.format_exception(error.__cause__)), keep="\n"))
            if faults := _faults_of_stack_file(error):
                raise ProgramError(self.problems(faults)) from error
            if isinstance(error.__cause__, SpecError) and error.__cause__.faults:
                raise ProgramError(problems_of_program(error.__cause__, self.project.root)) from error
            raise
        for warning in self.config.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        return graph

    def stack_place(self, path: Sequence[str | int]) -> str:
        """``file:line: key`` of a key of the stack object."""
        line = self.document.line(("config", STACK_KEY, *path))
        return f"{self.document.shown}:{line}: {format_path(path)}"

    def problems(self, faults: Iterable[Fault]) -> list[Problem]:
        """Turns faults of the stack object into problems with their lines in the stack file."""
        return [
            Problem(
                fault.message,
                file=self.document.shown,
                line=self.document.line(("config", *((fault.config_key,) if fault.config_key else (STACK_KEY, *fault.path)))),
                key=fault.config_key or format_path((STACK_KEY, *fault.path)),
                given=fault.given,
                allowed=fault.allowed,
                hint=fault.hint,
                rule=fault.rule,
                working=fault.working,
            )
            for fault in faults
        ]


def programs(
    stacks: Sequence[str], folder: Path | None = None, *, debug: bool = False, answers: Sequence[Given] = ()
) -> Iterator[StackProgram]:
    """Loads the named stacks, or all stacks, of the project in or above ``folder`` (default: the working directory).

    ``answers`` are results of provider functions and values of the configuration. Raises ``ProblemsFound`` when the project or a
    stack does not exist, or a file cannot be read.
    """
    names, read = _reader(stacks, folder, debug, answers)
    return map(read, names)


def readable(
    stacks: Sequence[str], folder: Path | None = None, *, debug: bool = False, answers: Sequence[Given] = ()
) -> tuple[list[StackProgram], list[Problem]]:
    """Loads stacks like ``programs``, and returns the problems of those that cannot be loaded."""
    names, read = _reader(stacks, folder, debug, answers)
    found, problems = [], []
    for name in names:
        try:
            found.append(read(name))
        except ProblemsFound as error:
            problems += error.problems
    return found, problems


def _reader(
    stacks: Sequence[str], folder: Path | None, debug: bool, answers: Sequence[Given]
) -> tuple[Sequence[str], Callable[[str], StackProgram]]:
    """The names of the stacks, and what loads one."""
    project = project_in(folder)
    known = read_answers(*answers)
    names = [project.stack_named(one) for one in stacks] or project.stacks() or [DEFAULT_STACK]
    return names, lambda name: _read(project, folder is None, name, debug, known)


def program(stack: str | None, folder: Path | None = None, *, debug: bool = False, answers: Sequence[Given] = ()) -> StackProgram:
    """Loads one stack. ``stack`` may be None when the project has at most one."""
    if stack is None:
        names = project_in(folder).stacks()
        if len(names) > 1:
            raise ProblemsFound([Problem("name a stack", allowed=", ".join(names))])
    return next(programs([stack] if stack else [], folder, debug=debug, answers=answers))


def project_in(folder: Path | None) -> Project:
    """Finds the project in or above ``folder`` (default: the working directory). Raises ``ProblemsFound`` when there is none."""
    if folder is not None and not os.path.isdir(folder):
        allowed = "the folder of a Pulumi Python project, which has a Pulumi.yaml"
        raise ProblemsFound([Problem("there is no such folder", key="--program", given=str(folder), allowed=allowed)])
    return find_project(folder or Path.cwd())


def unwritten(project: Project, stack: str, text: str, secrets: Collection[str] = ()) -> StackProgram:
    """A stack whose file nobody has written yet, as it would be read once ``secrets`` are set: keys of its configuration.

    Raises ``ProblemsFound`` like ``programs``.
    """
    path, node = project.stack_dir / f"Pulumi.{stack}.yaml", compose(text)
    document = Document(path, shown_path(path, project.root), node.plain(), dict(node.lines()))
    found = _loaded(project, True, document)
    values = {**found.config.values, **{key: f"<secret {key}>" for key in secrets}}
    return replace(found, config=replace(found.config, values=values, secret_keys=found.config.secret_keys | {*secrets}))


def _read(project: Project, own: bool, stack: str, debug: bool, answers: Answers) -> StackProgram:
    return _loaded(project, own, project.stack_file(stack, answers.config), debug, answers)


def _loaded(project: Project, own: bool, document: Document, debug: bool = False, answers: Answers = NO_ANSWERS) -> StackProgram:
    optional_secrets: Sequence[str] = ()
    if own and project.name == "eks-inference":
        from eks_inference.kubernetes.secrets import CONFIG_SECRETS

        optional_secrets = [f"{project.name}:{name}" for name in CONFIG_SECRETS]
    config = project.config(document, optional_secrets, answers.config)
    if STACK_KEY in config.secret_keys:
        given = document.data["config"]
        keys = given.keys() & {STACK_KEY, STACK_KEY.removeprefix(f"{project.name}:")}
        hint = f"each is a key of its own: pulumi config set --secret {project.name}:NAME"
        raise ProblemsFound(
            [
                document.problem("a stack object holds no secrets", "config", *path, key=format_path(path), hint=hint)
                for key in sorted(keys)
                for path in encrypted(given, key)
            ]
        )
    return StackProgram(project, document, config, debug, answers)


def _faults_of_stack_file(error: ProgramError) -> Sequence[Fault]:
    """The faults of the stack object that caused an error: those that ``InferencePlatform.from_config`` reports."""
    reported = error.__cause__
    faulty = reported.__cause__ if reported else None
    return faulty.faults if isinstance(faulty, SpecError) and not isinstance(reported, SpecError) else ()
