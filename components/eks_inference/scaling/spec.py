"""Settings of autoscalers for model servers, of their times in the form of cron, and of the software they need.

Source: KEDA 2.20.2, pkg/scalers/cron_scaler.go; robfig/cron 3, parser.go and spec.go.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import merge
from itertools import pairwise
from typing import Annotated, Any, Literal, Self
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, model_validator

from eks_inference.specs.base import MOST_PODS, Namespace, Spec, stated

_FIELDS = {"minute": (0, 59), "hour": (0, 23), "day of the month": (1, 31), "month": (1, 12), "day of the week": (0, 6)}
_NAMES = {
    "month": ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "day of the week": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
_LEAP_YEAR = datetime(2028, 1, 1)


def cron(value: str) -> str:
    """Takes what KEDA's parser takes: five fields of numbers, names, ranges, lists and steps."""
    _parsed(value)
    return value


def out_of_turn(start: str, end: str) -> str:
    """Returns in words where start and end do not take turns in a year; empty: they do.

    Pods are there while the next end comes before the next start, whatever came last: from the last of several starts, and to the
    last of several ends. A time that never comes counts as long past.
    """
    for what, value in (("start", start), ("end", end)):
        if not next(_times(value), None):
            return f"{what} {value} never comes"
    turns = merge(((time, "end") for time in _times(end)), ((time, "start") for time in _times(start)))
    for (before, one), (after, other) in pairwise(turns):
        if before == after:
            return f"both come on {after:%a %H:%M}: pods stay until the next end"
        if one == other:
            until = "begin only then" if one == "start" else "stay until then"
            return f"{one} comes on {before:%a %H:%M} and again on {after:%a %H:%M}: pods {until}"
    return ""


def _parsed(value: str) -> list[set[int]]:
    fields = value.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"a schedule has five fields, such as 0 8 * * 1-5: {', '.join(_FIELDS)}")
    return [set().union(*(_part(one, name) for one in field.split(","))) for field, name in zip(fields, _FIELDS, strict=True)]


def _part(part: str, name: str) -> range:
    low, high = _FIELDS[name]
    match = re.fullmatch(r"(?:[*?]|(\w+)(?:-(\w+))?)(?:/([1-9]\d*))?", part.lower(), re.ASCII)
    ends = [_number(end, name) for end in match.groups()[:2] if end] if match else [-1]
    if not match or not all(low <= end <= high for end in ends) or ends != sorted(ends):
        raise ValueError(f"{part!r} is no {name} of a schedule; allowed: {low} to {high}, a-b, *, */n, and lists of them")
    first, last = (ends[0], ends[-1]) if ends else (low, high)
    return range(first, (high if match[3] and not match[2] else last) + 1, int(match[3] or 1))


def _number(end: str, name: str) -> int:
    names = _NAMES.get(name, [])
    return int(end) if end.isdecimal() else names.index(end) + (name == "month") if end in names else -1


def _times(value: str) -> Iterator[datetime]:
    """Yields the times of a leap year. Days are those of month and week where one of them is any, else those of either."""
    minutes, hours, days, months, weekdays = _parsed(value)
    every = any(part in ("*", "?") for field in (value.split()[2], value.split()[4]) for part in field.split(","))
    for day in (_LEAP_YEAR + timedelta(days=number) for number in range(366)):
        found = (day.day in days, day.isoweekday() % 7 in weekdays)
        if day.month in months and (all(found) if every else any(found)):
            yield from (day.replace(hour=hour, minute=minute) for hour in sorted(hours) for minute in sorted(minutes))


Seconds = Annotated[int, Field(ge=0, le=3600)]
"""A stabilization window. Kubernetes allows at most an hour."""

HpaMetric = Literal["nv_inference_queue_duration_ms", "triton_queue_ms_per_request", "vllm_time_to_first_token_ms"]


