"""Instance types without accelerators that pools may have, and the zones that lack them, from answers of EC2 that moto carries.

They are types of the families T, M, C and R, without local disks and EFA; further ones are rows of one's own.
"""

import gzip
import json
import re
from collections import defaultdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from eks_inference.catalog import zones
from refresh import ROOT

FILE = ROOT / "components" / "eks_inference" / "catalog" / "instances_general.json"

_ARM = re.compile(r"t4g|[mcr][6-8]g|[mc]9g")  # nobody lists a price of r9g
_FAMILIES = re.compile(rf"t3a?|[mcr][5-9](a|i|i-flex)?|{_ARM.pattern}")
_COLUMNS = ("vcpus", "memory_mib", "ebs_mb_s", "max_pods")

_LEAST_MIB = 4096
"""Less leaves no room beside the pods of add-ons."""


def table() -> str:
    answers = {name: answer for name, answer in moto_resource("instance_types.json.gz").items() if _is_general(name, answer)}
    families: dict[str, dict[str, Any]] = defaultdict(dict)
    for name in sorted(answers):
        family, _, size = name.partition(".")
        families[family][size] = _columns(answers[name])
    lines = [f'"{family}": {json.dumps(_family(family, sizes))}' for family, sizes in sorted(families.items())]
    offered = [f'"{region}": {json.dumps(_not_everywhere(region, families))}' for region in zones.regions()]
    head = f'{{"columns": {json.dumps(_COLUMNS)}, "families": {{\n'
    return head + ",\n".join(lines) + '\n}, "zones": {\n' + ",\n".join(offered) + "\n}}\n"


@cache
def moto_resource(name: str) -> Any:
    """A data file of the moto distribution, read without importing moto."""
    found = find_spec("moto")
    assert found, "moto carries the answers of EC2: pip install -e '.[dev]'"
    path = Path(*(found.submodule_search_locations or ()), "ec2", "resources", name)
    return json.loads(gzip.decompress(path.read_bytes()))


def max_pods(answer: dict[str, Any]) -> int:
    """The formula of nodeadm: the interfaces of the default network card, whose first addresses are their own, and two pods on
    the host network.
    """
    network = answer["NetworkInfo"]
    (card,) = (one for one in network["NetworkCards"] if one["NetworkCardIndex"] == network["DefaultNetworkCardIndex"])
    return card["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2


def _is_general(name: str, answer: dict[str, Any]) -> bool:
    family, _, size = name.partition(".")
    small, efa = answer["MemoryInfo"]["SizeInMiB"] < _LEAST_MIB, answer["NetworkInfo"]["EfaSupported"]
    return bool(_FAMILIES.fullmatch(family)) and not (size.startswith("metal") or small or efa)


def _family(name: str, sizes: dict[str, list[Any]]) -> dict[str, Any]:
    arm = {"architecture": "arm64"} if _ARM.fullmatch(name) else {}
    ordered = {size: sizes[size] for size in sorted(sizes, key=lambda size: sizes[size])}
    return {"every_size": _all_sold(name, sizes), **arm, "sizes": ordered}


def _all_sold(family: str, sizes: dict[str, Any]) -> bool:
    sold = {name.partition(".")[2] for name in moto_resource("instance_types.json.gz") if name.partition(".")[0] == family}
    return sold == sizes.keys()


def _columns(answer: dict[str, Any]) -> list[Any]:
    """Values of ``_COLUMNS``."""
    return [
        answer["VCpuInfo"]["DefaultVCpus"],
        answer["MemoryInfo"]["SizeInMiB"],
        answer["EbsInfo"]["EbsOptimizedInfo"]["MaximumThroughputInMBps"],
        max_pods(answer),
    ]


def _not_everywhere(region: str, families: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Of the families that not every zone offers in every size: the zones that do."""
    rows = moto_resource(f"instance_type_offerings/availability-zone-id/{region}.json.gz")
    offered = {(row["InstanceType"], row["Location"]) for row in rows}
    everywhere = zones.region_zone_ids(region)
    found = {
        family: [zone for zone in everywhere if all((f"{family}.{size}", zone) in offered for size in sizes)]
        for family, sizes in sorted(families.items())
    }
    return {family: offering for family, offering in found.items() if len(offering) < len(everywhere)}
