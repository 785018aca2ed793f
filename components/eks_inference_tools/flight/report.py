"""Compares a bundle with the catalog and with the times of the timeline; a course and a report in words."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from statistics import median
from typing import Any, Literal, Unpack

from rich.console import RenderableType
from rich.text import Text

from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.prices import service_price, services
from eks_inference.catalog.tables import table
from eks_inference.catalog.times import phase_time, resource_time
from eks_inference.catalog.versions import kubernetes_versions
from eks_inference_tools.cost.money import money
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.flight.course import Leg, reach
from eks_inference_tools.flight.evidence import public
from eks_inference_tools.flight.journal import Caps
from eks_inference_tools.timeline.durations import duration, spread
from stackgraph.graph.values import grouped, text
from stackgraph.graph.wording import shorten
from stackgraph.presentation.output import Drawing
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

Verdict = Literal["contradicted", "confirmed", "new"]
VERDICTS: tuple[Verdict, ...] = ("contradicted", "confirmed", "new")

SCHEMA = 1
Row = Mapping[str, Any]

WIDER = 1.5
"""A time confirms a row that is at most so many times longer or shorter than all that was seen: most rows have few samples."""

SLACK_S = 5
"""Differences below this are those of the clock and of the API."""

_SAME_PRICE = 0.005
_GUEST_MEMORY = 0.925
"""The share of an instance's memory that rules count on (place/nodes.py)."""


@dataclass(frozen=True)
class Judged:
    """One fact of a bundle. ``known`` is what the catalog says, and ``source`` why; both are empty for what it does not know."""

    verdict: Verdict
    kind: str
    what: str
    measured: str
    date: str
    known: str = ""
    source: str = ""


SHAPE = {"findings": [Judged]}


def judged(bundle: Mapping[str, Any]) -> tuple[Judged, ...]:
    """Returns the verdict on each fact of a bundle, contradictions first. Rows that nobody can read are left out."""
    by_kind = grouped((str(row.get("kind")), row) for row in bundle["rows"])
    found = [one for kind, judge in _JUDGES.items() for one in judge(by_kind.get(kind, []))]
    return tuple(sorted(found, key=lambda one: VERDICTS.index(one.verdict)))


def _times(rows: Sequence[Row]) -> Iterator[Judged]:
    for (action, type_, what), same in grouped(((row["action"], row["type"], row["what"]), row) for row in rows).items():
        seconds, date = [float(row["seconds"]) for row in same], same[0]["date"]
        shown = f"{action} {type_}{f' {what}' if what else ''}"
        measured = f"{seconds[0]:.0f} s" if len(same) == 1 else f"{min(seconds):.0f} to {max(seconds):.0f} s ({len(same)} times)"
        known = resource_time(action, type_, what)
        if known is None:
            yield Judged("new", "time", shown, measured, date)
            continue
        verdict = _verdict(known.low / WIDER - SLACK_S <= min(seconds) and max(seconds) <= known.high * WIDER + SLACK_S)
        yield Judged(verdict, "time", shown, measured, date, f"{known.low:g} to {known.high:g} s", known.source)


def _pulls(rows: Sequence[Row]) -> Iterator[Judged]:
    known = phase_time("pull")
    for row in rows:
        size, seconds = float(row["gb"]), float(row["seconds"])
        measured = f"{size:g} GB in {seconds:g} s"
        if known is None or size < 1:
            yield Judged("new", "pull", row["image"], measured, row["date"])
            continue
        verdict = _verdict(known.low / WIDER <= seconds / size <= known.high * WIDER)
        measured, told = f"{measured}, {seconds / size:.1f} s/GB", f"{known.low:g} to {known.high:g} s/GB"
        yield Judged(verdict, "pull", row["image"], measured, row["date"], told, known.source)


def _verdict(fits: bool) -> Verdict:
    return "confirmed" if fits else "contradicted"


