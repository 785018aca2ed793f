"""Where pods of a graph can run. Only judged where the graph makes the cluster and all of its nodes. Numbers K8S…"""

from collections.abc import Iterator
from decimal import Decimal

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.device_plugins import OFFERED_BY, tolerated_by_plugin
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.scalars import number
from eks_inference_tools.reading.scheduling import nearest, obstacles
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import unique


@rule(
    "K8S002",
    "Every pod finds a pool: its selector and its tolerations match the labels and taints of one.",
    fix="give the pool the label, or the pod the label and toleration of the pool",
    source="pods that stay Pending: awslabs/ai-on-eks issue 112; awslabs/data-on-eks issues 429, 446, 529",
)
def pods_match_a_pool(facts: GraphFacts) -> Iterator[Judgement]:
    if not facts.nodes_known:
        return
    for pod in facts.pods:
        if found := facts.shapes_for(pod):
            where = f"{pod.title}: can run on {', '.join(unique(shape.title for shape in found))}"
            yield Judgement(True, (), (where,), resource=pod.urn)
            continue
        missed = {shape: obstacles(pod.spec, shape) for shape in facts.shapes}
        closest = min(missed, key=lambda shape: len(missed[shape]))
        hints = (near for key, value in pod.spec.chosen_labels() if (near := nearest(key, value, facts.shapes)))
        near = next(hints, "")
        daemons = pod.kind == "DaemonSet"
        yield Judgement(
            holds=False,
            path=(),
            working=unique(f"{shape.title}: {'; '.join(why)}" for shape, why in missed.items()),
            message=f"{pod.title} matches no pool; closest, {closest.title}: {'; '.join(missed[closest])}",
            given=", ".join(unique(f"{key}={value}" for key, value in pod.spec.chosen_labels()))[:200],
            allowed=f"nearest label: {near}" if near else "",
            # A DaemonSet without nodes is no error to Kubernetes, only without effect.
            severity="warning" if daemons else None,
            resource=pod.urn,
        )


@rule(
    "K8S003",
    "Every pod asks for no more than a node it can land on has.",
    fix="ask for less, or choose an instance type that has as much",
    source="EKS allocatable capacity as Karpenter reckons it; 32 devices asked of a trn2.48xlarge in a peer's values",
)
def pods_fit_a_node(facts: GraphFacts) -> Iterator[Judgement]:
    if not facts.nodes_known:
        return
    for pod in facts.pods:
        shapes = facts.shapes_for(pod)
        if not shapes or not pod.requests:
            continue
        over = {shape: tuple(_over(facts, pod, shape)) for shape in shapes}
        best = min(shapes, key=lambda shape: (len(over[shape]), not shape.offers))
        working = tuple(_arithmetic(facts, pod, best))
        if not working:
            continue
        yield Judgement(
            holds=not over[best],
            path=(),
            working=working,
            message=f"{pod.title} fits no node it can land on: one pod asks for {'; '.join(over[best])}",
            given=", ".join(f"{name} {_shown(name, amount)}" for name, amount in pod.requests.items()),
            allowed=f"what {best.title} has",
            resource=pod.urn,
        )


def _over(facts: GraphFacts, pod: PodTemplate, shape: NodeShape) -> Iterator[str]:
    for name, asked in pod.requests.items():
        room = _room(facts, pod, shape, name)
        if room is not None and asked > room:
            yield f"{_shown(name, asked)} {name}, {shape.title} has {_shown(name, room)}"


def _arithmetic(facts: GraphFacts, pod: PodTemplate, shape: NodeShape) -> Iterator[str]:
    for name, asked in pod.requests.items():
        room = _room(facts, pod, shape, name)
        if room is not None:
            taken = shape.offers[name] - room
            less = f" ({_shown(name, shape.offers[name])} - {_shown(name, taken)} of DaemonSets)" if taken else ""
            sign = ">" if asked > room else "<="
            yield f"{pod.title}: {name} {_shown(name, asked)} {sign} {_shown(name, room)}{less} of {shape.title}"


def _room(facts: GraphFacts, pod: PodTemplate, shape: NodeShape, name: str) -> Decimal | None:
    """What a node has left for the pod beside the graph's DaemonSets; None where that is not known."""
    if name not in shape.offers:
        return None
    taken = (
        daemon.requests.get(name, Decimal())
        for daemon in facts.daemons
        if daemon is not pod and shape in facts.shapes_for(daemon)
    )
    return shape.offers[name] - sum(taken, Decimal())


def _shown(name: str, amount: Decimal) -> str:
    if name == "memory":
        return f"{amount / 2**30:.2f} GiB"
    return number(amount)


@rule(
    "K8S013",
    "Something offers every device that pods ask for.",
    severity="warning",
    fix="install the device plugin, with tolerations for the taints of its nodes; the images of EKS hold drivers only",
    source="awslabs/amazon-eks-ami, accelerated AL2023 images: no Kubernetes plugin is included",
)
def devices_are_offered(facts: GraphFacts) -> Iterator[Judgement]:
    if not facts.nodes_known:
        return
    # Bottlerocket has plugins of its own.
    if any("BOTTLEROCKET" in group.ami_type for group in facts.node_groups):
        return
    for pod in facts.pods:
        shapes = facts.shapes_for(pod)
        for name in sorted(pod.requests.keys() & OFFERED_BY.keys()) if shapes else ():
            plugins = tuple(_plugins(facts, OFFERED_BY[name]))
            found = [title for title, offered_on in plugins if any(shape in offered_on for shape in shapes)]
            away = [title for title, _ in plugins if title not in found]
            said = ", ".join(found) or (
                f"{', '.join(away)}, which stays away from those nodes" if away else "nothing in the graph"
            )
            yield Judgement(
                holds=bool(found),
                path=(),
                working=(f"{pod.title} asks for {name}; offered on {shapes[0].title} by {said}",),
                message=f"{pod.title} asks for {name}, which {shapes[0].title} gets offered by {said}",
                given=name,
                allowed=f"a device plugin: {', '.join(OFFERED_BY[name])}",
                resource=pod.urn,
            )


def _plugins(facts: GraphFacts, names: tuple[str, ...]) -> Iterator[tuple[str, tuple[NodeShape, ...]]]:
    """DaemonSets and charts of device plugins, and the shapes they run on."""
    for pod in facts.daemons:
        if any(name in container.image for name in names for container in pod.containers):
            yield pod.title, facts.shapes_for(pod)
    for chart in facts.charts:
        if any(name in chart.name for name in names):
            given = PodSpec({"tolerations": tolerated_by_plugin(chart)})
            yield f"chart {chart.resource.name}", tuple(one for one in facts.shapes if not obstacles(given, one))


@rule(
    "K8S014",
    "Somebody answers to every scheduler that pods name.",
    fix="install the scheduler of that name, or leave schedulerName out",
    source="Kubernetes, Configure multiple schedulers: pods of an unknown scheduler stay Pending",
)
def schedulers_exist(facts: GraphFacts) -> Iterator[Judgement]:
    if not facts.nodes_known:
        return
    for pod in facts.pods:
        name = pod.spec.scheduler
        if name and name != "default-scheduler" and not is_token(name):
            found = name in facts.schedulers
            yield Judgement(
                holds=found or facts.schedulers_unseen,
                path=(),
                working=(
                    f"{pod.title} names {name}: {'configured in the graph' if found else 'in no configuration of the graph'}",
                ),
                message=f"{pod.title} names the scheduler {name}, and nothing in the graph answers to it",
                given=name,
                allowed=", ".join(("default-scheduler", *facts.schedulers)),
                resource=pod.urn,
            )
