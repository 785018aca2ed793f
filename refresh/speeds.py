"""Fits what engines make of the peaks of accelerators to published measurements.

Source: ``catalog/measured.csv``, beside the peaks in ``catalog/chips.toml``. An accelerator's constants are drawn to those that
fit its kin (all GPUs, or all Neuron devices) best, and an engine's on an accelerator to those of all engines there, so that few
rows change little. What is minimized is the mean distance of the logarithms; what is off by more than a factor of two counts as
two, whatever its size.

Errors are those of rows that the fit did not see: a source is left out in turn where at least two have rows, else a model, and
where nothing remains, all rows of the accelerator. Rows whose first token took more than eight prefills had queued: they are
not counted, and take part in no fit.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from math import exp, log
from statistics import median

from eks_inference.catalog.speeds import ENOUGH, Constants, Errors, chips, measured, sources
from eks_inference.catalog.tables import FOLDER
from eks_inference.speed.accuracy import Case, case

FILE = FOLDER / "speeds.toml"
OURS = ("vllm", "nxdi", "transformers-neuronx")
"""Engines that this library serves with."""
_MOST = 600
"""Rows of a fit: more take longer and change nothing."""
_OF_KIN = 80
"""Rows of each accelerator that its kin is fitted with."""
_DRAWN = 3.0
"""Weight of the distance to the kin, for each constant."""
_NAMES = tuple(field.name for field in fields(Constants))
_SHARES = _NAMES[: _NAMES.index("step_ms")]
_HIGHEST_SHARE = 0.95
_FACTOR_THAT_COUNTS = log(2)

Key = Callable[[Case], str]


def ratios(cases: Iterable[Case], constants: Constants) -> Iterator[tuple[float, float]]:
    """Yields predicted by measured, each with its weight: times between tokens, first tokens of lone requests, and throughput of
    static batches, which mixes both."""
    for one in cases:
        row = one.row
        if row.load in ("max", "all"):
            continue
        if row.itl_ms:
            yield one.token(constants) / (row.itl_ms / 1e3), 1.0
        elif row.tokens_s:
            yield row.tokens_s / one.tokens_a_second(constants), 0.5
        if row.ttft_ms and (row.users == 1 or row.load == "batch"):
            yield one.first_token(constants) / (row.ttft_ms / 1e3), 0.5


def fit(cases: Sequence[Case], drawn_to: Constants, weight: float = _DRAWN) -> Constants:
    """Returns the constants that fit best: a search along each in turn, in steps of factors that become smaller."""
    cases = cases if len(cases) <= _MOST else random.Random(0).sample(list(cases), _MOST)
    kin = asdict(drawn_to)

    def loss(values: Mapping[str, float]) -> float:
        found = list(ratios(cases, Constants(**values)))
        total = sum(share for _, share in found) or 1.0
        far = sum(share * min(abs(log(one)), _FACTOR_THAT_COUNTS) for one, share in found) / total
        return far + weight * min(1.0, 0.2 + 10 / total) * sum(log(values[name] / kin[name]) ** 2 for name in _NAMES)

    best, step = kin, 0.4
    least = loss(best)
    while step > 0.02:
        before = least
        for name in _NAMES:
            for factor in (exp(step), exp(-step)):
                most = _HIGHEST_SHARE if name in _SHARES else 1e6
                tried = best | {name: min(best[name] * factor, most)}
                if (found := loss(tried)) < least - 1e-5:
                    best, least = tried, found
                    break
        step = step if least < before else step / 2
    return Constants(**best)


def kin_of(cases: Sequence[Case]) -> Constants:
    """Constants of all accelerators of a kind, each with as many rows as the others at most."""
    by: dict[tuple[str, bool], list[Case]] = defaultdict(list)
    for one in cases:
        by[one.row.device, one.experts].append(one)
    chosen = [one for group in by.values() for one in random.Random(1).sample(group, min(_OF_KIN, len(group)))]
    return fit(chosen, Constants(), 0.01)


def constants_of(device: str, engine: str, cases: Sequence[Case], kin: Constants) -> Constants:
    """Constants of an engine on an accelerator, by rows of which some may be left out."""
    there = [one for one in cases if one.row.device == device]
    of_all = fit(there, kin) if there else kin
    of_engine = [one for one in there if family(one.row.engine) == family(engine)]
    return fit(of_engine, of_all) if of_engine and len(of_engine) < len(there) else of_all


def family(engine: str) -> str:
    """Ours count as one: each runs on another kind of accelerator."""
    return "ours" if engine in OURS else engine


def set_aside(device: str, cases: Sequence[Case]) -> tuple[str, Key]:
    """What is left out in turn to find the errors of an accelerator."""
    there = [one for one in cases if one.row.device == device and one.row.itl_ms]
    by_source: dict[str, int] = defaultdict(int)
    for one in there:
        by_source[one.row.source] += 1
    if len(there) >= ENOUGH and sum(count >= 3 for count in by_source.values()) > 1:
        return "source", lambda one: one.row.source
    if len({one.row.model for one in there}) > 1:
        return "model", lambda one: one.row.model
    return "accelerator", lambda one: one.row.device


def unseen(device: str, cases: Sequence[Case]) -> Iterator[tuple[Case, Constants]]:
    """Yields each row of an accelerator with constants that were fitted without it."""
    _, key = set_aside(device, cases)
    there = [one for one in cases if one.row.device == device]
    for group in sorted({key(one) for one in there}):
        rest = [one for one in cases if one.row.device != device or key(one) != group]
        kin = kin_of(rest)
        made: dict[str, Constants] = {}
        for one in there:
            if key(one) == group:
                engine = family(one.row.engine)
                made[engine] = made.get(engine) or constants_of(device, one.row.engine, rest, kin)
                yield one, made[engine]


def errors(found: Sequence[float]) -> Errors | None:
    """Errors of ratios of predicted to measured; None of fewer than two."""
    if len(found) < 2:
        return None
    far, ordered = sorted(abs(one - 1) for one in found), sorted(1 / one for one in found)
    at = lambda values, share: values[round(share * (len(values) - 1))]  # noqa: E731
    return Errors(len(found), median(far), at(far, 0.9), at(ordered, 0.05), at(ordered, 0.95))


def table(judged: Collection[str] | None = None) -> str:
    """The file. Errors are found only for the accelerators of ``judged``; None: for all, which takes some minutes."""
    cases = [case(row) for row in measured()]
    written = [_HEAD]
    for neuron in (False, True):
        of_kind = [one for one in cases if one.use.instance.neuron == neuron and one.row.engine != "nxdi-cpu-sampling"]
        guess = kin_of(of_kind)
        usable = [one for one in of_kind if one.possible and not one.queues(guess)]
        kin = kin_of(usable)
        for device in (name for name in chips() if any(one.row.device == name for one in of_kind)):
            there = [one for one in of_kind if one.row.device == device]
            written.append(_of_device(device, usable, there, kin, judged is None or device in judged))
    return "\n".join(written)


def _of_device(device: str, usable: Sequence[Case], all_: Sequence[Case], kin: Constants, judged: bool) -> str:
    ours = next((one.row.engine for one in all_ if one.row.engine in OURS), "vllm")
    constants = constants_of(device, ours, usable, kin)
    how, key = set_aside(device, usable)
    by: dict[str, list[float]] = defaultdict(list)
    groups: dict[str, list[float]] = defaultdict(list)
    for one, without in unseen(device, usable) if judged else ():
        row = one.row
        if row.itl_ms:
            kind, found = "experts" if one.experts else "dense", one.token(without) / (row.itl_ms / 1e3)
            by[kind].append(found)
            groups[f"{key(one)}, {kind}"].append(found)
        if row.ttft_ms and row.users == 1:
            by["first_token"].append(one.first_token(without) / (row.ttft_ms / 1e3))
    for load, name in (("max", "most"), ("all", "burst")):
        rates = ((one, one.row.tokens_s) for one in all_ if one.row.load == load)
        by[name] = [rate / one.tokens_a_second(constants) for one, rate in rates if rate]
    found = {key: errors(values) for key, values in by.items()}
    apart = {key: errors(values) for key, values in groups.items() if len(groups) > 1}
    print(f"{device:<12}", f"{how:<11}", *(f"{key} {_said(one)}" for key, one in found.items() if one), sep="  ", file=sys.stderr)
    for name, one in apart.items():
        print(" " * 14, f"without {name:<40}", _said(one), file=sys.stderr)
    lines = [f'["{device}"]', 'source = "refresh/speeds.py, from measured.csv"', f'read = "{_newest(all_)}"']
    lines += [f"rows = {len(all_)}", f"sources = {len({one.row.source for one in all_})}", f'held_out = "{how}"']
    lines += [f"constants = {_inline(asdict(constants))}"]
    lines += [f"{key} = {_inline(asdict(one))}" for key, one in found.items() if one]
    if any(apart.values()):
        lines += [f'["{device}".without]', *(f'"{name}" = {_inline(asdict(one))}' for name, one in apart.items() if one)]
    return "\n".join(lines) + "\n"


def _newest(cases: Sequence[Case]) -> str:
    return max(sources()[one.row.source].read for one in cases)


def _said(one: Errors | None) -> str:
    return f"{one.median:4.0%} {one.p90:4.0%} of {one.rows}" if one else "-"


def _inline(values: Mapping[str, float]) -> str:
    return "{ " + ", ".join(f"{key} = {value:.3g}" for key, value in values.items()) + " }"


_HEAD = """\
# What engines make of the peaks of accelerators: `make refresh TABLE=speeds` fits it to measured.csv. speeds.py loads this file
# and documents the columns.
"""
