"""What the tables of the pinned Karpenter list and the catalog does not have. Needs Go."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from catalog_rows import unknown
from eks_inference_tools.simulate.control_plane.toolchain import definition_sources

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(not shutil.which("go"), reason="no `go` on PATH")]

# The families of EC2 with accelerators: GPUs, Neuron, Gaudi, FPGA, video.
ACCELERATED = re.compile(r"(dl|f|g|gr|inf|p|trn|vt)\d")


def test_every_type_with_accelerators_of_karpenter_is_there_or_left_out_for_a_reason(tmp_path: Path):
    source = next(definition_source for definition_source in definition_sources() if definition_source.name == "karpenter")
    command = ["go", "mod", "download", "-json", f"{source.module}@{source.version}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    table = Path(json.loads(done.stdout)["Dir"], "pkg", "providers", "instancetype", "zz_generated.vpclimits.go")
    listed = set(re.findall(r'^\t"([a-z0-9-]+\.[a-z0-9-]+)": \{', table.read_text("utf-8"), re.MULTILINE))
    assert len(listed) > 500
    assert unknown(name for name in listed if ACCELERATED.match(name)) == set()
