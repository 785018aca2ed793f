"""What has to be done before a pair can serve, and the question whether it does: Jobs. Pure functions; no pulumi.

Download, compilation and check of EFA come before the servers, on the same nodes. When one of them changes later, the servers
hold the devices it needs: its priority is higher, so Kubernetes ends their pods first, and starts them again once it is over.

A Job's name carries a hash of what it does: other content is another Job, and nothing runs twice.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.kubernetes.network_policy import DNS, HTTPS, allow_from, allow_to, network_policy, pods
from eks_inference.placement import Placement
from eks_inference.serving.disaggregated.artifact import STORE, artifact, model_folder
from eks_inference.serving.disaggregated.servers import API_PORT
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.disaggregated.workloads import (
    PLAN,
    ROOT_POD,
    SCRIPT_CONTAINER,
    SCRIPT_POD,
    SCRIPTS,
    UNAWAITED,
    config_map,
    digest,
    efa_interfaces,
    labels,
    placed,
    private_mounts,
    private_volumes,
    root_container,
    script,
    server_files,
    store_volume,
    variables,
)
from eks_inference.serving.pods import device_resource

PREPARATION_PRIORITY = 1000
"""Of the Jobs that prepare. Pods without a class have 0, and the servers have none."""

_EFA_SECONDS = 1800  # node and image of the other end included
_ANSWER_SECONDS = 900  # two answers, on a server that others keep busy


def priority_class(name: str) -> dict[str, Any]:
    """``metadata`` and fields of the PriorityClass of the Jobs that prepare. It belongs to no namespace."""
    return {
        "metadata": {"name": f"{name}-preparation"},
        "value": PREPARATION_PRIORITY,
        "description": f"Jobs that prepare the model of {name}: they go before its servers, which cannot serve without them.",
    }


def download_files(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    return config_map(name, "download", {"download.py": script("download.py")}, spec.namespace_of(name))


def download(
    name: str,
    spec: DisaggregatedPairSpec,
    placement: Placement,
    *,
    image: str,
    config: str,
    token_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Job that puts the model into the store."""
    container = {
        "name": "download",
        "image": image,
        "command": ["python3", f"{SCRIPTS}/download.py", spec.model.id, spec.revision, model_folder(spec)],
        # The Hub's client keeps parts of files beside what it makes of them.
        "env": variables({"HOME": "/tmp", "PYTHONUNBUFFERED": "1"}),
        "resources": {"requests": {"cpu": "8", "memory": "16Gi"}, "limits": {"memory": "16Gi"}},
        "securityContext": root_container(),
        "volumeMounts": [
            {"name": "store", "mountPath": STORE},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
        ],
    }
    pod = {
        **placed(placement),
        **ROOT_POD,
        "containers": [container],
        "volumes": [
            store_volume(name),
            {"name": "tmp", "emptyDir": {}},
            {"name": "scripts", "configMap": {"name": config}},
        ],
    }
    return _job(name, spec, "download", pod, seconds=spec.download_timeout_minutes * 60, tries=4, secret_env=token_env)


def compile_files(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    """Not those of the servers: what concerns only them must not compile anything, or ask for chips to see that it need not."""
    data = {"artifact.py": script("artifact.py"), "pair.json": json.dumps({"artifact": artifact(spec).document}, indent=1)}
    return config_map(name, "compile", data, spec.namespace_of(name))


def compilation(name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: str, config: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Job that compiles. It asks for all devices of a node, as the servers do."""
    asked = {"cpu": spec.cpu, "memory": spec.memory, device_resource(spec.shape): str(spec.shape.devices)}
    container = {
        "name": "compile",
        "image": image,
        "command": ["python3", f"{SCRIPTS}/artifact.py", "compile", PLAN],
        "env": variables({"HOME": "/tmp", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}),
        "resources": {"requests": asked, "limits": asked},
        "securityContext": root_container(),
        "volumeMounts": [
            {"name": "store", "mountPath": STORE},
            *private_mounts(),
            {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
        ],
    }
    pod = {
        **placed(placement),
        **ROOT_POD,
        "priorityClassName": priority_class(name)["metadata"]["name"],
        "containers": [container],
        "volumes": [store_volume(name), *private_volumes(spec), {"name": "scripts", "configMap": {"name": config}}],
    }
    what = f"compile-{artifact(spec).key}"
    return _job(name, spec, what, pod, seconds=spec.compile_timeout_minutes * 60, tries=2)


def efa_files(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    return config_map(name, "efa", {"efa.py": script("efa.py")}, spec.namespace_of(name))


def efa_check(name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: str, config: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Job that tries EFA out: on one node by itself, on two by a pod on each."""
    interfaces = str(efa_interfaces(spec, placement))
    asked = {EFA_RESOURCE: interfaces}
    between = spec.instances == 2
    container = {
        "name": "efa",
        "image": image,
        "command": ["python3", f"{SCRIPTS}/efa.py", interfaces, *([efa_address(name, spec)] if between else [])],
        "env": variables({"HOME": "/tmp", "PYTHONUNBUFFERED": "1"}),
        "resources": {"requests": {"cpu": "2", "memory": "4Gi", **asked}, "limits": {"memory": "4Gi", **asked}},
        "securityContext": root_container(spec.capabilities),
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
        ],
    }
    pod = {
        **placed(placement),
        **ROOT_POD,
        **({"subdomain": efa_service(name, spec)["metadata"]["name"]} if between else {}),
        "priorityClassName": priority_class(name)["metadata"]["name"],
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "scripts", "configMap": {"name": config}}],
    }
    # All interfaces of a node for each pod: two never share one.
    indexed = {"completionMode": "Indexed", "completions": 2, "parallelism": 2} if between else {}
    # The pods find each other by the Job's name, so what they do, and with it the hash, would depend on it.
    return _job(name, spec, "efa", pod, seconds=_EFA_SECONDS, tries=2, fixed_name=between, **indexed)


