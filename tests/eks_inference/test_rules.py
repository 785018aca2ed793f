"""Every rule: what it passes, what it refuses, and what it says of both."""

import pkgutil
from importlib import import_module
from typing import Any

import pytest

import vectors
from eks_inference.rules import Rule
from eks_inference.stack.registry import spec_rules
from eks_inference_tools.check.registry import all_rules, graph_rules
from golden import assert_golden
from vectors import Vector

RULES: dict[str, Rule[Any]] = {rule.id: rule for rule in (*spec_rules(), *graph_rules())}
VECTORS: dict[str, Vector] = {
    id_: vector
    for module in pkgutil.iter_modules(vectors.__path__)
    for id_, vector in getattr(import_module(f"vectors.{module.name}"), "VECTORS", {}).items()
}


INTRODUCTION = """\
# Rules

What `eks-inference check` judges, first of the stack object, then of every resource it would create. `preview` refuses what
`check` refuses; `pulumi up` refuses a stack object that breaks an error. `check STACK --explain ID` shows the arithmetic of one
rule with the numbers of a stack, or why it does not apply. This list is made from the rules themselves by a test.

`check` says "can run" only when nothing was left unjudged. Otherwise it says "not refused" and lists what no rule could judge,
why, and how to have it judged: a model that the catalog does not know, a quantization of unknown size, an image of unknown
releases. With `--strict` this ends with exit code 2. In a program without a stack object, components refuse what cannot run, and
`check` judges only the resources.

A stack object silences a rule by id and with a reason, which every report then shows:

```yaml
silenced:
  NEU008: measured on our hardware, 15.1 GiB a core in use
```

A program without a stack object does the same, for the rules about resources, with the configuration key
`eks-inference:silenced`.

[Bounds of AWS resources](bounds-aws.md) and [of Kubernetes objects](bounds-kubernetes.md) list every property that a stack file
reaches, what the API takes, and which of these rules judges it.

| id | severity | meaning | what to do | source |
|---|---|---|---|---|"""


def test_every_rule_has_a_passing_and_a_failing_vector_and_every_vector_a_rule():
    assert sorted(VECTORS) == sorted(RULES)


@pytest.mark.parametrize("id_", sorted(RULES))
def test_a_rule_passes_what_is_right(id_: str):
    judgements = judged(RULES[id_], VECTORS[id_].passes())
    assert judgements, "the passing vector is outside of what the rule looks at"
    assert [judgement.message for judgement in judgements if not judgement.holds] == []


@pytest.mark.parametrize("id_", sorted(RULES))
def test_a_rule_refuses_what_is_wrong_and_says_why(id_: str):
    broken = [judgement for judgement in judged(RULES[id_], VECTORS[id_].fails()) if not judgement.holds]
    assert broken
    assert any(VECTORS[id_].says in judgement.message for judgement in broken), [judgement.message for judgement in broken]


@pytest.mark.thorough
@pytest.mark.parametrize("id_", sorted(RULES))
def test_a_rule_shows_its_numbers_and_says_what_it_is_for(id_: str):
    rule = RULES[id_]
    for judgement in (*judged(rule, VECTORS[id_].passes()), *judged(rule, VECTORS[id_].fails())):
        assert judgement.working, "--explain would have nothing to show"
        assert all(line.strip() and "\n" not in line for line in judgement.working)
        assert judgement.path or judgement.resource, "a finding needs a place"
    assert rule.meaning.endswith(".")
    assert rule.fix
    assert rule.source


def test_the_documents_list_every_rule():
    rows = [f"| {rule.id} | {rule.severity} | {rule.meaning} | {rule.fix} | {rule.source} |" for rule in all_rules().values()]
    assert_golden("../../docs/rules.md", "\n".join([INTRODUCTION, *rows]))


def judged(rule: Rule[Any], subject: Any) -> list[Any]:
    assert isinstance(subject, rule.subject), f"{rule.id} judges {rule.subject.__name__}"
    return list(rule.judge(subject))
