"""Plans the servers of a group: engines, names, guards, quota. Pure functions; no pulumi.

Sources: vLLM documentation, "NixlConnector Usage Guide"; EKS user guide, "Manage EFA devices"; for flags see ``roles``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.nixl import side_channel
from eks_inference.kubernetes.network_policy import allow_from, allow_to, network_policy, pods
from eks_inference.place.claims import claimed_resource
from eks_inference.place.placement import Placement
from eks_inference.serving import deployment, protection
from eks_inference.serving.deployment import Engine
from eks_inference.serving.pods import ROLE_LABEL, SERVER_LABEL, TERMINATION_SECONDS, Hardware, device_resource, quota_devices
from eks_inference.serving.prefill_decode.roles import as_server, efa_interfaces, revision, server_name
from eks_inference.serving.prefill_decode.spec import ROLES, PrefillDecodeSpec, Role
from eks_inference.serving.vllm import plan as vllm
from eks_inference.serving.vllm.spec import VllmServerSpec

MAX_NAME_LENGTH = deployment.MAX_NAME_LENGTH - len("-prefill")
"""Longest name of a group: each role is a server whose name starts with it."""

SIDE_CHANNEL = "side-channel"
"""Name of the port on which servers ask each other where KV caches are."""


@dataclass(frozen=True)
class RoleServers:
    """The servers of one role, as planned."""

    role: Role
    name: str
    """The start of their objects' names."""
    spec: VllmServerSpec
    placement: Placement
    engine: Engine
    labels: Mapping[str, str]

    @property
    def lingering(self) -> int:
        """How long a pod may take to end, in seconds."""
        return TERMINATION_SECONDS + self.engine.lingers_seconds


@dataclass(frozen=True)
class Group:
    """Prefill and decode servers of one revision."""

    name: str
    spec: PrefillDecodeSpec
    revision: str
    roles: Mapping[Role, RoleServers]

    def __iter__(self) -> Iterator[RoleServers]:
        return iter(self.roles.values())


def server_labels(name: str) -> dict[str, str]:
    """Returns the labels of the servers of both roles and of every revision; routers lack one of them."""
    return {SERVER_LABEL: name, "app.kubernetes.io/component": "servers"}


def labels(name: str, role: Role) -> dict[str, str]:
    """Returns the labels of the servers of one role, of every revision."""
    return {**server_labels(name), ROLE_LABEL: role}


def group(name: str, spec: PrefillDecodeSpec, placements: Mapping[Role, Placement]) -> Group:
    """Returns the servers of a group on these placements."""
    shapes: dict[Role, InstanceType] = {role: placements[role].instance_type for role in ROLES}
    return Group(
        name,
        spec,
        revision(name, spec, shapes),
        {role: _servers(name, spec, role, placements[role]) for role in ROLES},
    )


def port(spec: PrefillDecodeSpec) -> int:
    """Returns the port of API and metrics of every server."""
    return spec.profile.port


def _servers(name: str, spec: PrefillDecodeSpec, role: Role, placement: Placement) -> RoleServers:
    server = as_server(name, spec, role, placement.instance_type)
    plain = vllm.engine(name, server, placement, efa_interfaces(spec, role, placement))
    if spec.serving == "disaggregated":
        privileged = spec.kv_transfer.security == "privileged"
        plain = replace(
            plain,
            # Prefill tells decode this address, so 0.0.0.0 would lead nowhere.
            fields={side_channel().host: side_channel().host_field},
            side_ports={SIDE_CHANNEL: spec.kv_transfer.side_channel_port},
            root=True,
            security={"privileged": True}
            if privileged
            else {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
            },
            lingers_seconds=spec.kv_transfer.lease_seconds if role == "prefill" else 0,
        )
    # Dashboards and alerts tell the roles apart by the names of their ports.
    engine = replace(plain, ports={role: port(spec)})
    return RoleServers(role, server_name(name, role), server, placement, engine, labels(name, role))


def quota(group: Group) -> dict[str, Any]:
    """Allows for a complete second group where a rollout brings one, or for successors of pods that still end."""
    hard: dict[str, int] = {}
    beside = group.spec.rollout == "second_group"
    for one in group:
        shape, count = one.placement.instance_type, deployment.device_count(one.spec, one.placement.instance_type)
        claimed = deployment.claims(one.spec, one.placement, one.engine.efa_interfaces).devices
        each = {claimed_resource(device_class): number for device_class, number in claimed.items()} or {
            f"requests.{device_resource(shape)}": count
        }
        for resource, devices in each.items():
            most = quota_devices(one.spec.most, ending=one.spec.most if beside else 1, devices=devices)
            hard[resource] = hard.get(resource, 0) + most
    return protection.device_quota(group.spec.namespace_of(group.name), hard)


def budgets(group: Group) -> dict[str, dict[str, Any]]:
    """Returns the disruption budgets by role: a drain takes one pod of each role at a time."""
    return {one.role: deployment.disruption_budget(one.name, one.spec, one.labels) for one in group}


def network_policies(group: Group, *, router: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Returns the NetworkPolicies of the servers by role. ``router`` has the labels of the routers.

    Nobody else reaches a server: they answer whoever asks, and the side channel of prefill gives KV caches away. EFA traffic is
    not subject to policies, but to the security group of the nodes.
    """
    spec, space = group.spec, group.spec.namespace_of(group.name)
    found = {"closed": protection.closed(group.name, space)}
    for one in group:
        others = [pods(other.labels) for other in group if other.role != one.role]
        side = list(one.engine.side_ports.values())
        found[one.role] = network_policy(
            one.name,
            space,
            selector=one.labels,
            ingress=[
                allow_from(pods(router), tcp=[port(spec)]),
                *([allow_from(*others, tcp=side)] if side else []),
                *protection.from_prometheus(spec.metrics_namespaces, port(spec)),
            ],
            egress=[*protection.egress(spec), *([allow_to(*others, tcp=side)] if side else [])],
        )
    return found


def hardware(group: Group) -> Hardware:
    """Returns the devices of both roles. Types may differ: then those of decode stand for all."""
    decode, prefill = (
        deployment.hardware(group.roles[role].spec, group.roles[role].placement.instance_type) for role in ("decode", "prefill")
    )
    if decode.devices_per_pod == prefill.devices_per_pod and decode.instance_type == prefill.instance_type:
        return replace(decode, pods_min=decode.pods_min + prefill.pods_min, pods_max=decode.pods_max + prefill.pods_max)
    most = decode.devices_per_pod * decode.pods_max + prefill.devices_per_pod * prefill.pods_max
    return Hardware(decode.instance_type, most, pods_min=1, pods_max=1)