def efa_service(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the headless Service by which one end of the check finds the other."""
    return {
        "metadata": {"name": f"{name}-efa", "namespace": spec.namespace_of(name), "annotations": dict(UNAWAITED)},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels(name, "efa")},
    }


def efa_address(name: str, spec: DisaggregatedPairSpec) -> str:
    """The end that is called: pod 0 of the check."""
    return f"{name}-efa-0.{name}-efa.{spec.namespace_of(name)}.svc.cluster.local"


def answers_files(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    return config_map(name, "answers", {"answers.py": script("answers.py")}, spec.namespace_of(name))


def answers(
    name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: str, config: str, endpoint: str, seconds: int
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Job that asks the pair two questions; it may take ``seconds`` until it is well."""
    container = {
        "name": "answers",
        "image": image,
        "command": ["python", f"{SCRIPTS}/answers.py", endpoint, spec.model.id, str(seconds)],
        "env": variables({"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": SCRIPT_CONTAINER,
        "volumeMounts": [{"name": "scripts", "mountPath": SCRIPTS, "readOnly": True}],
    }
    pod = {
        **placed(placement),
        **SCRIPT_POD,
        "containers": [container],
        "volumes": [{"name": "scripts", "configMap": {"name": config}}],
    }
    # With every change of the servers anew.
    content = server_files(name, spec)["metadata"]["name"]
    return _job(name, spec, "answers", pod, seconds=seconds + _ANSWER_SECONDS, tries=1, content=content)


def network_policies(name: str, spec: DisaggregatedPairSpec) -> dict[str, dict[str, Any]]:
    """``metadata`` and ``spec`` of the NetworkPolicies of the Jobs. The compile Job talks to nobody."""
    front = pods(labels(name, "router" if spec.serving == "pair" else "baseline"))
    peers = pods(labels(name, "efa"))
    between = spec.instances == 2
    rules = {
        "download": ([], [DNS, HTTPS]),
        "efa": ([allow_from(peers)] if between else [], [DNS, allow_to(peers)] if between else []),
        "answers": ([], [DNS, allow_to(front, tcp=[API_PORT])]),
    }
    return {
        what: network_policy(
            f"{name}-{what}", spec.namespace_of(name), selector=labels(name, what), ingress=ingress, egress=egress
        )
        for what, (ingress, egress) in rules.items()
    }


def _job(
    name: str,
    spec: DisaggregatedPairSpec,
    what: str,
    pod: Mapping[str, Any],
    *,
    seconds: int,
    tries: int,
    fixed_name: bool = False,
    content: Any = None,
    secret_env: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> dict[str, Any]:
    """``content`` is what else another Job is made for. Secrets are not: their names may not be known yet."""
    role = what.partition("-")[0]
    job = {
        "backoffLimit": tries - 1,
        "activeDeadlineSeconds": seconds,
        **more,
        "template": {
            "metadata": {"labels": labels(name, role)},
            "spec": {**pod, "restartPolicy": "Never"},
        },
    }
    told_apart = digest([job, content])
    for container in job["template"]["spec"]["containers"]:
        container["env"] = [*container["env"], *secret_env]
        container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    return {
        "metadata": {
            "name": f"{name}-{what}" if fixed_name else f"{name}-{what}-{told_apart}",
            "namespace": spec.namespace_of(name),
            "labels": labels(name, role),
            # A Job that failed is made again by the next `pulumi up`, which would otherwise wait for it for ever.
            "annotations": {"pulumi.com/replaceUnready": "true"},
        },
        "spec": job,
    }
