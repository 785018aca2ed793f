"""Compares the stacks of two revisions, which it checks out and records, and the working tree with a deployed stack."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from stackgraph.diff.comparison_domain import NO_DOMAIN, ComparedDomain
from stackgraph.diff.contents import Revision
from stackgraph.diff.report import Recorded, Report, StackReport
from stackgraph.diff.revisions import Repository, repository
from stackgraph.graph.document import UNANSWERED
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.program import Program, project_in
from stackgraph.recorder.answers import Given
from stackgraph.recorder.project import DEFAULT_STACK, PROJECT_FILES, find_project
from stackgraph.revisions.recorders import OF_ANY_PROGRAM, Recorder, Side, record_all
from stackgraph.state.engine_steps import stack_report
from stackgraph.state.exported import read_export
from stackgraph.state.inputs import without_computed


def compare_revisions(
    stacks: Sequence[str],
    *,
    base: str | None = None,
    head: str | None = None,
    program: Path | None = None,
    link: str | None = None,
    debug: bool = False,
    answers: Sequence[Given] = (),
    domain: ComparedDomain = NO_DOMAIN,
    told: Callable[[int, int], None] = lambda done, total: None,
    recorder: Recorder = OF_ANY_PROGRAM,
) -> Report:
    """Reports the changes from ``base`` to ``head`` for the named stacks, or for all stacks of either revision.

    ``base`` defaults to the merge base with the main branch, ``head`` to the working tree, ``program`` to the project in or
    above the working directory. ``link`` is the URL prefix of source files. ``debug`` prints the tracebacks of failing programs.
    ``answers`` are results of provider functions and values of the configuration, for both. ``domain`` knows about the resources.
    ``told`` learns after each recording how many are done, and of how many. ``recorder`` is that of the command that asks.
    Raises ``ProblemsFound`` when there is nothing to compare. A failing program fails only its own stack.
    """
    project = project_in(program)
    repo = repository(project.root)
    folder = project.root.resolve().relative_to(repo.root)
    newer = repo.resolve(head, "--head") if head else repo.working_tree()
    older = repo.resolve(base, "--base") if base else _default_base(repo, newer)
    with contextlib.ExitStack() as cleanup:
        sides = []
        for revision in (older, newer):
            here = revision.name == "working tree"
            tree = repo.root if here else cleanup.enter_context(repo.checked_out(revision.commit))
            sides.append(_side(revision, tree, folder, here=here))
        if not any(side.stacks for side in sides):
            sides = [replace(side, stacks=(DEFAULT_STACK,)) if _project_in(side.tree / folder) else side for side in sides]
        named = [project.stack_named(stack) for stack in stacks]
        wanted = _wanted(named, sorted({*sides[0].stacks, *sides[1].stacks}), folder)
        recorded = record_all(
            sides, wanted, repo, folder, own=program is None, debug=debug, given=answers, told=told, recorder=recorder
        )
    reports = [StackReport(name, recorded[0].get(name), recorded[1].get(name), domain) for name in wanted]
    below = link or (repo.link(newer.commit) if newer.commit and not newer.dirty else "")
    files = {side.file.path for report in reports for side in (report.base, report.head) if side and side.file}
    return Report(
        project.name,
        older,
        newer,
        reports,
        [*_notes(repo, sides, reports)],
        below.rstrip("/"),
        recorder.command,
        only_stack_files={*repo.changed(older.commit, "" if sides[1].here else newer.commit)} <= files,
    )


def _default_base(repo: Repository, head: Revision) -> Revision:
    for name in ("origin/HEAD", "origin/main", "origin/master", "main", "master"):
        try:
            found = repo.resolve(name)
        except ProblemsFound:
            continue
        left = repo.merge_base(found.commit, head.commit) if head.commit else ""
        return Revision(f"where {name} was left", left) if left and left != found.commit else found
    raise ProblemsFound([Problem("name a revision to compare with", key="--base", hint="for example: --base HEAD~1")])


def _side(revision: Revision, tree: Path, folder: Path, *, here: bool) -> Side:
    if not _project_in(tree / folder):
        return Side(revision, tree, (), here=here)
    try:
        return Side(revision, tree, tuple(find_project(tree / folder).stacks()), here=here)
    except ProblemsFound as error:
        return Side(revision, tree, (), error.problems, here)


def _project_in(folder: Path) -> bool:
    return any((folder / name).is_file() for name in PROJECT_FILES)


def _wanted(named: Sequence[str], known: Sequence[str], folder: Path) -> list[str]:
    for name in named:
        if name not in known:
            raise ProblemsFound([Problem(f"there is no stack '{name}' on either side", allowed=", ".join(known) or "none")])
    return [name for name in known if name in (named or known)]


def _notes(repo: Repository, sides: Sequence[Side], stacks: Sequence[StackReport]) -> Iterator[str]:
    if sides[1].revision.dirty:
        yield "the head is the working tree, with uncommitted changes"
    base, head = (repo.text("" if side.tree == repo.root else side.revision.commit, "constraints.txt") for side in sides)
    if base is not None and head is not None and base != head:
        changed = sorted({*base.splitlines()} ^ {*head.splitlines()})
        names = sorted({line.partition("==")[0] for line in changed if line and not line.startswith("#")})
        yield (
            f"constraints.txt changes ({', '.join(names[:8])}{' …' if len(names) > 8 else ''}), but both sides ran with the "
            "packages that are installed here: what other versions of them register is not shown"
        )
    if any(not side.here and repo.text(side.revision.commit, ".gitmodules") for side in sides):
        yield "submodules of a revision are not checked out: a program that reads one fails"
    for stack in stacks:
        if stack.base is None:
            yield f"stack {stack.stack} is new: the base has no {'file for it' if sides[0].stacks else 'such project'}"
        elif stack.head is None:
            yield f"stack {stack.stack} no longer has a file; its resources stay until `pulumi destroy`"
    for stack in stacks:
        yield from _made_up(stack)
        yield from _newly_warns(stack)
    for side, recorded in (("base", [stack.base for stack in stacks]), ("head", [stack.head for stack in stacks])):
        if any(one and one.graph and one.findings is None for one in recorded):
            yield f"findings of check are not compared: the rules of the {side} cannot be run from here"


def _newly_warns(stack: StackReport) -> Iterator[str]:
    """What the program warns of on the head alone. Findings have a part of their own."""
    before, after = ({*side.graph.warnings} if side and side.graph else set() for side in (stack.base, stack.head))
    told = [finding.message for finding in (stack.head and stack.head.findings) or ()]
    for warning in sorted(after - before):
        if not any(message in warning for message in told):
            yield f"the program of stack {stack.stack} newly warns: {warning}"


def _made_up(stack: StackReport) -> Iterator[str]:
    """The provider functions of a stack whose results nobody knew: what they change in a deployment is not compared."""
    graphs = [side.graph for side in (stack.base, stack.head) if side and side.graph]
    tokens = {called.token for graph in graphs for called in graph.functions if called.answer in UNANSWERED}
    if tokens:
        yield (
            f"stack {stack.stack} asks what only a provider or another stack knows ({', '.join(sorted(tokens))}): "
            "placeholders stand for the answers on both sides (--answers FILE gives them)"
        )
    if len(graphs) < 2:
        return
    before, after = ({(one.token, json.dumps(one.args, sort_keys=True)) for one in graph.functions} for graph in graphs)
    if other := sorted({token for token, _ in before - after} & {token for token, _ in after - before} & tokens):
        yield f"stack {stack.stack} asks {', '.join(other)} differently than before: their users may change, unseen here"


def compare_deployed(
    file: Path,
    stack: str | None,
    *,
    folder: Path | None,
    program: type[Program],
    command: str,
    domain: ComparedDomain,
    link: str = "",
    debug: bool = False,
    answers: Sequence[Given] = (),
) -> Report:
    """Reports what ``pulumi up`` would do. Without a name, the stack is that of the export.

    Raises ``ProblemsFound`` if the file is no export, or of another stack or project; ``ProgramError`` if the program fails.
    """
    deployed = read_export(file)
    base = deployed.graph
    loaded = program.one(stack or base.stack, folder, debug=debug, answers=answers)
    pairs = (("project", base.project, loaded.project.name), ("stack", base.stack, loaded.stack))
    wrong = [Problem(f"of another {what}", str(file), 0, what, has, wants) for what, has, wants in pairs if has != wants]
    if wrong:
        raise ProblemsFound(wrong)
    graph = loaded.record()
    # A program that needs what only a placeholder gives is compared as it was recorded.
    with contextlib.suppress(ProblemsFound):
        graph = without_computed(graph, loaded.record(strict=True))
    report, notes = stack_report(deployed, Recorded(graph), domain)
    return Report(base.project, Revision(file.name), Revision("working tree"), [report], notes, link, command)
