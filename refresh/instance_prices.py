"""On-demand prices of instances, from two Go modules, whose files ``go mod download`` fetches.

The newer is Karpenter's own table of on-demand prices in us-east-1, as it is in the release that the catalog pins. The older is
ec2-instances-info, which has all regions. Types and regions are those of the catalog.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.versions import chart
from eks_inference.catalog.zones import regions
from refresh import ROOT

FILE = ROOT / "components" / "eks_inference" / "catalog" / "prices_instances.json"

KARPENTER = "github.com/aws/karpenter-provider-aws"
KARPENTER_LICENCE = "Apache-2.0"
KARPENTER_FILE = "pkg/providers/pricing/zz_generated.pricing_aws.go"
ALL_REGIONS = "github.com/cristim/ec2-instances-info"
ALL_REGIONS_VERSION = "v0.0.0-20250528091325-32acf84f42eb"
ALL_REGIONS_LICENCE = "MIT (data), Copyright (c) 2013 Garret Heaton"
ALL_REGIONS_FILE = "data/instances.json"


def table() -> str:
    if not shutil.which("go"):
        sys.exit("no `go` on PATH")
    with tempfile.TemporaryDirectory() as folder:
        return rendered(derived(Path(folder)))


def module(path: str, version: str, folder: Path) -> Path:
    """The folder with the files of a Go module. Runs Go in ``folder``, below no module."""
    asked = ["go", "mod", "download", "-json", f"{path}@{version}"]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(json.loads(done.stdout)["Dir"])


def derived(folder: Path) -> dict[str, Any]:
    """The content of the file. Runs Go in ``folder``."""
    karpenter = f"v{chart('karpenter').version}"
    return {
        "newer": _of_karpenter(module(KARPENTER, karpenter, folder) / KARPENTER_FILE, karpenter),
        "older": _of_all_regions(module(ALL_REGIONS, ALL_REGIONS_VERSION, folder) / ALL_REGIONS_FILE),
    }


def rendered(found: Mapping[str, Any]) -> str:
    """One line a region, so that a review shows what changed where."""
    return "{\n" + ",\n".join(f' "{name}": {_table(one)}' for name, one in found.items()) + "\n}\n"


def _table(one: Mapping[str, Any]) -> str:
    head = "".join(f'  "{key}": {json.dumps(one[key])},\n' for key in ("source", "licence", "as_of"))
    usd = ",\n".join(f'   "{region}": {json.dumps(row)}' for region, row in one["usd"].items())
    return f'{{\n{head}  "usd": {{\n{usd}\n  }}\n }}'


def _of_karpenter(file: Path, version: str) -> dict[str, Any]:
    text = file.read_text()
    made, region = re.findall(r"// generated at (\d{4}-\d\d-\d\d)T\S+ for (\S+)", text)[0]
    usd = {name: float(number) for name, number in re.findall(r'"([a-z][\w-]*\.[\w-]+)": ([\d.]+)', text)}
    source = f"{KARPENTER} {version}, {KARPENTER_FILE}"
    return {"source": source, "licence": KARPENTER_LICENCE, "as_of": made, "usd": {region: _known(usd)}}


def _of_all_regions(file: Path) -> dict[str, Any]:
    usd: dict[str, dict[str, float]] = {region: {} for region in regions()}
    for load in json.loads(file.read_text()):
        for region, systems in load["pricing"].items():
            on_demand = systems.get("linux", {}).get("ondemand")
            if region in usd and on_demand:
                usd[region][load["instance_type"]] = float(on_demand)
    day = re.sub(r".*-(\d{4})(\d\d)(\d\d)\d{6}-.*", r"\1-\2-\3", ALL_REGIONS_VERSION)
    by_region = {region: _known(row) for region, row in usd.items()}
    source = f"{ALL_REGIONS} {ALL_REGIONS_VERSION}, {ALL_REGIONS_FILE}"
    usd = {region: row for region, row in by_region.items() if row}
    return {"source": source, "licence": ALL_REGIONS_LICENCE, "as_of": day, "usd": usd}


def _known(usd: Mapping[str, float]) -> dict[str, float]:
    return {name: usd[name] for name in instance_types() if usd.get(name)}
