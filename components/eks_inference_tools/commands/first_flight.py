"""``eks-inference first-flight``: climbs from nothing to a stack's load test in rungs, under a cap, and back down.

``first-flight report`` compares what a flight brought back with the catalog.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eks_inference_tools.commands.options import add_prices, own_prices
from eks_inference_tools.commands.wishes import refuse
from stackgraph.commands.options import add_document, add_program, add_stack, amount_of

if TYPE_CHECKING:
    from eks_inference_tools.cost.price_book import OwnPrices
    from eks_inference_tools.flight.course import Leg
    from eks_inference_tools.flight.journal import Journal
    from eks_inference_tools.flight.ladder import Ladder, Landed
    from eks_inference_tools.flight.ports import Finding
    from eks_inference_tools.flight.workspace import AutomationWorkspace
    from eks_inference_tools.program import StackProgram

HELP = "deploy a stack for the first time: in rungs, under a spending cap, and back to nothing"
EXAMPLES = (
    "first-flight smoke-gpu --plan",
    "first-flight smoke-gpu --cap-usd 10 --cap-minutes 120",
    "first-flight report .first-flight/smoke-gpu/bundle.json",
)

REPORT = "report"
"""Stands in the place of a stack: `first-flight report BUNDLE`."""

EXIT_CODES = {"reached": 0, "stopped": 0, "failed": 1, "cap": 1, "interrupted": 130}

_FOLDER = ".first-flight"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Deploys a stack rung by rung in your account, and destroys it again: the account is asked (doctor); VPC and control "
        "plane; core nodes and add-ons; one accelerator node; a small server that answers; the stack itself; its load test. Each "
        "rung is shown with its time and price, and verified. What fails, and what would go beyond a cap, is torn down. Writes a "
        "bundle without anything of the account in it, which `first-flight report BUNDLE` compares with the catalog. Exit code "
        "1: it failed, or a cap was reached. docs/first-flight.md has what it may cost and which permissions it needs."
    )
    add_stack(parser)
    parser.add_argument("bundle", nargs="?", metavar="BUNDLE", type=Path, help="with `report`: the file that a flight wrote")
    parser.add_argument("--plan", action="store_true", help="show the rungs with their times and prices, and do nothing")
    parser.add_argument(
        "--cap-usd",
        metavar="USD",
        type=amount_of("number of USD", 1e6),
        help="the most that the whole flight may cost, by list prices",
    )
    parser.add_argument(
        "--cap-minutes", metavar="N", type=amount_of("number of minutes", 1e6), help="time limit of this command in minutes"
    )
    parser.add_argument("--to", metavar="RUNG", help="the last rung to climb (default: load-test)")
    parser.add_argument("--keep", action="store_true", help="keep what stands at the last rung or after Ctrl-C, and do not ask")
    parser.add_argument("--destroy", action="store_true", help="destroy what an earlier flight of this stack has left")
    parser.add_argument("--work", metavar="DIR", type=Path, help=f"work directory (default: {_FOLDER}/STACK in the project)")
    parser.add_argument("--rows", action="store_true", help="with `report`: print rows for the catalog instead")
    add_prices(parser)
    add_program(parser)
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    if options.stack == REPORT:
        return _report(options)
    from eks_inference_tools.flight.course import course_of
    from eks_inference_tools.flight.journal import Caps
    from eks_inference_tools.flight.report import course, render_course
    from eks_inference_tools.program import program
    from stackgraph.presentation.output import drawing, json_text, write

    if options.bundle is not None:
        refuse("takes one stack", "BUNDLE", str(options.bundle), hint=f"a bundle is read by first-flight {REPORT} BUNDLE")
    caps, prices = Caps(options.cap_usd, options.cap_minutes), own_prices(options)
    stack = program(options.stack, options.program, debug=options.debug, answers=options.answers)
    legs = course_of(stack, prices)
    names = [leg.name for leg in legs]
    if options.to is not None and options.to not in names:
        refuse("there is no such rung", "--to", options.to, ", ".join(names))
    last = names.index(options.to) if options.to else len(legs) - 1
    unpriced = [name for leg in legs[: last + 1] for name in leg.unpriced]
    if caps.usd is not None and unpriced and not options.plan:
        hint = "give it with --prices or in `prices` of the stack (docs/cost.md), or leave --cap-usd out and allow each rung"
        allowed = "; ".join(dict.fromkeys(unpriced))
        refuse("a cap needs the price of everything", "--cap-usd", f"{caps.usd:g}", allowed, hint)
    shown = options.output if options.plan else None
    as_json = options.format == "json"
    write(json_text(course(stack.stack, legs)) if as_json else render_course(stack.stack, legs, caps, **drawing(shown)), shown)
    if options.plan:
        return 0
    return _fly(options, stack, legs, caps, prices)


def _fly(options: argparse.Namespace, stack: "StackProgram", legs: "Sequence[Leg]", caps: Any, prices: "OwnPrices") -> int:
    from eks_inference_tools.flight.eyes import ClusterEyes
    from eks_inference_tools.flight.journal import Journal, read_journal, write_journal
    from eks_inference_tools.flight.ladder import Ladder
    from eks_inference_tools.flight.pilots import AtTerminal, Unattended, WallClock
    from eks_inference_tools.flight.workspace import AutomationWorkspace
    from stackgraph.interrupts import ending_cleanly

    folder = _folder(options.work or stack.project.root / _FOLDER / stack.stack)
    with _alone(folder), ending_cleanly(), (folder / "engine.log").open("a", encoding="utf-8") as log:
        file = folder / "journal.json"
        before = read_journal(file, stack.stack)
        journal = before if before and before.phase != "gone" else Journal(stack.stack)
        if options.destroy and journal is not before:
            refuse("no flight of this stack has left anything", "--destroy", stack.stack)
        clock, keep = WallClock(), options.keep
        pilot = AtTerminal(keep) if sys.stdin.isatty() and sys.stderr.isatty() else Unattended(keep)
        workspace = AutomationWorkspace(stack, folder, told=lambda line: print(line, file=log, flush=True))
        _nobody_elses(workspace, journal)
        journal = replace(journal, backend=workspace.backend)
        ladder = Ladder(
            legs=legs,
            workspace=workspace,
            verifier=ClusterEyes(folder, clock, pilot.progress.show),
            doctor=lambda: _asked(stack, legs),
            pilot=pilot,
            clock=clock,
            save=lambda journal: write_journal(file, journal),
            caps=caps,
            journal=journal,
            to=options.to or legs[-1].rung.name,
        )
        landed = ladder.destroy() if options.destroy else ladder.fly()
        _write_bundle(folder / "bundle.json", stack, legs, landed, prices, {"pulumi CLI": workspace.version}, clock.now())
    _tell(options, ladder, landed, folder)
    return EXIT_CODES[landed.landing] or int(landed.journal.phase == "down")


def _asked(stack: "StackProgram", legs: "Sequence[Leg]") -> "Sequence[Finding]":
    """What the doctor says of the rung with most in it, and of the smoke test, whose node may be of another type."""
    from eks_inference_tools.doctor.account import open_account
    from eks_inference_tools.doctor.examine import examine
    from eks_inference_tools.doctor.web import Web
    from eks_inference_tools.hub import TOKEN_VARIABLE
    from eks_inference_tools.program import PROFILE_KEY

    account, web = open_account(stack.config.values.get(PROFILE_KEY, "")), Web(os.environ.get(TOKEN_VARIABLE, ""))
    graphs = [leg.deployments[-1].graph for leg in legs if leg.name in ("token", legs[-1].name)]
    found = {(finding.topic, finding.text): finding for graph in graphs for finding in examine(graph, account, web)}
    return tuple(found.values())


def _nobody_elses(workspace: "AutomationWorkspace", journal: "Journal") -> None:
    """Refuses a stack that has something which no flight of this work directory made, as landing would destroy it; and another
    backend than that of the flight, where nothing of it would be found.
    """
    if journal.backend not in ("", workspace.backend):
        hint = "log in to that backend again, where the stack of this flight is"
        refuse("the flight is in another backend", "", workspace.backend, journal.backend, hint)
    if journal.at in (None, "doctor") and (there := workspace.left().resources):
        hint = "destroy it with pulumi, or fly a stack of another name; if a flight made it, name its --work directory"
        shown = f"{len(there)} resources, {there[0]} among them"
        refuse("the stack exists, and no flight of this work directory made it", "", shown, hint=hint)


def _write_bundle(
    file: Path,
    stack: "StackProgram",
    legs: "Sequence[Leg]",
    landed: "Landed",
    prices: "OwnPrices",
    tools: "dict[str, str]",
    now: float,
) -> None:
    from eks_inference_tools.flight.bundle import bundle_of
    from eks_inference_tools.program import PROFILE_KEY, REGION_KEY
    from stackgraph.presentation.output import json_text, write

    spec = stack.spec()
    home, profile = Path.home(), stack.config.values.get(PROFILE_KEY, "")
    known = [stack.stack, spec.name if spec else "", str(home), home.name, profile, os.uname().nodename]
    region = stack.config.values.get(REGION_KEY, "")
    document = bundle_of(
        landed.journal, legs, region=region, now=now, landing=landed.landing, tools=tools, prices=prices, known=known
    )
    write(json_text(document), file)


def _tell(options: argparse.Namespace, ladder: "Ladder", landed: "Landed", folder: Path) -> None:
    from eks_inference_tools.cost.money import money

    say = ladder.pilot.say
    if not landed.gone:
        what = "it stands" if landed.journal.phase == "climbing" else "not everything is gone"
        say(f"{what}, and costs {money(ladder.rate)} an hour. To go on: the same command. To destroy it: --destroy")
        say(f"before you go on with `pulumi up` yourself, remove {folder}: no flight will touch the stack again")
    say(f"bundle: {folder / 'bundle.json'}; log of the engine: {folder / 'engine.log'}")
    say(f"next: eks-inference first-flight {REPORT} {folder / 'bundle.json'}")


def _report(options: argparse.Namespace) -> int:
    import dataclasses

    from eks_inference_tools.flight.bundle import read_bundle
    from eks_inference_tools.flight.report import SCHEMA, as_rows, judged, render_report
    from stackgraph.presentation.output import drawing, json_text, write

    if options.bundle is None:
        refuse("name the file of a bundle", "BUNDLE", "nothing")
    bundle = read_bundle(options.bundle)
    if options.rows:
        write(as_rows(bundle), options.output)
        return 0
    found = judged(bundle)
    if options.format == "json":
        write(json_text({"schema": SCHEMA, "findings": [dataclasses.asdict(judged) for judged in found]}), options.output)
    else:
        write(render_report(bundle, found, **drawing(options.output)), options.output)
    return 0


def _folder(path: Path) -> Path:
    """Makes the work directory, which no commit gets: it has logs and a kubeconfig."""
    from stackgraph.problems import Problem, ProblemsFound

    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (path / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise ProblemsFound(
            [Problem(f"the work directory cannot be made: {error.strerror}", file=str(path), key="--work")]
        ) from None
    return path.resolve()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two flights of one work directory would tear down each other."""
    import fcntl

    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            refuse("another flight is using this work directory", "--work", str(folder), hint="wait until it has landed")
        yield
