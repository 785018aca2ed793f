"""Where a fault is: in a stack file its file, line and key; in a team's program its file and line, the resource and the field."""

import json
from pathlib import Path
from textwrap import dedent

import pytest

from conftest import ROOT
from eks_inference_tools.cli import main

BEGIN = """\
import pulumi
import pulumi_aws as aws

from eks_inference import *

SETTINGS = StackSettings(region="us-east-1")
"""
LINE = BEGIN.count("\n") + 1


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a team's project whose program goes on after ``BEGIN``."""

    def write(program: str) -> None:
        (tmp_path / "Pulumi.yaml").write_text("name: team\nruntime: python\n")
        (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  aws:region: us-east-1\n")
        (tmp_path / "__main__.py").write_text(BEGIN + dedent(program))
        monkeypatch.chdir(tmp_path)

    return write


@pytest.mark.parametrize(
    ("program", "line", "says"),
    [
        ("NetworkSpec(\n    zonez=2,\n)", 0, "NetworkSpec: zonez: unknown key"),
        (
            'Vpc("net", NetworkSpec(zone_ids=["usw2-az1", "usw2-az2"]), settings=SETTINGS)',
            0,
            "Vpc 'net': zone_ids: belongs to another region than settings",
        ),
        ('Vpc("net", {"zonez": 2}, settings=SETTINGS)', 0, "Vpc 'net': zonez: unknown key"),
        ('def make(name):\n    Vpc(name, settings=SETTINGS)\nmake("one")', 1, "Vpc 'one': spec: this argument is required"),
        ("NetworkSpec.model_validate({'zones': 'x'})", 0, "NetworkSpec: zones: should be an integer"),
        (
            'pools = {"core": ManagedPoolSpec(instance_types=["m5.large"], size=2)}\n'
            'InferencePlatform(StackSpec(name="x", pools=pools), region="us-wst-2")',
            1,
            "InferencePlatform: region: no AWS region has this name",
        ),
        (
            'net = Vpc("net", NetworkSpec(), settings=SETTINGS)\n'
            'a, b = (EksCluster(name, ClusterSpec(), network=net, settings=SETTINGS) for name in ("a", "b"))\n'
            'core = ManagedPool("core", ManagedPoolSpec(instance_types=("m5.2xlarge",), size=2), cluster=a, network=net)\n'
            'ClusterAddons("addons", ClusterAddonsSpec(), cluster=b, core=core.placement())',
            3,
            "ClusterAddons 'addons': core: belongs to another cluster than cluster\n    given: Placement 'core' of a in us-",
        ),
        (
            'for spec in (NetworkSpec(), NetworkSpec()):\n    Vpc("net", spec, settings=SETTINGS)',
            1,
            "Vpc 'net': another Vpc of the program has this name",
        ),
        (
            'pool = ExistingPool("core", {}, ["m5.large"])\npool.placement(\n    "m5.larg",\n)',
            1,
            "ExistingPool: instance_type: pool core has no such instance type\n    given: m5.larg\n    allowed: m5.large\n",
        ),
        ('ExistingPool("core", {}, ["m5.larg"])', 0, "ExistingPool: instance_types[0]: this instance type is not in"),
        pytest.param(
            'pools = {"core": ManagedPoolSpec(instance_types=["m5.2xlarge"], size=2),\n'
            '    "gpu": ManagedPoolSpec(instance_types=["g5.xlarge"], size=1)}\n'
            'server = {"kind": "triton", "model": {"id": "facebook/opt-350m"}, "pool": "gpu"}\n'
            'for name in ("one", "two"):\n'
            '    spec = {"name": name, "pools": pools, "servers": {"opt": server}, "accelerators": {"nvidia": {}}}\n'
            '    InferencePlatform(StackSpec.model_validate(spec), region="us-east-1")',
            5,
            "InferencePlatform: servers.opt: another TritonServer of the program has this name",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_fault_of_a_program_is_at_its_own_line(team, capsys, program: str, line: int, says: str):
    team(program)
    assert main(["preview", "dev"]) == 2
    assert f"error: __main__.py:{LINE + line}: {says}" in capsys.readouterr().err


def test_findings_about_two_clusters_name_resource_and_line_of_each(team, capsys):
    team(
        """\
        for name, region in (("east", "us-east-1"), ("west", "us-west-2")):
            aws.eks.Cluster(name, name=name, role_arn="r", vpc_config={"subnet_ids": ["a"], "endpoint_public_access": False})
            Vpc(f"{name}-net", NetworkSpec(), settings=StackSettings(region=region))
            aws.eks.AccessEntry(f"{name}-team", cluster_name=name, principal_arn="p")
        """
    )
    assert main(["check", "--format", "json"]) == 2
    (stack,) = json.loads(capsys.readouterr().out)["stacks"]
    places = [(one["rule"], one["file"], one["line"], one["key"].partition(" ")[0]) for one in stack["findings"]]
    assert places == [
        ("EKS002", "__main__.py", LINE + 3, "east-team"),
        ("EKS002", "__main__.py", LINE + 3, "west-team"),
        ("EKS003", "__main__.py", LINE + 2, "west-net-private-usw2-az1"),
    ]


@pytest.mark.parametrize("command", [["preview"], ["check"], ["check", "--explain", "NET001"]])
def test_a_misspelt_region_is_at_its_own_line(tmp_path: Path, monkeypatch, capsys, command: list[str]):
    ours = (ROOT / "Pulumi.yaml").read_text().replace("infra/", str(ROOT / "infra")).replace("stackConfigDir: stacks\n", "")
    (tmp_path / "Pulumi.yaml").write_text(ours)
    stack = (ROOT / "stacks" / "Pulumi.gpu-opt350m.yaml").read_text()
    wrong = next(number for number, line in enumerate(stack.splitlines(), 1) if "aws:region" in line)
    (tmp_path / "Pulumi.gpu.yaml").write_text(stack.replace("us-west-2", "us-wst-2"))
    monkeypatch.chdir(tmp_path)
    assert main([command[0], "gpu", *command[1:]]) == 2
    said = "".join(capsys.readouterr())
    assert f"error: Pulumi.gpu.yaml:{wrong}: aws:region: no AWS region has this name" in said
    assert "did you mean 'us-west-2'?" in said


def test_a_finding_about_a_server_is_at_its_own_line(team, capsys):
    """A server's constructor calls that of all servers; the line is that of the program, also inside of a subclass."""
    team(
        """\
        class Mine(VllmServer):
            def __init__(self, name, **others):
                super().__init__(name, **others)

        import pulumi_kubernetes as k8s
        spec = VllmServerSpec.model_validate({"kind": "vllm", "model": {"id": "facebook/opt-350m"}, "engine": "cuda-vllm-0.30",
            "pool": "gpu", "tensor_parallel": 1, "max_num_seqs": 32, "max_model_len": 2048})
        cluster = ExistingCluster("c", "1.35", SETTINGS, k8s.Provider("k8s"), "https://x", "Q0E=", "sg-1")
        gpu = ExistingPool("gpu", {"a": "b"}, ["g5.xlarge"]).placement()
        Mine("mine", spec=spec, cluster=cluster, placement=gpu)
        VllmServer("plain", spec, cluster=cluster, placement=gpu)
        """
    )
    assert main(["preview", "--format", "json"]) == 0
    graph = json.loads(capsys.readouterr().out)
    sources = {one["name"]: one["source"] for one in graph["resources"] if one["type"].endswith((":Mine", ":VllmServer"))}
    assert sources == {"mine": f"__main__.py:{LINE + 9}", "plain": f"__main__.py:{LINE + 10}"}
