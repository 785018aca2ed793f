"""Reads storage classes, of a graph or of a cluster. Pure."""

from collections.abc import Mapping
from typing import Any

from stackgraph.graph.values import at, table

EBS_DRIVERS = ("ebs.csi.aws.com", "ebs.csi.eks.amazonaws.com")
"""Provisioners that make EBS volumes: the driver of the add-on, and that of EKS Auto Mode."""

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def is_default_class(manifest: Mapping[str, Any]) -> bool:
    """Whether claims without a class get volumes of this one."""
    return table(at(manifest, "metadata", "annotations")).get(DEFAULT_CLASS) in ("true", True)
