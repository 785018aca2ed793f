"""Searches for places where a model fits, by what a token costs. Pure.

`plan` and `new` have one order (``order``). The price of a million tokens rules it, of the traffic or of one usual load
(``pace.py``), after what nobody should be led to without asking: an engine whose support ends or that has a caveat, what a rule
warns of, and answers that degrade. A place whose speed nobody knows comes after those that are known.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.catalog.models import Model
from eks_inference.catalog.zones import says_zones_of, zone_ids
from eks_inference.pools.rules import zones_offer_the_family
from eks_inference.serving.choosing import USUAL_CONCURRENCY, engines_for, preference, standing, why_none
from eks_inference.serving.kind import Kind
from eks_inference.serving.kinds import KINDS
from eks_inference.serving.rules.every_server import places_take_the_same_pods, the_image_decodes_sounds
from eks_inference.serving.rules.neuron_plugin import fp8_caches_are_read
from eks_inference_tools.cost.money import Offer, offer
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.fitting.pace import (
    USUAL_INPUT,
    USUAL_OUTPUT,
    Explained,
    Pace,
    Sized,
    Traffic,
    explained,
    priced,
    simulated,
    sized,
)
from eks_inference_tools.fitting.trials import QUANTIZATIONS, VLLM, Trial, trials

COMPILED = (8, 32)
"""Batches that are tried on Neuron for a traffic."""
_PLAYED = 3
"""Servers whose queues are played, of those that an estimate puts first: each takes some tenths of a second."""


@dataclass(frozen=True)
class Wish:
    """What a user wants of a place."""

    source: Mapping[str, Any]
    """The key ``model`` of a server in a stack file."""
    model: Model
    region: str
    context: int
    concurrency: int = USUAL_CONCURRENCY
    traffic: Traffic | None = None
    """What the place has to serve. None: one usual load compares places."""
    quantized: tuple[str, ...] = tuple(QUANTIZATIONS)
    families: tuple[str, ...] = ()
    """Instance families; empty: all of the catalog."""
    types: tuple[str, ...] = ()
    """Instance types; empty: all."""
    engine: str | None = None
    standing: tuple[bool, bool] = (True, True)
    """The worst standing of an engine."""
    kinds: tuple[Kind, ...] = tuple(KINDS.values())
    """Kinds of servers."""
    under: float | None = None
    """USD that a node may cost in an hour. None: any price, also an unknown one."""


@dataclass(frozen=True)
class Row:
    """A place where the model fits."""

    trial: Trial
    offer: Offer
    warnings: tuple[str, ...]
    """Ids of the rules that warn."""
    unjudged: Mapping[str, str] = field(default_factory=dict)
    """Rules that lack a fact to judge it → which."""
    traffic: Traffic | None = None
    sized: Sized | None = None
    """What the traffic takes here. None: nobody said a traffic, or what it takes is unknown."""

    @cached_property
    def pace(self) -> Pace | str:
        """How fast one pod is; as a text why nobody knows."""
        return self.trial.pace(USUAL_INPUT + USUAL_OUTPUT)

    @property
    def explained(self) -> Explained | str:
        """Where the time of a pod goes, under the traffic or a usual load."""
        traffic = self.traffic if self.sized else None
        return explained(
            self.trial.serving, traffic, self.sized.replicas - self.traffic.spare if self.sized and self.traffic else 1
        )

    @property
    def usd_per_million(self) -> float | None:
        """The price of a million tokens of answers. None: nobody knows the price, or the speed."""
        if self.sized:
            return self.sized.usd_per_million
        if self.usd_per_hour is None or isinstance(self.pace, str):
            return None
        return self.usd_per_hour * 1e6 / (self.pace.usual * 3600)

    @property
    def usd_per_hour(self) -> float | None:
        """The price of a node."""
        return self.offer.price.usd if self.offer.price else None

    @property
    def degrades(self) -> bool:
        """Whether answers degrade, because the checkpoint has no scales for what is quantized."""
        return fp8_caches_are_read.id in self.warnings

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts rows: as the module says, then by the price of a node, what stays as published, the engine, the fewest devices a
        pod, the fewest warnings, the most sequences; OpenAI's API before others, and what has the fewest keys."""
        trial = self.trial
        token, price = (float("inf") if usd is None else usd for usd in (self.usd_per_million, self.usd_per_hour))
        split = (trial.devices, len(self.warnings), -trial.sequences, trial.tensor_parallel)
        plain = (trial.kind.api != "openai", len(trial.server or ()))
        # No place mends an image.
        warned = bool({*self.warnings} - {the_image_decodes_sounds.id})
        first = (*standing(trial.engine), warned, self.degrades)
        return (*first, token, price, trial.quantization != "published", preference(trial.engine), *split, *plain)


@dataclass(frozen=True)
class Refusal:
    """A place where the model does not fit, with the rule that says so, or without one the reason."""

    offer: Offer
    reason: str
    rule: str = ""
    trial: Trial | None = None
    """None where no engine was tried."""
    late: bool = False
    """Whether it fits, and is too slow."""

    @property
    def instance(self) -> InstanceType:
        return self.offer.instance


