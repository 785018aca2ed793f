"""File systems that the pods of several nodes share, as resources."""

from collections.abc import Mapping, Sequence
from typing import assert_never

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.cluster.addon import eks_addon
from eks_inference.cluster.handle import Cluster
from eks_inference.faults import Fault, SpecError
from eks_inference.network.handle import Network
from eks_inference.storage import plan
from eks_inference.storage.handle import Store
from eks_inference.storage.spec import EfsStoreSpec, LustreStoreSpec, StoreSpec


class FileSystemDriver(pulumi.ComponentResource):
    """The CSI driver of one kind of shared file system, as an EKS add-on: one a cluster, whatever number of stores.

    It mounts file systems that are there; it gets no permission to make any. Raises ``KeyError`` when the catalog has no version
    of the add-on for the cluster's.
    """

    def __init__(self, name: str, kind: plan.Kind, *, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:FileSystemDriver", name, {"kind": kind}, opts)
        self.kind: plan.Kind = kind
        addon = eks_addon(
            f"{name}-addon",
            plan.driver_addon(kind, cluster.version),
            cluster_name=cluster.name,
            settings=cluster.settings,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*cluster.ready]),
        )
        self.ready: Sequence[pulumi.Resource] = (addon,)
        self.register_outputs({"driver": plan.DRIVERS[kind]})


