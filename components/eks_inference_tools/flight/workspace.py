"""The stack of a flight in the user's own project and backend, through Pulumi's Automation API.

The user's stack file is only read. Each stage has a configuration file in the work directory, with the same secrets.
"""

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pulumi.automation import CommandError, InvalidVersionError, LocalWorkspace, Stack
from pulumi.automation.errors import ConcurrentUpdateError, StackNotFoundError

from eks_inference_tools.flight.course import Deployment
from eks_inference_tools.flight.ports import Hopeless, Left, Outcome, Timed
from eks_inference_tools.flight.pulumi_cli import Engine
from eks_inference_tools.flight.rungs import Stage
from eks_inference_tools.program import STACK_KEY, StackProgram
from stackgraph.graph.document import PROVIDER_PREFIX, STACK_TYPE
from stackgraph.graph.values import at, items, text, unique
from stackgraph.problems import Problem, ProblemsFound

NEEDED = {
    "pulumi": "https://www.pulumi.com/docs/install",
    "kubectl": "https://kubernetes.io/docs/tasks/tools",
    "aws": "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
}
"""Commands that a flight runs, and where they come from."""

_COLOURS = re.compile(r"<\{%[^%]*%\}>|\x1b\[[\d;]*m")
_URN = re.compile(r'urn:pulumi:[^\s"]+')
_NO_CAUSE = "update failed"
_WAIT_S = 5.0
_MOST_FAULTS = 10
_CLOSED = 0o600


class AutomationWorkspace:
    """One stack. ``folder`` is the flight's work directory, ``told`` gets every line that the CLI prints.

    Raises ``ProblemsFound`` where the CLI is missing or too old, or the backend has no such stack.
    """

    def __init__(self, program: StackProgram, folder: Path, told: Callable[[str], None] = lambda line: None) -> None:
        self._program, self._folder, self._told = program, folder, told
        lacking = [name for name in NEEDED if shutil.which(name) is None]
        if lacking:
            raise ProblemsFound([Problem(f"there is no `{name}` command on PATH", hint=NEEDED[name]) for name in lacking])
        try:
            self._engine = Engine(folder / "engine.pid")
            self._await_other()
            self._stack = Stack.select(program.stack, _Unchanged(str(program.project.root), pulumi_command=self._engine))
        except InvalidVersionError as error:
            raise ProblemsFound([Problem(str(error), hint=NEEDED["pulumi"])]) from None
        except StackNotFoundError:
            hint = f"pulumi stack init {program.stack}, and its secrets with pulumi config set --secret"
            raise ProblemsFound([Problem(f"the backend has no stack {program.stack}", hint=hint)]) from None
        except CommandError as error:
            raise ProblemsFound([Problem("the stack cannot be read", given=said_by(error))]) from None

    @property
    def version(self) -> str:
        """The version of the CLI."""
        return str(self._engine.version)

    @property
    def backend(self) -> str:
        """The address of the backend that the CLI is logged in to."""
        return str(self._stack.workspace.who_am_i().url)

    def left(self) -> Left:
        state = self._stack.export_stack().deployment
        there = [item for item in items(at(state, "resources")) if not _is_scaffold(text(at(item, "type")))]
        pending = [
            f"{text(at(item, 'type'))} of {_shown(text(at(item, 'resource', 'urn')))}"
            for item in items(at(state, "pending_operations"))
        ]
        return Left(tuple(_shown(text(at(one, "urn"))) for one in there), tuple(pending))

    def outputs(self) -> dict[str, Any]:
        """The outputs of the stack; secret ones are left out."""
        return {key: one.value for key, one in self._stack.outputs().items() if not one.secret}

    def up(self, stage: Stage, deployment: Deployment, seconds: float, hopeless: Hopeless) -> Outcome:
        file = self._configured(stage)
        targets = list(deployment.targets) or None
        return self._update(
            lambda watch: self._stack.up(
                config_file=str(file),
                target=targets,
                on_event=watch.see,
                on_output=self._told,
                on_error=self._told,
                color="never",
                show_secrets=False,
            ),
            seconds,
            hopeless,
        )

    def destroy(self, *, refresh: bool) -> Outcome:
        return self._update(
            lambda watch: self._stack.destroy(
                refresh=refresh,
                on_event=watch.see,
                on_output=self._told,
                on_error=self._told,
                color="never",
                show_secrets=False,
            ),
            float("inf"),
        )

    def _update(self, begin: Callable[["Watch"], object], seconds: float, hopeless: Hopeless = lambda: ()) -> Outcome:
        watch, lost = Watch(), list[str]()
        try:
            with self._engine.bounded(seconds, lambda: bool(lost.extend(hopeless()) or lost)):
                begin(watch)
        except ConcurrentUpdateError as error:
            if self._unlocked(error):
                return self._update(begin, seconds, hopeless)
            why = "another update holds the stack: wait for it; if none is running: pulumi cancel"
            return Outcome(self._engine.stopped or "failed", (why,))
        except CommandError as error:
            faults = (*lost, *(watch.faults or (said_by(error),)))
            return Outcome(self._engine.stopped or "failed", faults[:_MOST_FAULTS], watch.timed)
        return Outcome("done", (), watch.timed)

    def _configured(self, stage: Stage) -> Path:
        """Writes the user's stack file with the stack object of a stage. Secrets stay encrypted."""
        data = self._program.document.data
        short = STACK_KEY.removeprefix(f"{self._program.project.name}:")
        config = {key: value for key, value in data["config"].items() if key not in (STACK_KEY, short)}
        file = self._folder / self._program.document.path.name
        written = yaml.safe_dump(
            {**data, "config": {**config, STACK_KEY: dict(stage.stack)}}, sort_keys=False, allow_unicode=True
        )
        file.unlink(missing_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _CLOSED), "w", encoding="utf-8") as opened:
            opened.write(written)
        return file

    def _await_other(self) -> None:
        """After a kill of an earlier command its CLI may still be at work, and hold the stack."""
        if (pid := self._engine.other()) is not None:
            self._told(f"waiting for process {pid}, which an earlier command of this flight left at work")
        while self._engine.other() is not None:
            time.sleep(_WAIT_S)

    def _unlocked(self, error: ConcurrentUpdateError) -> bool:
        """Whether a lock was one that our own dead process left in a backend of files, and is gone now."""
        pids = {int(pid) for pid in re.findall(r"\(pid (\d+)\)", str(error))}
        if not pids or any(_lives(pid) for pid in pids):
            return False
        self._stack.cancel()
        return True


