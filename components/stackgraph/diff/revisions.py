"""Resolves revisions of a git repository and checks them out temporarily, apart from the working tree."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from stackgraph.diff.contents import Revision
from stackgraph.problems import Problem, ProblemsFound, content, real

# Git sets these for hooks and aliases; they would point every command at one working tree.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")}


@dataclass(frozen=True)
class Repository:
    """A git repository with a working tree."""

    root: Path

    def resolve(self, name: str, option: str = "") -> Revision:
        """The commit of a revision, which the user named by ``option``.

        If it is unknown, raises ``ProblemsFound`` with a hint how to fetch it.
        """
        if commit := self._output("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"):
            return Revision(name, commit)
        remote, _, branch = name.partition("/")
        fetch = f"git fetch {remote} {branch}" if branch and remote in self._output("remote").split() else "git fetch origin"
        hint = f"try `{fetch}`, or see `git log --oneline --all`"
        if self._output("rev-parse", "--is-shallow-repository") == "true":
            hint = "the clone is shallow and may lack the commit: git fetch --unshallow (actions/checkout: fetch-depth: 0)"
        raise ProblemsFound([Problem("unknown revision", key=option, given=name, hint=hint)])

    def working_tree(self) -> Revision:
        """The working tree, with the commit that is checked out."""
        commit = self._output("rev-parse", "--verify", "--quiet", "HEAD")
        return Revision("working tree", commit, bool(self._output("status", "--porcelain")))

    def merge_base(self, one: str, other: str) -> str:
        """The nearest common ancestor of two commits; empty if this clone has none."""
        return self._output("merge-base", one, other)

    def tree(self, commit: str) -> str:
        """The hash of a commit's tree, which identifies its content."""
        return self._output("rev-parse", f"{commit}^{{tree}}")

    def changed(self, base: str, head: str) -> tuple[str, ...]:
        """The files that differ between two commits, or between a commit and the working tree if ``head`` is empty."""
        found = self._output("diff", "--name-only", "-z", "--no-renames", base, *filter(None, [head]))
        new = "" if head else self._output("ls-files", "--others", "--exclude-standard", "-z")
        return tuple(filter(None, f"{found}\0{new}".split("\0")))

    def text(self, commit: str, path: str) -> str | None:
        """A file of a commit, or of the working tree if the commit is empty; None if there is no such file."""
        if not commit:
            file = real(self.root / path)
            # A link out of the repository leads to no file of it.
            ours = file.is_relative_to(self.root) and file.is_file()
            return content(file).decode(errors="replace") if ours else None
        done = self._git("show", f"{commit}:{path}")
        return done.stdout if done.returncode == 0 else None

    def link(self, commit: str) -> str:
        """The base URL of a commit's files on the web; empty if the remote is not on GitHub."""
        url = self._output("remote", "get-url", "origin").removesuffix(".git")
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com").rstrip("/")
        host = server.partition("://")[2]
        for begin in (f"git@{host}:", f"ssh://git@{host}/", f"https://{host}/"):
            if url.startswith(begin):
                return f"{server}/{quote(url.removeprefix(begin))}/blob/{commit}"
        return ""

    @contextlib.contextmanager
    def checked_out(self, commit: str) -> Iterator[Path]:
        """A temporary folder with the files of a commit."""
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

    def _output(self, *arguments: str) -> str:
        """The output of a git command; empty if it fails."""
        done = self._git(*arguments)
        return "" if done.returncode else done.stdout.strip()

    def _git(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        # Hooks of the clone (husky, git-lfs) are for the work in it; filters stay, because they decode what programs read.
        command = ["git", "-C", str(self.root), "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", *arguments]
        # A session of its own keeps Ctrl-C from git, which this process still needs for its cleanup.
        try:
            return subprocess.run(
                command, capture_output=True, text=True, errors="replace", env=_ENVIRONMENT, start_new_session=True, check=False
            )
        except FileNotFoundError as error:
            raise ProblemsFound([Problem("git is not installed", hint="install it, or compare two saved graphs")]) from error


def repository(folder: Path) -> Repository:
    """The repository around a folder. Raises ``ProblemsFound`` if there is none."""
    done = Repository(folder)._git("rev-parse", "--show-toplevel")
    if done.returncode:
        # Its words differ: none, or one of somebody else that git does not trust.
        reason = (done.stderr.strip().splitlines() or ["not a git repository"])[0].removeprefix("fatal: ")
        hint = "compare two saved graphs instead: BASE.json HEAD.json"
        raise ProblemsFound([Problem(reason, file=str(folder), hint=hint)])
    return Repository(Path(done.stdout.strip()).resolve())