class Step(Spec):
    """The largest change of the pod count within a period, as a number or a percentage."""

    pods: int | None = Field(default=None, ge=1, description="Most pods to add or remove within the period.")
    percent: int | None = Field(
        default=None, ge=1, description="Most pods to add or remove, as a percentage of the current pods."
    )
    every_seconds: int = Field(default=60, ge=1, le=1800, description="The period.")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.pods is None) == (self.percent is None):
            raise ValueError("a step has either pods or percent; give exactly one of them")
        return self


class _Bounds(Spec):
    min: int = Field(default=1, ge=0, le=MOST_PODS, description="Fewest pods.")
    max: int = Field(ge=1, le=MOST_PODS, description="Most pods.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


def _timezone(value: str) -> str:
    known = available_timezones()  # empty on a machine without the database
    if known and value not in known:
        raise ValueError(f"{value!r} is not a time zone; allowed: names such as UTC, Europe/Berlin, America/New_York")
    return value


Cron = Annotated[str, AfterValidator(cron)]


class ScheduledPods(Spec):
    """Fewest pods between two times, by KEDA's cron trigger. Outside of them, and above them, the signals decide."""

    start: Cron = Field(description="When it begins, as five fields of cron: 0 8 * * 1-5 is 8:00 on working days.")
    end: Cron = Field(description="When it ends, in the same form.")
    timezone: Annotated[str, AfterValidator(_timezone)] = Field(
        default="UTC", description="Name in the time zone database, such as Europe/Berlin."
    )
    pods: int = Field(ge=1, le=MOST_PODS, description="Fewest pods in that time.")

    @model_validator(mode="after")
    def _has_a_length(self) -> Self:
        if self.start.split() == self.end.split():
            raise ValueError("start and end are the same, which KEDA refuses")
        return self


KEDA_SIGNALS = ("waiting_requests", "kv_cache_use", "concurrent_requests", "first_token_seconds", "token_seconds")
"""Keys of ``KedaSpec`` from which numbers of pods follow."""


class KedaSpec(_Bounds):
    """KEDA on vLLM's own metrics: waiting requests and use of the KV cache. The default.

    Each signal yields a pod count, and the largest applies. A queue shows only when there are too few pods: with enough pods it
    is empty again. From then on the use of the KV cache keeps the pods. If the cache never fills (short sequences, large memory),
    set ``concurrent_requests``.

    KEDA's polling and cooldown are not available: they decide between zero pods and one (KEDA documentation, "Scaling
    Deployments"), and here only a ``schedule`` leads back from zero. Nor is its fallback: without an answer of Prometheus, the
    count stays.
    """

    kind: Literal["keda"] = Field(default="keda", json_schema_extra=stated)
    waiting_requests: float | None = Field(
        default=4, gt=0, description="Waiting requests per pod above which a pod is added; null: ignored."
    )
    kv_cache_use: float | None = Field(
        default=0.8, gt=0, le=1, description="Use of the KV cache above which a pod is added; null: ignored."
    )
    concurrent_requests: float | None = Field(
        default=None,
        gt=0,
        description="Target of running and waiting requests per pod; about 80 percent of max_num_seqs is usual. "
        "Default: ignored.",
    )
    first_token_seconds: float | None = Field(
        default=None,
        gt=0,
        description="Mean time to the first token in the last minute above which pods are added, in proportion. "
        "Default: ignored.",
    )
    token_seconds: float | None = Field(
        default=None,
        gt=0,
        description="Mean time between two tokens of an answer in the last minute above which pods are added, in proportion. "
        "Default: ignored.",
    )
    scale_out_seconds: Seconds = Field(
        default=30, description="How long load must stay higher before a pod is added, so that a short queue starts no node."
    )
    scale_out_step: Step = Field(default_factory=lambda: Step(percent=100), description="Default: double the pods per minute.")
    scale_in_seconds: Seconds = Field(default=300, description="How long load must stay lower before a pod is removed.")
    scale_in_step: Step = Field(default_factory=lambda: Step(pods=1), description="Default: one pod per minute.")
    schedule: list[ScheduledPods] = Field(
        default_factory=list,
        description="Times with more pods than min, so that they are warm before people come. Default: none.",
    )

    @model_validator(mode="after")
    def _schedule_has_an_effect(self) -> Self:
        for number, hours in enumerate(self.schedule):
            if not self.min < hours.pods <= self.max:
                raise ValueError(
                    f"schedule[{number}].pods is {hours.pods}; allowed: more than min {self.min}, at most max {self.max}"
                )
        return self

    @model_validator(mode="after")
    def _has_a_signal(self) -> Self:
        if all(getattr(self, signal) is None for signal in KEDA_SIGNALS):
            raise ValueError(f"the number of pods depends on nothing; give at least one of {', '.join(KEDA_SIGNALS)}")
        return self


class HpaSpec(_Bounds):
    """HorizontalPodAutoscaler on a Triton metric from prometheus-adapter. The defaults match the source system."""

    kind: Literal["hpa"] = Field(default="hpa", json_schema_extra=stated)
    # Kubernetes takes 0 only with the feature HPAScaleToZero, which is off by default and cannot be turned on in EKS.
    min: int = Field(default=1, ge=1, le=MOST_PODS, description="Fewest pods.")
    metric: HpaMetric = Field(
        default="nv_inference_queue_duration_ms",
        description="nv_inference_queue_duration_ms: total queueing time of all requests per second in milliseconds, as in the "
        "source system. triton_queue_ms_per_request: mean queueing time per request. Both measure Triton's own queue, which vLLM "
        "empties at once. vllm_time_to_first_token_ms: mean time to first token per request, including the queue in vLLM.",
    )
    target: float = Field(
        default=10,
        gt=0,
        description="Average over the pods that the autoscaler maintains, in milliseconds. Default: 10 for queues, as in the "
        "source; 500 for the first token. The latter depends on model and prompts: use a few times the value of an idle server.",
    )
    scale_out_seconds: Seconds = Field(default=0, description="How long load must stay higher before a pod is added.")
    scale_out_step: Step = Field(
        default_factory=lambda: Step(percent=100, every_seconds=5), description="Default: double the pods every 5 seconds."
    )
    scale_in_seconds: Seconds = Field(default=120, description="How long load must stay lower before a pod is removed.")
    scale_in_step: Step = Field(
        default_factory=lambda: Step(percent=100, every_seconds=10),
        description="Default: down to min within 10 seconds. For pods with a slow start: {pods: 1, every_seconds: 60}.",
    )

    @model_validator(mode="before")
    @classmethod
    def _target_of_the_metric(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("metric") == "vllm_time_to_first_token_ms":
            return {"target": 500.0, **given}
        return given


AutoscalerSpec = Annotated[KedaSpec | HpaSpec, Field(discriminator="kind")]
"""The autoscaler, selected by ``kind``."""


class KedaOperatorSpec(Spec):
    """KEDA, from its chart. One installation serves all autoscalers of kind keda in a cluster."""

    namespace: Namespace = Field(default="keda", description="Namespace of KEDA; created here.")
    values: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of the keda chart, beside ours; only what is below image or resources replaces ours.",
    )


class PrometheusAdapterSpec(Spec):
    """prometheus-adapter, from its chart, in the namespace of Prometheus. One installation serves all autoscalers of kind hpa.

    The project is being retired in favour of KEDA (kubernetes-sigs/prometheus-adapter, issue 701); the library offers it for
    parity with the source system.
    """

    values: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of the prometheus-adapter chart, beside ours; only what is below image or resources replaces ours.",
    )


class ScalingSpec(Spec):
    """Software that autoscalers need; installed if a server uses it."""

    keda: KedaOperatorSpec = Field(
        default_factory=KedaOperatorSpec, description="KEDA, installed if the autoscaling of a server has kind keda."
    )
    prometheus_adapter: PrometheusAdapterSpec = Field(
        default_factory=PrometheusAdapterSpec,
        description="prometheus-adapter, installed if the autoscaling of a server has kind hpa.",
    )
