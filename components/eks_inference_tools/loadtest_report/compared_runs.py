"""Compares runs with each other and with published figures, and notes what makes them incomparable."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eks_inference.catalog.instances import instance_types
from eks_inference_tools.loadtest_report.record import BASES, BETWEEN_TOKENS, METRICS, RUN, STATISTICS, Published, Run

SCHEMA = 1
"""Version of the JSON document."""
_NOTE = {"level": ("note", "warning"), "rule": str | None, "text": str}
_COMPARISON = {
    **dict.fromkeys(("run", "other", "published?"), str),
    "rows": [{"metric": str, "statistic": str | None, "this": float, "other": float, "ratio": float | None}],
    "notes": [_NOTE],
}
SHAPE = {
    "runs": [RUN],
    "against_first": [_COMPARISON],
    "against_published": [_COMPARISON],
    "published": [{**dict.fromkeys(("id", "source", "measured", "read"), str), "remarks": [str], "runs": [RUN]}],
    "notes": [_NOTE],
}

HARDWARE_RULE = "DI012"
"""The rule to compare throughput per chip: the source compares a disaggregated pair with one server on half the hardware."""

_TOLERANCE = 0.1  # loads whose mean lengths differ by a larger fraction count as different
_COMPARED = tuple(name for name in METRICS if name not in BETWEEN_TOKENS)

_TOTALS = {"output_tokens_per_s": "Output tokens/s", "completed_per_min": "Completed/min"}
_PER_CHIP = {"output_tokens_per_s_per_chip": "Output tokens/s, chip", "completed_per_min_per_chip": "Completed/min, chip"}


@dataclass(frozen=True)
class Note:
    """A caveat about figures. ``rule`` is the id of the library's rule behind it, if any."""

    level: Literal["note", "warning"]
    text: str
    rule: str = ""

    def line(self) -> str:
        return f"{self.rule}: {self.text}" if self.rule else self.text

    def document(self) -> dict[str, Any]:
        return {"level": self.level, "rule": self.rule or None, "text": self.text}


@dataclass(frozen=True)
class Row:
    """One figure of two runs. ``statistic`` is empty for figures of a whole run."""

    key: str
    title: str
    statistic: str
    this: float
    other: float
    alike: bool = True
    """False for totals on different hardware, which cannot be compared."""

    @property
    def ratio(self) -> float | None:
        return self.this / self.other if self.other and self.alike else None

    def document(self) -> dict[str, Any]:
        return {
            "metric": self.key,
            "statistic": self.statistic or None,
            "this": self.this,
            "other": self.other,
            "ratio": self.ratio,
        }


@dataclass(frozen=True)
class Comparison:
    """A run next to another: one of the first file, a published one, or what is predicted."""

    run: Run
    other: Run
    rows: tuple[Row, ...]
    notes: tuple[Note, ...]
    published: Published | None = None

    def document(self) -> dict[str, Any]:
        return {
            "run": self.run.label,
            "other": self.other.label,
            **({"published": self.published.id} if self.published else {}),
            "rows": [row.document() for row in self.rows],
            "notes": [note.document() for note in self.notes],
        }


Expected = tuple[Run, Run, Published]
"""A run, what is predicted for it, and how."""


@dataclass(frozen=True)
class Report:
    """The whole report. ``against_first`` compares runs with the first file as the baseline.

    ``notes`` are about single runs, warnings first; each comparison has its own notes.
    """

    runs: tuple[Run, ...]
    against_first: tuple[Comparison, ...]
    against_published: tuple[Comparison, ...]
    notes: tuple[Note, ...]

    @property
    def published(self) -> tuple[Published, ...]:
        """The documents whose figures appear in comparisons."""
        return tuple({each.published.id: each.published for each in self.against_published if each.published}.values())

    def document(self) -> dict[str, Any]:
        """The JSON document. ``schema`` changes when a key does."""
        return {
            "schema": SCHEMA,
            "runs": [run.document() for run in self.runs],
            "against_first": [each.document() for each in self.against_first],
            "against_published": [each.document() for each in self.against_published],
            "published": [each.document() for each in self.published],
            "notes": [note.document() for note in self.notes],
        }


def compare(
    files: Sequence[Sequence[Run]],
    figures: Mapping[str, Published],
    *,
    any_model: bool = False,
    predicted: Iterable[Expected] = (),
    slow: Iterable[Note] = (),
) -> Report:
    """Builds the report on the runs of several files. The first file is the baseline of the others.

    Each run is compared with what is ``predicted`` for it, and with the published ``figures`` of its model or, with
    ``any_model``, with all of them. ``slow`` is told beside.
    """
    runs = [run for file in files for run in file]
    notes = [*slow, *(note for run in runs for note in _run_notes(run))]
    later = [run for file in files[1:] for run in file]
    against_first = [_comparison(run, base) for run in later if (base := _nearest(run, files[0]))]
    against_published = [_comparison(*each) for each in predicted]
    against_published += [
        _comparison(run, other, figure)
        for run in runs
        for figure in figures.values()
        if (any_model or figure.is_of(run.model)) and (other := _nearest(run, figure.runs))
    ]
    compared = {label for each in (*against_first, *against_published) for label in (each.run.label, each.other.label)}
    notes += _chips_unknown([run for run in runs if run.label in compared])
    if figures and not against_published:
        models = ", ".join(dict.fromkeys(run.model or "unknown" for run in runs))
        notes.append(Note("note", f"no published figures for the model: {models}. --published accepts: {', '.join(figures)}."))
    notes.sort(key=lambda note: note.level != "warning")
    return Report(tuple(runs), tuple(against_first), tuple(against_published), tuple(notes))


