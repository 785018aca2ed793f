"""The web UI and the smoke test as data. Pure functions; no pulumi.

Sources: Open WebUI 0.12.4 (env.py, config.py, main.py and CHANGELOG of its package; Dockerfile and start.sh of its image), the
source system's manifest (names, ports).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from eks_inference.clients.spec import OpenWebUISpec
from eks_inference.kubernetes.network_policy import DNS, Rule, allow_to, namespace
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.kubernetes.workloads import APP_LABEL
from eks_inference.placement import Placement

WEB_UI_NAME = "open-webui"
WEB_UI_PORT = 8080
WEB_UI_LOCAL_PORT = 8081
"""Where a person opens it; the source system's port forward has the same."""
WEB_UI_PROGRESS_SECONDS = 900
"""Image (1.6 GB to pull), database migrations, embedding model: minutes on a small node."""
WEB_UI_KEY_VARIABLE = "SERVING_API_KEY"
"""The servers' key, if they want one. A name Open WebUI does not know: it would offer OPENAI_API_KEY to speech and images too."""

SMOKE_TEST_NAME = "smoke-test"
_SCRIPT = "chat.py"
_SCRIPT_FOLDER = "/client"
_ANSWER_SECONDS = 300  # of silence, after which a question is lost
_ANSWERS_SECONDS = 900  # three answers of 200 tokens at most, also on a server whose other users keep it busy
_MARGIN_SECONDS = 300  # pull of a small image on a node that may have to be filled first

_DATA = "/data"
_USER = 1000
_POD_SECURITY = {**restricted_pod(_USER), "fsGroupChangePolicy": "OnRootMismatch"}


def egress_to(servers: Mapping[str, str]) -> list[Rule]:
    """Egress of a client: names, and each server's own port in its namespace. ``servers`` maps endpoints to namespaces."""
    ports = sorted({(space, _port(endpoint)) for endpoint, space in servers.items()})
    return [DNS, *(allow_to(namespace(space), tcp=[port]) for space, port in ports)]


def web_ui_environment(spec: OpenWebUISpec, endpoints: Sequence[str], *, with_key: bool = False) -> dict[str, str]:
    """The environment of Open WebUI, without what is secret. ``with_key``: the servers want that of ``WEB_UI_KEY_VARIABLE``."""
    # Kubernetes fills in the variable. Without a key: an empty one would be sent as a header without a value.
    key = f"$({WEB_UI_KEY_VARIABLE})" if with_key else "none"
    return {
        "OPENAI_API_BASE_URLS": ";".join(endpoints),
        "OPENAI_API_KEYS": ";".join(key for _ in endpoints),  # one for each URL
        "ENABLE_OLLAMA_API": "false",
        # Otherwise the database keeps what the first start was given, and later changes of these variables do nothing.
        "ENABLE_PERSISTENT_CONFIG": "false",
        "ENABLE_SIGNUP": "false",
        # No look for updates and models on the internet: the network policy would let each attempt run into its timeout.
        "OFFLINE_MODE": "true",
        # Beside /app/backend/data, where the image keeps its embedding and speech models: an empty volume there hides them.
        "DATA_DIR": _DATA,
        # Signs the sessions. start.sh makes it once, from the system's random source; on the volume it outlives the pod.
        "WEBUI_SECRET_KEY_FILE": f"{_DATA}/.webui_secret_key",
        "HOME": _DATA,  # the image's is root's
        **spec.extra_env,
    }


