"""What a flight will take: every stage recorded and judged before anything is deployed, and the time and price of each rung, and
of the way back.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eks_inference.catalog.times import INSTANT
from eks_inference_tools.check.report import judge, problem
from eks_inference_tools.cost.estimate import Estimate, estimated
from eks_inference_tools.cost.price_book import SCALES, OwnPrices
from eks_inference_tools.flight.journal import Caps, Meter
from eks_inference_tools.flight.rungs import Rung, Stage, rungs_of
from eks_inference_tools.program import REGION_KEY, STACK_KEY, StackProgram
from eks_inference_tools.timeline.schedule import Step
from eks_inference_tools.timeline.timeline import Course, End, timeline
from eks_inference_tools.timeline.update_steps import creation, deletion
from stackgraph.graph.describe import short_component_type
from stackgraph.graph.document import STACK_TYPE, Graph, Resource, is_component
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import at, unique
from stackgraph.problems import Problem, ProblemsFound

NOTHING = End("", "", 0, 0, 0)


@dataclass(frozen=True)
class Deployment:
    """A stage as it was recorded. ``graph`` is what exists after it.

    ``targets`` are patterns of URNs that the engine is confined to; none: all.
    """

    graph: Graph
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leg:
    """A rung with what it takes: ``climb`` from the rung before to a verified rung, ``descent`` from here to nothing.

    ``usd_per_hour`` is the most that any of its deployments costs, by the price book. ``unpriced`` names what that leaves out.
    """

    rung: Rung
    deployments: tuple[Deployment, ...] = ()
    climb: End = NOTHING
    descent: End = NOTHING
    usd_per_hour: float = 0.0
    unpriced: tuple[str, ...] = ()
    patience_s: float = 0.0
    """How long its pods may take by their own deadlines, which outlast a cold start."""

    @property
    def name(self) -> str:
        return self.rung.name

    @property
    def usd(self) -> float:
        """What the climb costs at its typical time."""
        return self.usd_per_hour * self.climb.p50 / 3600


def reach(legs: Sequence[Leg], caps: Caps) -> Leg | None:
    """Returns the last leg that the caps reach for where all takes its typical time, and the way back its longest."""
    found, usd, seconds = None, 0.0, 0.0
    for leg in legs:
        if leg.deployments and Meter(caps, usd, seconds).left_s(leg.usd_per_hour, leg.descent.high) < leg.climb.p50:
            return found
        found, usd, seconds = leg, usd + leg.usd, seconds + leg.climb.p50
    return found


def deployment(graph: Graph, only: Sequence[str]) -> Deployment:
    """Returns what a stage deploys. ``graph`` is the whole program's, ``only`` are classes of components as in ``Stage``."""
    if not only:
        return Deployment(graph)
    structure = Structure(graph)
    chosen = [resource for resource in graph.resources if is_component(resource) and short_component_type(resource.type) in only]
    urns = {resource.urn for resource in chosen}
    above = {urn for resource in chosen for urn in structure.above(resource.urn)}
    kept = tuple(
        one
        for one in graph.resources
        if one.urn in urns | above or urns & {*structure.above(one.urn)} or one.is_default_provider or one.type == STACK_TYPE
    )
    # What is inside of a remote component has the component's type in its URN, and a name that only the plugin knows.
    inside = [pattern for resource in chosen for pattern in (resource.urn, f"{resource.urn.rpartition('::')[0]}$**")]
    return Deployment(replace(graph, resources=kept), (*sorted(above), *inside))


