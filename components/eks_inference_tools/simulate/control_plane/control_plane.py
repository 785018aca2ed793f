"""Runs a real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok as kubelets."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

import requests
import yaml

from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.control_plane.processes import ComponentError, Processes, free_port
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from stackgraph.problems import Problem

TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")

LOST_LABEL = "eks-inference/lost"
"""On a node whose kubelet says nothing any more: what was lost, ``node`` or ``zone``."""

_STAGES = resources.files("eks_inference_tools.simulate.control_plane").joinpath("assets/stages.yaml")
_LEASES, _OF_NODES = "leases.coordination.k8s.io", "kube-node-lease"
_SERVICE_CIDR = "172.20.0.0/16"  # the default of EKS for clusters in 10.0.0.0/8
_POD_CIDR = "10.128.0.1/16"
_START_SECONDS = 120
_ATTEMPTS = 3
_PORT_TAKEN = "address already in use"

# Built-in users and their groups (Kubernetes, "Using RBAC Authorization", core component roles).
_USERS = {"admin": "system:masters", "system:kube-controller-manager": "", "system:kube-scheduler": ""}


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane. ``api`` and ``kubeconfig`` belong to the administrator; ``version`` is as given (``1.35``).

    ``certificate`` is the certificate of the API server and its CA; the key lies beside it as ``.key``.
    """

    api: Api
    url: str
    version: str
    kubeconfig: Path
    certificate: Path
    processes: Processes
    toolchain: Toolchain
    health: dict[str, str] = field(default_factory=dict[str, str])
    """Where components beside the API server say that they are well, by name."""

    def await_answers(self) -> None:
        """Waits until each of them has answered. One that the machine gives no time looks like one that has nothing to do."""
        for url in tuple(self.health.values()):
            self.api.is_answered(url)

    def kubeconfig_of(self, token: str) -> Path:
        """Writes a kubeconfig that authenticates with a token."""
        return _kubeconfig(self.processes.folder / f"kubeconfig-{secrets.token_hex(4)}", self.url, self.certificate, token)

    def upgraded(self, version: str) -> "ControlPlane":
        """Runs another version on the same etcd: the API server first, as EKS does. Clients lose their connections."""
        for name in _OF_A_VERSION:
            self.processes.restart(
                name, lambda argv: [*(one for one in argv if not one.startswith(_EMULATED)), *_emulated(version)]
            )
            if name == _OF_A_VERSION[0]:
                self.wait_for_api()
        return replace(self, version=version)

    def restart_api_server(self) -> None:
        self.processes.restart(_OF_A_VERSION[0], lambda argv: argv)
        self.wait_for_api()

    def wait_for_api(self) -> None:
        self.processes.wait_until(lambda: _serves(self.api), seconds=_START_SECONDS, what="the API server")


_EMULATED = "--emulated-version="
_OF_A_VERSION = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def _emulated(version: str) -> list[str]:
    return [f"{_EMULATED}{version}"] if version else []


Preparation = Callable[[ControlPlane], object]


@contextmanager
def control_plane(toolchain: Toolchain, *, version: str = "", prepare: Preparation | None = None) -> Iterator[ControlPlane]:
    """Runs a control plane for the duration of the context. All its files go with it.

    ``version`` is the minor version of Kubernetes to serve; the default is that of the tools, which emulate older ones
    (Kubernetes, "Compatibility Version For Kubernetes Control Plane Components"). ``prepare`` runs once the API server serves,
    before any controller: the garbage collector looks for new kinds every 30 s only, and blocks deletions of objects whose
    definition it has not seen. Raises ``ComponentError`` with the last output of what did not start.
    """
    with Processes() as processes:
        plane = _start(processes, toolchain, version, prepare or (lambda plane: None))
        try:
            yield plane
        except requests.RequestException as error:
            # A process that exited is the likely cause, and its error says more.
            processes.ensure_alive()
            raise ComponentError([Problem(f"the API server does not answer: {error}")]) from error
        finally:
            plane.api.close()


