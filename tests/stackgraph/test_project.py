"""Projects and stack files as the CLI reads them."""

import json
from pathlib import Path

import pytest

from stackgraph.problems import ProblemsFound
from stackgraph.recorder.project import Project, StackConfig, find_project

TYPED = "name: app\nruntime: python\nconfig:\n  size: {type: integer, default: 2}\n  on: {type: boolean}\n  all: {type: array}\n"


def project(folder: Path, text: str = "name: app\nruntime: python\n", **stacks: str) -> Project:
    (folder / "Pulumi.yaml").write_text(text)
    (folder / "__main__.py").touch()
    for stack, content in stacks.items():
        (folder / f"Pulumi.{stack}.yaml").write_text(content)
    return find_project(folder)


def config(folder: Path, stack: str, text: str = "name: app\nruntime: python\n") -> StackConfig:
    found = project(folder, text, dev=stack)
    return found.config(found.stack_file("dev"))


def test_the_project_is_found_from_below(tmp_path):
    project(tmp_path, dev="")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_project(below).root == tmp_path.resolve()


def test_stack_files_stand_where_the_project_says(tmp_path):
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.dev.yaml").touch()
    found = project(tmp_path, "name: app\nruntime: {name: python}\nstackConfigDir: stacks\n", other="")
    assert found.stacks() == ["dev"]


def test_values_become_the_texts_a_program_gets(tmp_path):
    read = config(tmp_path, "config:\n  app:n: 3\n  app:b: true\n  app:o: {b: [1, 'x'], a: 1.5}\n  short: text\n")
    assert read.values == {"app:n": "3", "app:b": "true", "app:o": '{"a":1.5,"b":[1,"x"]}', "app:short": "text"}


def test_yaml_is_read_as_the_cli_reads_it(tmp_path):
    """YAML 1.1 would make booleans and numbers of base 60 of these. The expected texts are what the CLI itself hands over."""
    texts = {"a": "on", "b": "8000:80", "d": "no", "e": "1.35.6"}
    others = {"f": ("0x10", "16"), "g": ("1e3", "1000"), "h": ("-1.50", "-1.5"), "i": ("1_000", "1000"), "j": ("~", "")}
    others |= {"k": ("{x: 1e3, y: 0o17, z: 017, t: null}", '{"t":null,"x":1000,"y":15,"z":15}')}
    lines = [f"  app:{key}: {value}\n" for key, value in texts.items()]
    lines += [f"  app:{key}: {given}\n" for key, (given, _) in others.items()]
    read = config(tmp_path, "config:\n" + "".join(lines)).values
    assert {key: read[f"app:{key}"] for key in texts} == texts
    assert {key: read[f"app:{key}"] for key in others} == {key: text for key, (_, text) in others.items()}


def test_defaults_come_from_the_project(tmp_path):
    text = "name: app\nruntime: python\nconfig:\n  size: {type: integer, default: 2}\n  aws:region: {value: us-west-2}\n"
    assert config(tmp_path, "config: {}\n", text).values == {"app:size": "2", "aws:region": "us-west-2"}


def test_the_stack_wins_over_defaults(tmp_path):
    read = config(tmp_path, "config:\n  app:size: '-5'\n  on: 'true'\n  all: [1]\n", TYPED)
    assert read.values == {"app:size": "-5", "app:on": "true", "app:all": "[1]"}


def test_encrypted_values_are_never_read(tmp_path):
    read = config(tmp_path, "config:\n  app:token: {secure: v1:abc}\n  app:o: {user: me, password: {secure: v1:def}}\n")
    assert read.secret_keys == {"app:token", "app:o"}
    assert "v1:" not in "".join(read.values.values())
    assert json.loads(read.values["app:o"])["user"] == "me"


def test_an_environment_is_said_to_be_missing(tmp_path):
    assert "ESC" in config(tmp_path, "environment: [shared]\nconfig: {}\n").warnings[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runtime: python\n", "a project needs a name"),
        ("name: app\nruntime: nodejs\n", "only Python programs can be recorded"),
        ("name: app\nruntime: python\nmain: nowhere\n", "there is no program here"),
        ("name: app\nruntime: python\nmain: ..\n", "the program folder has no __main__.py"),
        ("name: [app\n", "not valid YAML"),
        (f"name: app\nruntime: python\nmain: {'x' * 300}\n", "there is no program here"),
        ("- a\n- b\n", "a project needs a name"),
    ],
)
def test_a_project_that_cannot_be_run_says_why(tmp_path, text, said):
    with pytest.raises(ProblemsFound, match=said):
        project(tmp_path, text)


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        ("confg: {}\n", r"Pulumi\.dev\.yaml:1: confg: unknown key\n.*\n.*did you mean 'config'"),
        ("- a\n", "a stack file must be a mapping"),
        ("config: [a]\n", "config must be a mapping"),
        ("config:\n  app:size: many\n", r"Pulumi\.dev\.yaml:2: app:size: wrong type\n +given: 'many'\n +allowed: integer"),
        ("config:\n  size: 1\n  app:size: 2\n", "twice: as 'size' in line 2 and as 'app:size' in line 3\n +hint: remove one"),
        ("config:\n  app:on: yes\n", r"app:on: wrong type\n +given: 'yes'\n +allowed: boolean"),
        ("config:\n  app:all: {a: 1}\n", r"app:all: wrong type\n.*\n +allowed: array"),
        ("config:\n  [a, b]: 1\n", r"Pulumi\.dev\.yaml:2: \?: a key must be a text"),
    ],
)
def test_a_stack_file_that_cannot_be_read_says_where(tmp_path, stack, said):
    with pytest.raises(ProblemsFound, match=said):
        config(tmp_path, stack, TYPED)


def test_a_name_too_long_for_a_file_is_that_of_no_stack(tmp_path):
    for text in ("name: app\nruntime: python\n", f"name: app\nruntime: python\nstackConfigDir: {'x' * 300}\n"):
        found = project(tmp_path, text)
        with pytest.raises(ProblemsFound, match="there is no stack"):
            found.stack_file("x" * 300)
        assert found.stacks() == []


def test_stack_files_may_stand_in_a_folder_beside_the_project(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "Pulumi.dev.yaml").write_text("config: {a: 1}\n")
    found = project(tmp_path / "app", "name: app\nruntime: python\nstackConfigDir: ../files\n")
    assert found.stack_file("dev").data == {"config": {"a": 1}}


def test_a_link_inside_the_project_is_followed(tmp_path):
    (tmp_path / "kept").write_text("config: {a: 1}\n")
    (tmp_path / "Pulumi.dev.yaml").symlink_to("kept")
    assert project(tmp_path).stack_file("dev").data == {"config": {"a": 1}}


def test_aliases_and_merge_keys_that_stay_small_are_read(tmp_path):
    text = "config:\n  <<: [{a: 1, d: 0}, {a: 2, b: &b [3]}]\n  c: *b\n  d: 4\n"
    document = project(tmp_path, dev=text).stack_file("dev")
    assert document.data == {"config": {"a": 1, "b": [3], "c": [3], "d": 4}}
    assert document.line(("config", "d")) == 4
