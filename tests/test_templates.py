"""templates/, which `pulumi new` makes projects of, and the documents of Pulumi's registry: both as of today.

A template is a project whose ``Pulumi.yaml`` has a section ``template``; the CLI puts the names that a user gives in place of
``${PROJECT}`` and ``${DESCRIPTION}`` in all of its files (pulumi/pulumi, sdk/go/common/workspace/templates.go).
"""

import json
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

from cases import thorough_but
from conftest import PROJECT, ROOT, STACKS, recorded
from golden import assert_golden
from plugin_host import plugin
from stack_table import described
from stackgraph.recorder.project import find_project
from stackgraph.recorder.recording import record

FOLDER = ROOT / "templates"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PROGRAM = '''\
"""The stack that stands in the stack's file, below eks-inference:stack."""

import pulumi

from eks_inference import InferencePlatform

platform = InferencePlatform.from_config()

for name, value in platform.outputs.items():
    pulumi.export(name, value)
'''


def files(stack: str) -> dict[str, str]:
    """The files of the template of a stack. Its stack file has the name that `pulumi new` proposes for a stack."""
    given = (ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text()
    region = yaml.safe_load(given)["config"]["aws:region"]
    body = given[given.index("config:") :]
    assert body.count(f"name: {stack}\n") == 1
    body = body.replace(f"name: {stack}\n", "name: ${PROJECT}\n").replace("project: eks-inference\n", "project: ${PROJECT}\n")
    project = {
        "name": "${PROJECT}",
        "description": "${DESCRIPTION}",
        "runtime": {"name": "python", "options": {"toolchain": "pip", "virtualenv": ".venv"}},
        "template": {
            "displayName": stack,
            "description": described(stack),
            "quickstart": "eks-inference preview dev, then pulumi up. What it needs: docs/stacks beside this template",
            "config": {"aws:region": {"description": "The region; zones, prices and quotas follow from it.", "default": region}},
        },
    }
    return {
        "Pulumi.yaml": yaml.safe_dump(project, sort_keys=False, width=120),
        "Pulumi.dev.yaml": f"# {described(stack)}.\n{body}",
        "__main__.py": PROGRAM,
        "requirements.txt": "# OWNER: whose copy you use. A clone's folder does as well: eks-inference @ file:///path/of/the/clone\n"
        f"eks-inference @ git+https://github.com/OWNER/eks-inference@v{VERSION}\n",
    }


@pytest.mark.parametrize("stack", STACKS)
def test_a_template_is_todays(stack: str) -> None:
    for name, text in files(stack).items():
        assert_golden(f"../../templates/{stack}/{name}", text)
    assert {file.name for file in (FOLDER / stack).iterdir() if file.name != "__pycache__"} == files(stack).keys()


def test_each_stack_has_a_template_and_no_other() -> None:
    assert {folder.name for folder in FOLDER.iterdir() if folder.is_dir()} == set(STACKS)


SMALL = "smoke-gpu"


@pytest.mark.parametrize("stack", thorough_but({SMALL}, STACKS))
def test_a_project_of_a_template_is_the_stack_under_its_own_name(stack: str, tmp_path: Path) -> None:
    for name, text in files(stack).items():
        (tmp_path / name).write_text(text.replace("${PROJECT}", "shop").replace("${DESCRIPTION}", "what I serve"))
    project = find_project(tmp_path)
    config = project.config(project.stack_file("dev"))
    graph = record(project.main, project=project.name, stack="dev", config=config.values, root=tmp_path)
    shipped = recorded(stack)
    assert Counter(resource.type for resource in graph.resources) == Counter(resource.type for resource in shipped.resources)
    assert not [resource.name for resource in graph.resources if re.search(rf"\b{re.escape(stack)}\b", resource.name)]


# -- Pulumi's registry -----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_schema_of_the_package_is_todays() -> None:
    with plugin() as served:
        schema = json.loads(served.schema())
    assert_golden("../../schema.json", json.dumps(schema, indent=2, sort_keys=True))
    assert schema["name"] == PROJECT.name


@pytest.mark.parametrize("name", ["_index", "installation-configuration"])
def test_a_document_of_the_registry_has_what_the_registry_asks_for(name: str) -> None:
    _, head, text = (ROOT / "docs" / f"{name}.md").read_text().split("---\n", 2)
    assert yaml.safe_load(head).keys() == {"title", "meta_desc", "layout"}
    assert yaml.safe_load(head)["layout"] == "package"
    assert "InferenceStack" in text or "pulumi package add" in text