def _start(processes: Processes, toolchain: Toolchain, version: str, prepare: Preparation) -> ControlPlane:
    """Starts with other ports when another program has taken one that was free."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _start_on_free_ports(processes, toolchain, version, prepare)
        except ComponentError:
            if not any(_PORT_TAKEN in processes.log(name) for name in TOOLS):
                raise
            for name in TOOLS:
                processes.stop(name)
    return _start_on_free_ports(processes, toolchain, version, prepare)


def _start_on_free_ports(processes: Processes, toolchain: Toolchain, version: str, prepare: Preparation) -> ControlPlane:
    def start(tool: str, *flags: str) -> None:
        processes.start(tool, [toolchain.path(tool), *flags])

    def start_beside(tool: str, *flags: str) -> None:
        """Starts a component that answers, too, with the certificate of the API server."""
        port = free_port()
        files = f"--tls-cert-file={certificate}", f"--tls-private-key-file={certificate.with_suffix('.key')}"
        start(tool, "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={port}", *files, *flags, *emulated)
        plane.health[tool] = f"https://127.0.0.1:{port}/healthz"

    folder = processes.folder
    etcd, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    start(
        "etcd",
        f"--data-dir={folder / f'etcd-{secrets.token_hex(4)}'}",
        f"--listen-client-urls={etcd}",
        f"--advertise-client-urls={etcd}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # the data need not outlive the simulation
    )
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    tokens = {user: secrets.token_hex(16) for user in _USERS}
    (folder / "tokens.csv").write_text("".join(f'{token},{user},{user},"{_USERS[user]}"\n' for user, token in tokens.items()))
    certificate = folder / f"certificates-{port}" / "apiserver.crt"
    emulated = _emulated(version)
    start(
        "kube-apiserver",
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",  # Endpoints may not have loopback addresses
        f"--secure-port={port}",
        f"--cert-dir={certificate.parent}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",  # as on EKS; Pod Security decides who may be privileged
        f"--service-cluster-ip-range={_SERVICE_CIDR}",
        "--service-account-issuer=https://kubernetes.default.svc",
        # The server generates its own certificate and key. The key also signs tokens, and by default checks them.
        f"--service-account-signing-key-file={certificate.with_suffix('.key')}",
        f"--service-account-key-file={certificate.with_suffix('.key')}",
        # No client has a certificate, but components look for the CA that the server publishes.
        f"--client-ca-file={certificate}",
        *emulated,
    )
    processes.wait_until(certificate.exists, seconds=_START_SECONDS, what="the API server's certificate")
    kubeconfigs = {
        user: _kubeconfig(folder / f"kubeconfig-{user.rpartition(':')[2]}", url, certificate, token)
        for user, token in tokens.items()
    }
    api = Api(url, tokens["admin"], certificate)
    plane = ControlPlane(api, url, version, kubeconfigs["admin"], certificate, processes, toolchain)
    plane.wait_for_api()
    prepare(plane)
    start_beside(
        "kube-controller-manager",
        f"--kubeconfig={kubeconfigs['system:kube-controller-manager']}",
        f"--root-ca-file={certificate}",
        f"--service-account-private-key-file={certificate.with_suffix('.key')}",
        "--use-service-account-credentials=true",
        "--pvclaimbinder-sync-period=1s",  # claims of static volumes are bound on this timer only; the default is 15 s
    )
    start_beside("kube-scheduler", f"--kubeconfig={kubeconfigs['system:kube-scheduler']}")
    # Pods need the ServiceAccount that the controllers create.
    processes.wait_until(
        lambda: all(map(api.is_answered, plane.health.values())) and api.get("serviceaccounts", "default", "default"),
        seconds=_START_SECONDS,
        what="the controller manager and the scheduler",
    )
    kubelets(plane)
    return plane


def kubelets(plane: ControlPlane, delay: str = "") -> None:
    """Starts the kubelets of all nodes without ``LOST_LABEL``, again if they run.

    ``delay`` is an expression of jq that returns how long a pod with a node takes until it is ready (``90s``), or when it is
    (RFC 3339). The default is no time.
    """
    stages = list(yaml.safe_load_all(_STAGES.read_text("utf-8")))
    if delay:
        starts = next(stage for stage in stages if stage["metadata"]["name"] == "pod-becomes-ready")
        starts["spec"]["delay"] = {"durationFrom": {"jq": {"expression": delay}}}
    file = plane.processes.folder / "stages.yaml"
    file.write_text(yaml.safe_dump_all(stages), "utf-8")
    plane.processes.stop("kwok")
    # Leases of the one that ran before would keep its successor from renewing them, and nodes would not be Ready any more.
    for lease in plane.api.list(_LEASES, _OF_NODES):
        plane.api.delete(_LEASES, lease["metadata"]["name"], _OF_NODES)
    nodes = {node["metadata"]["name"] for node in plane.api.list("nodes") if LOST_LABEL not in node["metadata"]["labels"]}
    argv = [
        plane.toolchain.path("kwok"),
        f"--kubeconfig={plane.kubeconfig}",
        f"--config={file}",
        f"--manage-nodes-with-label-selector=!{LOST_LABEL}",
        f"--cidr={_POD_CIDR}",
        "--node-lease-duration-seconds=40",
    ]

    def is_ready(port: int) -> bool:
        plane.health["kwok"] = f"http://127.0.0.1:{port}/healthz"
        leases = {lease["metadata"]["name"] for lease in plane.api.list(_LEASES, _OF_NODES)}
        return plane.api.is_answered(plane.health["kwok"]) and nodes <= leases

    plane.processes.start_on_a_port("kwok", lambda port: [*argv, f"--server-address=127.0.0.1:{port}"], is_ready)


def _serves(api: Api) -> bool:
    try:
        return api.raw("GET", "/readyz") == "ok"
    except (ApiRefusal, requests.RequestException):
        return False


def _kubeconfig(path: Path, url: str, certificate: Path, token: str) -> Path:
    """Writes a kubeconfig, as JSON, which is YAML."""
    name = "simulation"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(certificate)}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.write_text(json.dumps(config))
    return path
