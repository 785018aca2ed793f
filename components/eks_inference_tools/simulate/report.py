"""The results of a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass

from eks_inference_tools.simulate.rollout.walk import Outcome
from eks_inference_tools.simulate.world.admit import Admission
from eks_inference_tools.simulate.world.scheduled_pods import ScheduledPods
from eks_inference_tools.verify.verdicts import Check


@dataclass(frozen=True)
class Phase:
    """One rollout of a simulation: ``create``, ``update`` or ``delete``.

    ``settled`` is the wait for pods and endpoints after Pulumi was done; None if there was none.
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
    """The results of a simulation.

    ``kubernetes`` is the version of the API, in words. ``stands_in`` lists what was not real, ``differs`` how nodes and
    objects may differ from real ones, ``complaints`` the faults of the stack's own schedulers. ``seconds`` is by part.
    """

    stack: str
    kubernetes: str
    admission: Admission
    phases: tuple[Phase, ...]
    scheduled: ScheduledPods
    checks: tuple[Check, ...]
    schedulers: tuple[str, ...]
    complaints: tuple[str, ...]
    stands_in: tuple[str, ...]
    differs: tuple[str, ...]
    seconds: Mapping[str, float]

    @property
    def is_well(self) -> bool:
        """Whether everything was admitted, every pod was scheduled, every rollout completed and ``verify`` passed."""
        return not any(self.faults().values())

    def faults(self) -> Mapping[str, int]:
        """Returns how many faults there are of each kind.

        What ``verify`` finds counts in a stack that was created whole. In another it finds what was left undone, which is more or
        less by which of several equal pods has no place.
        """
        created = self.phases[0].is_complete
        return {
            "refused by the API server": len(self.admission.refusals),
            "Pending": len(self.scheduled.pending),
            "faults of the stack's own schedulers": len(self.complaints),
            "of the rollouts unfinished": sum(not phase.is_complete for phase in self.phases),
            "not as `verify` expects": sum(check.verdict != "ok" for check in self.checks if created),
        }
