"""What user data of a launch template changes in what pods can use of a node. Pure.

Sources: awslabs/amazon-eks-ami, nodeadm/doc (NodeConfig, MIME documents); Neuron documentation, "EKS prerequisites".
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email import message_from_string
from typing import Any

import yaml

from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, table

_NODE_CONFIG = "application/node.eks.aws"
_LOGICAL_CORES = re.compile(r"NEURON_LOGICAL_NC_CONFIG=(\d+)")
_HUGE_PAGES = re.compile(r"vm[./]nr_hugepages\s*=\s*(\d+)")


@dataclass(frozen=True)
class UserData:
    """``kubelet``: fields of KubeletConfiguration; ``raid``: pods' disk is the instance store; ``logical_cores``: physical
    NeuronCores in a schedulable one; ``huge_pages``: those of 2 MiB that are set aside. ``read`` is False when the text is not
    known or could not be made sense of.
    """

    kubelet: Mapping[str, Any] = field(default_factory=dict)
    raid: bool = False
    logical_cores: int | None = None
    huge_pages: int | None = None
    read: bool = True


def user_data(encoded: Any) -> UserData:
    """What base64 user data says; nothing when there is none."""
    if encoded is None or encoded == "":
        return UserData()
    try:
        if not isinstance(encoded, str) or is_token(encoded):
            return UserData(read=False)
        return _read(base64.b64decode(encoded, validate=True).decode())
    except (ValueError, yaml.YAMLError):
        return UserData(read=False)


def _read(content: str) -> UserData:
    kubelet: dict[str, Any] = {}
    raid, logical_cores, huge_pages = False, None, None
    for media_type, part in _parts(content):
        if media_type == _NODE_CONFIG:
            spec = at(yaml.safe_load(part), "spec")
            kubelet |= table(at(spec, "kubelet", "config"))
            raid = raid or at(spec, "instance", "localStorage", "strategy") == "RAID0"
        if found := _LOGICAL_CORES.search(part):
            logical_cores = int(found[1])
        if found := _HUGE_PAGES.search(part):
            huge_pages = int(found[1])
    return UserData(kubelet, raid, logical_cores, huge_pages)


def _parts(content: str) -> Iterator[tuple[str, str]]:
    """Parts as (media type, text). A document that is no MIME is one script, or one NodeConfig."""
    if not content.lstrip().lower().startswith(("mime-version:", "content-type:")):
        yield (_NODE_CONFIG if "node.eks.aws/" in content and not content.startswith("#!") else "text/x-shellscript"), content
        return
    for part in message_from_string(content).walk():
        payload = part.get_payload()
        if isinstance(payload, str):
            yield part.get_content_type(), payload
