"""Creates file systems that pods on several nodes share, their CSI drivers, and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import eks_addon, on_cluster
from eks_inference.component import Component
from eks_inference.faults import Fault, SpecError
from eks_inference.network.handle import Network
from eks_inference.rules import refuse
from eks_inference.specs.base import Given, one_of
from eks_inference.storage import plan
from eks_inference.storage.handle import ExistingStore, Store
from eks_inference.storage.rules import StoreFacts, subnets_where_it_is
from eks_inference.storage.spec import EfsStoreSpec, ExistingStoreSpec, FileSystem, LustreStoreSpec, NewStoreSpec, StoreSpec


class FileSystemDriver(Component):
    """The CSI driver of one kind of shared file system, as an EKS add-on. One per cluster serves any number of stores.

    It mounts existing file systems and has no permission to create any. Raises ``SpecError`` when the catalog has no version of
    the add-on for the cluster's Kubernetes version.
    """

    def __init__(
        self,
        name: str,
        file_system: FileSystem,
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
    ) -> None:
        super().__init__("eks-inference:index:FileSystemDriver", name, {"fileSystem": file_system}, opts)
        self.file_system: FileSystem = file_system
        addon = plan.driver_addon(file_system, cluster.version)
        self.ready: Sequence[pulumi.Resource] = (
            eks_addon(
                f"{name}-{addon.name}",
                addon,
                cluster=cluster,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[*cluster.pods_ready]),
            ),
        )
        self.register_outputs({"driver": plan.DRIVERS[file_system]})


class SharedStore(Component):
    """A file system with a security group that admits only the cluster's nodes. The component is itself a ``Store``.

    EFS: encrypted, elastic throughput, a mount target in every zone of the private subnets, and an access point that assigns all
    files to one user (``plan.EFS_USER``), so that any user in any container can write. FSx for Lustre: SSD storage in the zone
    of the spec, or else in ``zone_id``, the zone of the pool that mounts it.

    The stack's KMS key, if any, encrypts it, except Lustre scratch storage, which only has a key of the service. Without
    ``protect`` or ``retain`` in the stack, deleting the stack deletes the file system and its data without a backup: models can
    be downloaded and compiled again. ``store_claim`` makes it a volume for the pods of a namespace.

    Raises ``SpecError`` when the driver is for another kind of file system, when its zone has no private subnet,
    or for Lustre with ``retain``: its interfaces would keep subnets and security group from being deleted.
    """

    def __init__(
        self,
        name: str,
        spec: Given[NewStoreSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        network: Network,
        driver: FileSystemDriver,
        zone_id: str | None = None,
    ) -> None:
        spec = one_of(NewStoreSpec, spec)
        _refuse_another_driver(spec, driver)
        _refuse_what_cannot_stay(spec, cluster)
        subnets = plan.one_subnet_a_zone([(subnet.zone_id, subnet.id) for subnet in network.private_subnets])
        zone_id = plan.store_zone(spec, [zone_id] if zone_id else [])
        # Cannot be silenced: a file system needs a subnet.
        refuse([subnets_where_it_is], StoreFacts((), spec, zone_id, tuple(subnets), pools={}, contents=()), {})
        super().__init__("eks-inference:index:SharedStore", name, spec.inputs(), opts)
        self.zone_id = zone_id
        self.driver = plan.DRIVERS[spec.file_system]
        self.mount_options: Sequence[str] = plan.MOUNT_OPTIONS[spec.file_system]
        self.volume_attributes: Mapping[str, pulumi.Input[str]] = {}
        self.volume_handle: pulumi.Input[str]
        self.size_gib: int
        group = self._security_group(name, spec.file_system, cluster, network)
        if isinstance(spec, EfsStoreSpec):
            made = self._efs(name, cluster, subnets, group)
        else:
            assert zone_id
            made = self._lustre(name, spec, cluster, subnets[zone_id], group)
        self.ready: Sequence[pulumi.Resource] = (*made, *driver.ready)
        self.register_outputs({"volumeHandle": self.volume_handle})

    def _security_group(self, name: str, file_system: FileSystem, cluster: Cluster, network: Network) -> aws.ec2.SecurityGroup:
        # Lustre servers and clients open connections in both directions, servers also among themselves; NFS servers open none.
        both_ways = file_system == "fsx_lustre"
        rules: list[Any] = [
            {
                "protocol": "tcp",
                "from_port": first,
                "to_port": last,
                "security_groups": [cluster.security_group_id],
                **({"self": True} if both_ways else {}),
                "description": "Nodes and servers of the file system" if both_ways else "Nodes",
            }
            for first, last in plan.PORTS[file_system]
        ]
        return aws.ec2.SecurityGroup(
            f"{name}-security-group",
            description=f"File system {name} of the EKS cluster {cluster.name}",
            vpc_id=network.vpc_id,
            ingress=rules,
            egress=rules if both_ways else [],
            tags={**cluster.settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _efs(
        self, name: str, cluster: Cluster, subnets: Mapping[str, pulumi.Input[str]], group: aws.ec2.SecurityGroup
    ) -> list[pulumi.Resource]:
        settings = cluster.settings
        system = aws.efs.FileSystem(
            f"{name}-file-system",
            encrypted=True,
            kms_key_id=settings.kms_key_arn,
            throughput_mode="elastic",
            tags={**settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self, protect=settings.protect or None, retain_on_delete=settings.retain or None),
        )
        targets = [
            aws.efs.MountTarget(
                f"{name}-mount-{zone_id}",
                file_system_id=system.id,
                subnet_id=subnet_id,
                security_groups=[group.id],
                opts=pulumi.ResourceOptions(parent=self),
            )
            for zone_id, subnet_id in subnets.items()
        ]
        access = aws.efs.AccessPoint(
            f"{name}-access-point",
            file_system_id=system.id,
            posix_user={"uid": plan.EFS_USER, "gid": plan.EFS_USER},
            root_directory={
                "path": plan.EFS_FOLDER,
                "creation_info": {"owner_uid": plan.EFS_USER, "owner_gid": plan.EFS_USER, "permissions": "0755"},
            },
            tags={**settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.volume_handle = pulumi.Output.concat(system.id, "::", access.id)
        self.size_gib = plan.EFS_SIZE_GIB
        return [*targets, access]

    def _lustre(
        self,
        name: str,
        spec: LustreStoreSpec,
        cluster: Cluster,
        subnet_id: pulumi.Input[str],
        group: aws.ec2.SecurityGroup,
    ) -> list[pulumi.Resource]:
        settings = cluster.settings
        persistent = spec.deployment == "persistent"
        system = aws.fsx.LustreFileSystem(
            f"{name}-file-system",
            deployment_type=plan.DEPLOYMENTS[spec.deployment],
            file_system_type_version=plan.LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=spec.size_gib,
            # FSx accepts none of these for scratch storage, which has no backups.
            per_unit_storage_throughput=(spec.throughput_mb_per_tib or plan.PERSISTENT_MB_PER_TIB) if persistent else None,
            kms_key_id=settings.kms_key_arn if persistent else None,
            automatic_backup_retention_days=0 if persistent else None,
            subnet_ids=subnet_id,
            security_group_ids=[group.id],
            tags={**settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self, protect=settings.protect or None),
        )
        # Servers also connect to nodes (FSx for Lustre user guide, "Lustre client VPC security group rules").
        calls = [
            aws.vpc.SecurityGroupIngressRule(
                f"{name}-to-nodes-{first}",
                security_group_id=cluster.security_group_id,
                referenced_security_group_id=group.id,
                ip_protocol="tcp",
                from_port=first,
                to_port=last,
                description=f"Servers of the file system {name}",
                tags={**settings.tags, "Name": f"{name}-to-nodes"},
                opts=pulumi.ResourceOptions(parent=self),
            )
            for first, last in plan.PORTS["fsx_lustre"]
        ]
        self.volume_handle = system.id
        self.volume_attributes = {"dnsname": system.dns_name, "mountname": system.mount_name}
        self.size_gib = spec.size_gib
        return [system, *calls]


def shared_store(
    name: str,
    spec: StoreSpec,
    *,
    cluster: Cluster,
    network: Network,
    driver: FileSystemDriver,
    zone_id: str | None = None,
    opts: pulumi.ResourceOptions | None = None,
) -> Store:
    """Returns the store of a spec: a new ``SharedStore``, or the handle of an existing file system. Raises like the former."""
    if isinstance(spec, ExistingStoreSpec):
        _refuse_another_driver(spec, driver)
        return ExistingStore.described(spec, ready=driver.ready)
    return SharedStore(name, spec, cluster=cluster, network=network, driver=driver, zone_id=zone_id, opts=opts)


def store_claim(
    name: str, store: Store, *, namespace: str, cluster: Cluster, parent: pulumi.Resource, opts: pulumi.ResourceOptions
) -> k8s.core.v1.PersistentVolumeClaim:
    """Creates the claim ``name`` of a store in a namespace, and its volume, a child of ``parent``.

    ``opts`` are the options of the claim and include a dependency on the namespace. A store can have one claim only: the kubelet
    identifies the volumes of a node by their handle.
    """
    volume = k8s.core.v1.PersistentVolume(
        f"{name}-volume",
        **plan.volume(
            f"{namespace}-{name}",
            name,
            namespace,
            driver=store.driver,
            volume_handle=store.volume_handle,
            attributes=store.volume_attributes,
            mount_options=store.mount_options,
            size_gib=store.size_gib,
        ),
        opts=on_cluster(cluster, parent, *cluster.pods_ready, *store.ready),
    )
    return k8s.core.v1.PersistentVolumeClaim(
        f"{name}-claim",
        # The name is an output of the volume, so that replacing the volume replaces the claim.
        **plan.claim(name, namespace, volume=volume.metadata["name"], size_gib=store.size_gib),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[volume])),
    )


def _refuse_another_driver(spec: StoreSpec, driver: FileSystemDriver) -> None:
    if driver.file_system != spec.file_system:
        message = "the driver is for another kind of file system"
        raise SpecError([Fault((), message, given=driver.file_system, allowed=spec.file_system)])


def _refuse_what_cannot_stay(spec: NewStoreSpec, cluster: Cluster) -> None:
    """FSx for Lustre user guide, "File system access control with Amazon VPC": its network interfaces live as long as it does."""
    if cluster.settings.retain and isinstance(spec, LustreStoreSpec):
        message = "a retained Lustre file system would keep its network from being deleted"
        hint = "take kind: efs, or retain: false with a backup, or a file system of your own (kind: existing)"
        raise SpecError([Fault(("kind",), message, given=spec.kind, allowed="efs, existing", hint=hint)])
