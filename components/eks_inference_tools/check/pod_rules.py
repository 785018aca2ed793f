"""What every pod of a graph must keep to, whoever made it. Numbers K8S…"""

import re
from collections.abc import Iterator
from typing import Any

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.pods import Container
from eks_inference_tools.reading.scalars import quantity, whole
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, text

# Tags that people move to another image, alone or as the first word ("nightly-py311"); "…-latest" moves, too.
_MOVING = frozenset(
    (
        "canary",
        "dev",
        "devel",
        "develop",
        "edge",
        "experimental",
        "head",
        "latest",
        "main",
        "master",
        "next",
        "nightly",
        "preview",
        "rolling",
        "snapshot",
        "stable",
        "trunk",
        "unstable",
    )
)


@rule(
    "K8S001",
    "Images are pinned: by digest, or by a tag that nobody moves.",
    fix="name a released version, or a digest (image@sha256:…)",
    source="Kubernetes, Images; broken stacks after a moved :latest (awslabs/data-on-eks issue 604)",
)
def images_pinned(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        for container in pod.containers:
            if container.image and not is_token(container.image):
                yield _pinned(container.image, f"{pod.title}, {container.title}", pod.urn)
    for chart in facts.charts:
        for path, value in walk(chart.values):
            if path[-1:] == ("tag",) and isinstance(value, str) and value and not is_token(value):
                where = f"chart {chart.resource.name}, value {text('.'.join(path))}"
                yield _pinned(text(f"{'.'.join(path[:-1])}:{value}"), where, chart.resource.urn)


def _pinned(image: str, where: str, urn: str) -> Judgement:
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    why = "by digest" if digest else f"tag {tag}" if tag else "no tag: latest is taken"
    return Judgement(
        holds=bool(digest) or (bool(tag) and not _moves(tag)),
        path=(),
        working=(f"{where}: {image}: {why}",),
        message=f"{where}: the image {f'has the moving tag {tag!r}' if tag else 'has no tag'}",
        given=image,
        allowed="a released version or a digest",
        resource=urn,
    )


def _moves(tag: str) -> bool:
    if is_token(tag) or "<" in tag:
        return False
    words = re.split(r"[-._]", tag.lower())
    return words[0] in _MOVING or words[-1] == "latest"


@rule(
    "K8S009",
    "Pods with the rights of the host run only where the namespace allows them.",
    severity="warning",
    fix="label the namespace pod-security.kubernetes.io/enforce: privileged, or take the rights away",
    source="Kubernetes, Pod Security Standards (baseline)",
)
def host_rights_where_allowed(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        rights = tuple(_host_rights(pod))
        if not rights or pod.namespace == "kube-system":
            continue
        labels = facts.namespace_labels.get(pod.namespace)
        level = (labels or {}).get(_ENFORCE)
        refused = level in ("baseline", "restricted")
        said = f"enforces {text(level)}" if level else "has no level" if labels is not None else "is not made here"
        yield Judgement(
            holds=level == "privileged" or is_token(level) or labels is None,
            path=(),
            working=(f"{pod.title}: {', '.join(rights)}", f"namespace {pod.namespace} {said}"),
            message=f"{pod.title} has rights of the host ({', '.join(rights)}), and its namespace {said}"
            + (": the API server refuses its pods" if refused else ""),
            given=text(level),
            allowed="privileged",
            # A namespace that enforces another level makes no such pod at all.
            severity="error" if refused else None,
            resource=pod.urn,
        )


_ENFORCE = "pod-security.kubernetes.io/enforce"


def _host_rights(pod: PodTemplate) -> Iterator[str]:
    yield from (key for key in ("hostNetwork", "hostPID", "hostIPC") if at(pod.spec.document, key) is True)
    for container in pod.containers:
        if at(container.document, "securityContext", "privileged") is True:
            yield f"privileged in {container.title}"
    if any(at(volume, "hostPath") is not None and not is_token(volume) for volume in pod.spec.volumes):
        yield "hostPath volumes"


_INSTALLS = re.compile(
    r"\b(?:uv\s+)?pip3?\s+(?:-\S+\s+)*install\b|\b(?:apt-get|apt|yum|dnf|microdnf|conda|mamba|npm)\s+(?:-\S+\s+)*install\b"
    r"|\bapk\s+(?:-\S+\s+)*add\b|\b(?:curl|wget)\b[^|;&\n]*\|\s*(?:sudo\s+)?(?:ba|da)?sh\b"
)


@rule(
    "K8S010",
    "Containers install nothing when they start.",
    severity="warning",
    fix="build an image that has it: another day, another package; and no start without the internet",
    source="Ray, vLLM and load test manifests of the source systems, which install from PyPI at each start",
)
def nothing_installed_at_start(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        for container in pod.containers:
            words = (*container.words, *(hook for hook in items(_post_start(container)) if isinstance(hook, str)))
            found = _INSTALLS.search(" ".join(words)) if words else None
            # Between the first and the last word an address may hold a password.
            first, *_, last = re.split(r"[\s|]+", found[0]) if found else ("", "")
            yield Judgement(
                holds=found is None,
                path=(),
                working=(
                    f"{pod.title}, {container.title}: {f'runs {first} … {last}' if found else 'its command installs nothing'}",
                ),
                message=f"{pod.title}, {container.title} installs software when it starts",
                given=f"{first} … {last}" if found else "",
                resource=pod.urn,
            )


def _post_start(container: Container) -> Any:
    return at(container.document, "lifecycle", "postStart", "exec", "command")


@rule(
    "K8S011",
    "Devices are asked for in whole numbers, with requests equal to limits.",
    fix="give the same whole number under requests and limits, or under limits alone",
    source="Kubernetes, Extended resources: they cannot be overcommitted",
)
def devices_in_whole_numbers(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        for container in pod.containers:
            for name in sorted(container.asked):
                if "/" in name or name.startswith("hugepages-"):
                    yield from _same(pod, container, name)


def _same(pod: PodTemplate, container: Container, name: str) -> Iterator[Judgement]:
    request, limit = container.own_requests.get(name), container.limits.get(name)
    asked, most = quantity(request), quantity(limit)
    known = (asked is not None or request is None) and (most is not None or limit is None)
    if not known:
        return
    whole_number = most is not None and (most == most.to_integral_value() or name.startswith("hugepages-"))
    yield Judgement(
        holds=whole_number and asked in (None, most),
        path=(),
        working=(
            f"{pod.title}, {container.title}: {name}: request {text(request) or '(the limit)'}, limit {text(limit) or 'none'}",
        ),
        message=f"{pod.title}, {container.title}: {name} "
        + (
            "has no limit"
            if most is None
            else "is not a whole number"
            if not whole_number
            else "is requested otherwise than limited"
        ),
        given=f"request {text(request) or 'none'}, limit {text(limit) or 'none'}",
        resource=pod.urn,
    )


# Loading weights takes minutes; the startup budgets of catalog/engines.toml are all above ten.
_LEAST_S = 300
_ACCELERATORS = (DEVICE_RESOURCE, CORE_RESOURCE, GPU_RESOURCE)


@rule(
    "K8S012",
    "Probes leave servers on accelerators time to load.",
    severity="warning",
    fix="add a startup probe of failureThreshold x periodSeconds as long as the engine needs to load and compile",
    source="probes that kill a server while it loads: llm-d/llm-d issue 330, kserve/kserve 5063, vllm-project/vllm 19377",
)
def probes_wait_for_loading(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        for container in pod.containers:
            if not any(container.requests.get(name) for name in _ACCELERATORS):
                continue
            probe = next((key for key in ("startupProbe", "livenessProbe") if at(container.document, key) is not None), None)
            seconds = _patience_s(at(container.document, probe)) if probe else None
            if probe and seconds is not None:
                yield Judgement(
                    holds=seconds >= _LEAST_S,
                    path=(),
                    working=(f"{pod.title}, {container.title}: {probe} kills after {seconds} s, at least {_LEAST_S} s expected",),
                    message=f"{pod.title}, {container.title} uses accelerators, and its {probe} kills it after {seconds} s",
                    given=f"{seconds} s",
                    allowed=f"{_LEAST_S} s or more",
                    resource=pod.urn,
                )


def _patience_s(probe: Any) -> int | None:
    """How long a container may fail a probe; None when that is not known. Defaults are those of Kubernetes."""
    if is_token(probe):
        return None
    initial, period, failures = (
        whole(default if (value := at(probe, key)) is None else value)
        for key, default in (("initialDelaySeconds", 0), ("periodSeconds", 10), ("failureThreshold", 3))
    )
    return None if initial is None or period is None or failures is None else initial + period * failures
