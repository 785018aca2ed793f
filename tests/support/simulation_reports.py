"""Two invented reports of simulations: one without faults, and one with everything that a report can contain."""

from dataclasses import replace
from decimal import Decimal

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference_tools.simulate.report import Phase, Report
from eks_inference_tools.simulate.rollout.walk import Outcome, Refusal, Stall, Step
from eks_inference_tools.simulate.world.admit import Admission
from eks_inference_tools.simulate.world.admit import Refusal as Refused
from eks_inference_tools.simulate.world.scheduled_pods import NodeWithPods, PendingPod, ScheduledPod, ScheduledPods
from eks_inference_tools.verify.observed import Check, failed, ok, unknown, wait

GIB = 2**30


def amounts(cpu: str, memory_gib: str) -> dict[str, Decimal]:
    return {"cpu": Decimal(cpu), "memory": Decimal(memory_gib) * GIB}


def neuron(cpu: str, memory_gib: str, count: int) -> dict[str, Decimal]:
    return {**amounts(cpu, memory_gib), DEVICE_RESOURCE: Decimal(count)}


def daemon(name: str, cpu: str = "0.1", memory_gib: str = "0.125", stands_in_for: str = "") -> ScheduledPod:
    owner = f"DaemonSet kube-system/{name}"
    return ScheduledPod(
        "kube-system", f"{name}-x", owner, amounts(cpu, memory_gib), stands_in_for=stands_in_for, on_each_node=True
    )


def router(number: int) -> ScheduledPod:
    return ScheduledPod("demo", f"router-{number}", "Deployment demo/router", amounts("0.5", "1"))


def server(number: int, *devices: int) -> ScheduledPod:
    requests = {**neuron("63", "233", len(devices)), "ephemeral-storage": Decimal(100 * GIB), EFA_RESOURCE: Decimal(1)}
    return ScheduledPod("demo", f"server-{number}", "Deployment demo/server", requests, devices=devices)


WORKER = ScheduledPod(
    "demo",
    "llama3-70b-servers-0-1",
    "LeaderWorkerSet demo/llama3-70b-servers-with-a-long-name (pod 1 of group 0)",
    {**neuron("160", "1500", 16), EFA_RESOURCE: Decimal(16), "hugepages-2Mi": Decimal(5 * GIB)},
)

CAPACITY = {**amounts("191.45", "702.125"), "pods": Decimal(250), "ephemeral-storage": Decimal(900 * GIB)}

NODES = (
    NodeWithPods(
        "neuron-1",
        "neuron",
        "inf2.48xlarge",
        "us-east-2a",
        {**CAPACITY, DEVICE_RESOURCE: Decimal(12), CORE_RESOURCE: Decimal(24), EFA_RESOURCE: Decimal(2)},
        (
            server(1, 0, 1, 2, 3),
            server(2, 4, 5, 6, 7),
            daemon("neuron-device-plugin"),
            daemon("aws-node", "0.05", "0", "vpc-cni"),
        ),
        ended=("Job demo/compile", "Job demo/compile", "Job demo/efa-test"),
    ),
    NodeWithPods(
        "trn2-1",
        "trn2",
        "trn2.48xlarge",
        "us-east-2c",
        {**CAPACITY, "memory": Decimal(1900 * GIB), DEVICE_RESOURCE: Decimal(16), EFA_RESOURCE: Decimal(16)},
        (WORKER,),
    ),
    *(NodeWithPods(f"gpu-{number}", "gpu", "g4dn.xlarge", "", {**CAPACITY, GPU_RESOURCE: Decimal(1)}, ()) for number in (1, 2)),
    NodeWithPods("gpu-3", "gpu", "g4dn.12xlarge", "us-east-2b", {**CAPACITY, GPU_RESOURCE: Decimal(4)}, ()),
    NodeWithPods(
        "core-1",
        "core",
        "m5.xlarge",
        "us-east-2a",
        CAPACITY,
        (
            router(1),
            router(2),
            ScheduledPod("demo", "odd", "Pod demo/odd", {}),
            daemon("monitor"),
            replace(daemon("monitor"), name="monitor-y", owner="DaemonSet other/monitor"),
            ScheduledPod(
                "kube-system", "coredns-1", "Deployment kube-system/coredns", amounts("0.1", "0.07"), stands_in_for="coredns"
            ),
            ScheduledPod(
                "kube-system", "coredns-2", "Deployment kube-system/coredns", amounts("0.1", "0.07"), stands_in_for="coredns"
            ),
        ),
    ),
)

UNSCHEDULABLE = (
    "0/6 nodes are available: 1 Insufficient aws.amazon.com/neuron, 5 node(s) didn't match Pod's node affinity/selector. "
    "preemption: 0/6 nodes are available: 1 No preemption victims found for incoming pod, 5 Preemption is not helpful for "
    "scheduling."
)
QUOTA = (
    'pods "server-5d" is forbidden: exceeded quota: accelerators, requested: requests.aws.amazon.com/neuron=4, '
    "used: requests.aws.amazon.com/neuron=8, limited: requests.aws.amazon.com/neuron=8"
)


