"""What runs say beside each other and beside published figures, and what keeps them from being compared."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eks_inference.catalog.instances import instance_types
from eks_inference_tools.loadtest_report.published import Published
from eks_inference_tools.loadtest_report.record import BASES, BETWEEN_TOKENS, METRICS, STATISTICS, Run

SCHEMA = 1
"""Version of the JSON document."""

HARDWARE_RULE = "DI012"
"""Runs are compared by what each chip does. The source compares prefill and decode apart with one server on half the hardware."""

_ALIKE = 0.1  # loads whose mean lengths differ by more are not called the same
_COMPARED = tuple(name for name in METRICS if name not in BETWEEN_TOKENS)

_TOTALS = {"output_tokens_per_s": "Output tokens/s", "completed_per_min": "Completed/min"}
_OF_A_CHIP = {"output_tokens_per_s_per_chip": "Output tokens/s, chip", "completed_per_min_per_chip": "Completed/min, chip"}


@dataclass(frozen=True)
class Note:
    """Something to know before a figure is used. ``rule`` is the id of a rule of the library's catalogue, where it is one."""

    level: Literal["note", "warning"]
    text: str
    rule: str = ""

    def line(self) -> str:
        return f"{self.rule}: {self.text}" if self.rule else self.text

    def document(self) -> dict[str, Any]:
        return {"level": self.level, "rule": self.rule or None, "text": self.text}


@dataclass(frozen=True)
class Row:
    """One figure of two runs. ``statistic`` is empty for a figure of the whole run."""

    key: str
    title: str
    statistic: str
    this: float
    other: float
    alike: bool = True
    """False for totals of unlike hardware, which are no measure of each other."""

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
    """A run beside another: an earlier file's, or a published one."""

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


@dataclass(frozen=True)
class Report:
    """All there is to say. ``against_first`` has the runs of the first file as the baseline of the others'.

    ``notes`` are about single runs, warnings first; what is to know of a comparison stands in it.
    """

    runs: tuple[Run, ...]
    against_first: tuple[Comparison, ...]
    against_published: tuple[Comparison, ...]
    notes: tuple[Note, ...]

    @property
    def published(self) -> tuple[Published, ...]:
        """The documents whose figures are compared with."""
        return tuple({each.published.id: each.published for each in self.against_published if each.published}.values())

    def document(self) -> dict[str, Any]:
        """As JSON. ``schema`` changes when a key does."""
        return {
            "schema": SCHEMA,
            "runs": [run.document() for run in self.runs],
            "against_first": [each.document() for each in self.against_first],
            "against_published": [each.document() for each in self.against_published],
            "published": [each.document() for each in self.published],
            "notes": [note.document() for note in self.notes],
        }


def compare(files: Sequence[Sequence[Run]], figures: Mapping[str, Published], *, any_model: bool = False) -> Report:
    """The report on the runs of several files.

    The first file is the baseline of the others. ``figures`` are what to compare with: those of a run's model, or with
    ``any_model`` all of them.
    """
    runs = [run for file in files for run in file]
    notes = [note for run in runs for note in _about(run)]
    against_first: list[Comparison] = []
    for run in [run for file in files[1:] for run in file]:
        if base := _nearest(run, files[0]):
            against_first.append(_comparison(run, base))
    against_published: list[Comparison] = []
    for run in runs:
        for figure in figures.values():
            if (any_model or figure.is_of(run.model)) and (other := _nearest(run, figure.runs)):
                against_published.append(_comparison(run, other, figure))
    compared = {label for each in (*against_first, *against_published) for label in (each.run.label, each.other.label)}
    notes += _chips_unknown([run for run in runs if run.label in compared])
    if figures and not against_published:
        models = ", ".join(dict.fromkeys(run.model or "unknown" for run in runs))
        notes.append(Note("note", f"nothing is published here of the model: {models}. --published takes: {', '.join(figures)}."))
    notes.sort(key=lambda note: note.level != "warning")
    return Report(tuple(runs), tuple(against_first), tuple(against_published), tuple(notes))


def _nearest(run: Run, others: Sequence[Run]) -> Run | None:
    """The run with as many users, or else with the nearest number of them."""
    if len(others) == 1:
        return others[0]
    counted = [other for other in others if other.users is not None and other.completed != 0]
    if run.users is None or not counted:
        return None
    users = run.users
    return min(counted, key=lambda other: abs((other.users or 0) - users))


