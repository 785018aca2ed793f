"""One stack of a Pulumi project as the commands load it: its stack object, and the faults that the library finds in it."""

import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

import eks_inference
from eks_inference.faults import Fault, SpecError, format_path
from stackgraph.problems import Problem, ProblemsFound, ProgramError
from stackgraph.program import Program
from stackgraph.recorder.answers import NO_ANSWERS, Answers
from stackgraph.recorder.bounded_yaml import compose
from stackgraph.recorder.project import Document, Project, encrypted
from stackgraph.recorder.yaml_file import shown_path

if TYPE_CHECKING:
    from eks_inference.stack.spec import StackSpec

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
        Problem.of(fault, file, line, ": ".join(filter(None, (made, format_path(fault.path) or fault.config_key))))
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
class StackProgram(Program):
    """One stack of a project, loaded but not run, as the program of a team that may have a stack object."""

    @classmethod
    def loaded(
        cls, project: Project, document: Document, *, own: bool = True, debug: bool = False, answers: Answers = NO_ANSWERS
    ) -> Self:
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
        found = cls(project, document, config, debug, answers)
        return found.lacking_secrets() if optional_secrets else found

    def lacking_secrets(self) -> Self:
        """The stack with a placeholder for each secret that only `pulumi up` needs, and a warning of it."""
        from eks_inference.stack.references import missing_secrets

        try:
            spec = self.spec()
        except ProblemsFound:  # told where it is read
            return self
        missing = list(missing_secrets(spec, {key.partition(":")[2] for key in self.config.values})) if spec else []
        told = (f"before `pulumi up`: {fault.config_key}: {fault.message}; {fault.hint}" for fault in missing)
        stand_ins = {fault.config_key: f"<secret {fault.config_key}>" for fault in missing}
        values, warnings = {**self.config.values, **stand_ins}, (*self.config.warnings, *told)
        secret_keys = self.config.secret_keys | stand_ins.keys()
        return replace(self, config=replace(self.config, values=values, secret_keys=secret_keys, warnings=warnings))

    def explained(self, error: ProgramError) -> ProgramError:
        """The error with the faults that this library found, at the keys of the stack file or the lines of the program."""
        if faults := _faults_of_stack_file(error):
            return ProgramError(self.problems(faults))
        if isinstance(error.__cause__, SpecError) and error.__cause__.faults:
            return ProgramError(problems_of_program(error.__cause__, self.project.root))
        return error

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

    def stack_place(self, path: Sequence[str | int]) -> str:
        """``file:line: key`` of a key of the stack object."""
        line = self.document.line(("config", STACK_KEY, *path))
        return f"{self.document.shown}:{line}: {format_path(path)}"

    def problems(self, faults: Iterable[Fault]) -> list[Problem]:
        """Turns faults of the stack object into problems with their lines in the stack file."""
        return [
            Problem.of(fault, self.document.shown, self.document.line(("config", *path)), format_path(path))
            for fault in faults
            for path in [(fault.config_key,) if fault.config_key else (STACK_KEY, *fault.path)]
        ]


program, programs, readable = StackProgram.one, StackProgram.several, StackProgram.readable


def unwritten(project: Project, stack: str, text: str) -> StackProgram:
    """A stack whose file nobody has written yet, as it would be read once its secrets are set.

    Raises ``ProblemsFound`` like ``programs``.
    """
    path, node = project.stack_dir / f"Pulumi.{stack}.yaml", compose(text)
    document = Document(path, shown_path(path, project.root), node.plain(), dict(node.lines()))
    found = StackProgram.loaded(project, document)
    return replace(found, config=replace(found.config, warnings=()))


def _faults_of_stack_file(error: ProgramError) -> Sequence[Fault]:
    """The faults of the stack object that caused an error: those that ``InferencePlatform.from_config`` reports."""
    reported = error.__cause__
    faulty = reported.__cause__ if reported else None
    return faulty.faults if isinstance(faulty, SpecError) and not isinstance(reported, SpecError) else ()