def _answers(rows: Sequence[Row]) -> Iterator[Judged]:
    for row in rows:
        yield Judged("new", "answer", "time to the first token", f"{row['first_token_s']} s", row["date"])


def _loads(rows: Sequence[Row]) -> Iterator[Judged]:
    for row in rows:
        chips = f"{row['chips']} chips of " if row.get("chips") else ""
        users = f"{row['users']} users" if "users" in row else "requests at a rate"
        what = f"{row.get('model', 'a model')} on {chips}{row.get('type', 'nodes of some type')}, {users}"
        figures = [f"{row[key]:g} {unit}" for key, unit in _LOAD_UNITS.items() if key in row]
        yield Judged("new", "load", f"{what} ({row['tool']})", ", ".join(figures), row["date"])


_LOAD_UNITS = {
    "output_tokens_per_s": "tokens/s",
    "ttft_ms_p50": "ms to the first token (p50)",
    "itl_ms_p50": "ms between tokens (p50)",
    "completed": "completed",
    "failed": "failed",
}


def _capacities(rows: Sequence[Row]) -> Iterator[Judged]:
    for row in rows:
        type_ = instance_types().get(row["type"])
        for name, value in row.items():
            if name in ("kind", "type", "date"):
                continue
            what, expected = f"{row['type']}: {name}", _size(type_, name) if type_ else None
            if expected is None:
                yield Judged("new", "capacity", what, str(value), row["date"])
                continue
            least = name == "memory_mib"
            verdict = _verdict(value >= expected if least else value == expected)
            known = f"{'at least ' if least else ''}{expected}"
            yield Judged(verdict, "capacity", what, str(value), row["date"], known, "catalog/instances.toml")


def _size(type_: Any, name: str) -> int | None:
    return {
        "cpu": type_.vcpus,
        "memory_mib": int(type_.memory_mib * _GUEST_MEMORY),
        "aws.amazon.com/neuron": type_.devices,
        "nvidia.com/gpu": type_.devices,
        "vpc.amazonaws.com/efa": type_.efa_interfaces,
    }.get(name)


def _versions(rows: Sequence[Row]) -> Iterator[Judged]:
    for row in rows:
        minor = re.match(r"v?(\d+\.\d+)", row["value"])
        known = row["what"] == "Kubernetes API" and minor is not None and minor[1] in kubernetes_versions()
        told = ("pinned", "catalog/versions.toml") if known else ()
        yield Judged("confirmed" if known else "new", "version", row["what"], row["value"], row["date"], *told)


def _images(rows: Sequence[Row]) -> Iterator[Judged]:
    for row in rows:
        known = row["image"] in _pinned_images()
        measured = "started" if row["started"] else f"did not start: {row.get('why', 'reason unknown')}"
        verdict = _verdict(row["started"]) if known else "new"
        yield Judged(verdict, "image", row["image"], measured, row["date"], "pinned" if known else "")


def _metrics(rows: Sequence[Row]) -> Iterator[Judged]:
    """What dashboards ask for and a server does not export is no contradiction: they ask for the names of several releases."""
    dates = {row["name"]: row["date"] for row in rows}
    exported = {f"{name}{ending}": name for name in dates for ending in _ENDINGS}
    asked = _asked_metrics()
    for name in sorted(asked & exported.keys()):
        yield Judged("confirmed", "metric", name, "exported", dates[exported[name]], "dashboards and alerts ask for it")
    used = {exported[name] for name in asked & exported.keys()}
    for name in sorted(dates.keys() - used):
        yield Judged("new", "metric", name, "exported", dates[name])
    if used:
        for name in sorted(asked - exported.keys()):
            yield Judged("new", "metric", name, "not exported, though dashboards ask for it", next(iter(dates.values())))


_ENDINGS = ("", "_bucket", "_count", "_sum", "_total")
"""What a name of a metric's family becomes in its samples (OpenMetrics 1.0)."""


