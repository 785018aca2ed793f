"""Rules K8S… about single pods and containers, and DRA… about the devices that they claim."""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import chain, product
from typing import Any

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.catalog.claim_drivers import most_devices_per_claim
from eks_inference.rules import Judgement, not_judged, rule
from eks_inference_tools.check.limit_rules import limits
from eks_inference_tools.placing.footprint import Workloads
from eks_inference_tools.reading.clusters import is_auto
from eks_inference_tools.reading.devices import GROUP, OF_KIND, asked, shown
from eks_inference_tools.reading.graph_facts import GraphFacts, makes_other_nodes, walk
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.reading.object_kinds import group_kind
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.pods import Container
from eks_inference_tools.reading.scalars import number, quantity, whole
from stackgraph.graph.values import at, is_token, items, text, unique

# Tags that are commonly moved, alone or as the first word ("nightly-py311"). Tags that end in "-latest" move as well.
_MOVING = re.compile(
    "canary|dev|devel|develop|edge|experimental|head|latest|main|master|next|nightly|preview|rolling|snapshot|stable|trunk|unstable"
)


@rule(
    "K8S001",
    "Images are pinned by a digest or a fixed tag.",
    fix="use the tag of a released version, or a digest (image@sha256:…)",
    source="Kubernetes, Images; broken stacks after a moved :latest (awslabs/data-on-eks issue 604)",
)
def images_pinned(facts: GraphFacts) -> Iterator[Judgement]:
    for pod, container, title in facts.containers:
        if container.image and not is_token(container.image):
            yield _pinned(container.image, title, pod.urn)
    for chart in facts.charts:
        for path, value in walk(chart.values):
            if path[-1:] == ("tag",) and isinstance(value, str) and value and not is_token(value):
                where = f"chart {chart.resource.name}, value {text('.'.join(path))}"
                yield _pinned(text(f"{'.'.join(path[:-1])}:{value}"), where, chart.resource.urn)


def _pinned(image: str, where: str, urn: str) -> Judgement:
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    why = "by digest" if digest else f"tag {tag}" if tag else "no tag, which means latest"
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
    return _MOVING.fullmatch(words[0]) is not None or words[-1] == "latest"


