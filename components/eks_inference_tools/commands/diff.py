"""``eks-inference diff``: what a branch changes in every stack, from its code alone.

Exit codes: 0 compared; 1 with ``--exit-code`` when something changes, or when ``--fail-on`` names what happens; 2 something could
not be compared; 130 ended by Ctrl-C, or by the end of the job.
"""

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eks_inference_tools.interrupts import EXIT_CODE, ending_cleanly
from eks_inference_tools.presentation.output import colour, write

# The parser is built for every command; what a comparison needs is imported when one is made.
if TYPE_CHECKING:
    from stackgraph.diff.report import Recorded, Report, Revision
    from stackgraph.diff.revisions import Repository

FORMATS = ("text", "markdown", "json", "html")
FAILING = ("replace", "delete", "danger")
GITHUB_LIMIT = 65_536
"""Characters in a comment on GitHub."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "Runs the programs of two revisions offline and shows what differs, stack by stack: no credentials, no CLI, no plugin, "
        "no network. Two programs are compared, not a program with what is deployed."
    )
    parser.add_argument(
        "stacks", nargs="*", metavar="STACK", help="stacks to compare (default: all), or two files of `preview --format json`"
    )
    parser.add_argument("--base", metavar="REV", help="what to compare with (default: where origin's main branch was left)")
    parser.add_argument("--head", metavar="REV", help="what changes (default: the working tree as it is)")
    parser.add_argument("--program", metavar="DIR", type=Path, help="another Pulumi Python project (default: the one here)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to a file instead of standard output")
    for name in FORMATS[1:]:
        parser.add_argument(f"--{name}", metavar="FILE", type=Path, help=f"write the report as {name}, too")
    parser.add_argument(
        "--limit", metavar="CHARACTERS", type=int, default=GITHUB_LIMIT, help="of markdown (default: GitHub's, %(default)s)"
    )
    parser.add_argument("--link", metavar="URL", help="what source files are below in markdown (default: from origin, on GitHub)")
    parser.add_argument("--exit-code", action="store_true", help="exit code 1 when something changes")
    parser.add_argument(
        "--fail-on", metavar="WHAT", type=_failing, default=(), help=f"exit code 1 when it happens: {','.join(FAILING)}"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``PreviewError`` when there is nothing to compare."""
    try:
        with ending_cleanly():
            report = _of_files(options) if _are_files(options) else _of_revisions(options)
    except KeyboardInterrupt:
        print("ended; nothing is left behind", file=sys.stderr)
        return EXIT_CODE
    _write(options, report)
    if report.failed:
        return 2
    return 1 if (options.exit_code and report.changed) or any(_happens(what, report) for what in options.fail_on) else 0


def _failing(given: str) -> tuple[str, ...]:
    found = tuple(given.split(","))
    if wrong := [what for what in found if what not in FAILING]:
        raise argparse.ArgumentTypeError(f"'{wrong[0]}' is none of {', '.join(FAILING)}")
    return found


def _happens(what: str, report: "Report") -> bool:
    if what == "danger":
        return any(stack.dangers for stack in report.stacks)
    return bool(report.counts["replace" if what == "replace" else "delete"])


# -- two files -------------------------------------------------------------------------------------------------------------------


def _are_files(options: argparse.Namespace) -> bool:
    return len(options.stacks) == 2 and all(name.endswith(".json") for name in options.stacks)


def _of_files(options: argparse.Namespace) -> "Report":
    from stackgraph.diff.report import Recorded, Report, Revision, StackReport
    from stackgraph.problems import PreviewError, Problem

    if options.base or options.head or options.program:
        raise PreviewError([Problem("two files are compared as they are", allowed="no --base, --head or --program with them")])
    base, head = (_graph(Path(name)) for name in options.stacks)
    names = [Revision(name) for name in options.stacks]
    stack = StackReport(head.stack, Recorded(base), Recorded(head))
    return Report(head.project, names[0], names[1], [stack])


