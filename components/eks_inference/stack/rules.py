"""Rules that relate several parts of a stack: servers that share nodes, disks that hold images and models. Ids CAP… and KAR…"""

from collections.abc import Iterator, Mapping, Sequence

from eks_inference.accelerators.neuron.plan import needs_scheduler
from eks_inference.pools.plan import has_local_disks, root_volume_gib
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from eks_inference.rules import Judgement, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.node_share import room
from eks_inference.stack.facts import StackFacts

# The system, logs, and the engine image, packed and unpacked while it is pulled; inferred from images of about 19 GB.
_BESIDE_THE_MODEL_GIB = 60


MOST_NODE_GROUPS = 30


@rule(
    "CAP001",
    "The pods of all servers of a pool fit its nodes together.",
    fix="raise the pool's size, lower the number of pods, or move a server to another pool",
    source="Kubernetes scheduling: a pod takes its devices, CPU and memory from one node",
)
def servers_fit_their_pool(stack: StackFacts) -> Iterator[Judgement]:
    for pool, servers in _servers_by_pool(stack).items():
        nodes = servers[0].placement.max_nodes
        if nodes is None:
            continue
        fewest = _left_over(servers, nodes, [server.pods_min for server in servers])
        most = _left_over(servers, nodes, [server.pods_max for server in servers])
        unplaced, instance = fewest or most, servers[0].instance
        yield Judgement(
            holds=not unplaced,
            path=("pools", pool, "size"),
            working=(
                f"{nodes} x {instance.name}: {nodes} x {instance.devices} = {nodes * instance.devices} devices",
                *(
                    f"{server.path[-1]}: pods {_span(server.pods_min, server.pods_max)}, each {server.devices} devices, "
                    f"{server.cpu_millis / 1000:g} CPU, {server.memory_mib / 1024:.0f} GiB"
                    for server in servers
                ),
            ),
            message="there is no room for "
            + ", ".join(f"{count} {'pod' if count == 1 else 'pods'} of '{server}'" for server, count in unplaced.items())
            + ("" if fewest else " once servers are scaled out"),
            given=str(nodes),
            severity="error" if fewest else "warning",
        )


@rule(
    "CAP002",
    "The disk of a node holds the engine's image and the model.",
    fix="raise root_volume_gib",
    source="weights from the catalog; image sizes inferred",
)
def disk_holds_image_and_model(stack: StackFacts) -> Iterator[Judgement]:
    for pool, servers in _servers_by_pool(stack).items():
        spec = stack.spec.pools[pool]
        if has_local_disks(spec):
            continue
        for server in servers:
            if server.model is None or not server.devices:
                continue
            # Each pod of a node has its own copy of the model.
            pods = max(server.instance.devices // server.devices, 1)
            weights = server.model.weight_bytes() / 1024**3
            needed = _BESIDE_THE_MODEL_GIB + pods * weights
            disk = root_volume_gib(spec)
            yield Judgement(
                holds=needed <= disk,
                path=("pools", pool, "root_volume_gib"),
                working=(
                    f"{_BESIDE_THE_MODEL_GIB} GiB for system and image + {pods} pods x {weights:.1f} GiB of "
                    f"{server.model.name} = {needed:.0f} GiB; disk: {disk} GiB",
                ),
                message=f"image and model of '{server.path[-1]}' need {needed:.0f} GiB on each node",
                given=str(disk),
                allowed=f"at least {needed:.0f}",
            )


@rule(
    "KAR003",
    "Pods that use only some of a node's Neuron devices run on managed pools.",
    severity="warning",
    fix="use a managed pool, or give each pod one device or all devices of a node",
    source="Karpenter considers only the number of free devices. The Neuron scheduler extension also requires adjacent ones and "
    "may reject a pod for which Karpenter started a node (Neuron documentation, scheduler flow)",
)
def parts_of_nodes_on_managed_pools(stack: StackFacts) -> Iterator[Judgement]:
    for pool, servers in _servers_by_pool(stack).items():
        if isinstance(stack.spec.pools[pool], KarpenterPoolSpec):
            for server in servers:
                if server.neuron:
                    yield Judgement(
                        holds=not needs_scheduler(server.devices, server.instance),
                        path=server.at("devices"),
                        working=(f"{server.devices} of {server.instance.devices} devices of {server.instance.name}",),
                        message=f"Karpenter fills pool '{pool}' and does not know which devices are adjacent",
                        given=str(server.devices),
                        allowed=f"1 or {server.instance.devices}",
                    )


@rule(
    "CAP003",
    "A cluster has no more managed node groups than EKS allows.",
    fix="use Karpenter pools, or have the quota raised and silence this rule with the new quota",
    source=f"EKS user guide, service quotas: {MOST_NODE_GROUPS} managed node groups per cluster unless AWS raises it",
)
def node_groups_within_the_quota(stack: StackFacts) -> Iterator[Judgement]:
    managed = [name for name, pool in stack.spec.pools.items() if isinstance(pool, ManagedPoolSpec)]
    yield Judgement(
        holds=len(managed) <= MOST_NODE_GROUPS,
        path=("pools",),
        working=(f"{len(managed)} of {len(stack.spec.pools)} pools are managed",),
        message="EKS refuses the rest of the managed pools",
        given=str(len(managed)),
        allowed=f"at most {MOST_NODE_GROUPS} unless AWS raises the quota",
    )


def _servers_by_pool(stack: StackFacts) -> Mapping[str, Sequence[ServingFacts]]:
    found: dict[str, list[ServingFacts]] = {}
    for server in stack.servers.values():
        found.setdefault(server.placement.pool, []).append(server)
    return found


def _left_over(servers: Sequence[ServingFacts], nodes: int, pods: Sequence[int]) -> dict[str, int]:
    """Returns how many pods of each server find no node: first fit, largest pods first."""
    usable = room(servers[0].instance)
    free = [[servers[0].instance.devices, usable.cpu_millis, usable.memory_mib] for _ in range(nodes)]
    left: dict[str, int] = {}
    for server, count in sorted(zip(servers, pods, strict=True), key=lambda pair: -pair[0].devices):
        wish = (server.devices, server.cpu_millis, server.memory_mib)
        for _ in range(count):
            node = next((node for node in free if all(have >= want for have, want in zip(node, wish, strict=True))), None)
            if node is None:
                left[str(server.path[-1])] = left.get(str(server.path[-1]), 0) + 1
                continue
            for index, want in enumerate(wish):
                node[index] -= want
    return left


def _span(fewest: int, most: int) -> str:
    return f"{fewest} to {most}" if most > fewest else str(fewest)
