"""Rules that relate several parts of a stack: servers that share nodes, disks that hold images and models, clients and servers,
nodes and the API, ARNs and the region. Ids CAP…, CLI…, NET… and ARN…
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from eks_inference.place.nodes import cpu_millis, kept_disk_gib, memory_mib
from eks_inference.pools.node_plan import disk_gib, has_local_disks
from eks_inference.pools.plan import placement_of
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.rules import Judgement, not_judged, rule
from eks_inference.serving.facts import EqualPods, ServingFacts, equal_pods, left_over
from eks_inference.serving.shape import ReplicatedServerSpec
from eks_inference.serving.spec import VolumeCompileCache
from eks_inference.specs.base import scalars
from eks_inference.specs.late import is_output
from eks_inference.stack.facts import StackFacts, zones_of_pool
from eks_inference.stack.spec import StackSpec

# The system, logs, and the engine image, packed and unpacked while it is pulled; inferred from images of about 19 GB.
BESIDE_THE_MODEL_GIB = 60


MOST_NODE_GROUPS = 30


@rule(
    "CAP001",
    "The pods of all servers of a pool fit its nodes together.",
    fix="raise the pool's size, lower the number of pods or what they request, or move a server to another pool",
    source="Kubernetes scheduling: a pod takes its devices, CPU and memory from one node",
)
def servers_fit_their_pool(stack: StackFacts) -> Iterator[Judgement]:
    movable = {name for name, server in stack.servers.items() if server.placement.others}
    for pool, groups in _pods_by_pool(stack).items():
        placement, spec = groups[0].placement, stack.spec.pools[pool]
        nodes, instance, key = placement.max_nodes, placement.instance_type, "replicas"
        if isinstance(spec, ManagedPoolSpec):
            key = "size"
        elif nodes is None:
            nodes, key = spec.node_limit, "node_limit"
        if nodes is None:
            continue
        fewest = left_over(groups, nodes, [group.fewest for group in groups])
        most = left_over(groups, nodes, [group.most for group in groups])
        unplaced = fewest or most
        yield Judgement(
            holds=not unplaced,
            path=("pools", pool, key),
            working=(
                f"{nodes} x {instance.name}: {nodes} x {instance.devices} = {nodes * instance.devices} devices",
                *(
                    f"{group.name}: pods {_span(group.fewest, group.most)}, each {group.devices} devices, "
                    f"{group.cpu_millis / 1000:g} CPU, {group.memory_mib / 1024:.0f} GiB"
                    for group in groups
                ),
            ),
            message="there is no room for "
            + ", ".join(f"{count} {'pod' if count == 1 else 'pods'} of '{group}'" for group, count in unplaced.items())
            + ("" if fewest else " once servers are scaled out or rolled out")
            + ("; they wait for their alternatives" if unplaced.keys() <= movable else ""),
            given=str(nodes),
            severity="error" if fewest.keys() - movable else "warning",
        )


@rule(
    "CAP002",
    "The disk of a node holds the engine's image and the model.",
    fix="raise root_volume_gib, or lower what the kubelet keeps",
    source="weights from the catalog; image sizes inferred",
)
def disk_holds_image_and_model(stack: StackFacts) -> Iterator[Judgement]:
    for pool, servers in _servers_by_pool(stack).items():
        spec = stack.spec.pools[pool]
        local, disk = has_local_disks(spec), disk_gib(spec)
        kept = kept_disk_gib(disk, spec.kubelet.settings())
        if local and not kept:
            continue
        for server in servers:
            if server.model is None:
                yield server.unknown_model("disk")
                continue
            if not server.devices:
                continue
            # Each pod of a node has its own copy of the model.
            pods = max(server.instance.devices // server.devices, 1)
            weights = server.model.weight_bytes() / 1024**3
            needed = BESIDE_THE_MODEL_GIB + pods * weights + kept
            yield Judgement(
                holds=needed <= disk,
                path=("pools", pool, "kubelet" if kept else "root_volume_gib"),
                working=(
                    f"{BESIDE_THE_MODEL_GIB} GiB for system and image + {pods} pods x {weights:.1f} GiB of "
                    f"{server.model.name}{f' + {kept:.0f} GiB that the kubelet keeps' if kept else ''} = {needed:.0f} GiB; "
                    f"disk: {disk} GiB",
                ),
                message=f"image and model of '{server.path[-1]}' need {needed:.0f} GiB on each node",
                given=str(disk),
                allowed=f"at least {needed:.0f}",
            )


@rule(
    "CLI001",
    "A server that clients ask has a pod.",
    fix="raise replicas, or remove the client",
    source="Kubernetes Services: without a pod behind it, each request fails; clients here wait until their time limit",
)
def somebody_answers(stack: StackFacts) -> Iterator[Judgement]:
    clients = stack.spec.clients
    asked = {
        "load_test": stack.spec.tested,
        "clients.smoke_test": stack.spec.servers_with("openai") if clients.smoke_test else (),
        "clients.triton": stack.spec.tested_by_triton_client,
    }
    for name, server in stack.spec.servers.items():
        by = [client for client, names in asked.items() if name in names]
        if by and isinstance(server, ReplicatedServerSpec) and not server.scalers:
            yield Judgement(
                holds=server.replicas > 0,
                path=("servers", name, "replicas"),
                working=(f"replicas: {server.replicas}; asked by {', '.join(by)}",),
                message=f"{', '.join(by)} would wait for '{name}', which has no pod, until the time limit",
                given=str(server.replicas),
                allowed="at least 1",
            )


@rule(
    "NET003",
    "Nodes reach the Kubernetes API.",
    fix="set cluster.endpoint.private to true; or list the addresses of your NAT gateways and silence this rule",
    source="EKS user guide, Cluster API server endpoint: without the private endpoint nodes leave the VPC, and their addresses "
    "have to be in public_access_cidrs",
)
def nodes_reach_the_api(stack: StackFacts) -> Iterator[Judgement]:
    endpoint, nat = stack.spec.cluster.endpoint, stack.spec.network.nat
    networks = ", ".join(endpoint.public_access_cidrs) or "nobody"
    outside = nat != "none" and "0.0.0.0/0" in endpoint.public_access_cidrs
    yield Judgement(
        holds=endpoint.private or outside,
        path=("cluster", "endpoint", "private"),
        working=(f"private endpoint: {'on' if endpoint.private else 'off'}; public to {networks}; nat: {nat}",),
        message="nodes come from the addresses of NAT gateways that do not exist yet, so public_access_cidrs cannot have them: "
        "no node joins"
        if nat != "none"
        else "without NAT nodes reach only what is in the VPC, and the API is outside: no node joins",
        given=f"private: false, public_access_cidrs: {networks}",
        allowed="private: true",
    )


@rule(
    "NET007",
    "The machine that deploys reaches the Kubernetes API.",
    severity="warning",
    fix="set cluster.endpoint.public, with your own addresses as public_access_cidrs; or deploy from inside the VPC or a network "
    "that leads there, and silence this rule",
    source="EKS user guide, Cluster API server endpoint: the private endpoint answers only in the VPC and in connected networks",
)
def the_api_is_reached(stack: StackFacts) -> Iterator[Judgement]:
    endpoint = stack.spec.cluster.endpoint
    yield Judgement(
        holds=endpoint.public,
        path=("cluster", "endpoint", "public"),
        working=(f"public endpoint: {'on' if endpoint.public else 'off'}",),
        message="only the VPC reaches the API: from elsewhere `pulumi up` fails when the cluster and its nodes already cost",
        given="false",
        allowed="true, from your own addresses",
    )


@rule(
    "POO012",
    "Auto Scaling may use the key of the root disks of managed pools.",
    severity="warning",
    fix="add the statement to the key's policy, and silence this rule",
    source="EC2 Auto Scaling user guide, Required AWS KMS key policy for use with encrypted volumes; terraform-aws-eks #997",
)
def disks_are_decrypted(stack: StackFacts) -> Iterator[Judgement]:
    managed = [name for name, pool in stack.spec.pools.items() if isinstance(pool, ManagedPoolSpec)]
    key, partition = stack.spec.kms_key_arn, stack.spec.settings(stack.region).partition
    account = "<account>" if key is None or is_output(key) else str(key).split(":")[4]
    role = f"arn:{partition}:iam::{account}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    yield Judgement(
        holds=key is None or not managed,
        path=("kms_key_arn",),
        working=(f"managed pools: {', '.join(managed)}; key: {'that of EBS' if key is None else 'one of your own'}",),
        message=f"only AWS knows the key's policy; without a statement for Auto Scaling no node of {managed[0]} starts, "
        "and EKS says so after 20 minutes",
        allowed=f"{role} may use the key: kms:Encrypt, Decrypt, ReEncrypt*, GenerateDataKey*, DescribeKey, and kms:CreateGrant "
        "where kms:GrantIsForAWSResource is true",
    )


@rule(
    "POO006",
    "Nodes have an address for each pod that the kubelet admits.",
    severity="warning",
    fix="lower maxPods, choose a larger instance type, or leave ENABLE_PREFIX_DELEGATION of vpc-cni on",
    source="Amazon VPC CNI: a pod without an address stays in ContainerCreating; with ENABLE_PREFIX_DELEGATION "
    "each address of an interface stands for 16",
)
def pods_have_addresses(stack: StackFacts) -> Iterator[Judgement]:
    environment = stack.spec.cluster.addon_configuration.get("vpc-cni", {}).get("env", {})
    prefixes = not isinstance(environment, dict) or environment.get("ENABLE_PREFIX_DELEGATION") != "false"
    for name, pool in stack.spec.pools.items():
        most = pool.kubelet.maxPods
        if most is None:
            continue
        smallest = min(pool.instances(), key=lambda instance: instance.max_pods)
        # All but two pods, which are on the host network, take an address (EKS, eni-max-pods.txt).
        addresses = (smallest.max_pods - 2) * (16 if prefixes else 1) + 2
        yield Judgement(
            holds=most <= addresses,
            path=("pools", name, "kubelet", "maxPods"),
            working=(
                f"{smallest.name}: {smallest.max_pods - 2} addresses{' x 16 in prefixes' if prefixes else ''} + 2 pods on "
                f"the host network = {addresses}; maxPods: {most}",
            ),
            message=f"{smallest.name} has addresses for {addresses} pods: further ones never start",
            given=str(most),
            allowed=f"at most {addresses}",
        )


@rule(
    "ARN001",
    "ARNs are of the stack's partition, and of its region where they name one.",
    fix="give the ARN of a resource in the region of the stack",
    source="AWS General Reference, ARN format; KMS keys and resource groups serve only their own region, roles their partition",
)
def arns_are_of_here(stack: StackFacts) -> Iterator[Judgement]:
    partition = stack.spec.settings(stack.region).partition
    for path, arn in scalars(stack.spec.inputs()):
        if is_output(arn) and any(str(part).endswith("_arn") or part in ("admins", "viewers") for part in path[-2:]):
            why = "an Output, which only a deployment knows"
            yield not_judged("partition and region", str(path[-1]), path, why=why, fix="")
        if not isinstance(arn, str) or not re.match(r"arn:[^:]*:[^:]*:[^:]*:[^:]*:", arn):
            continue
        _, given, service, region, *_ = arn.split(":", 5)
        yield Judgement(
            holds=given == partition and region in ("", stack.region),
            path=path,
            working=(f"{service} in {given}, {region or 'all regions'}; the stack is in {partition}, {stack.region}",),
            message=f"the ARN is of partition {given}, the stack of {partition}"
            if given != partition
            else f"the ARN is of region {region}, the stack of {stack.region}",
            given=arn,
            allowed=f"arn:{partition}:{service}:{region and stack.region}:…",
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


@rule(
    "POO008",
    "A pool whose pods have volumes keeps a node in each of its zones.",
    severity="warning",
    fix="raise the pool's size to the number of its zones, or name fewer zones (the pool's zone_ids, or the network's zones)",
    source="EBS user guide: a volume is in one zone; EC2 Auto Scaling user guide: a group spreads its nodes over its zones",
)
def volumes_find_a_node(stack: StackFacts) -> Iterator[Judgement]:
    for pool, holders in _volumes_by_pool(stack.spec).items():
        spec = stack.spec.pools.get(pool)
        if not isinstance(spec, ManagedPoolSpec):
            continue
        zones = zones_of_pool(spec, stack.zone_ids, stack.region)
        nodes = spec.autoscaled.min if spec.autoscaled else spec.size
        yield Judgement(
            holds=nodes >= len(zones),
            path=("pools", pool, "size"),
            working=(f"volumes of {', '.join(holders)}; {nodes} nodes in {len(zones)} zones ({', '.join(zones)})",),
            message=f"when a node of pool '{pool}' is replaced in another zone, the volume of {holders[0]} has no node",
            given=str(nodes),
            allowed=f"at least {len(zones)}",
        )


def _volumes_by_pool(spec: StackSpec) -> Mapping[str, Sequence[str]]:
    """Returns who has EBS volumes, by pool."""
    on_core = {
        "Prometheus": spec.observability.prometheus,
        "the web UI": spec.clients.open_webui,
        "the load test": spec.load_test,
    }
    found = {spec.core_pool: [holder for holder, section in on_core.items() if section]}
    for name, server in spec.servers.items():
        if isinstance(getattr(server, "cache", None), VolumeCompileCache):
            found.setdefault(server.main_pool().pool, []).append(f"server '{name}'")
    return {pool: holders for pool, holders in found.items() if holders}


def _pods_by_pool(stack: StackFacts) -> Mapping[str, Sequence[EqualPods]]:
    """Returns the pods of servers by pool: those with a model first, because the first stands for the nodes of the pool."""
    found: dict[str, list[EqualPods]] = {}
    for name, facts in stack.servers.items():
        if not facts.first:  # elsewhere are no further pods
            found.setdefault(facts.placement.pool, []).append(equal_pods(name, facts))
    for name, server in stack.spec.servers.items():
        for helper in server.helpers:
            name_of_pool = helper.place.pool or stack.spec.core_pool
            pool, version = stack.spec.pools[name_of_pool], stack.spec.cluster.version
            others = found.setdefault(name_of_pool, [])
            type_ = helper.place.instance_type
            placement = others[0].placement if others else placement_of(name_of_pool, pool, type_, version)
            sizes = 0, cpu_millis(helper.cpu), memory_mib(helper.memory), helper.pods, helper.pods
            others.append(EqualPods(f"{name} ({helper.name})", placement, *sizes))
    return found


def _servers_by_pool(stack: StackFacts) -> Mapping[str, Sequence[ServingFacts]]:
    found: dict[str, list[ServingFacts]] = {}
    for server in stack.servers.values():
        found.setdefault(server.placement.pool, []).append(server)
    return found


def _span(fewest: int, most: int) -> str:
    return f"{fewest} to {most}" if most > fewest else str(fewest)