def _prices(rows: Sequence[Row]) -> Iterator[Judged]:
    for row in rows:
        item, region, usd, sold = row["item"], row["region"], float(row["usd"]), row["sold"]
        way = "" if sold == "usd" else f" {sold.replace('_', ' ')}"
        of_service = sold == "usd" and item in services()
        price = service_price(item, region) if of_service else PriceBook().instance(item, region) if sold == "on_demand" else None
        what, measured = f"{item} in {region}", f"${usd:g}{way}"
        if price is None:
            yield Judged("new", "price", what, measured, row["date"])
            continue
        verdict = _verdict(abs(price.usd - usd) <= _SAME_PRICE * price.usd)
        yield Judged(verdict, "price", what, measured, row["date"], f"${price.usd:g}", price.source)


def _accounts(rows: Sequence[Row]) -> Iterator[Judged]:
    for row in rows:
        shown = ", ".join(f"{key} {value}" for key, value in row["facts"].items())
        yield Judged("new", "account", row["topic"], shown, row["date"])


_JUDGES: Mapping[str, Callable[[Sequence[Row]], Iterator[Judged]]] = {
    "time": _times,
    "pull": _pulls,
    "answer": _answers,
    "load": _loads,
    "capacity": _capacities,
    "version": _versions,
    "image": _images,
    "metric": _metrics,
    "price": _prices,
    "account": _accounts,
}


@cache
def _pinned_images() -> frozenset[str]:
    """Every image that the catalog names."""
    found = re.findall(r"[\w.-]+/[\w./-]+:[\w.-]+", f"{table('versions.toml')} {table('engines.toml')}")
    return frozenset(map(public, found))


@cache
def _asked_metrics() -> frozenset[str]:
    """Names of metrics of servers that dashboards and alerts of the library ask for."""
    assets = files("eks_inference.observability").joinpath("assets")
    texts = [one.read_text(encoding="utf-8") for one in assets.iterdir() if one.name.endswith((".json", ".yaml"))]
    return frozenset(name for text in texts for name in re.findall(r"\bvllm:[a-z][a-z0-9_]{3,}", text))


def as_rows(bundle: Mapping[str, Any]) -> str:
    """Returns rows for times.toml of times that are new or contradicted. Whoever takes one checks the source, and names it."""
    source = f"a first flight of {bundle.get('date')} in {bundle.get('region')}"
    found: list[str] = []
    rows = [row for row in bundle["rows"] if row.get("kind") == "time"]
    for (action, type_, what), same in grouped(((row["action"], row["type"], row["what"]), row) for row in rows).items():
        if type_.startswith("kubernetes:") or all(one.verdict == "confirmed" for one in _times(same)):
            continue
        seconds = sorted(float(row["seconds"]) for row in same)
        named = [f"what = {json.dumps(what)}"] if what else []
        found.append(
            "\n".join(
                [
                    f"[[{action}]]",
                    f"type = {json.dumps(type_)}",
                    *named,
                    f"p50 = {median(seconds):g}",
                    f"low = {seconds[0]:g}",
                    f"high = {seconds[-1]:g}",
                    f"samples = {len(seconds)}",
                    f"source = {json.dumps(source)}",
                    f'read = "{same[0]["date"][:7]}"',
                ]
            )
        )
    return "\n\n".join(found) + ("\n" if found else "")


CAVEAT = (
    "Typical times published by others, and list prices: no promises. Traffic, logs and contents of stores are extra, and so "
    "is the rest of each hour that AWS bills as a whole, such as a NAT gateway's. None of this was ever run on AWS."
)

_LONGEST_SOURCE = 80
"""Characters of a source in the text. JSON has all of it."""

_STYLES = {"confirmed": "green", "contradicted": "red", "new": "yellow"}


_RUNG = {"rung": str, **dict.fromkeys(("seconds", "usd_per_hour", "usd", "usd_with_return"), float), "without_price": [str]}
COURSE = {"stack": str, "rungs": [{**_RUNG, "at_least": bool}], "return_seconds": float}


