"""Reads a cluster with ``kubectl get`` and ``kubectl config view``. Who wants more asks for logs, or runs something in a pod."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from eks_inference_tools.verify.observed import Observed, ReleaseRecord, Unreadable
from stackgraph.graph.values import at, items, text, texts
from stackgraph.problems import Problem, ProblemsFound

_REQUEST_TIMEOUT_S = 20
_COMMAND_TIMEOUT_S = 60  # kubectl gets credentials from another command, which may contact another server
_PARALLEL_REQUESTS = 6
_LINES = 200
"""Lines of a log that are read."""

_VERSION = "/version"
# Helm's record of each revision: a Secret named after release and revision, with the status as a label.
_RELEASE_SECRET = re.compile(r"sh\.helm\.release\.v1\.(?P<name>.+)\.v(?P<revision>\d+)")


class AccessError(ProblemsFound):
    """The cluster cannot be inspected at all."""


class Kubectl:
    """Lists objects of one cluster through the ``kubectl`` on PATH, or through ``program``.

    ``kubeconfig`` and ``context`` have kubectl's defaults (``KUBECONFIG``, ``~/.kube/config``, current context).
    ``access_command`` creates a kubeconfig; messages mention it.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        access_command: str = "",
        program: Path | None = None,
    ) -> None:
        self._get_access = access_command or "aws eks update-kubeconfig --region REGION --name CLUSTER"
        self._context = context
        command = str(program) if program else shutil.which("kubectl")
        if command is None:
            hint = "`pulumi up` needs it too: https://kubernetes.io/docs/tasks/tools/"
            raise _problem("there is no kubectl on PATH", hint=hint)
        self._command = [command]
        if kubeconfig is not None:
            if not kubeconfig.is_file():
                raise self._no_kubeconfig("there is no such kubeconfig", str(kubeconfig))
            self._command += ["--kubeconfig", str(kubeconfig)]
        elif not any(path.is_file() for path in _default_kubeconfigs()) and "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise self._no_kubeconfig("there is no kubeconfig", " or ".join(map(str, _default_kubeconfigs())))
        if context is not None:
            self._command += ["--context", context]

    def check_cluster(self, cluster: str) -> str:
        """Returns the context in use. Raises ``AccessError`` if the kubeconfig points to another cluster than ``cluster``.

        The arguments of its credential command or the cluster's ARN identify the cluster; a kubeconfig with neither is trusted.
        """
        config = self._json("config", "view", "-o", "json")
        context = self._context or text(at(config, "current-context"))
        contexts = {text(at(item, "name")): _cluster_of(config, at(item, "context")) for item in items(at(config, "contexts"))}
        if context and context not in contexts:
            raise self._wrong_context("there is no such context", context, contexts, cluster)
        if not context and contexts:
            raise self._wrong_context("the kubeconfig has no current context", "", contexts, cluster)
        named = contexts.get(context, "")
        if named and cluster and named != cluster:
            raise self._wrong_context(
                f"this context is for cluster {named}, the stack's cluster is {cluster}", context, contexts, cluster
            )
        return context

    def read(self, resources: Sequence[str], *, releases: bool = False) -> Observed:
        """Reads everything that checks need. Raises ``AccessError`` if the cluster does not answer or forbids everything."""
        # A single request goes first: if it fails, all others would fail with the same message.
        try:
            version = _api_version(self._json("get", "--raw", _VERSION))
        except _Unlisted as error:
            raise _problem(error.why.said, hint=_ACCESS_HINT) from error
        with ThreadPoolExecutor(_PARALLEL_REQUESTS) as threads:
            noted = threads.submit(self._releases) if releases else None
            listed = dict(zip(resources, threads.map(self._list, resources), strict=True))
        unreadable = {resource: found for resource, found in listed.items() if isinstance(found, Unreadable)}
        forbidden = [item for item in unreadable.values() if item.reason == "forbidden"]
        if forbidden and len(unreadable) == len(listed):
            raise _problem(forbidden[0].said, hint=_ACCESS_HINT)
        return Observed(
            server_version=version,
            objects={resource: found for resource, found in listed.items() if not isinstance(found, Unreadable)},
            unreadable=unreadable,
            releases=noted.result() if noted else {},
        )

    def log(self, namespace: str, name: str, container: str = "", *, whole: bool = False) -> str:
        """Returns the last lines, or all, of a pod or of a Job (``job/NAME``), and of its former container where that crashed.
        Empty when nobody has them.
        """
        chosen = ["-c", container] if container else []
        for former in (["--previous"], []) if container else ([],):
            try:
                return self._run("-n", namespace, "logs", name, *chosen, *former, f"--tail={-1 if whole else _LINES}")
            except (AccessError, _Unlisted):
                continue
        return ""

    def execute(self, namespace: str, pod: str, *command: str) -> str:
        """Returns what a command in a pod prints; empty when it cannot be run."""
        try:
            return self._run("-n", namespace, "exec", pod, "--", *command)
        except (AccessError, _Unlisted):
            return ""

    def _list(self, resource: str) -> list[Mapping[str, Any]] | Unreadable:
        try:
            found = self._json("get", resource, "--all-namespaces", "-o", "json")
        except _Unlisted as error:
            return error.why
        return [item for item in items(at(found, "items")) if isinstance(item, Mapping)]

    def _releases(self) -> dict[tuple[str, str], ReleaseRecord] | None:
        """Returns Helm's records, read as a table: kubectl then fetches only names and labels, not the values of the Secrets."""
        try:
            table = self._run("get", "secrets", "--all-namespaces", "-l", "owner=helm", "-L", "status", "--no-headers")
        except _Unlisted:
            return None
        found: dict[tuple[str, str], ReleaseRecord] = {}
        for line in table.splitlines():
            columns = line.split()
            match = _RELEASE_SECRET.fullmatch(columns[1]) if len(columns) > 2 else None
            if match is None:
                continue
            release, revision = (columns[0], match["name"]), int(match["revision"])
            if release not in found or found[release].revision < revision:
                found[release] = ReleaseRecord(status=columns[-1], revision=revision)
        return found

    def _json(self, *arguments: str) -> Any:
        answer = self._run(*arguments)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise _problem(f"kubectl {' '.join(arguments)} did not return JSON", given=text(answer[:80]) or "nothing") from error

    def _run(self, *arguments: str) -> str:
        command = [*self._command, f"--request-timeout={_REQUEST_TIMEOUT_S}s", *arguments]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise _problem(f"no answer within {_COMMAND_TIMEOUT_S} s to kubectl {' '.join(arguments)}") from error
        except OSError as error:
            raise _problem(f"kubectl cannot be run: {error.strerror}", given=self._command[0]) from error
        if done.returncode:
            raise self._failure(done.stderr, arguments)
        return done.stdout

    def _failure(self, message: str, arguments: Sequence[str]) -> Exception:
        """Interprets kubectl's message. Its client library logs every attempt before the line with the outcome."""
        lines = [line for line in message.splitlines() if line.strip() and not re.match(r"[EWI]\d{4} |\t| >$", line)]
        said = next((line for line in lines if _OUTCOME.search(line)), lines[0] if lines else "kubectl said nothing")
        said = text(said.removeprefix("error: "))
        if said == "EOF":
            said = "the connection to the cluster was closed without an answer: EOF"
        if "(Forbidden)" in said:
            return _Unlisted(Unreadable(arguments[1], "forbidden", said))
        if "the server doesn't have a resource type" in said:
            return _Unlisted(Unreadable(arguments[1], "not installed", said))
        hint = next((hint for words, hint in _HINTS if re.search(words, said)), "")
        return _problem(said, given=f"kubectl {' '.join(arguments)}", hint=hint.format(access=self._get_access))

    def _no_kubeconfig(self, message: str, where: str) -> AccessError:
        return _problem(message, given=where, hint=f"{self._get_access}, or name one with --kubeconfig")

    def _wrong_context(self, message: str, context: str, contexts: Mapping[str, str], cluster: str) -> AccessError:
        fitting = sorted(name for name, leads_to in contexts.items() if cluster and leads_to == cluster)
        hint = f"--context {fitting[0]}" if fitting else self._get_access
        return _problem(message, given=context, allowed=", ".join(fitting or sorted(contexts)), hint=hint)


