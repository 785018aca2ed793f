"""The results of a simulation, and their JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.simulate.rollout.walk import Outcome
from eks_inference_tools.simulate.world.admit import Admission
from eks_inference_tools.simulate.world.scheduled_pods import Amounts, NodeWithPods, ScheduledPods
from eks_inference_tools.verify.observed import Check, Verdict
from stackgraph.presentation.output import json_text


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


SCHEMA = 1
_AMOUNTS = {"*": float}
_POD = {**dict.fromkeys(("namespace", "name", "owner"), str), "requests": _AMOUNTS, "devices": [int], "standsInFor": str}
PHASE = {
    "name": str,
    "complete": bool,
    "seconds": float,
    "settledSeconds": float | None,
    "steps": [{"object": str, "action": str, "beganSeconds": float, "tookSeconds": float}],
    "refusals": [dict.fromkeys(("object", "reason", "message"), str)],
    "stalls": [{"object": str, "waitsFor": str, "words": [str], "behind": [str]}],
    "unreached": [str],
}
SHAPE = {
    "stack": str,
    "well": bool,
    "kubernetes": str,
    "admission": {
        "objects": int,
        "podTemplates": int,
        "origins": {"*": int},
        "unchecked": [str],
        "refusals": [dict.fromkeys(("object", "source", "reason", "message"), str)],
    },
    "nodes": [
        {
            **dict.fromkeys(("name", "pool", "instanceType", "zone"), str),
            "allocatable": _AMOUNTS,
            "taken": _AMOUNTS,
            "pods": [_POD],
            "ended": [str],
        }
    ],
    "pending": [{**dict.fromkeys(("owner", "namespace", "pod"), str), "requests": _AMOUNTS, "said": str}],
    "idleDevices": {"*": {"*": int}},
    "rollout": [PHASE],
    "verify": [{"subject": str, "verdict": Verdict, "found": str, "expected": str}],
    **{key: [str] for key in ("schedulers", "complaints", "notReal", "differs")},
    "seconds": {"*": float},
}


def render_json(report: Report) -> str:
    """Returns the whole report; quantities are numbers, memory is in bytes, times are in seconds."""
    admission = report.admission
    document = {
        "schema": SCHEMA,
        "stack": report.stack,
        "well": report.is_well,
        "kubernetes": report.kubernetes,
        "admission": {
            "objects": admission.objects,
            "podTemplates": admission.templates,
            "origins": admission.origins,
            "unchecked": admission.unchecked,
            "refusals": [
                {"object": refusal.title, "source": refusal.source, "reason": refusal.reason, "message": refusal.message}
                for refusal in admission.refusals
            ],
        },
        "nodes": [_node_document(node) for node in report.scheduled.nodes],
        "pending": [
            {
                "owner": pod.owner,
                "namespace": pod.namespace,
                "pod": pod.name,
                "requests": _amounts(pod.requests),
                "said": pod.said,
            }
            for pod in report.scheduled.pending
        ],
        "idleDevices": report.scheduled.idle_devices(),
        "rollout": [phase_document(phase) for phase in report.phases],
        "verify": [
            {"subject": check.subject, "verdict": check.verdict, "found": check.finding.found, "expected": check.finding.expected}
            for check in report.checks
        ],
        "schedulers": report.schedulers,
        "complaints": report.complaints,
        "notReal": report.stands_in,
        "differs": report.differs,
        "seconds": report.seconds,
    }
    return json_text(document)


def _node_document(node: NodeWithPods) -> dict[str, Any]:
    return {
        "name": node.name,
        "pool": node.pool,
        "instanceType": node.type_name,
        "zone": node.zone,
        "allocatable": _amounts(node.allocatable),
        "taken": _amounts(node.taken),
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "owner": pod.owner,
                "requests": _amounts(pod.requests),
                "devices": pod.devices,
                "standsInFor": pod.stands_in_for,
            }
            for pod in node.pods
        ],
        "ended": node.ended,
    }


def phase_document(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "complete": phase.is_complete,
        "seconds": round(phase.outcome.duration_s, 3),
        "settledSeconds": round(phase.settled.duration_s, 3) if phase.settled else None,
        "steps": [
            {"object": step.title, "action": step.action, "beganSeconds": step.began_s, "tookSeconds": step.took_s}
            for step in phase.outcome.steps
        ],
        "refusals": [
            {"object": one.title, "reason": one.reason, "message": one.message} for part in phase.parts for one in part.refusals
        ],
        "stalls": [
            {"object": stall.title, "waitsFor": stall.waits_for, "words": stall.words, "behind": stall.behind}
            for part in phase.parts
            for stall in part.stalls
        ],
        "unreached": phase.outcome.unreached,
    }


def _amounts(amounts: Amounts) -> dict[str, float | int]:
    return {name: int(value) if value == value.to_integral_value() else float(value) for name, value in amounts.items()}
