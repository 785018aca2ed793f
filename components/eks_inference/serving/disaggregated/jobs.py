"""Plans the Jobs of a pair: download, compilation, EFA check, and a test of its answers. Pure functions; no pulumi.

Download, compilation and EFA check run before the servers, on the same nodes. If one of them changes later, the servers hold the
devices that it needs. Its higher priority makes Kubernetes evict the servers' pods, and start them again after the Job.

A Job's name contains a hash of what it does: changed content is a new Job, and nothing runs twice.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eks_inference.kubernetes.network_policy import DNS, allow_from, allow_to, network_policy, pods
from eks_inference.kubernetes.workloads import UNAWAITED
from eks_inference.place.placement import Placement
from eks_inference.serving.disaggregated import parts
from eks_inference.serving.disaggregated.pair_pods import cold_start_seconds, server_files
from eks_inference.serving.disaggregated.pair_processes import API_PORT
from eks_inference.serving.disaggregated.parts import ROOT_POD, SCRIPTS, artifact, labels, model_folder, root_container
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.pod_parts import DOWNLOAD, over_https

_EFA_SECONDS = 1800  # including the other end's node start and image pull
_ANSWER_SECONDS = 900  # for two answers from a busy server


class Step(NamedTuple):
    """A Job and the ConfigMap that it reads, each as ``metadata`` and contents."""

    files: dict[str, Any]
    job: dict[str, Any]


def priority_class(name: str) -> dict[str, Any]:
    """Returns ``metadata`` and fields of the PriorityClass of the Jobs that prepare. It is not namespaced."""
    return {
        "metadata": {"name": f"{name}-preparation"},
        "value": 1000,  # pods without a class, such as the servers, have 0
        "description": f"Jobs that prepare the model of {name}: they go before its servers, which cannot serve without them.",
    }


def download(
    name: str,
    spec: DisaggregatedPairSpec,
    placement: Placement,
    *,
    image: str,
    token_env: Sequence[Mapping[str, Any]] = (),
) -> Step:
    """Returns the Job that downloads the model into the store."""
    return _step(
        name,
        spec,
        "download",
        placement,
        image=image,
        data=parts.scripts(DOWNLOAD),
        command=["python3", f"{SCRIPTS}/{DOWNLOAD}", spec.model.id, spec.revision, model_folder(spec)],
        # The Hub's client caches parts of files in its home directory.
        env={"HOME": "/tmp", "PYTHONUNBUFFERED": "1"},
        resources={"requests": {"cpu": "8", "memory": "16Gi"}, "limits": {"memory": "16Gi"}},
        storage=("store", "tmp"),
        seconds=spec.download_timeout_minutes * 60,
        tries=4,
        secret_env=token_env,
    )


def compilation(name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: str) -> Step:
    """Returns the Job that compiles. Like the servers, it requests all devices of a node."""
    asked = parts.whole_node(spec)
    # Not the files of the servers: a change that affects only the servers must not start a Job that needs the chips.
    plan = json.dumps({"artifact": artifact(spec).document}, indent=1)
    return _step(
        name,
        spec,
        f"compile-{artifact(spec).key}",
        placement,
        image=image,
        data={**parts.scripts("artifact.py"), "pair.json": plan},
        command=["python3", f"{SCRIPTS}/artifact.py", "compile", parts.PLAN],
        env={"HOME": "/tmp", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"},
        resources={"requests": asked, "limits": asked},
        storage=("store", "tmp", "shared-memory"),
        pod={**ROOT_POD, "priorityClassName": priority_class(name)["metadata"]["name"]},
        seconds=spec.compile_timeout_minutes * 60,
        tries=2,
    )


def efa_check(name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: str) -> Step:
    """Returns the Job that tests EFA: within one node, or between two pods on a node each."""
    asked = parts.efa_resources(placement)
    address, subdomain, more = [], {}, {}
    if spec.instances == 2:
        # Pod 0 answers, and the other calls it by this name.
        address = [f"{name}-efa-0.{name}-efa.{spec.namespace_of(name)}.svc.cluster.local"]
        subdomain = {"subdomain": f"{name}-efa"}
        # Each pod requests all interfaces of a node, so two never share one. The pods find each other by the Job's name: a hash
        # in the name would depend on the command, which contains the name.
        more = {"fixed_name": True, "fields": {"completionMode": "Indexed", "completions": 2, "parallelism": 2}}
    return _step(
        name,
        spec,
        "efa",
        placement,
        image=image,
        data=parts.scripts("efa.py"),
        command=["python3", f"{SCRIPTS}/efa.py", *asked.values(), *address],
        env={"HOME": "/tmp", "PYTHONUNBUFFERED": "1"},
        resources={"requests": {"cpu": "2", "memory": "4Gi", **asked}, "limits": {"memory": "4Gi", **asked}},
        security=root_container(spec.capabilities),
        storage=("tmp",),
        pod={**ROOT_POD, **subdomain, "priorityClassName": priority_class(name)["metadata"]["name"]},
        seconds=_EFA_SECONDS,
        tries=2,
        **more,
    )


def efa_service(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the headless Service that gives the pods of the EFA check their names."""
    return {
        "metadata": {"name": f"{name}-efa", "namespace": spec.namespace_of(name), "annotations": dict(UNAWAITED)},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels(name, "efa")},
    }