@rule(
    "K8S009",
    "Pods with host privileges run only in namespaces that allow them.",
    severity="warning",
    fix="label the namespace pod-security.kubernetes.io/enforce: privileged, or remove the privileges",
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
        said = f"enforces {text(level)}" if level else "has no level" if labels is not None else "is outside the graph"
        yield Judgement(
            holds=level == "privileged" or is_token(level) or labels is None,
            path=(),
            working=(f"{pod.title}: {', '.join(rights)}", f"namespace {pod.namespace} {said}"),
            message=f"{pod.title} has host privileges ({', '.join(rights)}), and its namespace {said}"
            + (": the API server rejects its pods" if refused else ""),
            given=text(level),
            allowed="privileged",
            # A namespace that enforces a lower level rejects such pods.
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
    "Containers do not install software when they start.",
    severity="warning",
    fix="build it into the image: an install at start may get another version each day, and needs the internet",
    source="Ray, vLLM and load test manifests of the source systems, which install from PyPI at each start",
)
def nothing_installed_at_start(facts: GraphFacts) -> Iterator[Judgement]:
    for pod, container, title in facts.containers:
        hook = items(at(container.document, "lifecycle", "postStart", "exec", "command"))
        found = _INSTALLS.search(" ".join((*container.words, *(word for word in hook if isinstance(word, str)))))
        # Leave out the words between: they may be a URL with a password.
        first, *_, last = re.split(r"[\s|]+", found[0]) if found else ("", "")
        yield Judgement(
            holds=found is None,
            path=(),
            working=(f"{title}: {f'runs {first} … {last}' if found else 'its command installs nothing'}",),
            message=f"{title} installs software when it starts",
            given=f"{first} … {last}" if found else "",
            resource=pod.urn,
        )


@rule(
    "K8S011",
    "Devices are requested in whole numbers, with requests equal to limits.",
    fix="set the same whole number in requests and limits, or only in limits",
    source="Kubernetes, Extended resources: they cannot be overcommitted",
)
def devices_in_whole_numbers(facts: GraphFacts) -> Iterator[Judgement]:
    for pod, container, title in facts.containers:
        for name in sorted(container.asked):
            huge_pages = name.startswith("hugepages-")
            request, limit = container.own_requests.get(name), container.limits.get(name)
            asked, most = quantity(request), quantity(limit)
            unknown = (asked is None and request is not None) or (most is None and limit is not None)
            if unknown or not (huge_pages or "/" in name):
                continue
            whole_number = most is not None and (huge_pages or most == most.to_integral_value())
            wrong = "is not a whole number" if not whole_number else "has a request that differs from its limit"
            yield Judgement(
                holds=whole_number and asked in (None, most),
                path=(),
                working=(f"{title}: {name}: request {text(request) or '(the limit)'}, limit {text(limit) or 'none'}",),
                message=f"{title}: {name} {'has no limit' if most is None else wrong}",
                given=f"request {text(request) or 'none'}, limit {text(limit) or 'none'}",
                resource=pod.urn,
            )


# Loading weights takes minutes. All startup budgets of catalog/engines.toml exceed ten.
_LEAST_S = 300
_ACCELERATORS = (DEVICE_RESOURCE, CORE_RESOURCE, GPU_RESOURCE)


@rule(
    "K8S012",
    "Probes give servers on accelerators enough time to load.",
    severity="warning",
    fix="add a startup probe whose failureThreshold x periodSeconds covers the time to load and compile",
    source="probes that kill a server while it loads: llm-d/llm-d issue 330, kserve/kserve 5063, vllm-project/vllm 19377",
)
def probes_wait_for_loading(facts: GraphFacts) -> Iterator[Judgement]:
    for pod, container, title in facts.containers:
        claims = pod.claimed and at(container.document, "resources", "claims")
        if not claims and not any(container.requests.get(name) for name in _ACCELERATORS):
            continue
        probe = next((key for key in ("startupProbe", "livenessProbe") if at(container.document, key) is not None), None)
        seconds = _patience_s(at(container.document, probe)) if probe else None
        if seconds is not None:
            yield Judgement(
                holds=seconds >= _LEAST_S,
                path=(),
                working=(f"{title}: {probe} kills after {seconds} s, at least {_LEAST_S} s expected",),
                message=f"{title} uses accelerators, and its {probe} kills it after {seconds} s",
                given=f"{seconds} s",
                allowed=f"{_LEAST_S} s or more",
                resource=pod.urn,
            )


@rule(
    "K8S023",
    "A container has the memory and the CPU without which its program does not come up.",
    fix="raise it",
    source="figures by image in check/limits.toml, with the source of each",
)
def programs_come_up(facts: GraphFacts) -> Iterator[Judgement]:
    of_charts = GraphFacts(replace(facts.graph, resources=Workloads(facts.graph).stood_in))  # and of add-ons
    pairs = chain(product(["containers"], facts.containers), product(["installed"], of_charts.containers))
    for key, (pod, container, title) in pairs:
        name = _repository(container)
        limit = quantity(at(container.document, *_LIMITS, "memory"))
        if limit is None or container.first or pod.kind == "DaemonSet":  # these run something else in the image of a program
            continue
        command = at(container.document, "command")
        said = text([command, at(container.document, "args")]) if command else ""
        for one in limits()["memory"]:
            runs = name in one.get("images", ()) and (not said or any(program in said for program in one["programs"]))
            if runs or container.name in one.get(key, ()):
                yield Judgement(
                    holds=limit >= one["mib"] << 20,
                    path=(),
                    working=(f"{title}: {limit / 2**20:.0f} MiB of at least {one['mib']}: {one['source']}",),
                    message=f"{title} {'is' if one.get('certain') else 'may be'} killed for memory before it is up",
                    given=f"{limit / 2**20:.0f} MiB",
                    allowed=f"at least {one['mib']} MiB",
                    severity=None if one.get("certain") else "warning",
                    resource=pod.urn,
                )
                cpu = quantity(at(container.document, *_LIMITS, "cpu"))
                probe = at(container.document, "startupProbe")
                patience = one.get("patience_s") if probe is None else _patience_s(probe)
                if cpu and patience and "cpu_s" in one:
                    takes = one["cpu_s"] / max(cpu, _LEAST_CPU)
                    yield Judgement(
                        holds=takes <= patience,
                        path=(),
                        working=(
                            f"{title}: its start takes {one['cpu_s']} s of a CPU, with {cpu} {takes:.0f} s: {one['source']}; "
                            f"its probe waits {patience} s",
                        ),
                        message=f"{title} is killed for its probe before it is up",
                        given=f"{cpu} CPU",
                        allowed=f"at least {one['cpu_s'] / patience:.3f} CPU",
                        resource=pod.urn,
                    )
                if cpu is None or cpu >= 1 or "slow" not in one:
                    continue
                if imports := one.get("imports_s", one.get("cpu_s", 0)) / max(cpu, _LEAST_CPU):
                    env = {text(at(item, "name")): at(item, "value") for item in items(at(container.document, "env"))}
                    waits = whole(env.get("STARTUP_TIMEOUT_S"))  # ours, which starts an engine in a Ray worker
                    yield Judgement(
                        holds=imports <= (waits or 2 * _LEAST_S),
                        path=(),
                        working=(f"{title}: with {cpu} CPU the engine's imports alone take {imports:.0f} s: {one['source']}",),
                        message=f"{title} needs {imports:.0f} s for the engine's imports alone"
                        + (f", and its start is given up after {waits} s" if waits else ""),
                        given=f"{cpu} CPU",
                        allowed="a CPU or more",
                        severity=None if waits else "warning",
                        resource=pod.urn,
                    )
                told = not_judged("speed", title, (), why=one["slow"], fix="give it a CPU or more")
                yield replace(told, resource=pod.urn)


# The kernel grants at least 1 ms of each 100 (Kubernetes, MilliCPUToQuota).
_LEAST_CPU = Decimal("0.01")

_LIMITS = ("resources", "limits")


def _repository(container: Container) -> str:
    """The last part of the repository of its image."""
    return text(container.image).partition("@")[0].rpartition("/")[2].partition(":")[0]


@rule(
    "K8S024",
    "Pods run on processors that their images are built for.",
    fix="run them on nodes with x86-64 processors",
    source="Kubernetes, Images: a node pulls what is built for its processors; the images that are known, in check/limits.toml",
)
def images_are_built_for_nodes(facts: GraphFacts) -> Iterator[Judgement]:
    builds, unknown = limits()["builds"], {f"chart {chart.name}" for chart in facts.charts}
    for pod, container, title in facts.containers:
        arm = [shape.title for shape in facts.shapes_for(pod) if _is_arm(shape)]
        name = _repository(container)
        if arm and name not in (*builds["x86_64"], *builds["both"]):
            unknown.add(title if is_token(container.image) else name)
        elif arm:
            yield Judgement(
                holds=name in builds["both"],
                path=(),
                working=(f"{title}: {', '.join(arm)}; {builds['source']}",),
                message=f"{title}: the image is built for x86-64 alone, and its node may have Arm processors",
                given=text(container.image),
                resource=pod.urn,
            )
    if unknown and (nodes := next(filter(_is_arm, facts.shapes), None)):
        why = "an image without one does not start there, and this one was not looked up"
        told = not_judged("builds for Arm", ", ".join(sorted(unknown)), (), why=why, fix="`docker manifest inspect IMAGE` tells")
        yield replace(told, resource=nodes.urn)


def _is_arm(shape: NodeShape) -> bool:
    return shape.instance is not None and shape.instance.architecture == "arm64"


def _patience_s(probe: Any) -> int | None:
    """Seconds until a failing probe kills the container, with the defaults of Kubernetes. None when unknown."""
    if is_token(probe):
        return None
    initial, period, failures = (
        whole(default if (value := at(probe, key)) is None else value)
        for key, default in (("initialDelaySeconds", 0), ("periodSeconds", 10), ("failureThreshold", 3))
    )
    return None if initial is None or period is None or failures is None else initial + period * failures


@rule(
    "DRA008",
    "Claims ask for at most the devices that a scheduler allocates to one claim.",
    fix="divide the devices among several claims of the pod",
    source="Kubernetes 1.35, pkg/apis/resource/types.go: AllocationResultsMaxSize",
)
def claims_are_small_enough(facts: GraphFacts) -> Iterator[Judgement]:
    most = most_devices_per_claim()
    for kind in ("ResourceClaimTemplate", "ResourceClaim"):
        for resource in facts.objects.get(kind, ()):
            if group_kind(resource)[0] != GROUP:
                continue
            spec = resource.inputs.get("spec")
            counts = asked(at(spec, "spec") if kind == "ResourceClaimTemplate" else spec)
            total = sum(counts.values(), Decimal())
            yield Judgement(
                holds=total <= most,
                path=(),
                working=(f"{kind} {resource.name}: {number(total)} devices, at most {most}",),
                message=f"{kind} {resource.name} asks for {number(total)} devices, and pods with it stay Pending",
                given=number(total),
                allowed=f"at most {most}",
                resource=resource.urn,
            )


@rule(
    "DRA009",
    "Pods with claims have nodes that nothing has to start for them.",
    fix="run them on a managed node group or on a NodePool with replicas, or let a device plugin offer the devices",
    source="EKS user guide, Manage hardware devices: no claims with Auto Mode; Manage Neuron devices: Karpenter with static "
    "capacity only; Karpenter 1.15, DRA (alpha): nodes for claims of GPUs and EFA interfaces with settings.enableDRA",
)
def claims_have_nodes(facts: GraphFacts) -> Iterator[Judgement]:
    auto = [cluster.name for cluster in facts.clusters if is_auto(cluster)]
    elsewhere = [resource.name for resource in facts.graph.resources if makes_other_nodes(resource) and resource.name not in auto]
    for pod in facts.pods:
        shapes = facts.shapes_for(pod)
        if not pod.claimed or not (shapes or auto):
            continue
        standing = [shape for shape in shapes if not shape.by_karpenter or shape.max_nodes is not None]
        if not standing and elsewhere:
            why = f"nodes of {', '.join(elsewhere)} are unknown"
            yield not_judged("nodes of claims", pod.title, (), why=why, fix="see that a node with the devices is there")
            continue
        starts = f"Auto Mode of {', '.join(auto)}" if auto else "Karpenter"
        neuron = OF_KIND["neuron"] in pod.claimed
        yield Judgement(
            holds=bool(standing),
            path=(),
            working=(
                f"{pod.title} claims {', '.join(map(shown, pod.claimed))}; nodes that stand: "
                + (", ".join(unique(shape.title for shape in standing)) or "none that it can run on"),
            ),
            message=f"{starts} starts no node for the claims of {pod.title}, which stays Pending",
            given=", ".join(map(shown, pod.claimed)),
            severity="error" if auto or neuron else "warning",
            resource=pod.urn,
        )