def _graph(file: Path) -> Any:
    from stackgraph.graph.saved import read_graph
    from stackgraph.problems import PreviewError, Problem

    try:
        return read_graph(json.loads(file.read_text(encoding="utf-8")), str(file))
    except OSError as error:
        raise PreviewError([Problem(f"cannot be read: {error.strerror}", file=str(file))]) from error
    except ValueError as error:
        raise PreviewError([Problem(f"not JSON: {error}", file=str(file))]) from error


# -- two revisions ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    """One revision with its files, and what its project is called."""

    revision: "Revision"
    tree: Path
    stacks: tuple[str, ...]
    problem: Any = None
    here: bool = False
    """The working tree: what git ignores there may matter, so that its answers are never kept."""


def _of_revisions(options: argparse.Namespace) -> "Report":
    from stackgraph.diff.report import Report, StackReport
    from stackgraph.diff.revisions import repository
    from stackgraph.problems import PreviewError, Problem
    from stackgraph.recorder.project import find_project

    if options.program is not None and not options.program.is_dir():
        raise PreviewError([Problem("there is no such folder", file=str(options.program))])
    project = find_project(options.program or Path.cwd())
    repo = repository(project.root)
    folder = project.root.resolve().relative_to(repo.root)
    head = repo.resolve(options.head) if options.head else repo.working_tree()
    base = repo.resolve(options.base) if options.base else _default_base(repo, head)
    with contextlib.ExitStack() as cleanup:
        sides = []
        for revision in (base, head):
            here = revision.name == "working tree"
            tree = repo.root if here else cleanup.enter_context(repo.checked_out(revision.commit))
            sides.append(_side(revision, tree, folder, here=here))
        known = sorted({*sides[0].stacks, *sides[1].stacks})
        for name in options.stacks:
            if name not in known:
                raise PreviewError([Problem(f"there is no stack '{name}' on either side", allowed=", ".join(known) or "none")])
        wanted = [name for name in known if name in (options.stacks or known)]
        if not wanted:
            raise PreviewError([Problem("no stack has a file on either side", file=str(folder))])
        answers = _record_all(sides, wanted, repo, folder, own=options.program is None)
    stacks = [StackReport(name, answers[0].get(name), answers[1].get(name)) for name in wanted]
    link = options.link or (repo.link(head.commit) if head.commit and not head.dirty else "")
    return Report(project.name, base, head, stacks, _notes(repo, sides, stacks), link.rstrip("/"))


def _default_base(repo: "Repository", head: "Revision") -> "Revision":
    from stackgraph.diff.report import Revision
    from stackgraph.problems import PreviewError, Problem

    for name in ("origin/HEAD", "origin/main", "origin/master", "main", "master"):
        try:
            found = repo.resolve(name)
        except PreviewError:
            continue
        left = repo.merge_base(found.commit, head.commit) if head.commit else ""
        return Revision(f"where {name} was left", left) if left and left != found.commit else found
    raise PreviewError([Problem("name a revision to compare with", key="--base", hint="for example: --base HEAD~1")])


def _side(revision: "Revision", tree: Path, folder: Path, *, here: bool) -> _Side:
    from stackgraph.problems import PreviewError
    from stackgraph.recorder.project import find_project

    try:
        return _Side(revision, tree, tuple(find_project(tree / folder).stacks()), here=here)
    except PreviewError as error:
        return _Side(revision, tree, (), error.problems, here)


