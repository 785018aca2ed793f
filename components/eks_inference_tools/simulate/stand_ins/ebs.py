"""Stands in for the EBS CSI driver's provisioner: creates claimed volumes in the zone of the node that the scheduler chose,
and deletes released ones. The scheduler and the volume controllers, which bind the two, are real.

Left out, because only a kubelet reports what a node's driver can do: attaching (the real controller attaches only to nodes whose
kubelet asks for it) and the number of volumes per instance type. The stack itself creates the volumes of file systems.

Sources: kubernetes-csi/external-provisioner 5 (annotations, names, when it acts), kubernetes-sigs/aws-ebs-csi-driver 1.64
(``CreateVolume``: access modes, sizes, topology).
"""

import hashlib
from collections.abc import Mapping, Sequence
from math import ceil

from eks_inference.place.nodes import memory_mib
from eks_inference.place.placement import ZONE_LABEL
from eks_inference_tools.reading.live_objects import annotations_of, identity_of, is_leaving, labels_of, name_of
from eks_inference_tools.reading.object_kinds import EBS_DRIVERS, NODES, STORAGE_CLASSES, VOLUME_CLAIMS
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, Object
from eks_inference_tools.simulate.stand_ins.loop import Seen, tell
from stackgraph.graph.values import at, items, table, text

"""Provisioners of EBS volumes: the driver itself, and EKS Auto Mode."""

_VOLUMES = "persistentvolumes"
_WAITS = "WaitForFirstConsumer"
_PROVISIONER = "volume.kubernetes.io/storage-provisioner"  # the volume controller's request
_SELECTED_NODE = "volume.kubernetes.io/selected-node"  # the scheduler's choice
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


class EbsVolumes:
    """Creates a volume for every claim of an EBS StorageClass."""

    title = "the stand-in of the EBS CSI driver"
    reads = (VOLUME_CLAIMS, _VOLUMES, STORAGE_CLASSES, NODES)

    def reconcile(self, seen: Seen, api: Api) -> None:
        classes = {name_of(item): item for item in seen[STORAGE_CLASSES]}
        zones = {name_of(node): zone for node in seen[NODES] if (zone := text(labels_of(node).get(ZONE_LABEL)))}
        volumes = {name_of(item): item for item in seen[_VOLUMES]}
        for claim in seen[VOLUME_CLAIMS]:
            storage_class = classes.get(text(at(claim, "spec", "storageClassName")))
            if storage_class is None or volume_name(claim) in volumes or not is_asked_for(claim):
                continue
            if reason := refusal_of(claim):
                tell(api, claim, "ProvisioningFailed", reason)
            elif zone := zone_of(claim, storage_class, zones):
                api.create(volume_of(claim, storage_class, zone))
        for volume in volumes.values():
            if is_to_go(volume):
                api.delete(_VOLUMES, name_of(volume))


def is_asked_for(claim: Object) -> bool:
    """Whether the volume controller hands a claim to the driver. It does so once the claim need not wait for a pod."""
    driver = annotations_of(claim).get(_PROVISIONER)
    return driver in EBS_DRIVERS and not at(claim, "spec", "volumeName") and not is_leaving(claim)


def refusal_of(claim: Object) -> str:
    """Returns why EBS cannot provide such a volume, or ``""``."""
    mode = _mode_of(claim)
    possible = ("ReadWriteOnce", "ReadWriteOncePod", *(("ReadWriteMany",) if mode == "Block" else ()))
    others = [text(wanted) for wanted in items(at(claim, "spec", "accessModes")) if wanted not in possible]
    refusal = f"EBS volumes of mode {mode} do not support access mode {', '.join(others)}, only {', '.join(possible)}"
    return refusal if others else ""


def zone_of(claim: Object, storage_class: Object, zones: Mapping[str, str]) -> str:
    """Returns the zone for a volume: that of the node the scheduler chose, or any if the class does not wait for it.

    ``zones`` are the zones of the nodes by name. ``""`` means that there is no zone (yet).
    """
    if storage_class.get("volumeBindingMode") == _WAITS:
        return zones.get(text(annotations_of(claim).get(_SELECTED_NODE)), "")
    return min((zone for zone in zones.values() if _is_allowed(zone, items(storage_class.get("allowedTopologies")))), default="")


def _is_allowed(zone: str, topologies: Sequence[Object]) -> bool:
    return not topologies or any(
        all(
            zone in items(at(item, "values"))
            for item in items(at(topology, "matchLabelExpressions"))
            if at(item, "key") == ZONE_LABEL
        )
        for topology in topologies
    )


def volume_name(claim: Object) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def volume_of(claim: Object, storage_class: Object, zone: str) -> Object:
    """Returns the volume of a claim. Sizes are rounded up to whole GiB."""
    namespace, name = identity_of(claim)
    uid = claim["metadata"]["uid"]
    driver = storage_class["provisioner"]
    size = ceil(memory_mib(text(at(claim, "spec", "resources", "requests", "storage"))) / 1024)
    parameters = table(storage_class.get("parameters"))
    mode = _mode_of(claim)
    file_system = {"fsType": parameters.get("csi.storage.k8s.io/fstype", "ext4")} if mode == "Filesystem" else {}
    in_zone = {"key": ZONE_LABEL, "operator": "In", "values": [zone]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(claim), "annotations": {_PROVISIONED_BY: driver}},
        "spec": {
            "capacity": {"storage": f"{max(size, 1)}Gi"},
            "accessModes": list(at(claim, "spec", "accessModes")),
            "volumeMode": mode,
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "storageClassName": name_of(storage_class),
            "mountOptions": list(items(storage_class.get("mountOptions"))),
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid},
            "csi": {
                "driver": driver,
                "volumeHandle": f"vol-{hashlib.sha256(uid.encode()).hexdigest()[:17]}",
                **file_system,
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}},
        },
    }


def _mode_of(claim: Object) -> str:
    return text(at(claim, "spec", "volumeMode")) or "Filesystem"


def is_to_go(volume: Object) -> bool:
    """Whether a volume of this driver is released and its reclaim policy is to delete it."""
    return (
        annotations_of(volume).get(_PROVISIONED_BY) in EBS_DRIVERS
        and at(volume, "status", "phase") == "Released"
        and at(volume, "spec", "persistentVolumeReclaimPolicy") == "Delete"
        and not is_leaving(volume)
    )