@dataclass(frozen=True)
class Found:
    """All places of a model: where it fits, in the order of ``Row.order``, and where not."""

    wish: Wish
    rows: tuple[Row, ...]
    refusals: tuple[Refusal, ...]

    @cached_property
    def first_of_types(self) -> tuple[Row, ...]:
        """The first row of each instance type."""
        first: dict[str, Row] = {}
        for row in self.rows:
            first.setdefault(row.trial.instance.name, row)
        return tuple(first.values())

    def instead_of(self, row: Row) -> tuple[str, ...]:
        """Instance types that take the pods of a place as they are, while it has no capacity (``alternatives``; SRV022)."""
        chosen = row.trial
        there = (row.trial for row in self.rows if (row.trial.kind, row.trial.engine) == (chosen.kind, chosen.engine))
        names = (
            trial.instance.name
            for trial in there
            if trial.instance != chosen.instance
            and all(found.holds for found in places_take_the_same_pods.judge(replace(trial.serving, first=chosen.serving)))
        )
        return tuple(dict.fromkeys(names))

    @cached_property
    def prices(self) -> list[float]:
        """Prices of the nodes of all rows that have one, and where there is traffic, replicas for it."""
        rows = (row for row in self.rows if row.sized or not self.wish.traffic)
        return [row.usd_per_hour for row in rows if row.usd_per_hour is not None]

    @cached_property
    def cheaper(self) -> tuple[Refusal, ...]:
        """Of each instance type without a row that costs less than the first row: the refusal that came nearest. Cheapest first.

        All instance types where ``prices`` is empty.
        """
        fitting = {row.trial.instance.name for row in self.rows}
        found: dict[str, Refusal] = {}
        for refusal in self.refusals:
            usd = refusal.offer.price.usd if refusal.offer.price else None
            costs_less = not self.prices or (usd is not None and usd < self.prices[0])
            if refusal.instance.name not in fitting and costs_less:
                other = found.get(refusal.instance.name)
                found[refusal.instance.name] = refusal if other is None or _nearness(refusal) > _nearness(other) else other
        return tuple(sorted(found.values(), key=_price))

    @cached_property
    def nearest(self) -> Refusal | None:
        """The refusal that came nearest: of what was tried the dearest instance type, of what was not the cheapest."""
        tried = [refusal for refusal in self.refusals if refusal.trial and refusal.offer.price]
        if tried:
            return max(tried, key=lambda refusal: (_nearness(refusal), _price(refusal)))
        return min(self.refusals, key=_price, default=None)


def search(wish: Wish, book: PriceBook, played: int = _PLAYED) -> Found:
    """Tries every instance type with an accelerator, and plays the queues of so many servers that come first."""
    rows: list[Row] = []
    refusals: list[Refusal] = []
    for instance in instance_types().values():
        families, types = wish.families or (instance.family,), wish.types or (instance.name,)
        if instance.accelerator and instance.family in families and instance.name in types:
            for row in _tried(wish, offer(instance, wish.region, book)):
                rows.append(row) if isinstance(row, Row) else refusals.append(row)
    rows.sort(key=lambda row: row.order)
    if wish.traffic:
        rows = _played(rows, refusals, wish.traffic, played)
    return Found(wish, tuple(rows), tuple(refusals))


def _played(rows: list[Row], refusals: list[Refusal], traffic: Traffic, most: int) -> list[Row]:
    """Plays the queues of the first rows, until the first of all is one of them. Adds those that keep no objective to
    ``refusals``."""
    found: dict[Any, Sized | str] = {}  # nodes that differ in size only have pods that do not differ

    def server(row: Row) -> Any:
        trial = row.trial
        of_pod = trial.tensor_parallel, trial.quantization, trial.kind.name, trial.concurrency, trial.sequences, trial.step_tokens
        return (trial.engine.name, trial.speed.name if trial.speed else "", *of_pod)

    def again(row: Row) -> Row | Refusal:
        assert row.usd_per_hour is not None, "it was priced"
        known = found[server(row)]
        if isinstance(known, str):
            return Refusal(row.offer, known, trial=row.trial)
        return replace(row, sized=priced(known, traffic, row.trial.pods, row.usd_per_hour))

    while first := next((row for row in rows if row.sized and not row.sized.simulated), None):
        assert first.sized is not None, "it was estimated"
        if len(found) >= most and (not rows[0].sized or rows[0].sized.simulated):
            break
        assert first.usd_per_hour is not None, "it was priced"
        estimated = first.sized.replicas - traffic.spare
        found[server(first)] = simulated(first.trial.serving, traffic, first.trial.pods, first.usd_per_hour, estimated)
        made = [again(row) if row.sized and server(row) == server(first) else row for row in rows]
        refusals += (refusal for refusal in made if isinstance(refusal, Refusal))
        rows = sorted((row for row in made if isinstance(row, Row)), key=lambda row: row.order)
    return rows


