"""The built wheels, as teams use them: outside the clone, with nothing else of ours."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from eks_inference.catalog.versions import image
from readme import blocks, program_of_a_team

ROOT = Path(__file__).parents[1]
PACKAGES = ("eks_inference", "eks_inference_tools", "stackgraph")
SOURCES = ("components", "pyproject.toml", "README.md", "LICENSE")
"""What a wheel is built from."""


def run(*command: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def built(tmp_path_factory: pytest.TempPathFactory, folder: str) -> Path:
    """The wheel of a distribution, built from a copy of the sources: building writes beside them."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        original = ROOT / name
        if original.is_dir():
            shutil.copytree(original, source / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        else:
            shutil.copy(original, source / name)
    wheels = tmp_path_factory.mktemp("wheel")
    flags = ("--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check", "--no-index")
    run(sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", wheels, f"./{folder}", cwd=source)
    left = {path.name for path in (source / "components").iterdir() if not path.name.endswith(".egg-info")}
    assert left == set(PACKAGES)
    assert not (source / "components" / "stackgraph" / "build").exists()
    (wheel,) = wheels.glob("*.whl")
    return wheel


def installed(wheel: Path, folder: Path) -> Path:
    """The interpreter of an environment with a wheel, and of this one only the dependencies."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip())
    zipfile.ZipFile(wheel).extractall(site)
    # A path added this way does not run the .pth files in it, such as that of an editable install of this clone.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import stackgraph; print(stackgraph.__file__)", cwd=folder).stdout
    assert where.startswith(str(site))
    return python


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory, "")


@pytest.fixture(scope="module")
def of_stackgraph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory, "components/stackgraph")


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("environment"))


def test_the_dockerfile_copies_what_the_wheel_needs_onto_the_image_of_our_scripts():
    """Nothing here can build an image; what it installs from is the wheel of these tests."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = {name for line in lines if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]}
    assert copied == {*SOURCES, "constraints.txt"}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert {line.split()[1] for line in lines if line.startswith("FROM ")} == {image("python")}


DISTRIBUTED_AS = {"google": "pulumi", "grpc": "pulumi", "markupsafe": "MarkupSafe", "pytest": "", "yaml": "PyYAML"}
"""The requirement that brings an imported package, under another name. Whoever uses the plugin of pytest has pytest."""


def test_stackgraph_requires_what_it_imports_and_no_sdk_of_a_provider():
    ours, its = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("", "components/stackgraph")
    )
    required = {re.split("[>=]", row)[0]: row for row in its["dependencies"]}
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "components" / "stackgraph").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in ([row.name for row in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""])
        if isinstance(node, ast.Import | ast.ImportFrom)
    } - {"stackgraph", *sys.stdlib_module_names}
    assert {DISTRIBUTED_AS.get(name, name) for name in imported} - {""} == required.keys()
    assert required["pulumi"] in ours["dependencies"]
    assert its["version"] == ours["version"]


@pytest.mark.thorough
def test_both_wheels_hold_the_same_stackgraph(wheel, of_stackgraph):
    ours, its = ({name for name in zipfile.ZipFile(path).namelist() if "-info/" not in name} for path in (wheel, of_stackgraph))
    assert its == {name for name in ours if name.startswith("stackgraph/")}
    assert "stackgraph/pyproject.toml" not in its


@pytest.mark.thorough
def test_stackgraph_alone_shows_and_compares_a_program(of_stackgraph, tmp_path):
    python = installed(of_stackgraph, tmp_path / "environment")
    (project := tmp_path / "shop").mkdir()
    (project / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    (project / "__main__.py").write_text("import pulumi_aws as aws\naws.s3.Bucket('photos', bucket='a')\n")
    run(
        python,
        "-c",
        "import stackgraph.cli\ntry: import eks_inference\nexcept ImportError: pass\nelse: raise SystemExit(1)",
        cwd=project,
    )
    run(python, "-c", "import eks_inference", cwd=project, code=1)
    shown = run(python, "-m", "stackgraph", "preview", "dev", cwd=project).stdout
    assert "would create 1 resource: 1 AWS" in shown
    git = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for command in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "first")):
        run(*git, *command, cwd=project)
    # Of another length: within the second, Python takes its bytecode of a file as long for that of the file (PEP 552).
    (project / "__main__.py").write_text("import pulumi_aws as aws\naws.s3.Bucket('photos', bucket='bb')\n")
    told = run(python, "-m", "stackgraph", "diff", "--base", "HEAD", "--fail-on", "replace", cwd=project, code=1).stdout
    assert "1 of 1 stack changes: ±1" in told
    assert "not compared" not in told


@pytest.mark.thorough
def test_the_wheel_holds_its_types_its_data_and_no_plugin(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"eks_inference/py.typed", "eks_inference/__init__.pyi"} <= set(names)
    assert json.loads(zipfile.ZipFile(wheel).read("eks_inference/pulumi-plugin.json")) == {"resource": False}
    for data in (ROOT / "components").rglob("*"):
        ours = (
            data.is_file() and not {"__pycache__", "eks_inference.egg-info"} & set(data.parts) and data.name != "pyproject.toml"
        )
        if ours and (data.suffix in (".toml", ".json") or data.parent.name == "assets"):
            assert str(data.relative_to(ROOT / "components")) in names
    assert not [name for name in names if name.startswith(("tests/", "infra/"))]


@pytest.mark.thorough
def test_pytest_finds_the_fixture_of_the_wheel(python, tmp_path):
    program, tests, *_ = (b.text for b in blocks(ROOT / "docs" / "testing.md") if b.language == "python")
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(program)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_shop.py").write_text(tests)
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "component_alone or rename", cwd=tmp_path)
    assert "2 passed" in done.stdout


@pytest.mark.thorough
def test_the_program_of_a_platform_team_is_previewed(python, tmp_path):
    """Their own eks.Cluster, our pool, plugin and server; the very program of docs/existing-cluster.md."""
    (tmp_path / "Pulumi.yaml").write_text("name: platform\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  aws:region: us-west-2\n")
    (tmp_path / "__main__.py").write_text(program_of_a_team())
    graph = json.loads(run(python, "-m", "eks_inference_tools", "preview", "dev", "--format", "json", cwd=tmp_path).stdout)
    by_type: dict[str, list[dict]] = {}
    for resource in graph["resources"]:
        by_type.setdefault(resource["type"], []).append(resource)
    (cluster,) = by_type["eks:index:Cluster"]
    (group,) = by_type["aws:eks/nodeGroup:NodeGroup"]
    (service,) = by_type["kubernetes:ray.io/v1:RayService"]
    assert group["inputs"]["instanceTypes"] == ["inf2.8xlarge"]
    assert group["inputs"]["clusterName"] == cluster["inputs"]["name"]
    assert cluster["urn"] in group["dependencies"]
    worker = service["inputs"]["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]
    assert worker["nodeSelector"].items() <= group["inputs"]["labels"].items()
    assert group["urn"] in service["dependencies"]
    providers = {r["provider"] for r in graph["resources"] if r["type"].startswith("kubernetes:")}
    assert len(providers) == 1
    (identity,) = by_type["aws:eks/podIdentityAssociation:PodIdentityAssociation"]
    (agent,) = by_type["eks:index:Addon"]
    assert agent["urn"] in identity["dependencies"]
    assert "0 errors" in run(python, "-m", "eks_inference_tools", "check", cwd=tmp_path).stdout
