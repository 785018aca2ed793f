"""Several models in one Triton server, as docs/stacks/gpu-opt350m.md has it, on a real control plane."""

import pytest
import yaml

from cluster.shipped import Asked
from conftest import ROOT
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from readme import blocks
from variants import recorded_with

pytestmark = pytest.mark.cluster

STACK = "gpu-opt350m"
PAGE = ROOT / "docs" / "stacks" / f"{STACK}.md"


def test_its_pods_are_admitted_land_and_roll_out(toolchain: Toolchain) -> None:
    settings = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]
    (shown,) = (setting for setting in settings if "further_models" in setting.get("servers", {}).get("triton-server", {}))
    ran = Asked(recorded_with(shown, STACK), toolchain, {}).ran()
    assert ran.report.is_well, ran.report.phases
    types = {
        pod.owner: node.type_name for node in ran.report.scheduled.nodes for pod in node.pods if "triton-server" in pod.owner
    }
    assert set(types.values()) == {"g7e.2xlarge"}
