"""Records stacks of revisions in child processes, which share what they loaded, and keeps the answers in a cache."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eks_inference_tools.revisions.environment import in_ci, without_credentials
from eks_inference_tools.user_cache import user_cache
from stackgraph.diff.contents import Revision
from stackgraph.diff.recorded import Store, key_of, read_answer
from stackgraph.diff.report import Recorded
from stackgraph.diff.revisions import Repository
from stackgraph.plain_text import printable
from stackgraph.problems import Problem
from stackgraph.recorder.answers import read_answers

_PACKAGE = Path(__file__).resolve().parents[1]
_RECORDING = (Path(__file__).with_name("recorder.py"), _PACKAGE / "program.py")
"""Files besides ``stackgraph`` that an answer depends on. A change of them invalidates the cache."""


@dataclass(frozen=True)
class Side:
    """A revision and its files. ``problems`` say why it has no project that can be recorded."""

    revision: Revision
    tree: Path
    stacks: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    here: bool = False
    """Whether this is the working tree. Its answers are never cached, because they may depend on files that git ignores."""


def record_all(
    sides: Sequence[Side], stacks: Sequence[str], repo: Repository, folder: Path, *, own: bool, debug: bool, given: Path | None
) -> list[dict[str, Recorded]]:
    """Returns for each side the recorded stacks by name. ``given`` is a file with results of provider functions.

    Raises ``ProblemsFound`` when that file cannot be read.
    """
    rows = list(read_answers(given).rows) if given else []
    kept, recorders = None if in_ci() else Store(user_cache("diff")), _Recorders(debug)
    common = {
        "root": str(repo.root),
        "folder": str(folder),
        "own": own,
        "debug": debug,
        "answers": rows,
        "key": secrets.token_hex(32),
    }
    fingerprint = key_of(str(folder), str(own), json.dumps(rows), *(file.read_text(encoding="utf-8") for file in _RECORDING))

    def recorded(side: Side) -> dict[str, Recorded]:
        wanted = [stack for stack in stacks if stack in side.stacks or side.problems]
        if side.problems:
            return {stack: Recorded(problems=side.problems) for stack in wanted}
        keys = {}
        if kept is not None and not side.here:
            keys = {stack: key_of(fingerprint, repo.tree(side.revision.commit), stack) for stack in wanted}
        answers = {stack: answer for stack in keys if kept and (answer := kept.get(keys[stack])) is not None}
        # A process answers for one stack at least.
        while left := [stack for stack in wanted if stack not in answers]:
            fresh = recorders.ask({**common, "tree": str(side.tree), "stacks": left})
            answers |= fresh
            for stack in fresh.keys() & keys.keys():
                if kept and not read_answer(fresh[stack]).problems:
                    kept.put(keys[stack], fresh[stack])
        return {stack: read_answer(answers[stack]) for stack in wanted}

    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(recorded, side) for side in sides]
        try:
            return [future.result() for future in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            recorders.end()
            raise


class _Recorders:
    """The running child processes. With ``debug``, the standard error of each is shown after it ends."""

    def __init__(self, debug: bool) -> None:
        self._debug = debug
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def ask(self, asked: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        """Starts a process with the revision's imports and returns its answers by stack: one at least."""
        environment = {**without_credentials(os.environ), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
        # Let the child find this package, even where it is not installed but only on the path.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PACKAGE.parent), os.environ.get("PYTHONPATH", ""))))
        with self._lock:
            if self._ended:
                raise InterruptedError
            process = subprocess.Popen(
                [sys.executable, "-m", "eks_inference_tools.revisions.recorder"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
                # Ctrl-C must reach this process only, which then ends its children.
                start_new_session=True,
            )
            self._running.add(process)
        try:
            out, err = process.communicate(json.dumps(asked))
        finally:
            with self._lock:
                self._running.discard(process)
        if self._debug:
            sys.stderr.write(printable(err, keep="\n"))
        try:
            return json.loads(out)
        except (ValueError, RecursionError):
            last = (err.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            failed = {"problems": [{"message": f"the recording process failed: {last}"}]}
            return {asked["stacks"][0]: failed}

    def end(self) -> None:
        """Kills every process and prevents new ones."""
        with self._lock:
            self._ended = True
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
