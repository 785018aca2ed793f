"""The reader of YAML: what it takes it reads as the CLI does, and everything else is refused, whatever the text."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, STACKS
from mutations import cases
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.recorder import bounded_yaml, yaml_file
from stackgraph.recorder.bounded_yaml import RefusedText, compose
from stackgraph.recorder.yaml_file import read_document

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(SCALARS, lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part, max_size=3), max_leaves=9)


@given(VALUES)
def test_what_a_dumper_writes_is_read_back(value):
    # In quotes: a text that PyYAML leaves without them is another one in YAML 1.1 than for the CLI.
    assert compose(yaml.safe_dump(value, default_style='"', allow_unicode=True)).plain() == value


NUMBER_LIKE = st.sampled_from(["0o17", "1e3", "1_0", "0x1f", "+.5", ".inf", "~", "yes", "null", "é\u2028x", "a\nb: [", "1:30"])
TEXT_VALUES = st.recursive(
    TEXTS | NUMBER_LIKE, lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part, max_size=3)
)


@given(VALUES | TEXT_VALUES)
def test_what_we_write_is_read_back(value):
    assert compose(yaml_file.block([value])).plain() == [value]
    assert compose(f"[{yaml_file.flow(value)}]").plain() == [value]
    assert "\n" not in yaml_file.flow(value)


@pytest.mark.parametrize("stack", STACKS)
def test_a_shipped_file_is_read_as_pyyaml_reads_it(stack):
    file = ROOT / "stacks" / f"Pulumi.{stack}.yaml"
    document = read_document(file, ROOT)
    assert document.data == yaml.safe_load(file.read_text())
    lines = file.read_text().splitlines()
    for path, line in document.lines.items():
        if path and isinstance(path[-1], str):
            assert path[-1] in lines[line - 1], path


@pytest.mark.parametrize("stack", STACKS)
def test_a_damaged_file_is_read_or_refused_with_its_name(stack, tmp_path: Path):
    chance = random.Random(stack)
    text = (ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text()
    for _ in range(cases(200) // len(STACKS)):
        start = chance.randrange(len(text))
        put = "".join(chance.choices("[]{}:,&*!|>-?#%@`'\"\\\n\t 0ax<~.\x00\ud800é", k=chance.randrange(4)))
        damaged = text[:start] + put + text[start + chance.randrange(30) :]
        (tmp_path / "Pulumi.dev.yaml").write_bytes(damaged.encode("utf-8", "surrogatepass"))
        assert all(problem.file and problem.message for problem in problems(tmp_path / "Pulumi.dev.yaml")), damaged


def problems(file: Path) -> Sequence[Problem]:
    try:
        read_document(file, file.parent)
    except ProblemsFound as error:
        return error.problems
    return ()


def test_all_mistakes_come_at_once_with_line_and_path():
    with pytest.raises(RefusedText) as refused:
        compose("a: !!bool zz\nb:\n- 1: x\n  c: .nan\n- *d\na: 1\n")
    found = [(mistake.line, mistake.path) for mistake in refused.value.mistakes]
    assert found == [(1, ("a",)), (3, ("b", 0, "1")), (4, ("b", 0, "c")), (5, ("b", 1)), (6, ("a",))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n---\nb: 1\n", (2, (), "a second document begins here")),
        ("a: !!set {b}\n", (1, ("a",), "unknown tag")),
        ("a: !mine 1\n", (1, ("a",), "unknown tag")),
        ("<<: {a: 1}\n<<: {b: 1}\n", (2, ("<<",), "this key is given twice")),
        ("a:\n  <<: [1]\n", (2, ("a", "<<"), "a merge key takes a mapping or a list of them")),
        ("!!int x: 1\n", (1, ("x",), "this is no !!int")),
    ],
)
def test_what_the_cli_refuses_is_refused(text: str, said: tuple[int, tuple[str, ...], str]):
    with pytest.raises(RefusedText) as refused:
        compose(text)
    assert [(mistake.line, mistake.path, mistake.message) for mistake in refused.value.mistakes] == [said]


@pytest.mark.parametrize(
    ("fits", "text"),
    [
        (lambda n: "[" * n + "]" * n, "MOST_DEPTH"),
        (lambda n: f"[{'0,' * (n - 1)}]", "MOST_VALUES"),
        (lambda n: "x" * n, "LONGEST_TEXT"),
        (lambda n: "1" * n, "LONGEST_NUMBER"),
        (lambda n: f"? {'k' * n}\n: v", "LONGEST_KEY"),
        (lambda n: f"[&a {'x' * 2**14}, {', '.join(['*a'] * (n // 2**14 - 1))}]", "MOST_BYTES"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_bound_is_the_most_that_is_taken(fits, text):
    most = getattr(bounded_yaml, text)
    compose(fits(most))
    with pytest.raises(RefusedText):
        compose(fits(most + 2**14 if text == "MOST_BYTES" else most + 2))
