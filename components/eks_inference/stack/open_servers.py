"""What a server of a stack file leaves open: the engine, the split and the batch that the rules pass on its pool. Pure.

Every candidate is judged as the server that a stack file would have, so what is chosen here passes ``check``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, product
from typing import Any

from eks_inference.accelerators.neuron.plan import cores_of, devices_for_cores
from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model, no_row, ways_to_a_shape
from eks_inference.faults import Fault, SpecError, faults_under
from eks_inference.place.placement import Placement
from eks_inference.pools.plan import placement_of
from eks_inference.pools.spec import PoolSpec
from eks_inference.rules import Finding
from eks_inference.serving.choosing import USUAL_CONCURRENCY, USUAL_CONTEXT, Sketch, engines_for, sequences_asked, standing
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.feasibility import SHORTEST, at_once, degrees, weights_too_large
from eks_inference.serving.flags import flags, spelt_out
from eks_inference.serving.kind import Kind, Site
from eks_inference.serving.memory import GIB, MemoryUse
from eks_inference.serving.memory_settings import memory_settings
from eks_inference.serving.shape import PoolChoice, ServerSpec
from eks_inference.serving.spec import ModelBase, ModelSource
from eks_inference.serving.split import parallel
from eks_inference.specs.base import one_of
from eks_inference.stack.nested import ABSENT, Path, Resolved, at, open_keys, put
from eks_inference.stack.references import pool_faults
from eks_inference.stack.registry import spec_rules

_LENGTHS = ("tensor_parallel", "max_model_len", "max_num_seqs", "devices")
_OF_WEIGHTS = ("quantized_weights", "quantized_checkpoint", "extra_args", "dtype", "neuron")
"""Keys that may change how much memory weights take."""
_MOST_TOLD = 4
"""Splits of which a fault tells why they do not do."""


@dataclass(frozen=True)
class Surroundings:
    """What a server's open keys follow from."""

    pools: Mapping[str, PoolSpec]
    core_pool: str
    kubernetes: str
    silenced: frozenset[str] = frozenset()
    """Rules that the stack silences: they refuse nothing here."""


@dataclass(frozen=True)
class Choice:
    """What the open keys resolve to, or the faults why they do not. Without either, validation has something to say first."""

    resolved: tuple[Resolved, ...] = ()
    faults: tuple[Fault, ...] = ()


def chosen(name: str, server: Mapping[str, Any], kind: Kind, around: Surroundings) -> Choice:
    """Returns what the open keys of a server resolve to."""
    try:
        return _Server(name, server, kind, around).chosen()
    except SpecError:  # of other keys, which validation reports
        return Choice()


@dataclass(frozen=True)
class _Candidate:
    """One engine and split as a server of a stack file."""

    engine: EngineProfile
    degree: int
    context: int
    server: Mapping[str, Any]
    resolved: tuple[Resolved, ...]
    warnings: int = 0
    """Rules that warn."""
    sequences: int = 0
    """How many sequences one pod holds at once; 0: unknown."""


