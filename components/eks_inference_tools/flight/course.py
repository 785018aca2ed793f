"""Records and judges every stage of a flight before anything is deployed."""

import json
from collections.abc import Iterator
from dataclasses import replace

from eks_inference_tools.check.report import judge, problem
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.flight.planner import Deployment, Leg, deployment, legs_of
from eks_inference_tools.flight.rungs import Rung, Stage, rungs_of
from eks_inference_tools.program import REGION_KEY, STACK_KEY, StackProgram
from stackgraph.problems import Problem, ProblemsFound


def course_of(program: StackProgram, prices: OwnPrices | None = None) -> tuple[Leg, ...]:
    """Returns the legs of a stack's flight.

    Raises ``ProblemsFound`` for a program without a stack object, and where a rule refuses any of the stages.
    """
    spec = program.spec()
    if spec is None:
        hint = "a program that makes its own components cannot be taken apart: use one with InferencePlatform.from_config"
        raise ProblemsFound([Problem("there is no stack object to climb to", program.document.shown, key=STACK_KEY, hint=hint)])
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
            stopping = [problem(report.program, one, report.graph) for one in report.verdict.findings if one.stops]
            refused = [*report.refusals, *stopping, *report.unknown]
            raise ProblemsFound([replace(one, message=f"rung {rung.name}: {one.message}") for one in refused])
        yield deployment(report.graph, stage.only)
