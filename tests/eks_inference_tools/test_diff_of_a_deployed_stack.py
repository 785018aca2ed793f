"""``eks-inference diff --state`` and ``preview --format pulumi``: what they say, and how they end."""

import json
from pathlib import Path

import pytest

from conftest import ROOT
from eks_inference_tools.cli import main

SHOP = ROOT / "tests" / "stackgraph" / "deployed"
STATE = ("diff", "--program", str(SHOP), "--state")


def test_an_unedited_stack_does_not_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STATE, str(SHOP / "export.json"), "--exit-code", "--fail-on", "replace,delete,danger,unsure"]) == 0
    said = capsys.readouterr().out
    assert "No change in 1 stack" in said
    assert "note: 2 values not compared: secrets, and what the program computes from outputs" in said
    assert "This compares a program with an exported state." in said


def test_a_deployed_store_that_the_program_lacks_is_deleted_with_what_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((SHOP / "export.json").read_text(encoding="utf-8"))
    bucket = next(one for one in document["deployment"]["resources"] if one["type"] == "aws:s3/bucket:Bucket")
    document["deployment"]["resources"].append(bucket | {"urn": bucket["urn"] + "-old"})
    (tmp_path / "export.json").write_text(json.dumps(document), encoding="utf-8")
    page, comment, report = (str(tmp_path / name) for name in ("diff.html", "diff.md", "diff.json"))
    also = ("--html", page, "--markdown", comment, "--json", report)
    assert main([*STATE, str(tmp_path / "export.json"), "--fail-on", "delete", *also]) == 1
    for shown in (capsys.readouterr().out, Path(page).read_text(), Path(comment).read_text()):
        assert "s3.Bucket store-files-old is deleted with its objects" in shown
        assert "delete s3.Bucket store-files-old" in shown
    (stack,) = json.loads(Path(report).read_text())["stacks"]
    assert stack["steps"] == ["delete s3.Bucket store-files-old"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--base", "main"), "--state takes at most one stack"),
        (("one", "two"), "--state takes at most one stack"),
        (("nothing",), "export.json: stack: of another stack"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    options: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    export = tmp_path / "export.json"
    export.write_bytes((SHOP / "export.json").read_bytes())
    (tmp_path / "Pulumi.yaml").write_bytes((SHOP / "Pulumi.yaml").read_bytes())
    (tmp_path / "__main__.py").touch()
    (tmp_path / "stacks").mkdir()
    for stack in ("prod", "nothing"):
        (tmp_path / "stacks" / f"Pulumi.{stack}.yaml").write_text("config: {}\n")
    assert main(["diff", "--program", str(tmp_path), "--state", str(export), *options]) == 2
    assert what in capsys.readouterr().err


def test_a_preview_in_the_form_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preview", "prod", "--program", str(SHOP), "--format", "pulumi"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["changeSummary"] == {"create": 11}
    assert {step["op"] for step in shown["steps"]} == {"create"}


def test_the_program_gets_values_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("Pulumi.yaml", "__main__.py"):
        text = (SHOP / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text + "\npulumi.Config().require('told')\n" * (name == "__main__.py"), encoding="utf-8")
    given = ("diff", "--program", str(tmp_path), "--state", str(SHOP / "export.json"))
    assert main([*given]) == 2
    assert main([*given, "-c", "told=x"]) == 0
