"""What a cluster shows, as facts for the bundle and as words about what did not come up. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from eks_inference.catalog.tables import table
from eks_inference.place.nodes import amount
from eks_inference.place.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.loadtest_report.readers.detection import runs_of_log
from eks_inference_tools.reading.known_messages import meaning
from eks_inference_tools.verify.observed import Check
from stackgraph.graph.values import at, items, text

Object = Mapping[str, Any]

_DEVICES = ("aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "nvidia.com/gpu", "vpc.amazonaws.com/efa")
_PULLED = re.compile(
    r'pulled image "(?P<image>[^"]+)" in (?P<time>\S+)(?: \(.*?\))?\.?(?: Image size: (?P<bytes>\d+) bytes)?', re.IGNORECASE
)
_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)?")
_NOT_STARTED = frozenset(
    ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerError", "RunContainerError")
)
_CRASHED = frozenset(("CrashLoopBackOff",))
_QUOTED = re.compile(r'"[^"]*"')
_METRIC = re.compile(r"^# TYPE (?P<name>[a-zA-Z_:][\w:]*) ", re.MULTILINE)
_FIRST_TOKEN = re.compile(r"time to first token (?P<first>\d+\.\d+) s")
LOAD_METRICS = ("ttft_ms", "itl_ms", "e2e_ms")
LOAD_STATISTICS = ("p50", "p90", "p99")
MOST_LINES = 12
MOST_LETTERS = 300


def explained(messages: Sequence[str]) -> tuple[str, ...]:
    """The messages, each in one line of bounded length, with what it means."""
    found: list[str] = []
    for message in dict.fromkeys(" ".join(message.split()) for message in messages):
        said = message
        if len(message) > MOST_LETTERS:  # what happened stands at the beginning, and why at the end
            said = f"{message[: MOST_LETTERS // 2]} … {message[3 - MOST_LETTERS // 2 :]}"
        why = meaning(message)
        found.append(f"{said} ({why})" if why else said)
    return tuple(found[:MOST_LINES])


def troubles(checks: Sequence[Check], events: Sequence[Object], logs: Mapping[str, str]) -> tuple[str, ...]:
    """What did not come up: checks that are not well, warnings of the cluster, and the last lines of containers that ended.

    ``logs`` are by container.
    """
    wrong = [f"{one.subject}: {one.finding.found}; expected: {one.finding.expected}" for one in checks if one.verdict != "ok"]
    warned: dict[tuple[str, ...], str] = {}
    for one in events:
        if one.get("type") == "Warning":
            whose = f"{text(at(one, 'involvedObject', 'kind'))} {text(at(one, 'involvedObject', 'name'))}"
            reason, message = text(one.get("reason")), text(one.get("message")).removeprefix("(combined from similar events): ")
            # A controller that tries again and again says the same of pods with other names.
            warned[whose, reason, _QUOTED.sub("", message)] = f"{whose}: {reason}: {message}"
    last = [f"log of {name}: {line}" for name, log in logs.items() for line in log.strip().splitlines()[-3:]]
    return (*explained(wrong), *explained([*warned.values()][-MOST_LINES:]), *explained(last))


def not_running(pods: Sequence[Object]) -> Iterator[tuple[str, str, str]]:
    """Yields namespace, pod and container of what crashed or ended badly: their logs tell more."""
    for pod in pods:
        for status in _statuses(pod):
            waiting, ended = text(at(status, "state", "waiting", "reason")), at(status, "state", "terminated", "exitCode")
            if waiting in _CRASHED or (isinstance(ended, int) and ended):
                yield text(at(pod, "metadata", "namespace")), text(at(pod, "metadata", "name")), text(status.get("name"))


# -- facts -----------------------------------------------------------------------------------------------------------------------


def facts(version: str, nodes: Sequence[Object], pods: Sequence[Object], events: Sequence[Object]) -> list[dict[str, Any]]:
    """Rows about versions, capacities of nodes, images and pulls. None names a node, a pod or a namespace."""
    found: list[dict[str, Any]] = [{"kind": "version", "what": "Kubernetes API", "value": version}]
    for node in nodes:
        found += _of_node(node)
    found += [{"kind": "image", "image": image, **state} for image, state in _images(pods).items()]
    found += _pulls(events)
    return [row for number, row in enumerate(found) if row not in found[:number]]


def answer_rows(log: str) -> list[dict[str, Any]]:
    """Rows with the figures of the smoke test's answers, from its log."""
    return [{"kind": "answer", "first_token_s": float(one["first"])} for one in _FIRST_TOKEN.finditer(log)]


