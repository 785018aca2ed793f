"""The programs and definitions that `make cluster-tools` made on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eks_inference_tools.simulate.control_plane.toolchain import DEFINITIONS, Toolchain, tools, version_of

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("name", tools())
def test_a_program_runs_and_tells_a_version_that_fits(toolchain: Toolchain, name: str):
    tool = tools()[name]
    assert toolchain.versions[name] == version_of(toolchain.path(name), tool)
    assert tool.fits(toolchain.versions[name])


def test_the_components_of_kubernetes_are_of_one_version(toolchain: Toolchain):
    api, *others = (toolchain.versions[name] for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"))
    assert {version.rpartition(".")[0] for version in others} == {api.rpartition(".")[0]}


def test_prometheus_can_discover_pods(toolchain: Toolchain, tmp_path: Path):
    """Which its build tags decide."""
    (tmp_path / "a.yaml").write_text(
        json.dumps({"scrape_configs": [{"job_name": "a", "kubernetes_sd_configs": [{"role": "pod"}]}]})
    )
    command = [toolchain.path("promtool"), "check", "config", "--syntax-only", "a.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


def test_a_second_run_starts_no_go(toolchain: Toolchain, tmp_path: Path):
    called = tmp_path / "called"
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\n: > {called}\nexit 1\n")
    go.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "eks_inference_tools.simulate.control_plane"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not called.exists()
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*tools(), DEFINITIONS]


def test_the_definitions_are_whole(toolchain: Toolchain):
    found = {definition["metadata"]["name"]: definition for definition in toolchain.definitions()}
    assert {
        "ec2nodeclasses.karpenter.k8s.aws",
        "nodeclaims.karpenter.sh",
        "nodepools.karpenter.sh",
        "podmonitors.monitoring.coreos.com",
        "prometheusrules.monitoring.coreos.com",
        "scaledobjects.keda.sh",
        "servicemonitors.monitoring.coreos.com",
        "triggerauthentications.keda.sh",
    } <= found.keys()
    for name, definition in found.items():
        assert definition["kind"] == "CustomResourceDefinition"
        assert name == f"{definition['spec']['names']['plural']}.{definition['spec']['group']}"
        for version in definition["spec"]["versions"]:
            assert version["schema"]["openAPIV3Schema"]["properties"]["spec"], name