def legs_of(rungs: Sequence[Rung], recorded: Sequence[Sequence[Deployment]], prices: OwnPrices | None = None) -> tuple[Leg, ...]:
    """Returns the legs of a flight. ``recorded`` has the deployments of each rung."""
    found: list[Leg] = []
    before: Graph | None = None
    for rung, deployments in zip(rungs, recorded, strict=True):
        ends: list[End] = []
        for one in deployments:
            ends += [_gone(before, one.graph), _made(before, one.graph)]
            before = one.graph
        estimates = [estimated(one.graph, prices) for one in deployments]
        scale = SCALES.index("most" if rung.at_most else "initial")
        descents = [timeline(one.graph).destroy for one in deployments]
        found.append(
            Leg(
                rung,
                tuple(deployments),
                _sum("climb", ends),
                max(descents, key=lambda end: end.high, default=NOTHING),
                max((estimate.total(scale).usd_per_hour for estimate in estimates), default=0.0),
                unique(name for estimate in estimates for name in _unpriced(estimate, scale)),
                max((_deadline(resource) for resource in deployments[-1].graph.resources), default=0.0) if deployments else 0.0,
            )
        )
    return tuple(found)


def _deadline(resource: Resource) -> float:
    spec = resource.inputs.get("spec")
    given = [at(spec, key) for key in ("progressDeadlineSeconds", "activeDeadlineSeconds")]
    return max((float(one) for one in given if isinstance(one, int | float)), default=0.0)


def _unpriced(estimate: Estimate, scale: int) -> tuple[str, ...]:
    if not estimate.total(scale).at_least:
        return ()
    return (*estimate.missing(), *(uncounted.shown for uncounted in estimate.uncounted))


def _made(before: Graph | None, after: Graph) -> End:
    """When everything new is there, pods that nobody waits for among it. What changes in place counts as none."""
    known = before.by_urn if before else {}
    steps = [_instant(step) if step.urn in known else step for step in creation(after, timeline(after).starts)]
    return _end(steps)


def _gone(before: Graph | None, after: Graph) -> End:
    if before is None:
        return NOTHING
    gone = tuple(resource for resource in before.resources if resource.urn not in after.by_urn)
    return _end(deletion(replace(before, resources=gone))) if gone else NOTHING


def _end(steps: Sequence[Step]) -> End:
    return Course(tuple(steps)).end("", [step.id for step in steps])


def _instant(step: Step) -> Step:
    return replace(step, time=INSTANT)


def _sum(name: str, ends: Sequence[End]) -> End:
    return End(
        name,
        "",
        sum(end.p50 for end in ends),
        sum(end.low for end in ends),
        sum(end.high for end in ends),
        tuple(step for end in ends for step in end.untimed),
    )


def course_of(program: StackProgram, prices: OwnPrices | None = None) -> tuple[Leg, ...]:
    """Returns the legs of a stack's flight.

    Raises ``ProblemsFound`` for a program without a stack object, and where a rule refuses any of the stages.
    """
    spec = program.spec()
    if spec is None:
        hint = "a program that makes its own components cannot be taken apart: use one with InferencePlatform.from_config"
        raise ProblemsFound(
            [Problem("the program has no stack object to deploy", program.document.shown, key=STACK_KEY, hint=hint)]
        )
    given = json.loads(program.config.values[STACK_KEY])
    rungs = rungs_of(spec, given, program.config.values.get(REGION_KEY, ""))
    return legs_of(rungs, [[*_deployments(program, rung)] for rung in rungs], prices)


def at_stage(program: StackProgram, stage: Stage) -> StackProgram:
    """The program with the configuration of a stage."""
    return replace(program, config=replace(program.config, values={**program.config.values, STACK_KEY: json.dumps(stage.stack)}))


def _deployments(program: StackProgram, rung: Rung) -> Iterator[Deployment]:
    for stage in rung.stages:
        report = judge(at_stage(program, stage))
        if report.stopped or report.graph is None:
            stopping = [problem(report.program, finding, report.graph) for finding in report.verdict.findings if finding.stops]
            refused = [*report.refusals, *stopping, *report.unknown]
            raise ProblemsFound([replace(one, message=f"rung {rung.name}: {one.message}") for one in refused])
        yield deployment(report.graph, stage.only)
