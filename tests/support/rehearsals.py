"""Invented rehearsals: of a change that stops a server, gets stuck, or has no fault; and of a bad day."""

from dataclasses import replace

from conftest import PROJECT, recorded
from eks_inference.serving.facts import ServingFacts
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.reading import parse_stack
from eks_inference_tools.simulate.day.day import Course, Day, Moment
from eks_inference_tools.simulate.day.dollars import Dollars
from eks_inference_tools.simulate.day.loss import Loss
from eks_inference_tools.simulate.day.subjects import Subject, subjects
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


def subject() -> Subject:
    values = PROJECT.config(PROJECT.stack_file("gpu-opt350m")).values
    facts = stack_facts(parse_stack(values["eks-inference:stack"], PROJECT.root), values["aws:region"])
    servers = {str(fact.path[1]): fact for fact in facts if isinstance(fact, ServingFacts)}
    (found,) = subjects(recorded("gpu-opt350m"), servers, {}, ((0.0, 12.0),))
    assert isinstance(found, Subject)
    return found


def days() -> dict[str, Day]:
    """A bad day, and what is tried against it."""
    loss = Loss("zone", "zone us-west-2a", frozenset(["gpu-1", "gpu-4"]), without=("gpu",))
    hub = Loss("hub", "the model hub")
    moments = (
        Moment(0, "s", 1, 1),
        Moment(29, "s", 1, 1),
        Moment(30.2, "s", 1, 0),
        Moment(350, "s", 2, 0),
        Moment(410, "s", 1, 1),
    )
    course = Course(subject(), 5000, 900, 100, 4000, 380.0, True, moments)
    day = Day(
        "gpu-opt350m",
        (loss, hub),
        30.0,
        300.0,
        500.0,
        (course,),
        (("ns/pod", "0/4 nodes are available"),),
        Dollars(1.5, 2.0, ("x in y",)),
    )
    better = replace(day, courses=(replace(course, lost=10, late=0, served=4990, bad_seconds=50.0),), waiting=())
    return {"": day, "servers.s.replicas=2": better}
