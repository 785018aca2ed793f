"""Rules K8S… about where pods can run, and about drains, which have to come to an end. They apply only when the graph makes the
cluster and all its pools.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal

from eks_inference.rules import Judgement, not_judged, rule
from eks_inference_tools.placing.placed import Placing, Waiting
from eks_inference_tools.reading.devices import OFFERED_BY
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.reading.object_kinds import title_of
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.rollouts import budgeted
from eks_inference_tools.reading.scalars import number
from eks_inference_tools.reading.scheduling import nearest, obstacles
from stackgraph.graph.values import is_token, unique
from stackgraph.graph.wording import counted


@rule(
    "K8S002",
    "Every pod matches a pool: its selectors and tolerations fit the pool's labels and taints.",
    fix="add the label to the pool, or the pool's label and toleration to the pod",
    source="pods that stay Pending: awslabs/ai-on-eks issue 112; awslabs/data-on-eks issues 429, 446, 529",
)
def pods_match_a_pool(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.placed_pods:
        if found := facts.shapes_for(pod):
            where = f"{pod.title}: can run on {', '.join(unique(shape.title for shape in found))}"
            yield Judgement(True, (), (where,), resource=pod.urn)
            continue
        missed = {shape: obstacles(pod.spec, shape) for shape in facts.shapes}
        closest = min(missed, key=lambda shape: len(missed[shape]))
        near = next((near for chosen_label in pod.spec.chosen_labels() if (near := nearest(*chosen_label, facts.shapes))), "")
        yield Judgement(
            holds=False,
            path=(),
            working=unique(f"{shape.title}: {'; '.join(why)}" for shape, why in missed.items()),
            message=f"{pod.title} matches no pool; closest, {closest.title}: {'; '.join(missed[closest])}",
            given=", ".join(unique(f"{key}={value}" for key, value in pod.spec.chosen_labels()))[:200],
            allowed=f"nearest label: {near}" if near else "",
            # To Kubernetes, a DaemonSet without matching nodes is no error; it has no effect.
            severity="warning" if pod.kind == "DaemonSet" else None,
            resource=pod.urn,
        )


@rule(
    "K8S003",
    "Every pod fits on a node that it can be scheduled on.",
    fix="request less, or choose an instance type with more",
    source="EKS allocatable capacity as Karpenter computes it; 32 devices requested of a trn2.48xlarge in a peer's values",
)
def pods_fit_a_node(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.placed_pods:
        rooms = {shape: _rooms(facts, pod, shape) for shape in facts.shapes_for(pod)}
        if not rooms:
            continue
        over = {shape: tuple(_over(pod, shape, room)) for shape, room in rooms.items()}
        best = min(rooms, key=lambda shape: (len(over[shape]), not shape.offers))
        if not rooms[best]:
            continue
        yield Judgement(
            holds=not over[best],
            path=(),
            working=tuple(_arithmetic(pod, best, rooms[best])),
            message=f"{pod.title} fits no node that it can be scheduled on: one pod requests {'; '.join(over[best])}",
            given=_asked(pod),
            allowed=f"what {best.title} has",
            resource=pod.urn,
        )


@rule(
    "K8S022",
    "The nodes have room for all pods together.",
    fix="request less or fewer pods, or raise the size of the pool",
    source="Kubernetes scheduling: a pod without room stays Pending; pods are placed as they are created (placing/placed.py)",
)
def all_pods_find_room(facts: GraphFacts) -> Iterator[Judgement]:
    if not facts.placed_pods or any(None in group.sizes for group in facts.node_groups):
        return
    placing = Placing(facts.graph)
    waiting, fewest, most = Waiting(placing), placing.at("initial"), placing.at("most")
    # K8S002 and K8S003 tell of pods that no node takes even alone. What may be on types that the catalog lacks is not judged.
    judged = [
        pod
        for pod in placing.workloads.templates
        if any(not obstacles(pod.spec, shape) and not any(_over(pod, shape, _rooms(facts, pod, shape))) for shape in facts.shapes)
        and not any(shape.instance is None and not obstacles(pod.spec, shape) for shape in facts.shapes)
    ]
    found: dict[PodTemplate, tuple[int, str]] = {}
    full = waiting.overfull({pod: number for pod, number in waiting.pods.items() if pod in judged})
    for pod, left in Counter(placed_pod.template for placed_pod in placing.at("initial", groups="most").unplaced).items():
        found[pod] = left, _NO_ROOM if pod in full else _MAY_WAIT
    for pod, left in waiting.left(waiting.pods).items():
        if pod not in full:
            found.setdefault(pod, (left, _MAY_WAIT))
    for job, (sure, possible) in waiting.jobs.items():
        if left := waiting.left(possible)[job]:
            full = waiting.overfull({pod: number for pod, number in sure.items() if pod in judged})
            found[job] = left, _NO_ROOM if job in full else _MAY_WAIT
    for pod, left in Counter(placed_pod.template for placed_pod in most.unplaced).items():
        found.setdefault(pod, (left, _NO_ROOM_LATER))
    nodes = Counter(f"{node.instance.name} of pool {node.pool}" for node in fewest.nodes)
    has = ", ".join(f"{many} x {what}" for what, many in sorted(nodes.items()))
    if not found and not most.uncounted:
        pods = sum(len(node.pods) for node in fewest.nodes)
        yield Judgement(True, (), (f"{pods} pods on {has}",), resource=facts.placed_pods[0].urn)
    for pod in judged:
        if pod in found:
            left, why = found[pod]
            yield Judgement(
                holds=False,
                path=(),
                working=(f"{left} pods of {pod.title} are left, with {has}",),
                message=why.format(f"{counted(left, 'pod')} of {pod.title}")
                + (f"; most room is taken by {takers}" if (takers := _takers(facts, placing, pod)) else ""),
                given=_asked(pod),
                severity="error" if why == _NO_ROOM else "warning",
                resource=pod.urn,
            )


def _takers(facts: GraphFacts, placing: Placing, pod: PodTemplate) -> str:
    """The three that request the largest share of what the nodes have that a pod can run on, of any resource that it requests."""
    shapes = {(shape.pool, shape.type_name): shape for shape in facts.shapes if not obstacles(pod.spec, shape)}
    taken, has = Counter[PodTemplate](), dict.fromkeys(pod.requests, Decimal())
    for node in placing.at("initial").nodes:
        if shape := shapes.get((node.pool, node.instance.name)):
            taken.update(pod.template for pod in node.pods)
            taken.update(daemon for daemon in placing.workloads.daemons if not obstacles(daemon.spec, shape))
            has = {name: amount + shape.offers.get(name, 0) for name, amount in has.items()}

    def share(one: PodTemplate) -> Decimal:
        return max((taken[one] * one.requests.get(name, 0) / amount for name, amount in has.items() if amount), default=Decimal())

    largest = sorted(filter(share, taken), key=lambda pod_template: (-share(pod_template), pod_template.title))[:3]
    return ", ".join(f"{counted(taken[one], 'pod')} of {one.title} ({_asked(one)} each)" for one in largest)


def _asked(pod: PodTemplate) -> str:
    return ", ".join(f"{name} {_shown(name, amount)}" for name, amount in pod.requests.items())


_NO_ROOM = "there is no room for {}, in whatever order they start"
_NO_ROOM_LATER = "there is no room for {} once autoscalers have started the most"
_MAY_WAIT = "{} may wait: whether there is room depends on where the scheduler puts what comes before"


def _rooms(facts: GraphFacts, pod: PodTemplate, shape: NodeShape) -> dict[str, Decimal]:
    """What the DaemonSets of the graph leave for the pod of each resource that it requests. Leaves out what is unknown."""
    daemons = [daemon for daemon in facts.daemons if daemon is not pod and shape in facts.shapes_for(daemon)]
    taken = {name: sum((daemon.requests.get(name, Decimal()) for daemon in daemons), Decimal()) for name in pod.requests}
    return {name: shape.offers[name] - amount for name, amount in taken.items() if name in shape.offers}


def _over(pod: PodTemplate, shape: NodeShape, rooms: Mapping[str, Decimal]) -> Iterator[str]:
    for name, room in rooms.items():
        if pod.requests[name] > room:
            yield f"{_shown(name, pod.requests[name])} {name}, {shape.title} has {_shown(name, room)}"


def _arithmetic(pod: PodTemplate, shape: NodeShape, rooms: Mapping[str, Decimal]) -> Iterator[str]:
    for name, room in rooms.items():
        asked, offered = pod.requests[name], shape.offers[name]
        less = f" ({_shown(name, offered)} - {_shown(name, offered - room)} of DaemonSets)" if offered > room else ""
        sign = ">" if asked > room else "<="
        yield f"{pod.title}: {name} {_shown(name, asked)} {sign} {_shown(name, room)}{less} of {shape.title}"


def _shown(name: str, amount: Decimal) -> str:
    return f"{amount / 2**30:.2f} GiB" if name in ("memory", "ephemeral-storage") else number(amount)


@rule(
    "K8S013",
    "A device plugin offers every device that pods request.",
    fix="install the device plugin, with tolerations for the taints of its nodes; images of EKS contain only drivers",
    source="awslabs/amazon-eks-ami, accelerated AL2023 images: they contain no Kubernetes plugin",
)
def devices_are_offered(facts: GraphFacts) -> Iterator[Judgement]:
    # Bottlerocket images contain device plugins.
    if any("BOTTLEROCKET" in group.ami_type for group in facts.node_groups):
        return
    if not facts.clusters:
        asked = {name: pod for pod in facts.pods for name in pod.requests if name in OFFERED_BY}
        for name, pod in asked.items():
            if not any(facts.offering(name)):
                why = f"{pod.title} requests it, and the program makes neither the cluster nor a device plugin"
                fix = f"ask `kubectl describe nodes`, and install one where it is missing: {', '.join(OFFERED_BY[name])}"
                yield replace(not_judged("the device plugin", name, (), why=why, fix=fix), resource=pod.urn)
    for pod in facts.placed_pods:
        shapes = facts.shapes_for(pod)
        for name in sorted(pod.requests.keys() & OFFERED_BY.keys()) if shapes else ():
            plugins = tuple(facts.offering(name))
            found = [title for _, title, offered_on in plugins if any(shape in offered_on for shape in shapes)]
            away = [title for _, title, _ in plugins if title not in found]
            why = f": {', '.join(away)} cannot run there" if away and not found else ""
            yield Judgement(
                holds=bool(found),
                path=(),
                working=(f"{pod.title} requests {name}; offered on {shapes[0].title} by {', '.join(found) or 'nothing'}{why}",),
                message=f"{pod.title} requests {name}, but nothing offers it on {shapes[0].title}{why}",
                given=name,
                allowed=f"a device plugin or driver: {', '.join(OFFERED_BY[name])}",
                resource=pod.urn,
            )


@rule(
    "K8S014",
    "Every scheduler that pods name exists.",
    fix="install the scheduler with that name, or leave schedulerName out",
    source="Kubernetes, Configure multiple schedulers: pods of an unknown scheduler stay Pending",
)
def schedulers_exist(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.placed_pods:
        name = pod.spec.scheduler
        if name and name != "default-scheduler" and not is_token(name):
            found = name in facts.schedulers
            yield Judgement(
                holds=found or facts.schedulers_unseen,
                path=(),
                working=(
                    f"{pod.title} names {name}: {'configured in the graph' if found else 'in no configuration of the graph'}",
                ),
                message=f"{pod.title} names the scheduler {name}, but nothing in the graph has that name",
                given=name,
                allowed=", ".join(("default-scheduler", *facts.schedulers)),
                resource=pod.urn,
            )


@rule(
    "K8S021",
    "A disruption budget lets a drain take a pod.",
    severity="warning",
    fix="set maxUnavailable: 1, or a minAvailable below the number of pods; a group of one pod needs no budget",
    source="Kubernetes, Specifying a Disruption Budget: with as many pods available as it demands, no eviction ever succeeds",
)
def budgets_let_go(facts: GraphFacts) -> Iterator[Judgement]:
    for budget, template, kept in budgeted(facts.graph):
        yield Judgement(
            holds=not kept,
            path=(),
            working=(f"{title_of(budget)}: {template.title} has {template.pods} pods; {kept or 'one may go'}",),
            message=f"{title_of(budget)} lets no pod of {template.title} go: {kept}",
            given=kept,
            allowed="one pod may go",
            resource=budget.urn,
        )
