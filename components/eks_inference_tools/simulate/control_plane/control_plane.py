"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok for the kubelets."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import requests

from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal
from eks_inference_tools.simulate.control_plane.processes import ComponentError, Processes, free_port
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from stackgraph.problems import Problem

TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")

SERVICE_CIDR = "172.20.0.0/16"  # what EKS gives clusters in 10.0.0.0/8
_POD_CIDR = "10.128.0.1/16"
_START_SECONDS = 120
_ATTEMPTS = 3
_PORT_TAKEN = "address already in use"

# The built-in users of the components (Kubernetes, "Using RBAC Authorization", core component roles).
_USERS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane. ``api`` is its administrator's; ``version`` the minor version it speaks (``1.35``)."""

    api: Api
    url: str
    version: str
    kubeconfig: Path
    certificate: Path
    """The API server's certificate and the authority that signed it; its key lies beside it as ``.key``."""
    processes: Processes
    toolchain: Toolchain

    def kubeconfig_of(self, token: str) -> Path:
        """A kubeconfig for the holder of a token."""
        return _kubeconfig(self.processes.folder / f"kubeconfig-{secrets.token_hex(4)}", self.url, self.certificate, token)


Preparation = Callable[[ControlPlane], object]


@contextmanager
def control_plane(toolchain: Toolchain, *, version: str = "", prepare: Preparation | None = None) -> Iterator[ControlPlane]:
    """Starts a control plane and ends it with the context, with everything it wrote.

    ``version`` is the minor version of Kubernetes to speak (default: the tools' own): older ones are emulated by the tools
    (Kubernetes, "Compatibility Version For Kubernetes Control Plane Components"). ``prepare`` is called when the API server
    serves and no controller runs yet: the garbage collector looks for new kinds every 30 s only, and until then holds up
    deletions of objects whose definition came later. Raises ``ComponentError`` with the words of what did not start.
    """
    with Processes() as processes:
        plane = _start(processes, toolchain, version, prepare or (lambda plane: None))
        try:
            yield plane
        except requests.RequestException as error:
            # Most likely because one of them has ended, which tells more.
            processes.ensure_alive()
            raise ComponentError([Problem(f"the API server does not answer: {error}")]) from error
        finally:
            plane.api.close()


def _start(processes: Processes, toolchain: Toolchain, version: str, prepare: Preparation) -> ControlPlane:
    """A port that was free may be taken a moment later, so that is tried again with others."""
    for attempt in range(_ATTEMPTS):
        try:
            return _start_on_free_ports(processes, toolchain, version, prepare)
        except ComponentError:
            taken = [name for name in TOOLS if _PORT_TAKEN in processes.log(name)]
            if not taken or attempt == _ATTEMPTS - 1:
                raise
            for name in TOOLS:
                processes.stop(name)
    raise AssertionError("every attempt returns or raises")


def _start_on_free_ports(processes: Processes, toolchain: Toolchain, version: str, prepare: Preparation) -> ControlPlane:
    folder = processes.folder
    etcd, port = _start_etcd(processes, toolchain), free_port()
    url = f"https://127.0.0.1:{port}"
    tokens = {user: secrets.token_hex(16) for user in _USERS}
    rows = (f'{token},{user},{user},"{_USERS[user]}"' for user, token in tokens.items())
    (folder / "tokens.csv").write_text("".join(f"{row}\n" for row in rows))
    certificate = folder / f"certificates-{port}" / "apiserver.crt"
    emulated = [f"--emulated-version={version}"] if version else []

    processes.start(
        "kube-apiserver",
        [
            toolchain.path("kube-apiserver"),
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # Endpoints of loopback are invalid
            f"--secure-port={port}",
            f"--cert-dir={certificate.parent}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",  # as on EKS; who may be privileged is Pod Security's business
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--service-account-issuer=https://kubernetes.default.svc",
            # The server makes a certificate and a key for itself; the key signs tokens, too, as is its default for checking them.
            f"--service-account-signing-key-file={certificate.with_suffix('.key')}",
            f"--service-account-key-file={certificate.with_suffix('.key')}",
            # Nobody has a certificate that it signed. Components look for it where the server publishes it.
            f"--client-ca-file={certificate}",
            *emulated,
        ],
    )
    processes.wait_until(certificate.exists, seconds=_START_SECONDS, what="the API server's certificate")
    kubeconfigs = {
        user: _kubeconfig(folder / f"kubeconfig-{user.rpartition(':')[2]}", url, certificate, token)
        for user, token in tokens.items()
    }
    api = Api(url, tokens["admin"], certificate)
    plane = ControlPlane(
        api=api,
        url=url,
        version=version,
        kubeconfig=kubeconfigs["admin"],
        certificate=certificate,
        processes=processes,
        toolchain=toolchain,
    )
    processes.wait_until(lambda: _serves(api), seconds=_START_SECONDS, what="the API server")
    prepare(plane)
    processes.start(
        "kube-controller-manager",
        [
            toolchain.path("kube-controller-manager"),
            f"--kubeconfig={kubeconfigs['system:kube-controller-manager']}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--root-ca-file={certificate}",
            f"--service-account-private-key-file={certificate.with_suffix('.key')}",
            "--use-service-account-credentials=true",
            "--pvclaimbinder-sync-period=1s",  # claims of static volumes wait for this clock; 15 s of nothing else
            *emulated,
        ],
    )
    processes.start(
        "kube-scheduler",
        [
            toolchain.path("kube-scheduler"),
            f"--kubeconfig={kubeconfigs['system:kube-scheduler']}",
            "--leader-elect=false",
            "--secure-port=0",
            *emulated,
        ],
    )
    processes.wait_until(lambda: _is_controlled(api), seconds=_START_SECONDS, what="the controller manager")
    _start_kwok(plane)
    return plane


def _start_etcd(processes: Processes, toolchain: Toolchain) -> str:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    processes.start(
        "etcd",
        [
            toolchain.path("etcd"),
            f"--data-dir={processes.folder / f'etcd-{secrets.token_hex(4)}'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # it lives as long as the simulation
        ],
    )
    return client


def _start_kwok(plane: ControlPlane) -> None:
    stages = plane.processes.folder / "stages.yaml"
    stages.write_bytes(resources.files("eks_inference_tools.simulate.control_plane").joinpath("assets/stages.yaml").read_bytes())
    plane.processes.start(
        "kwok",
        [
            plane.toolchain.path("kwok"),
            f"--kubeconfig={plane.kubeconfig}",
            f"--config={stages}",
            "--manage-all-nodes=true",
            f"--cidr={_POD_CIDR}",
            "--node-lease-duration-seconds=40",
        ],
    )


def _serves(api: Api) -> bool:
    try:
        return api.raw("GET", "/readyz") == "ok"
    except (ApiRefusal, requests.RequestException):
        return False


def _is_controlled(api: Api) -> bool:
    """Whether the controllers have begun: pods need the ServiceAccount they make."""
    return api.get("serviceaccounts", "default", "default") is not None


def _kubeconfig(path: Path, url: str, certificate: Path, token: str) -> Path:
    """Written as JSON, which is YAML."""
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
