"""Invented rehearsals of a change: one in which a server stops, one in which something gets stuck, and one without a fault."""

from dataclasses import replace

from eks_inference_tools.simulate.rehearsal.report import BASE, CHANGE, Rehearsal
from eks_inference_tools.simulate.report import Phase
from eks_inference_tools.simulate.rollout.walk import Outcome, Refusal, Stall, Step

DONE = Outcome(1.0, ())
JOB = "Job demo/test"
UP = Outcome(300.0, (Step(JOB, "replace", 0.0, 0.0), Step("Deployment demo/chat", "update", 0.0, 300.0)))
SAMPLES = ((0.0, {"chat": 1, "code": 2}), (0.0, {"chat": 0, "code": 2}), (300.0, {"chat": 1, "code": 1}))
SAW = Rehearsal(
    "demo", "Kubernetes 1.35", (Phase(BASE, DONE, DONE), Phase(CHANGE, UP, DONE)), SAMPLES, {}, ("chat",), (), (), 300.0
)
REFUSED = Refusal("Job a/b", "Invalid", "immutable")
WAITS = Stall("Deployment demo/chat", "0 of 1 pods are ready", ("Pod demo/chat-1: 0/3 nodes are available",), ("Service a",))
STUCK = replace(SAW, phases=(SAW.phases[0], Phase(CHANGE, Outcome(1.0, (), (REFUSED,), (WAITS,), (JOB,)))))
WELL = Rehearsal("demo", "Kubernetes 1.35", SAW.phases[:1] * 2, ((0.0, {"chat": 1}),))
