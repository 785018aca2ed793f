"""Rules about pools whose devices are claimed. Ids DRA…"""

from collections.abc import Iterator

from eks_inference.catalog.claims import Driver, driver, published
from eks_inference.catalog.tables import version_numbers
from eks_inference.faults import SpecError
from eks_inference.pools.ami_spec import ReleaseAmi
from eks_inference.pools.facts import PoolFacts
from eks_inference.pools.plan import release_version
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from eks_inference.rules import Judgement, not_judged, rule


def drivers_of(pool: PoolFacts) -> Iterator[Driver]:
    """Yields the drivers that offer what the pool's nodes have."""
    accelerator = pool.spec.instances()[0].accelerator
    if accelerator:
        yield driver(accelerator)
    if isinstance(pool.spec, ManagedPoolSpec) and pool.spec.efa:
        yield driver("efa")


@rule(
    "DRA001",
    "The cluster's Kubernetes version has claims of devices, and the drivers support it.",
    fix="move to a newer Kubernetes version, or let the device plugin offer the devices (devices: plugin)",
    source="EKS user guide, Manage hardware devices: DRA from Kubernetes 1.34; documents of each driver (catalog/claims.toml)",
    about="pools whose devices are claimed",
)
def control_plane_has_claims(pool: PoolFacts) -> Iterator[Judgement]:
    for one in drivers_of(pool) if pool.spec.claimed else ():
        yield Judgement(
            holds=version_numbers(pool.kubernetes_version) >= version_numbers(one.kubernetes),
            path=pool.at("devices"),
            working=(
                f"driver {one.driver} is for Kubernetes {one.kubernetes} or newer; the cluster runs {pool.kubernetes_version}",
            ),
            message=f"driver {one.driver} does not run on Kubernetes {pool.kubernetes_version}",
            given=pool.kubernetes_version,
            allowed=f"{one.kubernetes} or newer",
        )


@rule(
    "DRA002",
    "The nodes' Kubernetes release is one that the drivers work with.",
    fix="take a newer AMI release, or omit it to use the catalog's pin",
    source="EKS user guide, Manage Neuron devices; kubernetes/kubernetes#133920 (kubelets before 1.34.2)",
    about="pools whose devices are claimed",
)
def nodes_work_with_drivers(pool: PoolFacts) -> Iterator[Judgement]:
    needed = [one for one in drivers_of(pool) if one.nodes] if pool.spec.claimed else []
    for one in needed:
        ami = pool.spec.ami
        what = f"the Kubernetes release of the nodes of pool '{pool.name}'"
        if not isinstance(ami, ReleaseAmi):
            why, fix = "the machine image does not tell it", f"make sure that it is {one.nodes} or newer"
            yield not_judged("the release of nodes", pool.name, pool.at("ami"), why=why, fix=fix)
            continue
        try:
            release = release_version(ami, pool.spec.instances()[0], pool.kubernetes_version).partition("-")[0]
        except (SpecError, KeyError):  # POO003 and the component report these
            continue
        yield Judgement(
            holds=version_numbers(release) >= version_numbers(one.nodes),
            path=pool.at("ami", "release_version"),
            working=(f"driver {one.driver} needs nodes of {one.nodes} or newer; {what}: {release}",),
            message=f"driver {one.driver} does not work on nodes of Kubernetes {release}",
            given=release,
            allowed=f"{one.nodes} or newer",
        )


@rule(
    "DRA003",
    "A pool whose devices are claimed has nodes whatever pods ask for.",
    fix="use a managed pool or replicas, or let the device plugin offer the devices (devices: plugin)",
    source="EKS user guide, Manage Neuron devices: Karpenter with static capacity only; Karpenter 1.15, DRA (alpha): nodes for "
    "claims of GPUs and EFA interfaces with settings.enableDRA; the catalog pins 1.14",
    about="pools whose devices are claimed",
)
def nodes_stand(pool: PoolFacts) -> Iterator[Judgement]:
    if pool.spec.claimed:
        follows = isinstance(pool.spec, KarpenterPoolSpec) and pool.spec.replicas is None
        yield Judgement(
            holds=not follows,
            path=pool.at("devices"),
            working=(f"kind: {pool.spec.kind}; nodes {'follow the pods' if follows else 'do not follow the pods'}",),
            message="Karpenter starts no node for a pod with claims, and the pod stays Pending",
            given="claims",
            allowed="plugin",
        )


@rule(
    "DRA004",
    "It is sure that the driver serves the instance type.",
    severity="warning",
    fix="try one node first, or let the device plugin offer the devices (devices: plugin)",
    source="EKS user guide, Manage Neuron devices; Neuron documentation, DRA; tests of others, which catalog/claims.toml names",
    about="pools whose devices are claimed",
)
def driver_serves_type(pool: PoolFacts) -> Iterator[Judgement]:
    for instance in pool.spec.instances() if pool.spec.claimed else ():
        known = published(instance)
        if instance.neuron:
            doubt = known.doubt if known else "the catalog does not say what the driver publishes of it"
            yield Judgement(
                holds=not doubt,
                path=pool.at("devices"),
                working=(f"{instance.name}: {doubt or 'documented'}",),
                message=f"nobody can say whether the driver serves {instance.name}: {doubt}",
                given=instance.name,
            )