def waiting(number: int) -> PendingPod:
    pod = server(number)
    return PendingPod("demo", pod.name, pod.owner, {**pod.requests, DEVICE_RESOURCE: Decimal(4)}, UNSCHEDULABLE)


PENDING = (
    PendingPod("demo", "", "Deployment demo/server", {}, QUOTA),
    waiting(3),
    waiting(4),
    PendingPod("demo", "lost", "Pod demo/lost", {}, "no scheduler named nobody has looked at it"),
)

STEPS = tuple(
    Step(f"{kind} demo/server", "create", began, 0.5) for began, kind in enumerate(("Namespace", "ConfigMap", "Deployment"))
)
UNREACHED = tuple(f"ConfigMap demo/part-{number}" for number in range(15))

CREATE = Phase(
    "create",
    Outcome(
        49.04,
        STEPS,
        refusals=(Refusal("Role demo/reader", "Forbidden", 'namespaces "demo" is being terminated'),),
        stalls=(
            Stall(
                "Deployment demo/server",
                "2 of 4 pods of the newest revision are ready",
                (
                    f"Pod demo/server-3: {UNSCHEDULABLE}",
                    f"Deployment demo/server: {QUOTA}",
                    "Pod demo/server-2: Back-off pulling image",
                ),
                UNREACHED,
            ),
        ),
        unreached=(*UNREACHED, "RoleBinding demo/reader"),
    ),
)
UPDATE = Phase(
    "update",
    Outcome(5.0, tuple(replace(step, action="update") for step in STEPS)),
    Outcome(30.21, (), stalls=(Stall("Service demo/server", "none of its pods is ready"),)),
)
DELETE = Phase("delete", Outcome(26.9, tuple(replace(step, action="delete") for step in reversed(STEPS))))

WELL = Report(
    stack="inf2-llama2",
    kubernetes="Kubernetes 1.35.4",
    admission=Admission(68, 9, {"Kubernetes 1.35.4": 62, "CRD of prometheus-operator v0.85.0": 6}, (), (), ()),
    phases=(
        Phase("create", Outcome(5.66, STEPS), Outcome(1.1, ())),
        Phase("update", Outcome(5.0, STEPS), Outcome(1.4, ())),
        DELETE,
    ),
    scheduled=ScheduledPods((replace(NODES[-1], pods=(router(1),)),), ()),
    checks=(Check("Nodes", "pool core", ok("1 node")), Check("Workloads", "Deployment demo/router", ok("1 pod"))),
    schedulers=("default-scheduler",),
    complaints=(),
    stands_in=("kwok stands in for the kubelets: pods become ready at once and Jobs end after a second",),
    differs=(),
    seconds={"admission": 9.1, "create": 6.76},
)
"""No faults and no devices."""

EVERYTHING = Report(
    stack="trn2-di-pair",
    kubernetes="Kubernetes 1.34, emulated by programs of 1.35.4",
    admission=Admission(
        54,
        12,
        {"Kubernetes 1.34 as 1.35.4 speaks it": 48, "schema of ours, after the API reference of LeaderWorkerSet 0.10.0": 1},
        (
            Refused(
                "urn:1",
                "Deployment demo/typo",
                "BadRequest",
                "failed to create typed patch object (demo/typo; apps/v1, Kind=Deployment): .spec.template.spec.node_selector: "
                "field not declared in schema",
                "infra/__main__.py:12",
            ),
            Refused(
                "urn:1", "a pod of Deployment demo/typo", "Forbidden", 'violates PodSecurity\n"restricted:latest"\x1b[2J', ""
            ),
        ),
        ("Widget demo/one (Widget of example.com/v1)", "Widget demo/two (Widget of example.com/v1)"),
        (),
    ),
    phases=(CREATE, UPDATE, DELETE),
    scheduled=ScheduledPods(NODES, PENDING),
    checks=(
        Check("Nodes", "pool neuron", ok("1 node")),
        Check("Workloads", "Deployment demo/server", wait("2 of 4 pods ready", "4 pods ready", "kubectl get pods")),
        Check("Releases", "release kuberay-operator", failed("1.2.0", "1.7.0")),
        Check("Cluster", "version", unknown("could not be looked at")),
    ),
    schedulers=("default-scheduler", "my-scheduler"),
    complaints=(
        'my-scheduler: pods is forbidden: User "system:serviceaccount:kube-system:my-scheduler" cannot list resource "pods" '
        'in API group "" at the cluster scope',
        "my-scheduler: leases.coordination.k8s.io is forbidden",
    ),
    stands_in=(
        "kwok stands in for the kubelets: pods become ready at once and Jobs end after a second; no container starts",
        "also stand-ins: device plugins; they prove that the parts fit together, not that the real programs work",
    ),
    differs=("pool default: it may choose instance types that the catalog does not know: Karpenter starts none of those here",),
    seconds={"admission": 9.123, "create": 49.04},
)
"""Faults of every kind."""