class _Unchanged(LocalWorkspace):
    """Leaves the user's choice of a current stack as it is: every command of the Automation API names its stack."""

    def select_stack(self, stack_name: str) -> None:
        """Only looks whether there is such a stack."""
        self.pulumi_command.run(["stack", "--stack", stack_name], self.work_dir, self.env_vars)


class Watch:
    """What the events of an update tell: how long its operations took, and its errors, without those that name no cause."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._timed: list[Timed] = []
        self._faults: list[str] = []

    @property
    def timed(self) -> tuple[Timed, ...]:
        return tuple(self._timed)

    @property
    def faults(self) -> tuple[str, ...]:
        return unique(self._faults)

    def see(self, event: Any) -> None:
        now = time.monotonic()
        if event.resource_pre_event:
            self._began[event.resource_pre_event.metadata.urn] = now
        elif event.res_outputs_event:
            one = event.res_outputs_event.metadata
            action = _ACTIONS.get(getattr(one.op, "value", one.op))
            if action and one.urn in self._began and not event.res_outputs_event.planning:
                self._timed.append(Timed(action, one.urn, now - self._began[one.urn]))
        elif event.diagnostic_event and event.diagnostic_event.severity == "error":
            said = _URN.sub(lambda urn: _shown(urn[0]), _COLOURS.sub("", event.diagnostic_event.message).strip())
            whose = _shown(event.diagnostic_event.urn or "")
            if said != _NO_CAUSE:
                self._faults.append(f"{whose}: {said}" if whose else said)


_ACTIONS: Any = {"create": "create", "create-replacement": "create", "delete": "delete", "delete-replaced": "delete"}


def _is_scaffold(type_: str) -> bool:
    """Whether a resource of the state is nothing that exists anywhere: the stack itself, and providers."""
    return type_ == STACK_TYPE or type_.startswith(PROVIDER_PREFIX)


def _shown(urn: str) -> str:
    """``aws:eks/nodeGroup:NodeGroup name``"""
    parts = urn.split("::", 3)
    return f"{parts[2].rpartition('$')[2]} {parts[3]}" if len(parts) == 4 else urn


def said_by(error: CommandError) -> str:
    """What the CLI said of its end: its errors, else its first lines."""
    _, code, *lines = (line.strip() for line in _COLOURS.sub("", str(error)).splitlines())
    if code.startswith("code: -"):
        return f"the CLI was ended by signal {code.removeprefix('code: -')}"
    lines = [line.removeprefix("stdout:").removeprefix("stderr:").strip() for line in lines]
    telling = [line for line in lines if line.startswith("error:")] or [line for line in lines if line]
    return "; ".join(telling[:3])


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