def quantized_for_less(found: Found, than: Row | None, book: PriceBook) -> Row | None:
    """Returns the first row of plain vLLM whose tokens cost less, if the engine may quantize what was not asked for.

    None also where it would only be cheaper with an engine of worse standing, or with a warning.
    """
    wish, others = found.wish, tuple(one for one in QUANTIZATIONS if one not in found.wish.quantized)
    under = than.sized.usd_per_hour if than and than.sized else None  # one node of a cheaper place costs less than all of these
    wish = replace(wish, quantized=others, kinds=(VLLM,), under=min((one for one in (wish.under, under) if one), default=None))
    wish = replace(wish, standing=standing(than.trial.engine) if than else wish.standing)
    rows = search(wish, book, 1).rows if others else ()
    cheaper = (row for row in rows if than is None or _is_cheaper(row, than))
    return next(cheaper, None)


def _is_cheaper(row: Row, than: Row) -> bool:
    usd, other = row.usd_per_million, than.usd_per_million
    return usd is not None and other is not None and usd < other and row.order[:4] <= than.order[:4]


def _tried(wish: Wish, on: Offer) -> Iterator[Row | Refusal]:
    instance = on.instance
    if reason := _unwanted(wish, on):
        yield Refusal(on, reason)
        return
    choices = engines_for(instance, wish.model, named=wish.engine)
    asked = [choice for choice in choices if wish.engine in (None, choice.name) and standing(choice) <= wish.standing]
    if not asked:
        named = f"engine {wish.engine} does not serve architecture {wish.model.architecture} there"
        yield Refusal(on, named if choices else why_none(instance, wish.model))
    for engine in asked:
        batches = COMPILED if wish.traffic and engine.neuron else ()
        for batch in sorted({max(batch, wish.concurrency) for batch in batches} or {wish.concurrency}):
            start = Trial(wish.source, wish.model, engine, instance, wish.context, batch)
            for trial in trials(start, wish.quantized, wish.kinds):
                yield _in_pieces(_judged(trial, on, wish.traffic), on, wish.traffic)


def _unwanted(wish: Wish, on: Offer) -> str:
    """Why an instance type is out of the question for every engine; empty where it is not."""
    if says_zones_of(on.instance.family) and not zone_ids(wish.region, on.instance.name):
        return f"not known to be offered in {wish.region}"
    if wish.under is None:
        return ""
    if on.price is None:
        return f"no price in {wish.region} to compare with --under"
    return "" if on.price.usd <= wish.under else f"costs more than ${wish.under:g} an hour"


def _in_pieces(found: Row | Refusal, on: Offer, traffic: Traffic | None) -> Row | Refusal:
    """The same with fewer tokens a step, where less of it keeps the time between tokens."""
    if traffic is None or traffic.token_s is None or found.trial is None or (isinstance(found, Refusal) and not found.late):
        return found
    pace = found.trial.pace(traffic.input + traffic.output)
    tokens = None if isinstance(pace, str) else pace.step_tokens(traffic.input, traffic.token_s)
    other = _judged(replace(found.trial, step_tokens=tokens), on, traffic) if tokens else None
    if not isinstance(other, Row) or other.sized is None:
        return found
    fewer = isinstance(found, Refusal) or found.sized is None or other.sized.replicas < found.sized.replicas
    return other if fewer else found


def _judged(trial: Trial, on: Offer, traffic: Traffic | None) -> Row | Refusal:
    if reason := trial.hopeless:
        return Refusal(on, reason, trial=trial)
    warnings: list[str] = []
    unjudged: dict[str, str] = {}
    if not says_zones_of(on.instance.family):
        unjudged[zones_offer_the_family.id] = f"it is not known which zones of {on.region} offer {on.instance.family}"
    for rule, judgement in trial.findings():
        if judgement.unjudged:
            unjudged[rule.id] = judgement.working[-1]
        elif (judgement.severity or rule.severity) == "error":
            return Refusal(on, judgement.message, rule.id, trial)
        else:
            warnings.append(rule.id)
    if trial.sequences < trial.concurrency:
        few = f"holds {trial.sequences} of {trial.concurrency} sequences of {trial.context} tokens at once"
        return Refusal(on, few, trial=trial)
    row = Row(trial, on, tuple(dict.fromkeys(warnings)), unjudged, traffic)
    if traffic is None or on.price is None:
        return row
    pace = trial.pace(traffic.input + traffic.output)
    found = None if isinstance(pace, str) else sized(pace, traffic)
    if isinstance(found, str):
        return Refusal(on, found, trial=trial, late=True)
    return replace(row, sized=found and priced(found, traffic, trial.pods, on.price.usd))


def _price(one: Refusal) -> float:
    """USD an hour; endless without a price."""
    return one.offer.price.usd if one.offer.price else float("inf")


def _nearness(one: Refusal) -> tuple[bool, int, int]:
    """Larger for a refusal that more was tried for: the widest split, and as published before quantized."""
    if one.trial is None:
        return (False, 0, 0)
    return (True, one.trial.tensor_parallel, -list(QUANTIZATIONS).index(one.trial.quantization))
