"""``preview --format stack``: what it prints is a stack file of the same stack, and says where each value comes from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import covering
from conftest import PROJECT, ROOT, STACKS
from eks_inference.stack.reading import parse_stack
from eks_inference_tools.cli import main
from eks_inference_tools.resolution.origins import values_of
from golden import assert_golden
from open_stacks import STACK_KEY, minimal, written_out
from stackgraph.recorder.bounded_yaml import compose

MINE = """\
config:
  aws:region: us-west-2
  eks-inference:servingApiKey:
    secure: AAABAHJkbm90YXNlY3JldA==
  eks-inference:stack:
    name: mine
    pools: {gpu: {instance_types: [g6.xlarge], size: 1}}
    servers: {m: {model: {id: Qwen/Qwen3-8B}}}
"""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("Pulumi.yaml", "infra/__main__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"))
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.mine.yaml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def resolved(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["preview", *options, "--format", "stack"]) == 0
    return capsys.readouterr().out


def stack_in(text: str) -> dict[str, Any]:
    return compose(text).plain()["config"][STACK_KEY]


def origins(stack: Mapping[str, Any]) -> Mapping[str, tuple[Any, str, str]]:
    values = values_of(parse_stack(json.dumps(stack), ROOT), stack).values()
    return {".".join(value.path): (value.value, value.origin, value.why) for value in values}


def test_a_short_file_is_written_out_with_what_decides(clone, capsys):
    assert_golden("resolve/mine.yaml", resolved(capsys, "mine", "--without-defaults"))


@pytest.mark.thorough
def test_what_is_printed_is_the_same_stack(clone, capsys):
    before = parse_stack(json.dumps(stack_in(MINE)))
    for options in ((), ("--without-defaults",)):
        after = parse_stack(json.dumps(stack_in(resolved(capsys, "mine", *options))))
        assert after.model_dump() == before.model_dump()
        assert not after.resolved, "nothing is open any more"


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_a_shipped_stack_leaves_nothing_open_that_follows(stack, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    given = PROJECT.config(PROJECT.stack_file(stack)).values[STACK_KEY]
    text = resolved(capsys, stack)
    assert parse_stack(json.dumps(stack_in(text)), ROOT).model_dump() == parse_stack(given, ROOT).model_dump()
    assert "follows" not in {origin for _, origin, _ in origins(json.loads(given)).values()}


@pytest.mark.thorough
def test_every_option_reads_back():
    for number, example in enumerate(covering.covering_set()):
        spec = parse_stack(json.dumps(example.stack))
        again = parse_stack(json.dumps(written_out(spec, example.stack, defaults=number % 3 > 0)))
        assert again.model_dump() == spec.model_dump(), example.name


def test_what_the_file_says_is_printed_as_it_is():
    stack = minimal("g6.xlarge", "Qwen/Qwen3-8B", extra_args={"seed": 2})
    stack["observability"] = {"prometheus": {"values": {"grafana": {"plugins": None}}}}
    written = written_out(parse_stack(json.dumps(stack)), stack)
    assert written["observability"]["prometheus"]["values"] == {"grafana": {"plugins": None}}
    assert written["servers"]["m"]["extra_args"] == {"seed": 2}


def test_what_has_no_effect_is_left_out_and_what_a_file_says_beside_its_effect_stays():
    def found(**model: Any) -> Mapping[str, tuple[Any, str, str]]:
        stack = minimal("g6.xlarge", "", renamed_from="old", extra_env={})
        stack["servers"]["m"]["model"] = {"kind": "s3", "uri": "s3://models/qwen/v1", "id": "Qwen/Qwen3-8B", **model}
        return origins(stack)

    assert found()["servers.m.model.size_gib"] == (100, "schema", "")
    assert "servers.m.model.size_gib" not in found(streamed=True)
    assert found()["servers.m.renamed_from"] == ("old", "file", "")


def test_every_value_has_an_origin():
    found = origins(stack_in(MINE))
    assert found["servers.m.model.id"] == ("Qwen/Qwen3-8B", "file", "")
    value, origin, why = found["servers.m.engine"]
    assert (value, origin) == ("cuda-vllm-0.30", "follows")
    assert why.startswith("row cuda-vllm-0.30 of engines.toml")
    assert found["servers.m.replicas"] == (1, "schema", "")
    assert found["pools.core.size"][:2] == (2, "follows")
    assert found["pools.core.node_repair"] == (False, "schema", "")


@pytest.mark.thorough
def test_secrets_are_not_printed(clone, capsys):
    text = resolved(capsys, "mine")
    assert "AAABAHJkbm90YXNlY3JldA" not in text
    assert "# eks-inference:servingApiKey: a secret, which is not shown" in text


@pytest.mark.thorough
def test_a_file_in_which_nothing_follows_tells_why(clone, capsys):
    (clone / "stacks" / "Pulumi.mine.yaml").write_text(MINE.replace("Qwen/Qwen3-8B", "some/thing"))
    assert main(["preview", "mine", "--format", "stack"]) == 2
    error = capsys.readouterr().err
    assert "stacks/Pulumi.mine.yaml:8: eks-inference:stack.servers.m.engine: nothing follows" in error
    (clone / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (clone / "__main__.py").touch()
    (clone / "Pulumi.mine.yaml").write_text("config:\n  aws:region: us-west-2\n")
    assert main(["preview", "mine", "--format", "stack"]) == 2
    assert "there is no stack object to print" in capsys.readouterr().err