@dataclass
class _Server:
    name: str
    given: Mapping[str, Any]
    kind: Kind
    around: Surroundings
    refused: list[str] = field(default_factory=list)
    """Why the candidates so far do not do."""
    broken: list[Fault] = field(default_factory=list)
    """The rules that refuse some of them."""
    invalid: list[Fault] = field(default_factory=list)
    few: bool = False
    """Whether some of them would do if fewer sequences were enough."""

    @property
    def path(self) -> Path:
        return ("servers", self.name)

    @cached_property
    def place(self) -> Mapping[str, Any]:
        """The object with the pool of the pods that hold the model."""
        return at(self.given, self.kind.spec.placed_under)

    @cached_property
    def pool(self) -> str:
        return str(self.place.get("pool", ""))

    @cached_property
    def instance(self) -> InstanceType:
        return self._placement.instance_type

    @cached_property
    def _placement(self) -> Any:
        return placement_of(self.pool, self.around.pools[self.pool], self.place.get("instance_type"), self.around.kubernetes)

    @cached_property
    def source(self) -> ModelBase:
        return one_of(ModelSource, self.given["model"])

    @cached_property
    def open(self) -> tuple[Path, ...]:
        return tuple(open_keys(self.kind.spec, self.given))

    def chosen(self) -> Choice:
        if not self._readable():
            return Choice()
        choice = PoolChoice(
            self.pool,
            self.place.get("instance_type"),
            under=self.kind.spec.placed_under,
            accelerators=self.kind.spec.accelerators,
        )
        if faults := tuple(pool_faults(self.path, choice, self.around.pools)):
            return Choice(faults=faults)
        asked = self.given.get("engine")
        known = asked is None or (asked in engines() and engines()[asked].server in self.kind.spec.engine_servers)
        if not known or not self.instance.accelerator:
            return Choice()
        model = self.source.known
        if model is None:
            why = self.source.no_formula or no_row(self.source.id)
            message = f"nothing follows from a model whose shape is unknown: {why}"
            ways = ways_to_a_shape(self.source.id) if not self.source.no_formula else "write a row of your own (docs/models.md)"
            return Choice(faults=(self._fault(message, f"{ways}; or write {self._words()}"),))
        there, split = self._cores(self.instance.devices), self.given.get("tensor_parallel")
        if split and split > there:
            message = f"{self.instance.name} has {there} {'NeuronCore' if self.instance.neuron else 'GPU'}{'s' * (there > 1)}"
            return Choice(faults=(Fault((*self.path, "tensor_parallel"), message, str(split), f"at most {there}"),))
        found = self._best(model)
        if found:
            return Choice(resolved=found.resolved)
        if self.invalid and not self.refused:
            return Choice(faults=tuple(dict.fromkeys(self.invalid)))
        if len(set(self.broken)) == 1 and len(self.broken) == len(self.refused) and self._written(self.broken[0].path):
            return Choice(faults=(self.broken[0],))
        serving = f"{model.name} on {self.instance.name}"
        able = ", ".join(engine_profile.name for engine_profile in self._able(model))
        if able and asked and not (engines()[asked].serves(self.instance) and engines()[asked].loads(model)):
            return Choice(faults=(Fault((*self.path, "engine"), f"does not serve {serving}", asked, able),))
        message = f"no {'choice of the open keys' if self.refused or asked else 'engine of the catalog'} serves {serving}"
        hint = f"write {self._words()}, another pool, or shorter sequences"
        if self.source.config or self.source.shape is None:
            named = f"--config {self.source.config}" if self.source.config else f"--model {self.source.id}"
            hint += f"; `eks-inference plan {named}` lists what fits"
        return Choice(faults=(self._fault(message, hint),))

    def _readable(self) -> bool:
        """Whether what is read here has the types that validation would demand."""
        texts = (self.given.get("engine"), at(self.place, ("instance_type",), None), at(self.place, ("pool",), None))
        return (
            isinstance(self.place, Mapping)
            and isinstance(self.given.get("model"), Mapping | ModelBase)
            and all(isinstance(text, str | None) for text in texts)
            and all(_whole(at(self.given, self._at(key))) for key in _LENGTHS)
        )

    def _written(self, path: tuple[str | int, ...]) -> bool:
        """Whether a fault is of a key that somebody wrote, and that no choice of the others mends."""
        keys = tuple(map(str, path[len(self.path) :]))
        return bool(keys) and keys[0] not in (*_LENGTHS, "engine", "model") and at(self.given, keys[:1]) is not ABSENT

    def _at(self, key: str) -> Path:
        return (*self.kind.spec.placed_under, key) if key == "devices" else (key,)

    def _words(self) -> str:
        return ", ".join(".".join(path) for path in self.open)

    def _fault(self, message: str, hint: str) -> Fault:
        told = tuple(dict.fromkeys(self.refused))
        more = (f"and {len(told) - _MOST_TOLD} more",) if len(told) > _MOST_TOLD else ()
        return Fault((*self.path, *self.open[0]), message, hint=hint, working=(*told[:_MOST_TOLD], *more))

    def _best(self, model: Model) -> _Candidate | None:
        """The engine and the split that come first in the order of `plan`, of those that no rule refuses.

        How many sequences a pod holds is a wish: where nothing does that, what holds fewer runs too, and the others wait.
        """
        return next(filter(None, (self._holding(model, wanted) for wanted in self._wishes())), None)

    def _holding(self, model: Model, wanted: int) -> _Candidate | None:
        """The first that holds so many sequences at once."""
        for context, (_, profiles) in product(self._contexts(model), self._by_standing(model)):
            warned: _Candidate | None = None
            for engine in profiles:
                found = self._split(model, engine, context, wanted)
                if found and not found.warnings:
                    return found
                warned = warned or found
            if warned:
                return warned
        return None

    def _by_standing(self, model: Model) -> list[tuple[tuple[bool, bool], list[EngineProfile]]]:
        return [(key, list(group)) for key, group in groupby(sorted(self._engines(model), key=standing), key=standing)]

    def _split(self, model: Model, engine: EngineProfile, context: int, wanted: int) -> _Candidate | None:
        """The split of an engine: one without warnings before others, then the fewest devices and the most sequences."""
        found: list[_Candidate] = []
        for degree in self._degrees(engine, model):
            if any(not one.warnings and self._devices(one.degree) < self._devices(degree) for one in found):
                break
            if self._hopeless(model, engine, degree):
                continue
            candidate = self._candidate(model, engine, degree, context, wanted)
            if candidate and (judged := self._judged(candidate, wanted)):
                found.append(judged)
        return min(found, key=self._order, default=None)

    def _order(self, one: _Candidate) -> tuple[bool, int, int, int, int]:
        return (bool(one.warnings), self._devices(one.degree), one.warnings, -one.sequences, one.degree)

    def _contexts(self, model: Model) -> list[int]:
        """Lengths of a sequence, in tokens: the one that is given, or halves of the usual one."""
        if asked := self.given.get("max_model_len"):
            return [asked]
        longest = min(USUAL_CONTEXT, model.max_positions)
        return [longest, *(one for one in (USUAL_CONTEXT // 2, SHORTEST) if one < longest)]

    def _engines(self, model: Model) -> list[EngineProfile]:
        required = self.kind.spec.model_fields["engine"]
        if name := self.given.get("engine", None if required.is_required() else required.default):
            return [engines()[name]]
        return self._able(model)

    def _able(self, model: Model) -> list[EngineProfile]:
        found = engines_for(self.instance, model, kind=self.kind.name)
        return [engine_profile for engine_profile in found if engine_profile.server in self.kind.spec.engine_servers]

    def _degrees(self, engine: EngineProfile, model: Model) -> list[int]:
        if asked := self.given.get("tensor_parallel"):
            return [asked]
        there, devices = self._cores(self.instance.devices), self.place.get("devices")
        found = [degree for degree in degrees(engine, self.instance, model) if degree <= there]
        return [one for one in found if devices is None or self._devices(one) == devices]

    def _cores(self, devices: int) -> int:
        return cores_of(devices, self.instance) if self.instance.neuron else devices

    def _devices(self, degree: int) -> int:
        """How many devices a pod needs for a degree."""
        return devices_for_cores(degree, self.instance) if self.instance.neuron else degree * self._copies

    @cached_property
    def _copies(self) -> int:
        """By how much flags of the server multiply the GPUs of a split: pipeline stages, data parallel ranks."""
        given = self.given.get("extra_args")
        try:
            return parallel(tuple(flags(spelt_out(given))), 1).devices if isinstance(given, Mapping) else 1
        except ValueError:  # validation says which key is given twice
            return 1

    def _hopeless(self, model: Model, engine: EngineProfile, degree: int) -> bool:
        """Whether the rules need not be asked: the published weights alone do not fit, and nothing else is said of weights."""
        if any(key in self.given for key in _OF_WEIGHTS):
            return False
        settings = memory_settings(engine, (), {}, model)
        reason = settings and weights_too_large(MemoryUse(model, self.instance, engine, degree, 1, 1, settings))
        if reason:
            self.refused.append(f"{engine.name} over {degree}: {reason}")
        return bool(reason)

    def _wishes(self) -> Iterator[int]:
        """How many sequences a pod is to hold at once, the most first. On Neuron, what somebody gives is compiled as it is."""
        asked = self.given.get("max_num_seqs")
        if asked and self.instance.neuron:
            yield asked
            return
        wanted = min(USUAL_CONCURRENCY, asked or USUAL_CONCURRENCY)
        while wanted:
            yield wanted
            wanted = wanted // 2 if self.instance.neuron or self.few else 0

    def _candidate(self, model: Model, engine: EngineProfile, degree: int, context: int, held: int) -> _Candidate | None:
        sketch = Sketch(
            model=self.given["model"],
            engine=engine,
            instance=self.instance,
            pool=self.pool,
            core_pool=self.around.core_pool,
            devices=self._devices(degree),
            tensor_parallel=degree,
            max_model_len=context,
            max_num_seqs=sequences_asked(held, engine, model),
            weights_gib=-(-model.weight_bytes() // GIB),
            features={},
        )
        drawn = self.kind.sketched(sketch) if self.kind.sketched else None
        if drawn is None:
            return None
        missing = [*self.open]
        if ("tensor_parallel",) in missing:
            missing.append(self._at("devices"))
        missing.append(("disk_gib",))
        why = self._reasons(model, engine, context, held)
        server, resolved = dict(self.given), list[Resolved]()
        for path in missing:
            value = at(drawn, path, None)
            if value is not None and at(self.given, path, None) is None:
                server = put(server, path, value)
                resolved.append(Resolved((*self.path, *path), value, why.get(path, "as `plan` writes such a server")))
        return _Candidate(engine, degree, context, server, tuple(resolved))

    def _reasons(self, model: Model, engine: EngineProfile, context: int, held: int) -> dict[Path, str]:
        supported = "newest supported" if not engine.ends else "newest"
        unit = "NeuronCores" if self.instance.neuron else "GPUs"
        longest = f"the longest sequence of row {model.name} of models.toml" if context == model.max_positions else ""
        usual = "as `plan` assumes" if context == USUAL_CONTEXT else f"the longest below {USUAL_CONTEXT} of which {held} fit"
        return {
            ("engine",): f"row {engine.name} of engines.toml: the {supported} that serves {model.architecture} on "
            f"{self.instance.family} and passes the rules",
            ("tensor_parallel",): f"the fewest {unit} of {self.instance.name} that hold {held} sequences of {context} tokens of "
            f"{model.name} and pass the rules of `check`",
            ("max_model_len",): longest or usual,
            (
                "max_num_seqs",
            ): f"{'as `plan` assumes' if held == USUAL_CONCURRENCY else 'the most that fit'}: the batch that is compiled"
            if engine.neuron
            else "vLLM's own: what does not fit the KV cache waits",
            self._at("devices"): f"what tensor_parallel takes of {self.instance.name}",
            ("disk_gib",): f"what a pod downloads and writes: twice the weights of {model.name}, but at least the usual",
        }

    def _judged(self, candidate: _Candidate, wanted: int) -> _Candidate | None:
        """The candidate with what the rules say of it; None, with the reason in ``refused``, where it cannot run."""
        try:
            with faults_under(*self.path):
                spec = self.kind.spec.model_validate(candidate.server)
            subjects = tuple(self.facts(spec))
        except SpecError as error:
            self.invalid += error.faults
            return None
        named = f"{candidate.engine.name} over {candidate.degree}"
        warned: set[str] = set()
        for spec_rule in spec_rules():
            for subject in subjects:
                for judgement in spec_rule.judge(subject) if isinstance(subject, spec_rule.subject) else ():
                    if judgement.holds or judgement.unjudged or spec_rule.id in self.around.silenced:
                        continue
                    if (judgement.severity or spec_rule.severity) == "error":
                        self.refused.append(f"{named}: {spec_rule.id}: {judgement.message}")
                        self.broken.append(Finding(spec_rule, judgement).fault)
                        return None
                    warned.add(spec_rule.id)
        holds = next((at_once(subject) for subject in subjects if isinstance(subject, ServingFacts)), None)
        if holds is not None and holds < wanted and wanted > 1:
            self.few = True
            self.refused.append(f"{named}: holds {holds} of {wanted} sequences of {candidate.context} tokens at once")
            return None
        return replace(candidate, warnings=len(warned), sequences=holds or 0)

    def _place(self, choice: PoolChoice) -> Placement:
        return placement_of(choice.pool, self.around.pools[choice.pool], choice.instance_type, self.around.kubernetes)

    def facts(self, spec: ServerSpec) -> Iterator[object]:
        site = Site(self.path, self._placement, self.around.pools, self._place, (), lambda _: (), scheduler=True)
        yield from self.kind.facts(self.name, spec, site)


def facts_of(name: str, spec: ServerSpec, kind: Kind, around: Surroundings) -> Iterator[object]:
    """Yields the facts of a server whose pool is among those of the stack."""
    choice = spec.main_pool()
    if choice.pool in around.pools:
        place = put({}, (*kind.spec.placed_under, "pool"), choice.pool)
        place = put(place, (*kind.spec.placed_under, "instance_type"), choice.instance_type)
        yield from _Server(name, place, kind, around).facts(spec)


def devices_asked(
    name: str, server: Mapping[str, Any] | ServerSpec, kind: Kind, around: Surroundings
) -> list[tuple[int, InstanceType]]:
    """Returns the devices of the pods of a server with their instance types. Empty where the server is not valid yet."""
    try:
        found = facts_of(name, kind.spec.of(server), kind, around)
        return [(one.devices, one.instance) for one in found if isinstance(one, ServingFacts)]
    except SpecError:
        return []


def _whole(value: Any) -> bool:
    """Whether a number is a positive integer, or is not given."""
    return value is ABSENT or (isinstance(value, int) and not isinstance(value, bool) and value > 0)