def _record_all(
    sides: Sequence[_Side], stacks: Sequence[str], repo: "Repository", folder: Path, *, own: bool
) -> list[dict[str, "Recorded"]]:
    """What each side says of each stack that it has; one process for each."""
    from stackgraph.diff.recorded import key_of, read_answer, store
    from stackgraph.diff.report import Recorded

    kept, recorders = store(), _Recorders()
    common = {"root": str(repo.root), "folder": str(folder), "own": own, "key": secrets.token_hex(32)}
    recording = (Path(__file__).with_name("diff_recorder.py"), Path(__file__).parents[1] / "program.py")
    fingerprint = key_of(str(folder), str(own), *(file.read_text(encoding="utf-8") for file in recording))

    def answered(side: _Side, stack: str) -> "Recorded":
        if side.problem:
            return Recorded(problems=side.problem)
        key = "" if side.here else key_of(fingerprint, repo.tree(side.revision.commit), stack)
        answer = kept.get(key) if key else None
        if answer is None:
            answer = recorders.ask({**common, "tree": str(side.tree), "stack": stack})
            if key:
                kept.put(key, answer)
        return read_answer(answer)

    found: list[dict[str, Recorded]] = [{}, {}]
    # More than there are cores, so that none of these is idle while the last process runs.
    with ThreadPoolExecutor(max_workers=3 * (os.cpu_count() or 2)) as pool:
        waiting = {
            pool.submit(answered, side, stack): (number, stack)
            for number, side in enumerate(sides)
            for stack in stacks
            if stack in side.stacks or side.problem
        }
        try:
            for future, (number, stack) in waiting.items():
                found[number][stack] = future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            recorders.end()
            raise
    return found


class _Recorders:
    """Processes that record, one for each question. All of them can be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def ask(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer of a process of its own, which imports what the revision has."""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
        # The same package as here, also where it is not installed but only on the path.
        ours = str(Path(__file__).resolve().parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH", ""))))
        with self._lock:
            if self._ended:
                raise InterruptedError
            process = subprocess.Popen(
                [sys.executable, "-m", "eks_inference_tools.commands.diff_recorder"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
                # Ctrl-C is for this process, which then ends those.
                start_new_session=True,
            )
            self._running.add(process)
        try:
            out, err = process.communicate(json.dumps(asked))
        finally:
            with self._lock:
                self._running.discard(process)
        try:
            return json.loads(out)
        except ValueError:
            last = (err.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            return {"problems": [{"message": f"the process that records it ended: {last}"}]}

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _notes(repo: "Repository", sides: Sequence[_Side], stacks: Sequence[Any]) -> list[str]:
    notes = []
    if sides[1].revision.dirty:
        notes.append("the head is the working tree as it is, with changes that are not committed")
    base, head = (repo.text("" if side.tree == repo.root else side.revision.commit, "constraints.txt") for side in sides)
    if base is not None and head is not None and base != head:
        changed = sorted({*base.splitlines()} ^ {*head.splitlines()})
        names = sorted({line.partition("==")[0] for line in changed if line and not line.startswith("#")})
        notes.append(
            f"constraints.txt changes ({', '.join(names[:8])}{' …' if len(names) > 8 else ''}), but both sides ran with what is "
            "installed here: what other versions of these packages register is not shown"
        )
    for stack in stacks:
        if stack.base is None:
            notes.append(f"stack {stack.stack} is new: it has no file at the base")
        elif stack.head is None:
            notes.append(f"stack {stack.stack} has no file any more; what it deployed stays until `pulumi destroy`")
    return notes


# -- output ----------------------------------------------------------------------------------------------------------------------


def _write(options: argparse.Namespace, report: "Report") -> None:
    wanted: list[tuple[str, Path | None]] = [(options.format, options.output)]
    wanted += [(name, file) for name in FORMATS[1:] if (file := getattr(options, name)) is not None]
    for format_, file in wanted:
        write(_renderers(options, colour=file is None and colour())[format_](report), file)


def _renderers(options: argparse.Namespace, *, colour: bool) -> Mapping[str, Callable[["Report"], str]]:
    from stackgraph.diff.document import render_json
    from stackgraph.diff.markdown import render_markdown
    from stackgraph.diff.page import render_html
    from stackgraph.diff.text import render_text

    return {
        "text": lambda report: render_text(report, colour=colour),
        "markdown": lambda report: render_markdown(report, options.limit),
        "json": render_json,
        "html": render_html,
    }