def _nearest(run: Run, others: Sequence[Run]) -> Run | None:
    """Returns the run with the same or the nearest number of users."""
    if len(others) == 1:
        return others[0]
    counted = [other for other in others if other.users is not None and other.completed != 0]
    if run.users is None or not counted:
        return None
    users = run.users
    return min(counted, key=lambda other: abs((other.users or 0) - users))


def _comparison(run: Run, other: Run, published: Published | None = None) -> Comparison:
    same_model = run.model == other.model if published is None else published.is_of(run.model)
    notes = list(_differences(run, other))
    if not same_model:
        notes.insert(0, Note("warning", f"different model: {run.model or 'unknown'} here, {other.model or 'unknown'} there"))
    return Comparison(run, other, tuple(_rows(run, other)), tuple(notes), published)


# -- figures --------------------------------------------------------------------------------------------------------------------


def _rows(run: Run, other: Run) -> Iterator[Row]:
    for name, same in [("ttft_ms", "ttft_ms"), *between_tokens(run, other), *((name, name) for name in _COMPARED[1:])]:
        title = METRICS[name].short if name == same else f"{METRICS[same].short} ({METRICS[name].short.split()[0]} here)"
        for statistic in STATISTICS:
            this, there = run.value(name, statistic), other.value(same, statistic)
            if this is not None and there is not None:
                yield Row(same, title, statistic, this, there)
    same_chips = run.chips is not None and run.chips == other.chips
    for key, title in (_TOTALS | _PER_CHIP).items():
        this, there = getattr(run, key), getattr(other, key)
        if this is not None and there is not None:
            yield Row(key, title, "", this, there, alike=same_chips or key in _PER_CHIP)


def between_tokens(run: Run, other: Run) -> list[tuple[str, str]]:
    """Returns the names of inter-token metrics with the same basis, as pairs (in ``run``, in ``other``)."""
    found = []
    for there in BETWEEN_TOKENS:
        basis = other.basis.get(there)
        # If both metrics match, the one with the same name wins.
        here = sorted((name for name in BETWEEN_TOKENS if basis and run.basis.get(name) == basis), key=lambda name: name != there)
        found += [(here[0], there)] if here else []
    return found


# -- notes ----------------------------------------------------------------------------------------------------------------------


def _run_notes(run: Run) -> Iterator[Note]:
    """Yields the notes on one run."""
    if run.completed == 0:
        yield Note("warning", f"{run.label}: no request completed.")
    if run.failed:
        of = f" of {run.launched}" if run.launched else ""
        yield Note("warning", f"{run.label}: {run.failed}{of} requests failed; latencies cover the others.")
    if run.asked and run.completed is not None and run.completed + (run.failed or 0) < run.asked:
        yield Note("warning", f"{run.label}: {run.completed} of {run.asked} planned requests completed.")
    for remark in run.remarks:
        yield Note("note", f"{run.label}: {remark}")


def _chips_unknown(runs: Iterable[Run]) -> Iterator[Note]:
    unknown = [run for run in runs if run.chips is None]
    if not unknown:
        return
    known = instance_types()
    devices = {run.instance_type: known[run.instance_type].devices for run in unknown if run.instance_type in known}
    whole = "".join(f" A whole {name} has {number}." for name, number in devices.items())
    labels = "; ".join(run.label for run in unknown)
    yield Note(
        "warning", f"give --chips to compare throughput; the number of chips is unknown for: {labels}.{whole}", HARDWARE_RULE
    )


def _differences(run: Run, other: Run) -> Iterator[Note]:
    """Yields the notes on a comparison, where "here" is ``run`` and "there" is ``other``."""
    unknown = " and ".join(place for one, place in ((run, "here"), (other, "there")) if one.chips is None)
    if unknown:
        yield Note("warning", f"number of chips unknown {unknown}: throughput is not compared", HARDWARE_RULE)
    elif run.chips != other.chips:
        text = f"{run.chips} chips here, {other.chips} there: throughput is compared per chip, totals are not"
        yield Note("note", text, HARDWARE_RULE)
    if run.instance_type and other.instance_type and run.instance_type != other.instance_type:
        yield Note("note", f"{run.instance_type} here, {other.instance_type} there")
    if run.users != other.users:
        here, there = ("an unknown number of" if one.users is None else one.users for one in (run, other))
        yield Note("warning", f"different load: {here} concurrent users here, {there} there")
    for name in ("input_tokens", "output_tokens"):
        here, there = run.value(name, "mean"), other.value(name, "mean")
        if here and there and abs(here - there) > _TOLERANCE * there:
            words = METRICS[name].title.lower()
            yield Note("warning", f"different load: {here:.0f} {words} per request here, {there:.0f} there")
    if not between_tokens(run, other):
        here, there = (_bases(one) for one in (run, other))
        yield Note("warning", f"inter-token times are not compared: {here} here, {there} there")


def _bases(run: Run) -> str:
    return " and ".join(f"{METRICS[name].short.split()[0]} is {BASES[basis]}" for name, basis in run.basis.items()) or "unknown"
