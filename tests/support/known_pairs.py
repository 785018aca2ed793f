"""Models on instance types that are known to run or to fail (tests/data/known_pairs.toml), and what our rules say of each."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import Model, model
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.kinds import KINDS
from eks_inference.serving.memory import percent, server_memory
from eks_inference.serving.spec import described
from eks_inference_tools.fitting.trials import Trial

FILE = Path(__file__).parents[1] / "data" / "known_pairs.toml"
ANSWERS = FILE.with_name("known_pairs_engine.json")
"""What vLLM's own start-up code says of those on GPUs: written by ``make engine`` with ``UPDATE_GOLDEN=1``."""
_USUAL_SEQUENCES = 256


@dataclass(frozen=True)
class Verdict:
    """What the rules say of a pair."""

    says: Literal["fits", "refused", "not judged"]
    detail: str

    def __str__(self) -> str:
        return f"{self.says}: {self.detail}"


@dataclass(frozen=True)
class Pair:
    """A row of the file; its comment documents the keys."""

    drawn: str
    model: str
    instance: str
    profile: str
    tensor_parallel: int
    source: str
    told: str
    they: Literal["measured", "published", "fails"]
    shape: Mapping[str, Any] | None = None
    context: int | None = None
    batch: int | None = None
    nodes: int = 1
    keys: Mapping[str, Any] = field(default_factory=dict)
    differs: str = ""

    @property
    def name(self) -> str:
        return f"{self.model} on {self.instance}, TP {self.tensor_parallel}"

    @property
    def key(self) -> str:
        """By which the engine's answer is stored."""
        return f"{self.name}, {self.context or 'all'} tokens, {self.batch or 'usual'} sequences: {self.source}"

    @cached_property
    def known(self) -> Model | None:
        return described(self.model, dict(self.shape)) if self.shape else model(self.model)

    @cached_property
    def verdict(self) -> Verdict:
        asked = self.asked
        return asked.judged if asked else Verdict("not judged", f"no formula for {(self.shape or {})['model_type']}")

    @cached_property
    def asked(self) -> "_Asked | None":
        if self.known is None:
            return None
        kind = "triton" if engine(self.profile).server == "triton" else "vllm"
        return _Asked(
            source={"id": self.model, **({"shape": dict(self.shape)} if self.shape else {})},
            model=self.known,
            engine=engine(self.profile),
            instance=instance_type(self.instance),
            context=self.context or self.known.max_positions,
            concurrency=self.batch or _USUAL_SEQUENCES,
            kind=KINDS[kind],
            tensor_parallel=self.tensor_parallel,
            keys=self.keys,
        )

    @property
    def differ(self) -> bool:
        """Whether the rules say something else than they."""
        return self.verdict.says != "not judged" and (self.they == "fails") != (self.verdict.says == "refused")


@dataclass(frozen=True)
class _Asked(Trial):
    """A trial with further keys of a server, and with its batch also where more would be usual."""

    keys: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def devices(self) -> int:
        try:
            return super().devices
        except ValueError:  # more cores than there are: a rule says so
            return self.instance.devices

    @cached_property
    def server(self) -> Mapping[str, Any] | None:
        found = super().server
        assert found is not None
        return {**found, "max_num_seqs": self.concurrency, **self.keys}

    @cached_property
    def judged(self) -> Verdict:
        try:
            found = list(self.findings())
        except ValidationError as error:
            return Verdict("refused", "; ".join(error_details["msg"] for error_details in error.errors()))
        failed = [(rule, one) for rule, one in found if not one.unjudged and (one.severity or rule.severity) == "error"]
        doubts = sorted({f"{rule.id}{'?' if one.unjudged else ''}" for rule, one in found if (rule, one) not in failed})
        parts = [self._memory, *([f"warnings {', '.join(doubts)}"] if doubts else [])]
        if failed:
            return Verdict("refused", "; ".join([*(f"{rule.id}, {one.message}" for rule, one in failed), *parts]))
        return Verdict("fits", "; ".join(parts))

    @property
    def _memory(self) -> str:
        facts = next(subject for subject in self._subjects if isinstance(subject, ServingFacts))
        use = server_memory(facts)
        if use is None:
            return "memory unknown"
        held = f"{use.sequences} x {use.max_model_len} tokens"
        return f"{percent(use.fraction)} of a {use.unit} with {held}"


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text("utf-8"))


@cache
def answers() -> Mapping[str, str]:
    return json.loads(ANSWERS.read_text("utf-8"))


def pairs() -> tuple[Pair, ...]:
    return tuple(Pair(**row) for row in _file()["pair"])


_THEY = {"measured": "runs, measured", "published": "runs", "fails": "fails"}


def document() -> str:
    """The page docs/known-pairs.md."""
    found = pairs()
    unjudged = [pair for pair in found if pair.verdict.says == "not judged"]
    differ = [pair for pair in found if pair.differ]
    head = _file()["page"].format(
        count=len(found),
        agreed=len(found) - len(unjudged) - len(differ),
        judged=len(found) - len(unjudged),
        differ=len(differ),
        unjudged=len(unjudged),
        failures=sum(pair.they == "fails" for pair in found),
        refused=sum(pair.they == "fails" and pair.verdict.says == "refused" for pair in found),
    )
    columns = (
        "",
        "model",
        "instance type",
        "TP",
        "tokens",
        "batch",
        "theirs",
        "they",
        "we",
        "vLLM 0.30.0",
        "why we differ",
        "source",
    )
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([head, *lines, *(_row(pair) for pair in found)])


def _row(one: Pair) -> str:
    known = one.known
    cells = (
        one.drawn,
        one.model,
        f"{one.nodes} x {one.instance}" if one.nodes > 1 else one.instance,
        str(one.tensor_parallel),
        str(one.context) if one.context else f"({known.max_positions})" if known else "-",
        str(one.batch) if one.batch else f"({_USUAL_SEQUENCES})",
        one.told,
        _THEY[one.they],
        f"{one.verdict} ({one.profile})",
        answers().get(one.key, ""),
        one.differs,
        one.source,
    )
    return f"| {' | '.join(cells)} |"
