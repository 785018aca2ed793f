"""Revisions of a git repository: what they are called, checked out beside the working tree, and gone again afterwards."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from stackgraph.diff.report import Revision
from stackgraph.problems import Problem, ProblemsFound

# What git sets for hooks and aliases would point every command at one tree.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")}


@dataclass(frozen=True)
class Repository:
    """A git repository with a working tree."""

    root: Path

    def resolve(self, name: str) -> Revision:
        """The commit of a revision; raises ``ProblemsFound`` with what to do when there is none here."""
        done = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if done.returncode == 0:
            return Revision(name, done.stdout.strip())
        shallow = self._git("rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        remote, _, branch = name.partition("/")
        fetch = f"git fetch {remote} {branch}" if branch and remote in self._git("remote").stdout.split() else "git fetch origin"
        if shallow:
            hint = "the clone is shallow and may not have it: git fetch --unshallow (actions/checkout: fetch-depth: 0)"
        else:
            hint = f"try `{fetch}`, or see `git log --oneline --all`"
        raise ProblemsFound([Problem("unknown revision", key="revision", given=name, hint=hint)])

    def working_tree(self) -> Revision:
        """The working tree as it is; not dirty, it is the commit it stands on."""
        head = self._git("rev-parse", "--verify", "--quiet", "HEAD")
        commit = head.stdout.strip() if head.returncode == 0 else ""
        return Revision("working tree", commit, bool(self._git("status", "--porcelain").stdout.strip()))

    def merge_base(self, one: str, other: str) -> str:
        """The commit both come from; empty where there is none here."""
        done = self._git("merge-base", one, other)
        return done.stdout.strip() if done.returncode == 0 else ""

    def tree(self, commit: str) -> str:
        """What names the content of a commit."""
        return self._git("rev-parse", f"{commit}^{{tree}}").stdout.strip()

    def text(self, commit: str, path: str) -> str | None:
        """A file of a commit, or of the working tree for an empty commit; None where there is none."""
        if not commit:
            file = self.root / path
            return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None
        done = self._git("show", f"{commit}:{path}")
        return done.stdout if done.returncode == 0 else None

    def link(self, commit: str) -> str:
        """What paths of a commit are below on the web; empty where the remote is not known to have such pages."""
        url = self._git("remote", "get-url", "origin").stdout.strip().removesuffix(".git")
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com").rstrip("/")
        host = server.partition("://")[2]
        for begin in (f"git@{host}:", f"ssh://git@{host}/", f"https://{host}/"):
            if url.startswith(begin):
                return f"{server}/{quote(url.removeprefix(begin))}/blob/{commit}"
        return ""

    @contextlib.contextmanager
    def checked_out(self, commit: str) -> Iterator[Path]:
        """A folder with the commit's files, removed again whatever happens."""
        with tempfile.TemporaryDirectory(prefix="stackgraph-diff-", ignore_cleanup_errors=True) as folder:
            tree = Path(folder).resolve() / "tree"
            try:
                done = self._git("worktree", "add", "--detach", "--force", str(tree), commit)
                if done.returncode:
                    reason = (done.stderr.strip().splitlines() or ["git worktree add failed"])[-1]
                    raise ProblemsFound([Problem(f"the revision cannot be checked out: {reason}", key="revision", given=commit)])
                yield tree
            finally:
                self._git("worktree", "remove", "--force", str(tree))
                self._git("worktree", "prune")

    def _git(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return _run(["git", "-C", str(self.root), *arguments])


def repository(folder: Path) -> Repository:
    """The repository around a folder. Raises ``ProblemsFound`` where there is none."""
    done = _run(["git", "-C", str(folder), "rev-parse", "--show-toplevel"])
    if done.returncode:
        hint = "compare two saved graphs instead: BASE.json HEAD.json"
        raise ProblemsFound([Problem("this is no git repository", file=str(folder), hint=hint)])
    return Repository(Path(done.stdout.strip()).resolve())


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    # In a session of its own, so that Ctrl-C ends this process, which then cleans up with git.
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=_ENVIRONMENT, start_new_session=True, check=False
        )
    except FileNotFoundError as error:
        raise ProblemsFound([Problem("git is not installed", hint="or compare two saved graphs")]) from error