class _Unlisted(Exception):
    """One resource cannot be listed; others might."""

    def __init__(self, why: Unreadable) -> None:
        super().__init__(why.said)
        self.why = why


_OUTCOME = re.compile(r"^(error: |Error from server|Unable to connect|The connection to the server|Error in configuration)")
_ACCESS_HINT = "your IAM principal needs an access entry: cluster.admins of the stack (viewers see neither nodes nor node pools)"
_HINTS = (
    (r"executable \S+ not found", "it fetches your credentials: install it, or create a kubeconfig for a command you have"),
    (r"getting credentials|executable \S+ failed", "your AWS credentials are missing or expired: aws sts get-caller-identity"),
    (r"Unauthorized|must be logged in", f"{_ACCESS_HINT}; or the credentials belong to another account"),
    (r"no such host", "the cluster is gone, or the kubeconfig is old: {access}"),
    (
        r"refused|timeout|timed out|deadline|unreachable|no route",
        "check that the endpoint is public to you, or that you are in its network",
    ),
    (r"EOF|reset by peer|broken pipe", "the cluster is gone, or a proxy or tunnel in between is down: {access}"),
    (r"x509|certificate", "the kubeconfig is for another cluster: {access}"),
    (r"onfiguration|loading config|no context", "create a new kubeconfig: {access}"),
)


def _api_version(version: Any) -> str:
    """Returns the version of the API, which may be older than the server's own version (``--emulated-version``)."""
    own, major, minor = (text(at(version, key)) for key in ("gitVersion", "emulationMajor", "emulationMinor"))
    emulates = minor and not own.startswith(f"v{major}.{minor}.")
    return f"v{major}.{minor}, spoken by {own}" if emulates else own


def _problem(message: str, **details: str) -> AccessError:
    return AccessError([Problem(message, **details)])  # type: ignore[arg-type]


def _default_kubeconfigs() -> list[Path]:
    """Returns kubectl's default files (Kubernetes documentation, "Organizing cluster access using kubeconfig files")."""
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return list(map(Path, named or [Path.home() / ".kube" / "config"]))


def _cluster_of(config: Any, context: Any) -> str:
    """Returns the EKS cluster of a context; empty if the kubeconfig does not say."""
    user = next((item for item in items(at(config, "users")) if at(item, "name") == at(context, "user")), None)
    arguments = texts(at(user, "user", "exec", "args"))
    for option in ("--cluster-name", "--cluster-id", "-i"):
        if option in arguments[:-1]:
            return arguments[arguments.index(option) + 1].rpartition("/")[2]
    name = text(at(context, "cluster"))
    return name.rpartition("/")[2] if name.startswith("arn:") else ""
