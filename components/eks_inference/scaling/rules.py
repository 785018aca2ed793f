"""What an autoscaler must keep to. Numbers SCL…"""

from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference.scaling.facts import ScalingFacts


@rule(
    "SCL001",
    "Something collects the metrics that an autoscaler reads.",
    fix="add observability.prometheus",
    source="an autoscaler without its metric never scales (Kubernetes documentation, HorizontalPodAutoscaler)",
)
def metrics_are_collected(scaling: ScalingFacts) -> Iterator[Judgement]:
    yield Judgement(
        holds=scaling.metrics,
        path=scaling.path,
        working=(f"Prometheus in the stack: {'yes' if scaling.metrics else 'no'}",),
        message="nothing in this stack collects what the autoscaler reads",
    )


@rule(
    "SCL002",
    "An autoscaler keeps at least one pod: its metrics come from pods, so none would ever bring the first back.",
    fix="set min to 1",
    source="KEDA documentation, scaling to zero needs a signal that outlives the pods; no router here offers one",
)
def one_pod_stays(scaling: ScalingFacts) -> Iterator[Judgement]:
    yield Judgement(
        holds=scaling.spec.min >= 1,
        path=(*scaling.path, "min"),
        working=(f"min {scaling.spec.min}",),
        message="with no pod left there is no metric, and so never a pod again",
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
        message="min and max are the same: it never scales",
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
    startup = scaling.server.engine.startup
    warm = startup.download_s + startup.load_s
    yield Judgement(
        holds=scaling.spec.scale_in_seconds >= 60,
        path=(*scaling.path, "scale_in_seconds"),
        working=(
            f"load must be low for {scaling.spec.scale_in_seconds} s before a pod goes; "
            f"getting it back takes up to {startup.download_s} + {startup.load_s} = {warm} s",
        ),
        message=f"a pod may go after {scaling.spec.scale_in_seconds} s and take {warm} s to come back",
        given=str(scaling.spec.scale_in_seconds),
        allowed="at least 60",
    )