def load_rows(log: str) -> list[dict[str, Any]]:
    """Rows with the figures of a load test, from the log of its Job. A model that the catalog lacks may be nobody else's."""
    found: list[dict[str, Any]] = []
    for run in runs_of_log(log):
        about = {"model": run.model if run.model in _repositories() else "", "type": run.instance_type, "chips": run.chips}
        counts = {"users": run.users, "completed": run.completed, "failed": run.failed}
        lengths = {name: run.value(name, "mean") for name in ("input_tokens", "output_tokens")}
        figures = {"output_tokens_per_s": run.output_tokens_per_s, **lengths} | {
            f"{name}_{statistic}": run.value(name, statistic) for name in LOAD_METRICS for statistic in LOAD_STATISTICS
        }
        row = {"kind": "load", "tool": run.tool, **about, **counts}
        row |= {key: None if value is None else round(value, 3) for key, value in figures.items()}
        found.append({key: value for key, value in row.items() if value not in (None, "")})
    return found


@cache
def _repositories() -> frozenset[str]:
    """Returns the repositories of the published catalog, without a team's own rows."""
    return frozenset(one for row in table("models.toml").values() for one in row["repositories"])


def metric_rows(exposed: str) -> list[dict[str, Any]]:
    """Rows with the names of metrics, from the text that a server exposes."""
    return [{"kind": "metric", "name": name} for name in sorted({one["name"] for one in _METRIC.finditer(exposed)})]


def _of_node(node: Object) -> Iterator[dict[str, Any]]:
    type_ = text(at(node, "metadata", "labels", INSTANCE_TYPE_LABEL))
    info, capacity = at(node, "status", "nodeInfo"), at(node, "status", "capacity")
    if not type_:
        return
    sizes = {"cpu": _number(at(capacity, "cpu")), "memory_mib": _number(at(capacity, "memory"), 2**20)}
    sizes |= {name: _number(at(capacity, name)) for name in _DEVICES if at(capacity, name) is not None}
    yield {"kind": "capacity", "type": type_, **{key: value for key, value in sizes.items() if value is not None}}
    for key in ("kubeletVersion", "containerRuntimeVersion", "kernelVersion", "osImage"):
        if value := text(at(info, key)):
            yield {"kind": "version", "what": f"{key} of {type_}", "value": value}


def _images(pods: Sequence[Object]) -> dict[str, dict[str, Any]]:
    """Whether each image started anywhere, and why not."""
    found: dict[str, dict[str, Any]] = {}
    for pod in pods:
        for status in _statuses(pod):
            image = public(text(status.get("image")))
            state = status.get("state") if isinstance(status.get("state"), Mapping) else {}
            waiting = text(at(state, "waiting", "reason"))
            started = bool(status.get("started")) or "running" in (state or {}) or at(state, "terminated") is not None
            if started or status.get("restartCount"):
                found[image] = {"started": True}
            elif waiting in _NOT_STARTED and image not in found:
                found[image] = {"started": False, "why": waiting}
    return found


def _pulls(events: Sequence[Object]) -> Iterator[dict[str, Any]]:
    for event in events:
        if event.get("reason") == "Pulled" and (match := _PULLED.search(text(event.get("message")))):
            seconds, size = _seconds(match["time"]), match["bytes"]
            if seconds is not None and size:
                yield {"kind": "pull", "image": public(match["image"]), "seconds": seconds, "gb": round(int(size) / 1e9, 2)}


def public(image: str) -> str:
    """The image without account and region of an ECR registry, and without a digest."""
    return re.sub(r"^\d{12}\.dkr\.ecr\.[\w-]+\.amazonaws\.com(\.cn)?/", "[ecr]/", image).partition("@")[0]


def _statuses(pod: Object) -> list[Object]:
    keys = ("initContainerStatuses", "containerStatuses")
    return [item for key in keys for item in items(at(pod, "status", key)) if isinstance(item, Mapping)]


def _number(quantity: Any, unit: int = 1) -> int | None:
    try:
        return int(amount(text(quantity)) / unit)
    except (ValueError, ArithmeticError, KeyError, TypeError):
        return None


def _seconds(duration: str) -> float | None:
    if duration.endswith("ms"):
        return round(float(duration[:-2]) / 1000, 1) if duration[:-2].replace(".", "").isdigit() else None
    match = _TIME.fullmatch(duration)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return round(hours * 3600 + minutes * 60 + seconds, 1)
