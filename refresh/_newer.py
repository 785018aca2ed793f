"""Says which pins have a newer release in the registries that can be asked: ``make newer``. Changes nothing.

PyPI and Go's module proxy are asked through pip and Go. What neither has is listed: somebody has to look it up.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from eks_inference.catalog.engines import engines
from eks_inference.catalog.tables import rows, table, version_numbers

PACKAGES = {
    "engines.ray": "ray",
    "engines.vllm": "vllm",
    "images.guidellm": "guidellm",
    "images.open-webui": "open-webui",
    "images.vllm-router": "vllm-router",
}
"""Pins and the packages of PyPI that are released with them."""

MODULES = {
    "charts.karpenter": "github.com/aws/karpenter-provider-aws",
    "charts.keda": "github.com/kedacore/keda/v2",
    "images.buildkit": "github.com/moby/buildkit",
}
"""Pins and the Go modules that are released with them."""

_VERSION = re.compile(r"\d+(?:\.\d+)+")


def pins() -> dict[str, str]:
    """Returns the newest pinned version of everything that has one: ``{"charts.keda": "2.20.2"}``."""
    found = {f"charts.{name}": row["version"] for name, row in rows(table("versions.toml")["charts"]).items()}
    for name, row in rows(table("versions.toml")["images"]).items():
        references = [row["reference"]] if "reference" in row else rows(row).values()
        found[f"images.{name}"] = max((_number(reference.rpartition(":")[2]) for reference in references), key=version_numbers)
    usable = [engine for engine in engines().values() if not engine.retired]
    found["engines.vllm"] = max((_number(engine_profile.vllm) for engine_profile in usable), key=version_numbers)
    found["engines.ray"] = max((engine_profile.ray for engine_profile in usable if engine_profile.ray), key=version_numbers)
    return found


def report(pinned: Mapping[str, str], released: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each pin that has a newer release, and one for those whose releases are not known."""
    for name, version in sorted(released.items()):
        if version_numbers(version) > version_numbers(pinned[name]):
            yield f"{name:<20} {pinned[name]} → {version}"
    yield f"not asked: {', '.join(sorted(pinned.keys() - released.keys()))}"


def released() -> dict[str, str]:
    """Asks the registries. What does not answer is left out."""
    pip = [sys.executable, "-m", "pip", "index", "versions"]
    found = {name: _said([*pip, one], r"\(([\d.]+)\)") for name, one in PACKAGES.items()}
    if shutil.which("go"):
        asked = {name: ["go", "list", "-m", "-f", "{{.Version}}", f"{one}@latest"] for name, one in MODULES.items()}
        found |= {name: _said(command, r"v([\d.]+)$") for name, command in asked.items()}
    return {name: version for name, version in found.items() if version}


def _said(command: list[str], pattern: str) -> str:
    with tempfile.TemporaryDirectory() as below_no_module:
        done = subprocess.run(command, cwd=below_no_module, capture_output=True, text=True, timeout=120, check=False)
    match = re.search(pattern, done.stdout, re.M)
    return match[1] if match else ""


def _number(text: str) -> str:
    """The version in a tag: ``v0.32.2-rootless``."""
    match = _VERSION.search(text)
    return match[0] if match else text


if __name__ == "__main__":
    print(*report(pins(), released()), sep="\n")
