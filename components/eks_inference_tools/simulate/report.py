"""What a simulation found."""

from collections.abc import Mapping
from dataclasses import dataclass

from eks_inference_tools.simulate.rollout.walk import Outcome
from eks_inference_tools.simulate.world.admit import Admission
from eks_inference_tools.simulate.world.landing import Landing
from eks_inference_tools.verify.verdicts import Check


@dataclass(frozen=True)
class Phase:
    """One rollout of a simulation: ``create``, ``update`` or ``delete``.

    ``settled`` is what came after Pulumi was done: pods and endpoints it does not wait for. None where nothing is left to come.
    """

    name: str
    outcome: Outcome
    settled: Outcome | None = None

    @property
    def parts(self) -> tuple[Outcome, ...]:
        return (self.outcome,) if self.settled is None else (self.outcome, self.settled)

    @property
    def is_complete(self) -> bool:
        return all(part.is_complete for part in self.parts)


@dataclass(frozen=True)
class Report:
    """What a simulation found.

    ``kubernetes`` is the version that was spoken, in words; ``stands_in`` says what was not real, ``differs`` how the nodes may
    differ from real ones, ``complaints`` what the stack's own schedulers complained of. ``seconds`` are those of its parts.
    """

    stack: str
    kubernetes: str
    admission: Admission
    phases: tuple[Phase, ...]
    landing: Landing
    checks: tuple[Check, ...]
    schedulers: tuple[str, ...]
    complaints: tuple[str, ...]
    stands_in: tuple[str, ...]
    differs: tuple[str, ...]
    seconds: Mapping[str, float]

    @property
    def is_well(self) -> bool:
        """Whether all was admitted, every pod landed, every rollout went through and ``verify`` is content."""
        return not any(self.faults().values())

    def faults(self) -> Mapping[str, int]:
        """What is wrong, counted in words."""
        return {
            "refused by the API server": len(self.admission.refusals),
            "Pending": len(self.landing.pending),
            "forbidden to the stack's own schedulers": len(self.complaints),
            "of the rollouts unfinished": sum(not phase.is_complete for phase in self.phases),
            "not as `verify` expects": sum(check.verdict != "ok" for check in self.checks),
        }