def course(stack: str, legs: Sequence[Leg]) -> dict[str, Any]:
    """The rungs as JSON: dollars from the first on, seconds of each."""
    rungs: list[dict[str, Any]] = []
    for number, leg in enumerate(legs, start=1):
        values = (leg.name, leg.climb.p50, leg.usd_per_hour, *_dollars(legs[:number]), list(leg.unpriced))
        rungs.append({**dict(zip(_RUNG, values, strict=True)), "at_least": bool(leg.climb.untimed)})
    return {"schema": SCHEMA, "stack": stack, "rungs": rungs, "return_seconds": legs[-1].descent.p50}


def _dollars(legs: Sequence[Leg]) -> tuple[float, float]:
    """What the rungs cost, and with the way back from the last."""
    usd = sum(leg.usd for leg in legs)
    return usd, usd + legs[-1].usd_per_hour * legs[-1].descent.p50 / 3600


def render_course(stack: str, legs: Sequence[Leg], caps: Caps, **drawing: Unpack[Drawing]) -> str:
    """Returns the rungs with what they take, one a line: time, price, and the sum up to here with the way back."""
    return drawn(_course(stack, legs, caps), **drawing)


def _course(stack: str, legs: Sequence[Leg], caps: Caps) -> Iterator[RenderableType]:
    yield words(f"{stack}: the first flight", "bold")
    yield Paragraph(words(CAVEAT, "yellow"))
    yield ""
    heads = ("", "RUNG", "", "TYPICALLY", "RANGE", "USD/H", "SO FAR", "AND BACK")
    rows: list[tuple[Text | str, ...]] = [tuple(words(cell, "dim") for cell in heads)]
    for number, leg in enumerate(legs, start=1):
        figures = ("", "", "", "", "")
        if leg.deployments:
            least = "at least " if leg.climb.untimed else ""
            known = leg.climb.p50 >= 1
            times = (f"{least}{duration(leg.climb.p50)}", spread(leg.climb)) if known else ("unknown", "")
            figures = (*times, f"{leg.usd_per_hour:.2f}", *map(money, _dollars(legs[:number])))
        rows.append((str(number), leg.name, leg.rung.title, *figures))
    yield Columns(rows, indent=2, right=(0, 5, 6, 7), headings=1)
    yield ""
    back = legs[-1].descent
    yield Paragraph(words(f"  Tearing everything down takes {duration(back.p50)} ({spread(back)})."))
    if unpriced := [name for leg in legs for name in leg.unpriced]:
        yield Paragraph(words(f"{'; '.join(dict.fromkeys(unpriced))}", "yellow"), "  Not in these amounts: ")
    if caps.both:
        last = reach(legs, caps)
        far = f"by these times it reaches rung {last.name}" if last else "it reaches no rung"
        yield words(f"  Caps: {money(caps.usd or 0)} and {caps.minutes:g} minutes, the way back included: {far}.")


def render_report(bundle: Mapping[str, Any], found: Sequence[Judged], **drawing: Unpack[Drawing]) -> str:
    """Returns the facts of a bundle by verdict."""
    return drawn(_report(bundle, found), **drawing)


def _report(bundle: Mapping[str, Any], found: Sequence[Judged]) -> Iterator[RenderableType]:
    numbers = ", ".join(f"{sum(one.verdict == verdict for one in found)} {verdict}" for verdict in VERDICTS)
    yield words(f"A first flight of {text(bundle.get('date'))} in {text(bundle.get('region'))}: {numbers}", "bold")
    yield Paragraph(words("One flight is one sample: look at its source before a row goes into the catalog.", "yellow"))
    for verdict, members in groupby(found, key=lambda one: one.verdict):
        yield ""
        yield words(verdict.capitalize(), f"bold underline {_STYLES[verdict]}")
        rows = [(member.kind, text(member.what), text(member.measured), _known(member)) for member in members]
        yield Columns(rows, indent=2)


def _known(one: Judged) -> str:
    return shorten(": ".join(filter(None, (one.known, one.source))), _LONGEST_SOURCE)
