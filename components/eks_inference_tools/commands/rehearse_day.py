"""``eks-inference rehearse day``: plays losses against a stack, with requests that come meanwhile.

Exit code 1: a server does not recover, or a pod finds no node. Exit code 2: the day itself could not be played.
"""

import argparse
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from eks_inference_tools.commands.options import add_cluster
from eks_inference_tools.commands.wishes import refuse
from stackgraph.commands.options import add_document, add_program, add_stack, amount_of, output_file
from stackgraph.interrupts import ending_cleanly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eks_inference_tools.program import StackProgram
    from eks_inference_tools.simulate.day.day import Day
    from eks_inference_tools.simulate.day.requests import Rates
    from eks_inference_tools.simulate.day.subjects import Subject
    from stackgraph.graph.document import Graph

HELP = "lose nodes, a zone or what the cluster stands on under load, on a real control plane"
EXAMPLES = (
    "rehearse day gpu-opt350m --lose zone --lose image-registry",
    "rehearse day gpu-opt350m --rate 4,1:10,3:20,6:1 --plot day.svg",
    "rehearse day gpu-opt350m --lose zone --try servers.triton-server.autoscaling.min=2",
)
_LOSSES = ("node", "zone", "pool", "spot", "capacity-block", "image-registry", "hub", "api-server")
_LOSSES += ("scheduler-extension", "picker")
_MOST_RATE = 10_000.0
_AT_MINUTES, _BACK_MINUTES, _MOST_MINUTES = 0.5, 5.0, 20.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Creates the stack on a simulated cluster, sends requests to its servers, and takes away what --lose names: the node, "
        "zone or pool that runs most of their pods. The controllers and the scheduler of Kubernetes are real, in real "
        "time; servers answer as fast as `plan` says, and start as slowly as the timeline says. Every request ends as served, "
        "late or lost. Ends a minute after every server has recovered. Exit code 1 when a server does not recover."
    )
    add_stack(parser)
    add_program(parser)
    add_cluster(parser)
    parser.add_argument(
        "--lose",
        metavar="WHAT",
        choices=_LOSSES,
        action="append",
        default=[],
        help=f"what is lost: {', '.join(_LOSSES)} (default: zone); repeatable: all are lost at once",
    )
    minutes = amount_of("number of minutes")
    parser.add_argument("--at", metavar="MIN", type=minutes, default=_AT_MINUTES, help="minutes until the loss")
    parser.add_argument(
        "--back",
        metavar="MIN",
        type=minutes,
        default=_BACK_MINUTES,
        help="minutes until a registry, a hub, the API server, an extension or a picker is back; nodes and zones stay away",
    )
    parser.add_argument("--most", metavar="MIN", type=minutes, default=_MOST_MINUTES, help="time limit in minutes")
    parser.add_argument(
        "--rate",
        metavar="N",
        type=_rates,
        default=(),
        help="requests a second to each server, also as a course with minutes, such as 4,1:10,3:20,6:1 (default: its traffic, or "
        "half of what its fewest pods take); a course without --lose is a day without a loss",
    )
    add_tried(parser)
    parser.add_argument("--plot", metavar="FILE.svg", type=output_file, help="also plot the first server's day")
    add_document(parser, ("text", "json"))
    parser.set_defaults(play=run)


def add_tried(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--try",
        dest="tried",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="play it also with another value in the stack file, such as servers.NAME.autoscaling.min=2, or several with "
        "spaces between them; repeatable",
    )


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.program import program
    from eks_inference_tools.simulate.day.plot import render_plot
    from eks_inference_tools.simulate.day.text import document, render_text
    from stackgraph.presentation.output import drawing, json_text, write

    stack = program(options.stack, options.program, debug=options.debug, answers=options.answers)
    _check_length(options)
    scenes = {"": _scene(stack, options, {})}
    # What is tried has the load of the stack as it is.
    rates = {subject.name: subject.load.rates for subject in scenes[""][1]}
    scenes |= {one: _scene(edited(stack, one), options, rates) for one in options.tried}
    days = {words: _played(*scene, options) for words, scene in scenes.items()}
    write(json_text(document(days)) if options.format == "json" else render_text(days, **drawing(options.output)), options.output)
    if options.plot:
        day = next(iter(days.values()))
        write(render_plot(day, day.courses[0]), options.plot)
    return 0 if all(day.recovers for day in days.values()) else 1


def _kinds(options: argparse.Namespace) -> list[str]:
    return options.lose or ["zone"] * (len(options.rate) < 2)


