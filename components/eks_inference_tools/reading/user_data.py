"""Reads from the user data of a launch template the settings that affect what pods can use of a node. Pure.

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
    """``kubelet`` has fields of KubeletConfiguration. ``raid``: pods use the instance store as their disk. ``logical_cores`` is
    the number of physical NeuronCores in a logical one, ``huge_pages`` the number of reserved pages of 2 MiB. ``read`` is False
    when the user data is unknown or cannot be parsed.
    """

    kubelet: Mapping[str, Any] = field(default_factory=dict)
    raid: bool = False
    logical_cores: int | None = None
    huge_pages: int | None = None
    read: bool = True


def user_data(encoded: Any) -> UserData:
    """Reads user data in base64. None and an empty text have no settings."""
    if encoded is None or encoded == "":
        return UserData()
    try:
        if not isinstance(encoded, str) or is_token(encoded):
            return UserData(read=False)
        return _read(base64.b64decode(encoded, validate=True).decode())
    except (ValueError, yaml.YAMLError):
        return UserData(read=False)


def _read(content: str) -> UserData:
    parts = list(_parts(content))
    specs = [at(yaml.safe_load(part), "spec") for media_type, part in parts if media_type == _NODE_CONFIG]
    cores, pages = ([int(n) for _, part in parts for n in pattern.findall(part)[:1]] for pattern in (_LOGICAL_CORES, _HUGE_PAGES))
    return UserData(
        kubelet={key: value for spec in specs for key, value in table(at(spec, "kubelet", "config")).items()},
        raid=any(at(spec, "instance", "localStorage", "strategy") == "RAID0" for spec in specs),
        logical_cores=cores[-1] if cores else None,
        huge_pages=pages[-1] if pages else None,
    )


def _parts(content: str) -> Iterator[tuple[str, str]]:
    """The parts as (media type, text). A document that is not MIME is a single script or NodeConfig."""
    if not content.lstrip().lower().startswith(("mime-version:", "content-type:")):
        yield (_NODE_CONFIG if "node.eks.aws/" in content and not content.startswith("#!") else "text/x-shellscript"), content
        return
    for part in message_from_string(content).walk():
        payload = part.get_payload()
        if isinstance(payload, str):
            yield part.get_content_type(), payload