def _comparison(run: Run, other: Run, published: Published | None = None) -> Comparison:
    same_model = run.model == other.model if published is None else published.is_of(run.model)
    notes = (
        [] if same_model else [Note("warning", f"other model: {run.model or 'unknown'} here, {other.model or 'unknown'} there")]
    )
    return Comparison(run, other, tuple(_rows(run, other)), (*notes, *_differences(run, other)), published)


# -- figures --------------------------------------------------------------------------------------------------------------------


def _rows(run: Run, other: Run) -> Iterator[Row]:
    for name, same in [("ttft_ms", "ttft_ms"), *between_tokens(run, other), *((name, name) for name in _COMPARED[1:])]:
        title = METRICS[name].short if name == same else f"{METRICS[same].short} ({METRICS[name].short.split()[0]} here)"
        for statistic in STATISTICS:
            this, there = run.value(name, statistic), other.value(same, statistic)
            if this is not None and there is not None:
                yield Row(same, title, statistic, this, there)
    same_chips = run.chips is not None and run.chips == other.chips
    for key, title in (_TOTALS | _OF_A_CHIP).items():
        this, there = getattr(run, key), getattr(other, key)
        if this is not None and there is not None:
            yield Row(key, title, "", this, there, alike=same_chips or key in _OF_A_CHIP)


def between_tokens(run: Run, other: Run) -> list[tuple[str, str]]:
    """The times between tokens that count the same: the name of each here, and there."""
    found = []
    for there in BETWEEN_TOKENS:
        basis = other.basis.get(there)
        # Its own name first, where both would do.
        here = sorted((name for name in BETWEEN_TOKENS if basis and run.basis.get(name) == basis), key=lambda name: name != there)
        found += [(here[0], there)] if here else []
    return found


# -- what to know ---------------------------------------------------------------------------------------------------------------


def _about(run: Run) -> Iterator[Note]:
    """Of one run by itself."""
    if run.completed == 0:
        yield Note("warning", f"{run.label}: no request completed.")
    if run.failed:
        of = f" of {run.launched}" if run.launched else ""
        yield Note("warning", f"{run.label}: {run.failed}{of} requests failed; latencies are of the others.")
    if run.asked and run.completed is not None and run.completed + (run.failed or 0) < run.asked:
        yield Note("warning", f"{run.label}: {run.completed} of the {run.asked} requests asked for completed.")
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
        "warning", f"give --chips to have throughput compared; how many served is not known of: {labels}.{whole}", HARDWARE_RULE
    )


def _differences(run: Run, other: Run) -> Iterator[Note]:
    """Between two runs that are put beside each other: ``run`` is here, ``other`` there."""
    unknown = " and ".join(place for one, place in ((run, "here"), (other, "there")) if one.chips is None)
    if unknown:
        yield Note("warning", f"chips not known {unknown}: throughput is not compared", HARDWARE_RULE)
    elif run.chips != other.chips:
        text = f"{run.chips} chips here, {other.chips} there: throughput is compared by the chip, totals are not"
        yield Note("note", text, HARDWARE_RULE)
    if run.instance_type and other.instance_type and run.instance_type != other.instance_type:
        yield Note("note", f"{run.instance_type} here, {other.instance_type} there")
    if run.users != other.users:
        yield Note("warning", f"other load: {_or_unknown(run.users)} users at once here, {_or_unknown(other.users)} there")
    for name in ("input_tokens", "output_tokens"):
        here, there = run.value(name, "mean"), other.value(name, "mean")
        if here and there and abs(here - there) > _ALIKE * there:
            words = METRICS[name].title.lower()
            yield Note("warning", f"other load: {here:.0f} {words} a request here, {there:.0f} there")
    if not between_tokens(run, other):
        here, there = (_times_between_tokens(one) for one in (run, other))
        yield Note("warning", f"times between tokens are not compared: {here} here, {there} there")


def _times_between_tokens(run: Run) -> str:
    return " and ".join(f"{METRICS[name].short.split()[0]} is {BASES[basis]}" for name, basis in run.basis.items()) or "unknown"


def _or_unknown(users: int | None) -> str:
    return "an unknown number of" if users is None else str(users)
