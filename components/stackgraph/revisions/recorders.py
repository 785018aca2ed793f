"""Records stacks of revisions in child processes, which share what they loaded, and keeps the answers in a cache."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackgraph.diff.contents import Revision
from stackgraph.diff.recorded import Store, key_of, read_answer
from stackgraph.diff.report import Recorded
from stackgraph.diff.revisions import Repository
from stackgraph.problems import Problem, printable, user_cache
from stackgraph.recorder.answers import Given, read_answers

# What these services' tools read, credentials among it. GITHUB_ and ACTIONS_ also hold the files and addresses by which a step
# talks to its job.
_SERVICES = re.compile(
    r"(ACTIONS|ANTHROPIC|ARM|AWS|AZURE|CLOUDFLARE|CLOUDSDK|DIGITALOCEAN|DOCKER|GCP|GH|GITHUB|GITLAB|GOOGLE|HF|HUGGING_FACE|"
    r"HUGGINGFACE|KUBE|NGC|NPM|OPENAI|PULUMI|TF|VAULT|WANDB)_.*|KUBECONFIG|SSH_AUTH_SOCK|GPG_AGENT_INFO"
)
_NAMES = re.compile(r"(.*_)?(AUTH|COOKIE|CREDENTIALS?|CREDS|KEYS?|PASS|PASSPHRASE|PASSWD|PASSWORD|PAT|PW|SECRETS?|TOKENS?)(_.*)?")
_SPELT_TOGETHER = re.compile(r".*(APIKEY|PASSWORD|SECRET|TOKEN)")
_USER_IN_A_URL = re.compile(r"://[^/@\s]+@")

_KEPT = frozenset({"AWS_REGION", "AWS_DEFAULT_REGION"})
"""No secrets, and programs choose by them what they make."""


def without_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables whose name or value is one of a credential.

    This keeps a recorded program from using them by accident, and from showing them in what it makes. It is no sandbox: a program
    can read the files of its user, and on some systems the memory of other processes.
    """
    return {name: value for name, value in environment.items() if name in _KEPT or not _is_credential(name.upper(), value)}


def _is_credential(name: str, value: str) -> bool:
    named = any(pattern.fullmatch(name) for pattern in (_SERVICES, _NAMES, _SPELT_TOGETHER))
    return named or _USER_IN_A_URL.search(value) is not None


def in_ci() -> bool:
    """Whether a CI service runs this command; all common ones set ``CI``.

    Its machine may be that of other branches later. A program can write into the user's cache, so none is used there.
    """
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Recorder:
    """The module that records a revision's stacks, in a process of its own, for a command."""

    command: str = "stackgraph"
    module: str = "stackgraph.revisions.recorder"
    files: tuple[Path, ...] = ()
    """Files besides ``stackgraph`` that an answer depends on. A change of them invalidates the cache."""


OF_ANY_PROGRAM = Recorder()


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
    sides: Sequence[Side],
    stacks: Sequence[str],
    repo: Repository,
    folder: Path,
    *,
    own: bool,
    debug: bool,
    given: Sequence[Given],
    told: Callable[[int, int], None],
    recorder: Recorder,
) -> list[dict[str, Recorded]]:
    """Returns for each side the recorded stacks by name. ``given`` are rows of answers, or files of them.

    Tells after each recording how many are done, and of how many. Raises ``ProblemsFound`` when a file of them cannot be read.
    """
    rows = list(read_answers(*given).rows)
    kept, recorders = None if in_ci() else Store(user_cache(recorder.command) / "diff"), _Recorders(recorder.module, debug)
    common = {
        "root": str(repo.root),
        "folder": str(folder),
        "own": own,
        "debug": debug,
        "answers": rows,
        "key": secrets.token_hex(32),
    }
    fingerprint = key_of(str(folder), str(own), json.dumps(rows), *(file.read_text(encoding="utf-8") for file in recorder.files))

    wanted_in = [[stack for stack in stacks if stack in side.stacks or side.problems] for side in sides]
    done, counting = [0], threading.Lock()

    def count(number: int) -> None:
        with counting:
            done[0] += number
            told(done[0], sum(map(len, wanted_in)))

    def recorded(side: Side, wanted: Sequence[str]) -> dict[str, Recorded]:
        if side.problems:
            return {stack: Recorded(problems=side.problems) for stack in wanted}
        keys = {}
        if kept is not None and not side.here:
            keys = {stack: key_of(fingerprint, repo.tree(side.revision.commit), stack) for stack in wanted}
        answers = {stack: answer for stack in keys if kept and (answer := kept.get(keys[stack])) is not None}
        count(len(answers))
        # A process answers for one stack at least.
        while left := [stack for stack in wanted if stack not in answers]:
            for stack, answer in recorders.ask({**common, "tree": str(side.tree), "stacks": left}):
                answers[stack] = answer
                count(1)
                if kept and stack in keys and not read_answer(answer).problems:
                    kept.put(keys[stack], answer)
        return {stack: read_answer(answers[stack]) for stack in wanted}

    with ThreadPoolExecutor() as pool:
        try:
            waiting = [pool.submit(recorded, side, wanted) for side, wanted in zip(sides, wanted_in, strict=True)]
            return [future.result() for future in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            recorders.end()
            raise


class _Recorders:
    """The running child processes. With ``debug``, the standard error of each is shown after it ends."""

    def __init__(self, module: str, debug: bool) -> None:
        self._module = module
        self._debug = debug
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def ask(self, asked: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Starts a process with the revision's imports and yields stacks and its answers: one at least."""
        environment = {**without_credentials(os.environ), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
        # Let the child find this package, even where it is not installed but only on the path.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PACKAGE.parent), os.environ.get("PYTHONPATH", ""))))
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            with self._lock:
                if self._ended:
                    raise InterruptedError
                process = subprocess.Popen(
                    [sys.executable, "-m", self._module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    errors="replace",
                    env=environment,
                    # Ctrl-C must reach this process only, which then ends its children.
                    start_new_session=True,
                )
                self._running.add(process)
            left = list(asked["stacks"])
            try:
                with process, contextlib.suppress(ValueError, RecursionError, BrokenPipeError):
                    assert process.stdin
                    assert process.stdout
                    process.stdin.write(json.dumps(asked))
                    process.stdin.close()
                    for line in process.stdout:
                        stack, answer = json.loads(line)
                        left.remove(stack)
                        yield stack, answer
            finally:
                with self._lock:
                    self._running.discard(process)
            errors.seek(0)
            said = errors.read()
        if self._debug:
            sys.stderr.write(printable(said, keep="\n"))
        if len(left) == len(asked["stacks"]):
            last = (said.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            yield left[0], {"problems": [{"message": f"the recording process failed: {last}"}]}

    def end(self) -> None:
        """Kills every process and prevents new ones."""
        with self._lock:
            self._ended = True
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