def web_ui_service(spec: OpenWebUISpec) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Service."""
    return {
        "metadata": {"name": WEB_UI_NAME, "namespace": spec.namespace},
        "spec": {
            "type": "ClusterIP",
            "selector": {APP_LABEL: WEB_UI_NAME},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    }


def web_ui_deployment(
    spec: OpenWebUISpec, *, image: str, endpoints: Sequence[str], secrets: Sequence[Mapping[str, Any]], placement: Placement
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Deployment. ``secrets`` are further ``env`` entries."""
    labels = {APP_LABEL: WEB_UI_NAME}
    environment = web_ui_environment(spec, endpoints, with_key=WEB_UI_KEY_VARIABLE in [entry["name"] for entry in secrets])
    plain = [{"name": name, "value": value} for name, value in environment.items()]
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5}
    container = {
        "name": WEB_UI_NAME,
        "image": image,
        # Secrets first: a variable can only be filled into those behind it.
        "env": list({entry["name"]: dict(entry) for entry in (*secrets, *plain)}.values()),
        "ports": [{"name": "http", "containerPort": WEB_UI_PORT}],
        # No CPU limit: importing its libraries takes minutes with half a core, and it idles afterwards.
        "resources": {"requests": {"cpu": spec.cpu, "memory": spec.memory}, "limits": {"memory": spec.memory}},
        "startupProbe": {**probe, "failureThreshold": 60},
        "readinessProbe": probe,
        "livenessProbe": {**probe, "failureThreshold": 6},
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": [{"name": "data", "mountPath": _DATA}],
    }
    pod = {
        **_placed(placement),
        "securityContext": _POD_SECURITY,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": WEB_UI_NAME}}],
    }
    return {
        "metadata": {"name": WEB_UI_NAME, "namespace": spec.namespace, "labels": labels},
        "spec": {
            # One: more need PostgreSQL and Redis instead of files on a volume that one node can mount.
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": WEB_UI_PROGRESS_SECONDS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def web_ui_volume_claim(spec: OpenWebUISpec) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the volume's claim."""
    return {
        "metadata": {
            "name": WEB_UI_NAME,
            "namespace": spec.namespace,
            # The storage class waits for the first pod, which waits for this claim to exist: do not wait for the volume here.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": spec.storage_class,
            "resources": {"requests": {"storage": f"{spec.volume_gib}Gi"}},
        },
    }


def port_forward_command(namespace: str) -> str:
    """Opens the web UI at http://localhost:8081."""
    return f"kubectl -n {namespace} port-forward svc/{WEB_UI_NAME} {WEB_UI_LOCAL_PORT}:80"


def smoke_test_script() -> dict[str, str]:
    """The client's file by name: the very one behind ``eks-inference chat``."""
    return {_SCRIPT: files("eks_inference.clients").joinpath(_SCRIPT).read_text("utf-8")}


def smoke_test_seconds(startup_seconds: int) -> int:
    """How long the Job may take: a cold start of the server, three answers, and a margin."""
    return startup_seconds + _ANSWERS_SECONDS + _MARGIN_SECONDS


def smoke_test_job(
    namespace: str,
    *,
    image: str,
    endpoint: str,
    model: str,
    startup_seconds: int,
    wait: bool,
    run: str,
    placement: Placement,
    secret_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Job. Its name carries a hash of all that decides its outcome: Jobs cannot be changed."""
    command = ["python", f"{_SCRIPT_FOLDER}/{_SCRIPT}", "--url", endpoint, "--model", model]
    command += ["--wait", str(startup_seconds), "--timeout", str(_ANSWER_SECONDS)]
    labels = {APP_LABEL: SMOKE_TEST_NAME}
    container = {
        "name": SMOKE_TEST_NAME,
        "image": image,
        "command": command,
        "env": [
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            *(dict(entry) for entry in secret_env),
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "script", "mountPath": _SCRIPT_FOLDER, "readOnly": True}],
    }
    job = {
        "backoffLimit": 0,  # waiting is the script's business; a second try would hide that the first one failed
        "activeDeadlineSeconds": smoke_test_seconds(startup_seconds),
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                **_placed(placement),
                "restartPolicy": "Never",
                "securityContext": _POD_SECURITY,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "containers": [container],
                "volumes": [{"name": "script", "configMap": {"name": SMOKE_TEST_NAME}}],
            },
        },
    }
    content = json.dumps([smoke_test_script(), job, run], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:10]
    # A failed test that is waited for runs again with the next `pulumi up`, instead of failing it for ever.
    awaited = {"pulumi.com/replaceUnready": "true"} if wait else {"pulumi.com/skipAwait": "true"}
    return {
        "metadata": {
            "name": f"{SMOKE_TEST_NAME}-{digest}",
            "namespace": namespace,
            "labels": labels,
            "annotations": awaited,
        },
        "spec": job,
    }


def _placed(placement: Placement) -> dict[str, Any]:
    tolerations = placement.tolerations()
    return {"nodeSelector": dict(placement.node_selector), **({"tolerations": tolerations} if tolerations else {})}


def _port(endpoint: str) -> int:
    parts = urlsplit(endpoint)
    return parts.port or (443 if parts.scheme == "https" else 80)
