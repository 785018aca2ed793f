"""Records what a test names: a project, the file of a program, or a function that makes resources."""

import asyncio
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import mocks
from pulumi.runtime.settings import get_monitor

from stackgraph.graph.document import STACK_REFERENCE, build_urn
from stackgraph.problems import ProblemsFound, real
from stackgraph.recorder import functions, symbols, wire
from stackgraph.recorder.answers import Answers, read_answers, rows_of
from stackgraph.recorder.lazy_sdk import lazy_sdks
from stackgraph.recorder.project import Project, find_project, full_key
from stackgraph.recorder.recording import record as record_program
from stackgraph.recorder.yaml_file import Document
from stackgraph.testing.graph import RecordedStack

GivenAnswers = Sequence[Mapping[str, Any]] | Path | str
"""Rows of an answers file (``stackgraph.recorder.answers``), or the path of one."""


def answers_of(given: GivenAnswers) -> Answers:
    """The rows, read and checked. Raises ``ProblemsFound`` with everything that is wrong in them."""
    if isinstance(given, Path | str):
        return read_answers(Path(given))
    return Answers(tuple(rows_of(Document(Path(), "answers", list(given), {}))))


def record(
    program: Callable[[], Any] | Path | str,
    *,
    stack: str = "",
    config: Mapping[str, Any] | None = None,
    secrets: Mapping[str, Any] | None = None,
    answers: GivenAnswers = (),
    strict: bool = False,
) -> RecordedStack:
    """Runs a program offline and returns what it registers, as ``pulumi preview`` of a new stack would.

    ``program`` is the folder of a Pulumi project, the file of a program, or a function, which may be asynchronous; for a
    component, ``lambda: Component("name", …)``. ``stack`` names the stack whose file is read, as ``Pulumi.dev.yaml``; without a
    name there is no file, and the stack is called ``test``. ``config`` adds to the file's values and goes before them: keys with
    their namespace (``aws:region``) or, of the project's own, without; values as in a stack file. ``secrets`` are values that the
    program reads in plain and the graph shows as ``[secret]``. ``answers`` are results of data sources and outputs of other
    stacks: the file of ``preview --answers``, or its rows; without a row, results get placeholders. With ``strict``, outputs stay
    unknown as in the engine, and functions given to ``apply`` do not run on them.

    Raises ``ProblemsFound`` for a project or configuration that cannot be read, ``ProgramError`` if the program fails or
    registers what the engine would refuse, and ``RuntimeError`` inside a coroutine.
    """
    __tracebackhide__ = True
    if asyncio._get_running_loop():
        raise RuntimeError("record runs an event loop of its own; in a coroutine: await asyncio.to_thread(record, …)")
    project = _project(program)
    document = project.stack_file(stack) if stack else Document(project.root, "config", {}, {})
    read = project.config(document, told={**(config or {}), **(secrets or {})})
    target = program if callable(program) else project.main
    with _loop_kept(), _modules_of_its_own(project.root, target), _quiet_sdks(), lazy_sdks():
        graph = record_program(
            target,
            project=project.name,
            stack=stack or "test",
            config=read.values,
            secret_keys=read.secret_keys | {full_key(key, project.name) for key in secrets or ()},
            strict=strict,
            root=project.root,
            answers=answers_of(answers),
        )
    return RecordedStack(graph)


def _project(program: Callable[[], Any] | Path | str) -> Project:
    """The project of a program. A function or a single file needs none."""
    if callable(program):
        return _bare(Path.cwd())
    path = real(Path(program))
    if not path.is_file():
        return find_project(path)
    # Python puts the folder of a program on its path, and the engine runs the folder.
    main = path.parent if path.name == "__main__.py" else path
    try:
        return replace(find_project(path.parent), main=main)
    except ProblemsFound:
        if any((folder / "Pulumi.yaml").exists() for folder in path.parents):
            raise
        return replace(_bare(path.parent), main=main)


def _bare(root: Path) -> Project:
    return Project(root, Document(root, "config", {}, {}), "project", root, root, {})


@contextmanager
def _modules_of_its_own(root: Path, target: object) -> Iterator[None]:
    """Forgets the modules that a program imports of its own folder: another program may have some of the same names."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before if isinstance(target, Path) else ():
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(root) and "site-packages" not in Path(file).parts:
                del sys.modules[name]


@contextmanager
def _quiet_sdks() -> Iterator[None]:
    """Leaves out what generated SDKs say of themselves when they define classes that are deprecated.

    Who uses such a class gets a warning of the program.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="pulumi_")
        yield


@contextmanager
def _loop_kept() -> Iterator[None]:
    """Leaves the thread an event loop, on which tests with ``pulumi.runtime.set_mocks`` wait."""
    try:
        yield
    finally:
        asyncio.set_event_loop(asyncio.new_event_loop())


class Mocks(mocks.Mocks):
    """Answers with placeholders for what only a deployment knows: ``<name.property>`` for outputs that are texts.

    Outputs that are resources, such as ``eks.Cluster("c").eks_cluster``, are there too. Data sources are answered where the
    recorder can; ``answers`` has the results of others and the outputs of other stacks, as for ``record``. A subclass may
    override either method and call ours for the rest.
    """

    def __init__(self, answers: GivenAnswers = ()) -> None:
        self.answers = answers_of(answers)

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        if args.typ == STACK_REFERENCE:
            return args.resource_id, {**args.inputs, "outputs": self._outputs(str(args.resource_id)), "secretOutputNames": []}

        def reference(prop: str, cls: type) -> Any:
            return _reference(args, prop, cls)

        # Only a component of another package is not custom and yet asks for its outputs.
        outputs = symbols.symbolic_outputs(args.name, args.typ, args.inputs, None if args.custom else reference)
        return args.resource_id or symbols.token(args.name, "id"), {**args.inputs, **outputs}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        region = pulumi.Config("aws").get("region")
        found = self.answers.of_function(args.token, args.args, "", args.args.get("region") or region)
        if found is None:
            found = functions.compute(args.token, args.args, {"region": region} if region else {})
        if found is None:
            raise _unanswered(args.token, {"function": args.token, "result": {}})
        return dict(found), []

    def _outputs(self, stack: str) -> dict[str, Any]:
        """The outputs of another stack. Raises ``LookupError`` where no answer has them."""
        found = self.answers.of_stack(stack)
        if found is None:
            raise _unanswered(f"stack {stack}", {"stack": stack, "outputs": {}})
        return {**found[0], **{one: symbols.token(stack, one) for one in found[1]}}


def _unanswered(what: str, example: Any) -> LookupError:
    return LookupError(f"no answer to {what}; give one: Mocks(answers=[{example}])")


def _reference(args: mocks.MockResourceArgs, prop: str, cls: type) -> Any:
    """A reference to a resource inside a component of another package, which the mock monitor gets to know."""
    type_ = symbols.type_of(cls)
    if type_ is None:
        return wire.UNKNOWN
    name = f"{args.name}.{prop}"
    urn = build_urn(pulumi.get_stack(), pulumi.get_project(), args.typ, type_, name)
    identity = symbols.token(name, "id")
    monitor: Any = get_monitor()
    monitor.resources[urn] = mocks.MockMonitor.ResourceRegistration(urn, identity, symbols.symbolic_outputs(name, type_, {}))
    return {wire.SIGNATURE: wire.RESOURCE, "urn": urn, "id": identity}
