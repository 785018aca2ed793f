"""Rules for autoscalers. Ids SCL…"""

from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference.scaling.plan import RATE_WINDOW_SECONDS, SCRAPES_IN_A_WINDOW
from eks_inference.scaling.spec import HpaSpec, KedaSpec, out_of_turn
from eks_inference.serving.facts import ScalingFacts
from eks_inference.serving.flags import switched


@rule(
    "SCL001",
    "Something collects the metrics that an autoscaler reads.",
    fix="add observability.prometheus",
    source="an autoscaler without its metric never scales (Kubernetes documentation, HorizontalPodAutoscaler)",
)
def metrics_are_collected(scaling: ScalingFacts) -> Iterator[Judgement]:
    of_triton = isinstance(scaling.spec, HpaSpec) and scaling.spec.metric != "vllm_time_to_first_token_ms"
    silent = switched(scaling.server.arguments, "disable-log-stats", False) and not of_triton
    yield Judgement(
        holds=scaling.metrics and not silent,
        path=scaling.path,
        working=(f"Prometheus in the stack: {'yes' if scaling.metrics else 'no'}; metrics of vLLM: {'off' if silent else 'on'}",),
        message="disable-log-stats turns off what the autoscaler reads"
        if silent
        else "nothing in this stack collects what the autoscaler reads",
        fix="leave disable-log-stats out" if silent else "",
    )


@rule(
    "SCL002",
    "An autoscaler keeps at least one pod, or a schedule brings the first back: its metrics come from pods.",
    fix="set min to 1, or give a schedule with kind keda",
    source="KEDA documentation, scaling to zero needs a signal that outlives the pods; no router here offers one. Tried with "
    "KEDA 2.20.2: with a schedule, requests are lost until it begins",
)
def one_pod_stays(scaling: ScalingFacts) -> Iterator[Judgement]:
    schedules = len(scaling.spec.schedule) if isinstance(scaling.spec, KedaSpec) else 0
    yield Judgement(
        holds=scaling.spec.min >= 1 or bool(schedules),
        path=(*scaling.path, "min"),
        working=(f"min {scaling.spec.min}, schedules: {schedules}",),
        message="without pods there is no metric, so the autoscaler never adds a pod again",
        given=str(scaling.spec.min),
        allowed="at least 1",
    )


@rule(
    "SCL003",
    "An autoscaler has room to scale.",
    severity="warning",
    fix="raise max, or give replicas instead of an autoscaler",
    source="Kubernetes documentation, HorizontalPodAutoscaler: minReplicas and maxReplicas",
)
def room_to_scale(scaling: ScalingFacts) -> Iterator[Judgement]:
    yield Judgement(
        holds=scaling.spec.min < scaling.spec.max,
        path=(*scaling.path, "max"),
        working=(f"min {scaling.spec.min}, max {scaling.spec.max}",),
        message="min and max are equal: it never scales",
        given=str(scaling.spec.max),
    )


@rule(
    "SCL004",
    "A pod that took long to start is not given up in the first lull.",
    severity="warning",
    fix="raise scale_in_seconds",
    source="a new pod costs image pull, download and load; the source system's window is 120 seconds",
)
def lulls_are_short(scaling: ScalingFacts) -> Iterator[Judgement]:
    startup = scaling.server.startup
    warm = startup.download_s + startup.load_s
    yield Judgement(
        holds=scaling.spec.scale_in_seconds >= 60,
        path=(*scaling.path, "scale_in_seconds"),
        working=(
            f"load must be low for {scaling.spec.scale_in_seconds} s before a pod is removed; "
            f"a new one takes up to {startup.download_s} + {startup.load_s} = {warm} s",
        ),
        message=f"a pod may be removed after {scaling.spec.scale_in_seconds} s, and a new one takes {warm} s",
        given=str(scaling.spec.scale_in_seconds),
        allowed="at least 60",
    )


