"""Predicts a stack's load test, compares the prediction with the measurement, and says why the measurement is slower. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import find_model
from eks_inference.catalog.speeds import speed
from eks_inference.observability.spec import Objectives
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.speed.queue import Served
from eks_inference.speed.slow_causes import Diagnosis, Seen
from eks_inference.speed.takes import modelled
from eks_inference_tools.loadtest_report.compared_runs import Expected, Note
from eks_inference_tools.loadtest_report.record import Published, Run, Spread

_PERCENTS = (25, 50, 75, 90, 95, 99)


def predicted(servers: Sequence[ServingFacts], files: Sequence[Sequence[Run]]) -> tuple[list[Expected], list[Note]]:
    """Returns each run with what is predicted for it, and what is said of those that are slower.

    A Service leads to the pods, by chance, as load tests of this library ask it.
    """
    figures: list[Expected] = []
    notes: list[Note] = []
    for runs in files:
        alike: dict[tuple[int, int], list[Run]] = defaultdict(list)
        for run in runs:
            if isinstance(server := _server(servers, run), str):
                notes.append(Note("note", f"{run.label}: nothing is predicted: {server}"))
            elif run.asking and run.lengths:
                alike[servers.index(server), _pods(server, run)].append(run)
        for (which, pods), measured in alike.items():
            found = _diagnosis(servers[which], pods, measured)
            if isinstance(found, str):
                notes.append(Note("note", f"{measured[0].label}: nothing is predicted: {found}"))
                continue
            figures += _figures(found, measured)
            notes += _notes(found, measured)
    return figures, notes


def _server(servers: Sequence[ServingFacts], run: Run) -> ServingFacts | str:
    """The server that a run measured: that of its name, else one of its model, on the same accelerator. As a text why none is."""
    shape, instance = find_model(run.model), instance_types().get(run.instance_type)
    named = [server for server in servers if run.server and run.server in map(str, server.path)]
    alike = named or [server for server in servers if server.model_id == run.model or (shape and server.model == shape)]
    there = [serving_facts for serving_facts in alike if instance is None or speed(serving_facts.instance) == speed(instance)]
    if not there:
        return f"the stack serves no {run.model or 'such model'}" + (f" on {run.instance_type}" if alike else "")
    return next((serving_facts for serving_facts in there if serving_facts.instance == instance), there[0])


def _pods(server: ServingFacts, run: Run) -> int:
    return max(1, run.chips // server.devices) if run.chips else server.pods_min


def _diagnosis(server: ServingFacts, pods: int, runs: Sequence[Run]) -> Diagnosis | str:
    loads = tuple(map(_seen, runs))
    longest = max(loads, key=lambda load: load.input_tokens + load.output_tokens)
    asked = TrafficSpec(users=longest.users, input_tokens=longest.input_tokens, output_tokens=longest.output_tokens)
    model = modelled(replace(server, pods_min=pods, pods_max=pods), asked, Objectives(), "random")
    return model if isinstance(model, str) else Diagnosis(model, loads)


def _seen(run: Run) -> Seen:
    lengths = run.lengths
    assert lengths
    assert run.asking
    told = {f"first {percent}": run.value("ttft_ms", percent) for percent in ("p50", "p95")} | {"token": run.token_ms}
    figures = {name: value / 1e3 for name, value in told.items() if value} | (
        {"rate": run.output_tokens_per_s} if run.output_tokens_per_s else {}
    )
    return Seen(run.asking, run.completed or run.asked or run.asking, *lengths, figures)


def _figures(found: Diagnosis, runs: Sequence[Run]) -> Iterator[Expected]:
    low, high = found.model.times.range
    measured = f"not: nine of ten measured times are {low:.2f} to {high:.2f} of what is predicted"
    about = Published("predicted", "docs/speed.md, docs/traffic.md", measured, "-", (runs[0].model,), (), ())
    for run, served in zip(runs, found.predicted, strict=True):
        yield run, _run(run, served), about


def _run(measured: Run, served: Served) -> Run:
    answer = measured.metrics["output_tokens"]["mean"]
    with_first = measured.itl_includes_ttft
    token = sum(served.whole) / len(served.whole) / answer if with_first else served.mean_token
    return Run(
        tool="prediction",
        label=f"{measured.label}, predicted",
        model=measured.model,
        users=measured.users,
        completed_per_min=60 * served.answered / served.seconds,
        output_tokens_per_s=served.tokens_per_second,
        metrics={
            "ttft_ms": _spread(served.first_tokens, served.first_token),
            "itl_ms": {"mean": 1e3 * token},
            "e2e_ms": _spread(served.whole, served.end_to_end),
            **{one: {"mean": measured.metrics[one]["mean"]} for one in ("input_tokens", "output_tokens")},
        },
        basis={"itl_ms": "request_with_ttft" if with_first else "request"},
        instance_type=measured.instance_type,
        chips=measured.chips,
    )


def _spread(times: Sequence[float], of: Callable[[float], float]) -> Spread:
    return {f"p{one}": 1e3 * of(one) for one in _PERCENTS} | {"mean": 1e3 * sum(times) / len(times)}


def _notes(found: Diagnosis, runs: Sequence[Run]) -> Iterator[Note]:
    """Yields what is slower than predicted, by how much, and the setting to try."""
    if not found.slow:
        return
    load, what, times = max(found.slow, key=lambda one: one[2])
    label = next(run.label for run, seen in zip(runs, found.loads, strict=True) if seen is load)
    worst = f"{load.figures[what] * 1e3:.0f} ms" if what != "rate" else f"{load.figures[what]:.0f} tokens/s"
    names = {"token": "the time between tokens", "rate": "the throughput"}
    told = (
        f"{label}: {names.get(what, what.replace('first', 'the first token'))} is {times:.1f} times worse than predicted: {worst}"
    )
    if not found.causes:
        yield Note("warning", f"{told}: no single cause explains it")
    for number, one in enumerate(found.causes):
        which = told if not number else f"{label}, or as well"
        yield Note("warning", f"{which}: {one.wall}: {one.says} (with that, {one.distance:.0%} off). Try {one.tries}")