def answers(name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: str) -> Step:
    """Returns the Job that asks the pair three questions. It waits for the pair as long as a cold start may take."""
    endpoint, seconds = f"http://{name}.{spec.namespace_of(name)}.svc.cluster.local:{API_PORT}", cold_start_seconds(spec)
    return _step(
        name,
        spec,
        "answers",
        placement,
        image=image,
        data=parts.scripts("answers.py"),
        command=["python", f"{SCRIPTS}/answers.py", endpoint, spec.model.id, str(seconds)],
        env={"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        resources={"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        security=parts.SCRIPT_CONTAINER,
        pod=parts.SCRIPT_POD,
        seconds=seconds + _ANSWER_SECONDS,
        tries=1,
        # Every change of the servers runs the test again.
        content=server_files(name, spec)["metadata"]["name"],
    )


def network_policies(name: str, spec: DisaggregatedPairSpec) -> dict[str, dict[str, Any]]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicies of the Jobs. The compile Job has no traffic."""
    peers = pods(labels(name, "efa"))
    between = spec.instances == 2
    rules = {
        "download": ([], [DNS, *over_https(spec)]),
        "efa": ([allow_from(peers)] if between else [], [DNS, allow_to(peers)] if between else []),
        "answers": ([], [DNS, allow_to(pods(labels(name, parts.front(spec))), tcp=[API_PORT])]),
    }
    return {
        what: network_policy(
            f"{name}-{what}", spec.namespace_of(name), selector=labels(name, what), ingress=ingress, egress=egress
        )
        for what, (ingress, egress) in rules.items()
    }


def _step(
    name: str,
    spec: DisaggregatedPairSpec,
    what: str,
    placement: Placement,
    *,
    image: str,
    data: Mapping[str, str],
    command: Sequence[str],
    env: Mapping[str, str],
    resources: Mapping[str, Any],
    seconds: int,
    tries: int,
    security: Mapping[str, Any] | None = None,
    storage: Sequence[str] = (),
    pod: Mapping[str, Any] = ROOT_POD,
    fields: Mapping[str, Any] | None = None,
    fixed_name: bool = False,
    content: Any = None,
    secret_env: Sequence[Mapping[str, Any]] = (),
) -> Step:
    """Returns a Job with one container, and the ConfigMap with its ``data``.

    ``storage`` names the volumes beside the scripts, ``fields`` are further fields of the Job, and ``content`` is hashed into the
    Job's name. ``secret_env`` is not, because names of Secrets may be unknown during a preview.
    """
    role = what.partition("-")[0]
    config = parts.config_map(name, role, data, spec)
    container = {
        "name": role,
        "image": image,
        "command": list(command),
        "env": parts.variables(env),
        "resources": resources,
        "securityContext": security or root_container(),
        "volumeMounts": parts.mounts(*storage),
    }
    template = {
        **parts.placed(placement),
        **pod,
        "containers": [container],
        "volumes": parts.volumes(name, spec, config["metadata"]["name"], *storage),
        "restartPolicy": "Never",
    }
    job = {
        "backoffLimit": tries - 1,
        "activeDeadlineSeconds": seconds,
        **(fields or {}),
        "template": {"metadata": {"labels": labels(name, role)}, "spec": template},
    }
    suffix = "" if fixed_name else f"-{parts.digest([job, content])}"
    container["env"] += secret_env
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    metadata = {
        "name": f"{name}-{what}{suffix}",
        "namespace": spec.namespace_of(name),
        "labels": labels(name, role),
        # The next `pulumi up` replaces a failed Job instead of waiting for it forever.
        "annotations": {"pulumi.com/replaceUnready": "true"},
    }
    return Step(config, {"metadata": metadata, "spec": job})
