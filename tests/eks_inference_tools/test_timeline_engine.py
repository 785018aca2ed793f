"""The timeline's plan against the engine: with providers that take the planned times, scaled down, the same order and total.

Needs a ``pulumi`` command on PATH and nothing else (tests/engine). Order and waiting are judged; nothing here can show that the
times themselves are right.

The engine takes time, too: it begins a step some milliseconds after the last that this waited for. So the total that is compared
with the planned one is that of the chain of steps that ended last, without these pauses. A wait that the plan does not know of
would make a pause longer than the engine's own. How long these get is measured: in the same run with providers that take no time,
all of the engine's work comes at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import combinations
from pathlib import Path

import pytest

from conftest import PROJECT, STACKS
from eks_inference.kubernetes.secrets import CONFIG_SECRETS
from eks_inference_tools.timeline.schedule import Schedule
from eks_inference_tools.timeline.timeline import timeline
from engine import cli, remote
from stackgraph.recorder.recording import record

pytestmark = pytest.mark.skipif(bool(cli.missing()), reason=cli.missing())

SCALED_S = {"create": 16.0, "delete": 10.0}
"""What all steps of a run are to take together."""
PARALLEL = 16
"""What the engine does at once on four CPUs (``defaultParallel`` of pulumi/pulumi, pkg/cmd/pulumi/operations/up.go)."""


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_a_shipped_stack_goes_as_planned(stack: str, tmp_path: Path) -> None:
    config, secrets = PROJECT.config(PROJECT.stack_file(stack)), {f"{PROJECT.name}:{key}": f"a-{key}" for key in CONFIG_SECRETS}
    values, keys = {**config.values, **secrets}, {*config.secret_keys, *secrets}
    graph = record(PROJECT.main, project=PROJECT.name, stack=stack, config=values, secret_keys=keys)
    found = timeline(graph)
    plans = {"create": found.creation.typical, "delete": found.deletion.typical}
    scales = {action: plan.in_update / SCALED_S[action] for action, plan in plans.items()}
    # Of a remote component, a resource inside takes the time.
    names = {one.urn: remote.main_resource(one).urn if one.remote else one.urn for one in graph.resources}
    seconds = {
        action: {names[step.urn]: plan.of(step.urn).seconds / scales[action] for step in plan.steps.values() if step.urn}
        for action, plan in plans.items()
    }

    def runs(folder: str, times: Mapping[str, Mapping[str, float]]) -> dict[str, Run]:
        (tmp_path / folder).mkdir()
        ran = cli.up_and_destroy(PROJECT, stack, tmp_path / folder, secrets, times, PARALLEL)
        spans = {action: {one.urn: (one.began_s, one.ended_s) for one in ran if one.action == action} for action in plans}
        return {
            action: Run(plan, {urn: spans[action][name] for urn, name in names.items() if name in spans[action]})
            for action, plan in plans.items()
        }

    paced, hurried = runs("paced", seconds), runs("hurried", {})
    for action, run in paced.items():
        plan, scale = plans[action], scales[action]
        assert {step.urn for step in plan.steps.values() if step.in_update and step.time and step.time.p50} <= run.spans.keys()
        pauses = {urn: run.pause_s(urn) for urn in run.spans}
        assert not (early := [urn for urn, pause in pauses.items() if pause < 0]), f"{action}: before what they wait for: {early}"
        late = [urn for urn, pause in pauses.items() if pause > hurried[action].total_s]
        assert not late, f"{action}: the plan does not know what these wait for: {late}"
        # Steps that the plan ends closer to each other than the engine pauses may change places.
        order = [
            (one, other)
            for one, other in combinations(sorted(run.spans, key=lambda urn: plan.of(urn).end), 2)
            if (plan.of(other).end - plan.of(one).end) / scale > max(pauses.values()) and run.spans[one][1] > run.spans[other][1]
        ]
        assert not order, f"{action}: the other way round: {order}"
        overhead = sum(pauses[urn] for urn in run.chain())
        assert overhead < 2 * hurried[action].total_s
        assert run.total_s - overhead == pytest.approx(SCALED_S[action], rel=0.05)


@dataclass(frozen=True)
class Run:
    """What the engine made of a plan: begin and end of each step in seconds, by URN."""

    plan: Schedule
    spans: Mapping[str, tuple[float, float]]

    @cached_property
    def _began_s(self) -> float:
        return min(began for began, _ in self.spans.values())

    @cached_property
    def total_s(self) -> float:
        return max(ended for _, ended in self.spans.values()) - self._began_s

    def pause_s(self, urn: str) -> float:
        """Between the end of all that the plan lets a step wait for, and its begin."""
        return self.spans[urn][0] - max((self.spans[one][1] for one in self._waits[urn]), default=self._began_s)

    def chain(self) -> Iterator[str]:
        """The steps that decided when the run ended, from the last back to the first."""
        urn = max(self.spans, key=lambda urn: self.spans[urn][1])
        while urn:
            yield urn
            urn = max(self._waits[urn], key=lambda one: self.spans[one][1], default="")

    @cached_property
    def _waits(self) -> Mapping[str, set[str]]:
        """By step: those that ran nearest before it. No provider runs what has none: components, and gates between waves."""
        after = {id_: [one for one in step.after if one in self.plan.steps] for id_, step in self.plan.steps.items()}
        nearest: dict[str, set[str]] = {}
        found: dict[str, set[str]] = {urn: set() for urn in self.spans}
        for id_ in TopologicalSorter(after).static_order():
            step = self.plan.steps[id_]
            before = {one: self.plan.steps[one].urn for one in after[id_]}
            ran = {urn for urn in before.values() if urn in self.spans and urn != step.urn}
            nearest[id_] = ran.union(*(nearest[one] for one, urn in before.items() if urn not in ran))
            if step.in_update and step.urn in found:
                found[step.urn] |= nearest[id_] - {step.urn}
        return found