def _check_length(options: argparse.Namespace) -> None:
    """Refuses a day that ends before all has happened in it."""
    from eks_inference_tools.simulate.day.loss import OF_NODES

    kinds = _kinds(options)
    last = {"--rate": options.rate[-1][0] / 60 if options.rate else 0.0, "--at": options.at if kinds else 0.0}
    if set(kinds) - set(OF_NODES):
        last["--at and --back"] = options.at + options.back
    key, minutes = max(last.items(), key=lambda item: item[1])
    if minutes >= options.most:
        refuse(f"the day is over before the time of {key}", "--most", f"{options.most:g}", f"more than {minutes:g}")


def _scene(stack: "StackProgram", options: argparse.Namespace, rates: "Mapping[str, Rates]") -> "tuple[Graph, list[Subject]]":
    """Returns the stack and its servers that can be played; what cannot is refused before any day is."""
    from eks_inference.serving.facts import ServingFacts
    from eks_inference.speed.rules import TrafficFacts
    from eks_inference.stack.facts import stack_facts
    from eks_inference_tools.program import REGION_KEY
    from eks_inference_tools.reading.clusters import part_of
    from eks_inference_tools.simulate.day.loss import World, absent
    from eks_inference_tools.simulate.day.subjects import subjects
    from stackgraph.problems import Problem, ProblemsFound

    graph, spec = part_of(stack.record(), options.cluster), stack.spec()
    found = tuple(stack_facts(spec, stack.config.values[REGION_KEY])) if spec else ()
    facts = {str(serving_facts.path[1]): serving_facts for serving_facts in found if isinstance(serving_facts, ServingFacts)}
    asked = {str(one.server.path[1]): one for one in found if isinstance(one, TrafficFacts)}
    all_of_them = list(subjects(graph, facts, asked, options.rate, rates))
    playable = [subject for subject in all_of_them if not isinstance(subject, str)]
    if not playable:
        why = tuple(one for one in all_of_them if isinstance(one, str))
        raise ProblemsFound([Problem("no server of this stack can be played", working=why or ("it has no server",))])
    if problems := [Problem(why, key="--lose") for why in absent(_kinds(options), World(graph, playable))]:
        raise ProblemsFound(problems)
    return graph, playable


def _played(graph: "Graph", playable: "Sequence[Subject]", options: argparse.Namespace) -> "Day":
    from eks_inference_tools.simulate.control_plane.tool_build import provided
    from eks_inference_tools.simulate.day.day import played
    from eks_inference_tools.simulate.day.metrics import tools_for
    from eks_inference_tools.simulate.simulation import simulation, tools_of
    from stackgraph.presentation.progress import Progress

    toolchain = provided(*tools_of(graph), *tools_for(graph))
    seconds = 60 * options.most
    with (
        ending_cleanly(),
        Progress(about=seconds) as progress,
        simulation(graph, toolchain, tell=progress.show) as simulated,
    ):
        return played(
            simulated,
            playable,
            _kinds(options),
            at_seconds=60 * options.at,
            back_seconds=60 * options.back,
            most_seconds=seconds,
        )


def _rates(given: str) -> "Rates":
    """Parses ``4,1:10,3:20``: so many requests a second, from which minute on."""
    first, *further = given.split(",")
    found = [(0.0, first), *((part.partition(":")[0], part.partition(":")[2]) for part in further)]
    try:
        rates = tuple((60 * float(minute), float(rate)) for minute, rate in found)
    except ValueError:
        rates = ()
    starts = [start for start, _ in rates]
    known = all(0 <= rate <= _MOST_RATE for _, rate in rates) and any(rate for _, rate in rates)
    if not known or starts != sorted(set(starts)):
        allowed = "a number of requests a second, or several, each from a minute on, such as 4,1:10,3:20"
        raise argparse.ArgumentTypeError(f"not {allowed}: {given}")
    return rates


def edited(stack: "StackProgram", edits: str) -> "StackProgram":
    """Returns the stack with other values in its stack object: ``servers.chat.replicas=2``, several with spaces between."""
    import json

    import yaml

    from eks_inference_tools.program import STACK_KEY
    from stackgraph.problems import Problem, ProblemsFound

    spec = json.loads(stack.config.values.get(STACK_KEY, "{}"))
    for edit in re.split(r"\s+(?=[\w.-]+=)", edits):
        path, _, value = edit.partition("=")
        *above, last = path.split(".")
        at = spec
        for key in above:
            at = at.get(key) if isinstance(at, dict) else None
        try:
            chosen = yaml.safe_load(value)
        except yaml.YAMLError:
            chosen = at = None
        if not isinstance(at, dict) or not value:
            hint = "keys of the stack file with dots between them, such as servers.NAME.replicas=2"
            raise ProblemsFound([Problem("--try changes no key of the stack file", given=edit, allowed=hint)])
        at[last] = chosen
    values = {**stack.config.values, STACK_KEY: json.dumps(spec)}
    return replace(stack, config=replace(stack.config, values=values))