class SharedStore(pulumi.ComponentResource):
    """A file system, and the security group through which the cluster's nodes reach it and nobody else.

    EFS: encrypted, elastic throughput, a mount target in every zone of the network's private subnets, and an access point whose
    files belong to one user, so that root in any container may write. FSx for Lustre: persistent SSD storage in ``zone_id``,
    which is needed then: nodes of other zones pay for every byte and wait for it.

    The stack's KMS key encrypts it if there is one, and its ``protect`` keeps it; otherwise it goes with the stack, and all that
    is in it. ``store_claim`` makes it a volume for the pods of a namespace.

    Raises ``SpecError`` when the driver is of another kind, or ``zone_id`` names no zone of the private subnets.
    """

    def __init__(
        self,
        name: str,
        spec: StoreSpec,
        *,
        cluster: Cluster,
        network: Network,
        driver: FileSystemDriver,
        zone_id: str | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        subnets = plan.one_subnet_a_zone([(subnet.zone_id, subnet.id) for subnet in network.private_subnets])
        faults = _faults(spec, driver, zone_id, subnets)
        if faults:
            raise SpecError(faults)
        super().__init__("eks-inference:index:SharedStore", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.driver = plan.DRIVERS[spec.kind]
        self.mount_options: Sequence[str] = plan.MOUNT_OPTIONS[spec.kind]
        self.volume_attributes: Mapping[str, pulumi.Input[str]] = {}
        group = self._security_group(name, spec.kind, cluster, network)
        if isinstance(spec, EfsStoreSpec):
            self.size_gib = plan.EFS_SIZE_GIB
            made = self._efs(name, cluster, subnets, group)
        elif isinstance(spec, LustreStoreSpec):
            self.size_gib = spec.size_gib
            made = self._lustre(name, spec, cluster, subnets[zone_id or ""], group)
        else:
            assert_never(spec)
        self.ready: Sequence[pulumi.Resource] = (*made, *driver.ready)
        self.register_outputs({"volumeHandle": self.volume_handle})

    def _security_group(self, name: str, kind: plan.Kind, cluster: Cluster, network: Network) -> aws.ec2.SecurityGroup:
        settings = cluster.settings
        group = aws.ec2.SecurityGroup(
            f"{name}-security-group",
            description=f"File system {name} of the EKS cluster {cluster.name}",
            vpc_id=network.vpc_id,
            tags={**settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self),
        )
        # The servers of Lustre talk to each other, and back to its clients.
        sources = {"nodes": cluster.security_group_id, **({"itself": group.id} if kind == "fsx_lustre" else {})}
        for source, source_id in sources.items():
            for first, last in plan.PORTS[kind]:
                aws.vpc.SecurityGroupIngressRule(
                    f"{name}-from-{source}-{first}",
                    security_group_id=group.id,
                    referenced_security_group_id=source_id,
                    ip_protocol="tcp",
                    from_port=first,
                    to_port=last,
                    tags={**settings.tags, "Name": f"{name}-from-{source}"},
                    opts=pulumi.ResourceOptions(parent=self),
                )
        if kind == "fsx_lustre":
            for source, source_id in sources.items():
                for first, last in plan.PORTS[kind]:
                    aws.vpc.SecurityGroupEgressRule(
                        f"{name}-to-{source}-{first}",
                        security_group_id=group.id,
                        referenced_security_group_id=source_id,
                        ip_protocol="tcp",
                        from_port=first,
                        to_port=last,
                        tags={**settings.tags, "Name": f"{name}-to-{source}"},
                        opts=pulumi.ResourceOptions(parent=self),
                    )
        return group

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
            opts=pulumi.ResourceOptions(parent=self, protect=settings.protect or None),
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
            posix_user=aws.efs.AccessPointPosixUserArgs(uid=plan.EFS_USER, gid=plan.EFS_USER),
            root_directory=aws.efs.AccessPointRootDirectoryArgs(
                path=plan.EFS_FOLDER,
                creation_info=aws.efs.AccessPointRootDirectoryCreationInfoArgs(
                    owner_uid=plan.EFS_USER, owner_gid=plan.EFS_USER, permissions="0755"
                ),
            ),
            tags={**settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.volume_handle: pulumi.Input[str] = pulumi.Output.concat(system.id, "::", access.id)
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
        system = aws.fsx.LustreFileSystem(
            f"{name}-file-system",
            deployment_type="PERSISTENT_2",
            file_system_type_version="2.15",
            storage_type="SSD",
            storage_capacity=spec.size_gib,
            per_unit_storage_throughput=spec.throughput_mb_per_tib,
            subnet_ids=subnet_id,
            security_group_ids=[group.id],
            kms_key_id=settings.kms_key_arn,
            # All of it can be downloaded and compiled again.
            automatic_backup_retention_days=0,
            tags={**settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self, protect=settings.protect or None),
        )
        self.volume_handle = system.id
        self.volume_attributes = {"dnsname": system.dns_name, "mountname": system.mount_name}
        return [system]


def store_claim(
    name: str, store: Store, *, namespace: str, cluster: Cluster, parent: pulumi.Resource, opts: pulumi.ResourceOptions
) -> k8s.core.v1.PersistentVolumeClaim:
    """The claim ``name`` of a store in a namespace, and the volume behind it. ``opts`` are the claim's, and name the namespace.

    One claim a store: a node cannot mount one volume handle under two volumes.
    """
    volume = k8s.core.v1.PersistentVolume(
        f"{name}-volume",
        **plan.volume(
            f"{namespace}-{name}",
            driver=store.driver,
            volume_handle=store.volume_handle,
            attributes=store.volume_attributes,
            mount_options=store.mount_options,
            size_gib=store.size_gib,
        ),
        opts=pulumi.ResourceOptions(parent=parent, provider=cluster.provider, depends_on=[*cluster.ready, *store.ready]),
    )
    return k8s.core.v1.PersistentVolumeClaim(
        f"{name}-claim",
        **plan.claim(name, namespace, volume=f"{namespace}-{name}", size_gib=store.size_gib),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[volume])),
    )


def _faults(
    spec: StoreSpec, driver: FileSystemDriver, zone_id: str | None, subnets: Mapping[str, pulumi.Input[str]]
) -> list[Fault]:
    faults = []
    if driver.kind != spec.kind:
        faults.append(Fault(("kind",), "the driver is of another kind of file system", given=driver.kind, allowed=spec.kind))
    if isinstance(spec, LustreStoreSpec) and zone_id not in subnets:
        message = "FSx for Lustre is of one zone, and has to be in one of the private subnets"
        faults.append(Fault(("zone_id",), message, given=str(zone_id), allowed=", ".join(subnets)))
    return faults