@rule(
    "SCL007",
    "The window of an autoscaler's rates holds several scrapes.",
    severity="warning",
    fix=f"set observability.prometheus.scrape_interval_seconds to {RATE_WINDOW_SECONDS // SCRAPES_IN_A_WINDOW}",
    source="Prometheus documentation, rate: it takes two samples in the window; the source system has four",
)
def windows_hold_scrapes(scaling: ScalingFacts) -> Iterator[Judgement]:
    if not isinstance(scaling.spec, HpaSpec):
        return
    every = scaling.scrape_interval_s
    scrapes = RATE_WINDOW_SECONDS // every
    yield Judgement(
        holds=scrapes >= SCRAPES_IN_A_WINDOW,
        path=("observability", "prometheus", "scrape_interval_seconds"),
        working=(
            f"window {RATE_WINDOW_SECONDS} s / a scrape every {every} s = {scrapes} scrapes; "
            f"{SCRAPES_IN_A_WINDOW} tolerate lost scrapes, and a rate needs at least 2",
        ),
        message=f"{scaling.spec.metric} is a rate over {RATE_WINDOW_SECONDS} s, which holds only {scrapes} scrapes",
        given=str(every),
        allowed=f"at most {RATE_WINDOW_SECONDS // SCRAPES_IN_A_WINDOW}",
        severity="error" if scrapes < 2 else None,
    )


@rule(
    "SCL008",
    "A pod can work on as many requests at once as the autoscaler gives it.",
    severity="warning",
    fix="lower concurrent_requests to some 80 percent of max_num_seqs",
    source="vLLM documentation, max_num_seqs: what exceeds it waits",
)
def pods_work_on_what_they_have(scaling: ScalingFacts) -> Iterator[Judgement]:
    spec = scaling.spec
    if not isinstance(spec, KedaSpec) or spec.concurrent_requests is None:
        return
    server = scaling.server
    room = server.max_num_seqs * server.copies
    yield Judgement(
        holds=spec.concurrent_requests <= room,
        path=(*scaling.path, "concurrent_requests"),
        working=(
            f"{server.max_num_seqs} sequences x {server.copies} copies = {room} at once per pod; "
            f"target: {spec.concurrent_requests:g} per pod",
        ),
        message=f"a pod works on {room} requests at once: {spec.concurrent_requests - room:g} wait before another pod is added",
        given=f"{spec.concurrent_requests:g}",
        allowed=f"at most {room}",
    )


@rule(
    "SCL009",
    "Fewer pods are fewer nodes.",
    severity="warning",
    fix="serve from a Karpenter pool without replicas, or give replicas instead of an autoscaler",
    source="a managed pool here has a fixed number of nodes; the source system has one to four pods, and always four nodes",
)
def nodes_go_with_pods(scaling: ScalingFacts) -> Iterator[Judgement]:
    pool, nodes = scaling.server.placement.pool, scaling.server.placement.max_nodes
    yield Judgement(
        holds=nodes is None,
        path=scaling.path,
        working=(f"pool '{pool}': " + ("nodes on demand" if nodes is None else f"{nodes} nodes for any number of pods"),),
        message=f"pool '{pool}' keeps its {nodes} nodes when pods are removed: nothing is saved",
        given=f"{scaling.spec.min} to {scaling.spec.max} pods",
    )


@rule(
    "SCL011",
    "Start and end of a schedule take turns.",
    severity="warning",
    fix="give both the same days, one time a day",
    source="KEDA 2.20.2, cron_scaler.go: pods are there while the next end comes before the next start",
)
def schedules_take_turns(scaling: ScalingFacts) -> Iterator[Judgement]:
    for number, hours in enumerate(scaling.spec.schedule if isinstance(scaling.spec, KedaSpec) else ()):
        wrong = out_of_turn(hours.start, hours.end)
        yield Judgement(
            holds=not wrong,
            path=(*scaling.path, "schedule", number),
            working=(f"start {hours.start}, end {hours.end}: {wrong or 'one after the other, all year'}",),
            message=wrong,
            given=f"{hours.start} to {hours.end}",
        )
