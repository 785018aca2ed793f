"""Judges one stack by all rules; says what no rule judged, and which key of the stack file a finding is about."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import eks_inference
from eks_inference.faults import Fault, SpecError, format_path
from eks_inference.rules import Finding, Judgement, NotJudged, Path, ReadRule, Rule, Verdict
from eks_inference.stack.values_rules import read_by_others
from eks_inference_tools.check.registry import check_graph, unknown_ids
from eks_inference_tools.program import REGION_KEY, SILENCED_KEY, StackProgram
from eks_inference_tools.reading.clusters import PLATFORM, not_judged
from stackgraph.graph.document import UNANSWERED, Graph, Resource
from stackgraph.graph.structure import Structure
from stackgraph.problems import Problem, ProblemsFound

if TYPE_CHECKING:
    from eks_inference.stack.spec import StackSpec

_BY_NO_RULE = NotJudged(
    path=(),
    what=("memory", "architecture", "disk"),
    of="the program's servers",
    why="the program has no stack object, so only rules about resources were applied",
    fix="components refuse what cannot run; judge servers of your own by hand",
)
_GROUPS_WITHOUT_PODS = (
    "admissionregistration.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
)
_CORE_KINDS_WITH_PODS = ("List", "Pod", "PodList", "PodTemplate", "ReplicationController")


def left_open(graph: Graph) -> Iterator[NotJudged]:
    """Yields what components of a program could not judge, and that nothing judges servers outside them."""
    platforms = tuple(not_judged(graph))
    told = {platform.summary for platform in platforms}
    yield from platforms
    yield from dict.fromkeys(one for text in graph.warnings if text not in told and (one := NotJudged.read(text)))
    structure = Structure(graph)
    ours = [resource.urn for resource in graph.resources if resource.package == "eks-inference" and not resource.remote]
    for urn in ours:
        if graph.by_urn[urn].parent not in ours:
            yield from _read_by_others(graph.by_urn[urn])
    judged = {*ours, *(resource.urn for urn in ours for resource in structure.inside(urn))}
    if not ours or any(_may_run_servers(resource) and resource.urn not in judged for resource in graph.resources):
        yield _BY_NO_RULE


def _read_by_others(component: Resource) -> Iterator[NotJudged]:
    """Yields what a component says in the words of charts, add-ons and other programs, which the rule VAL001 tells of a stack."""
    kind = component.type.removeprefix(_TOKEN)
    where = _PARTS.get(kind) or (_SEVERAL.get(kind, "servers"), component.name)
    held: Any = component.inputs
    for key in reversed(where):
        held = {key: held}
    for one in read_by_others(held):
        path = one.path[len(where) :]
        if one.unjudged:
            yield NotJudged(path, (one.unjudged.what,), one.unjudged.of, one.working[-1], one.fix, component.urn)
        elif not one.holds:
            yield NotJudged(path, (str(path[-1]),), component.name, one.message, one.fix, component.urn)


def _may_run_servers(resource: Resource) -> bool:
    """Whether a resource may be a server, or make one. The effect of a foreign kind is unknown."""
    if resource.package != "kubernetes":
        return resource.remote and resource.package == "eks-inference"
    _, versioned_group, kind = resource.type.split(":")
    group = versioned_group.partition("/")[0]
    return kind in _CORE_KINDS_WITH_PODS if group == "core" else group not in _GROUPS_WITHOUT_PODS


_TOKEN = "eks-inference:index:"

_PARTS: dict[str, Path] = {
    "Vpc": ("network",),
    "EksCluster": ("cluster",),
    "ClusterAddons": ("addons",),
    "Karpenter": ("karpenter",),
    "KubeRayOperator": ("kuberay",),
    "CloudWatchObservability": ("observability", "cloudwatch"),
    "FluentBit": ("observability", "fluent_bit"),
    "PrometheusStack": ("observability", "prometheus"),
    "NeuronMonitor": ("observability", "neuron_monitor"),
    "DcgmExporter": ("observability", "dcgm_exporter"),
    "NeuronPlugin": ("accelerators", "neuron"),
    "NeuronScheduler": ("accelerators", "neuron", "scheduler"),
    "NvidiaDevicePlugin": ("accelerators", "nvidia"),
    "Keda": ("scaling", "keda"),
    "PrometheusAdapter": ("scaling", "prometheus_adapter"),
    "OpenWebUI": ("clients", "open_webui"),
    "SmokeTest": ("clients", "smoke_test"),
    "TritonClient": ("clients", "triton"),
    "LoadBalancerController": ("load_balancer_controller",),
    "LoadTest": ("load_test",),
}
"""Components of which a platform has one, with the key that asks for them. Servers and pools have keys of their own."""

_SEVERAL = {"KarpenterPool": "pools", "ManagedPool": "pools", "ModelEndpoint": "endpoints"}
"""Components that are no servers, of which a platform may have several, with the section that has their keys."""


def stack_key(urn: str, graph: Graph, spec: "StackSpec") -> Path:
    """Returns the key of the part that made a resource; empty for one that no key asks for, or that a program made itself."""
    line = list(_line(graph.by_urn.get(urn), graph))
    platform = next((number for number, one in enumerate(line) if one.type == PLATFORM), 0)
    if not platform or line[platform].name != spec.name:
        return ()
    part = line[platform - 1]
    if (kind := part.type.removeprefix(_TOKEN)) in _PARTS:
        return _PARTS[kind]
    if section := _SEVERAL.get(kind):
        name = part.name.removeprefix(f"{spec.name}-") if section == "pools" else part.name
        return (section, name) if name in getattr(spec, section) else ()
    # A server, or what belongs to it: its store, its image, its cache.
    servers = [server for server in spec.servers if part.name == server or part.name.startswith(f"{server}-")]
    return ("servers", max(servers, key=len)) if servers else ()


def _line(resource: Resource | None, graph: Graph) -> Iterator[Resource]:
    """A resource and its ancestors, the nearest first."""
    while resource is not None:
        yield resource
        resource = graph.by_urn.get(resource.parent)


@dataclass(frozen=True)
class StackReport:
    """The verdict about one stack. ``refusals`` are the problems, apart from rules, that keep it from being read or built."""

    program: StackProgram
    verdict: Verdict
    refusals: tuple[Problem, ...] = ()
    spec: "StackSpec | None" = None
    """None: the program has no stack object, or it cannot be read."""
    graph: Graph | None = None
    """What was recorded; None of a stack that was refused before."""

    @property
    def stopped(self) -> bool:
        return bool(self.refusals or self.verdict.faults)

    @property
    def unknown(self) -> list[Problem]:
        """Problems with silenced rules that do not exist. No rule finds these."""
        return self.program.problems([fault for fault in self.verdict.faults if not fault.rule])

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """What no rule could judge: what depends on unanswered functions; without a stack object, what its servers need."""
        found = (*self.verdict.not_judged, *self._asked)
        return found if self.stopped or self.spec or not self.graph else (*found, *left_open(self.graph))

    @property
    def _asked(self) -> tuple[NotJudged, ...]:
        """The provider functions that nobody answered."""
        open_ = {called.token for called in self.graph.functions if called.answer in UNANSWERED} if self.graph else ()
        why, fix = "only its provider or stack knows it, and a placeholder stands for it", "--answers FILE gives it"
        return tuple(NotJudged((), ("what depends on the result",), token, why, fix) for token in sorted(open_))

    @property
    def state(self) -> str:
        """``refused``, ``can run``, or ``not refused`` when something was not judged."""
        return "refused" if self.stopped else "not refused" if self.not_judged else "can run"

    def explained(self, rule: Rule[Any] | ReadRule) -> list[Judgement]:
        """The judgements of one rule about this stack."""
        return [judgement for judged, judgement in self.verdict.judgements if judged.id == rule.id]

    def why_not(self, rule: Rule[Any]) -> str:
        """Why a rule without judgements does not apply."""
        examined = any(isinstance(subject, rule.subject) for subject in self.verdict.subjects)
        return f"it judges {rule.about}, and this stack has none{' with what it looks at' if examined else ''}"


def judge(program: StackProgram) -> StackReport:
    """Judges the spec of a stack, and its graph when the spec passes."""
    try:
        spec = program.spec()
        silenced = program.silenced(spec)
    except ProblemsFound as error:
        return StackReport(program, Verdict((), (), {}), error.problems)
    region = program.config.values.get(REGION_KEY)
    verdict = Verdict((), (), silenced)
    try:
        if spec and region:
            from eks_inference.stack.registry import check_spec

            verdict = check_spec(spec, region)
    except SpecError as error:
        return StackReport(program, verdict, tuple(program.problems(error.faults)), spec)
    unknown = tuple(unknown_silences(program, spec, silenced))
    if verdict.faults or unknown:
        return StackReport(program, verdict, unknown, spec)
    try:
        graph = program.record(needs_files=True)
    except ProblemsFound as error:
        return StackReport(program, verdict, error.problems, spec)
    return StackReport(program, verdict + check_graph(graph, silenced), spec=spec, graph=graph)


def unknown_silences(program: StackProgram, spec: "StackSpec | None", silenced: Mapping[str, str]) -> list[Problem]:
    """The problems with silenced rules that do not exist."""
    return program.problems(unknown_ids(silenced, config_key="" if spec else SILENCED_KEY))


def problem(program: StackProgram, finding: Finding, graph: Graph | None) -> Problem:
    """A finding as a problem with its place: a line of the stack file, or a resource and the line of a program that makes it.

    A resource that a key of the stack file asks for is told at that key.
    """
    found = program.problems([finding.fault])[0]
    urn = finding.judgement.resource
    spec = program.spec() if graph else None
    if not urn or (spec and finding.fault.path):
        return found
    if graph and spec and (path := stack_key(urn, graph, spec)):
        (asked,) = program.problems([replace(finding.fault, path=path)])
        return replace(asked, key=f"{asked.key}: {short_name(urn)}")
    file, _, line = _source(urn, graph).rpartition(":")
    return replace(found, file=file, line=int(line or 0), key=short_name(urn))


def _source(urn: str, graph: Graph | None) -> str:
    """``file:line`` of the program that made a resource, by itself or by a component of ours. Empty when the library did."""
    resource = graph.by_urn.get(urn) if graph else None
    while graph and resource and (not resource.source or resource.source.startswith(_LIBRARY)):
        resource = graph.by_urn.get(resource.parent)
    return resource.source if resource else ""


_LIBRARY = f"{eks_inference.__name__}{os.sep}"


def open_question(report: StackReport, each: NotJudged) -> Problem:
    """Something that was not judged, as a problem with its line."""
    (found,) = report.program.problems([Fault(each.path, f"{', '.join(each.what)} of {each.of}: {each.why}", hint=each.fix)])
    if not each.resource:
        return found if report.spec else replace(found, file="", line=0, key=format_path(each.path))
    file, _, line = _source(each.resource, report.graph).rpartition(":")
    return replace(found, file=file, line=int(line or 0), key=f"{short_name(each.resource)}: {format_path(each.path)}")


def short_name(urn: str) -> str:
    """``name (type)`` of a URN."""
    type_, _, name = urn.rpartition("::")
    return f"{name} ({type_.rpartition('::')[2].rpartition('$')[2]})"
