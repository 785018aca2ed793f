"""Every rule: what it passes, what it refuses, and what it says of both."""

import pkgutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

import vectors
from eks_inference.rules import Rule
from eks_inference.stack.registry import spec_rules
from eks_inference_tools.check.registry import all_rules, graph_rules
from golden import assert_golden
from vectors import Vector, disaggregated, network, neuron, nixl, pools, serving, stack, traffic

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


def on_placement(group: Any, placement: Any) -> Any:
    return replace(group, **{role.role: replace(role, server=replace(role.server, placement=placement)) for role in group.roles})


KEPT = {"kind": "karpenter", "instance_types": ["m5.2xlarge"], "replicas": 2}
LENGTHLESS = replace(neuron.requests(3000), server=serving.server(max_model_len=0))
GROWING = replace(nixl.servers(rollout="second_group").prefill.placement, max_nodes=None)
OF_OTHERS: dict[str, list[Callable[[], Any]]] = {
    "LT001": [lambda: LENGTHLESS],
    "LT002": [lambda: neuron.load_test(sampling={"stop": ["x"], "top_k": None})],
    "NET002": [lambda: replace(network.network(pods=70_000), zone_ids=())],
    "DRA002": [lambda: pools.claimed("1.35", ami={"kind": "release", "release_version": "1.34.1-20251112"})],
    "POO013": [lambda: pools.managed(capacity_reservation_id="cr-0123456789abcdef0", zone_ids=["use2-az2"])],
    "EFA003": [lambda: pools.managed(efa={"interfaces": 17, "layout": "all_efa"})],
    "DI011": [lambda: disaggregated.pair(image="registry.example/pair@sha256:" + "0" * 64)],
    "DI014": [lambda: disaggregated.pair(compile={"enable_bucketing": False})],
    "CAP002": [lambda: stack.stack(devices=0)],
    "POO008": [lambda: stack.spec(core_pool="k", pools={"k": KEPT, "gpu": stack.NODE}, observability={"prometheus": {}})],
    "DI034": [lambda: nixl.different(block_size="x"), lambda: nixl.different(block_size=0)],
    "DI044": [lambda: on_placement(nixl.servers(rollout="second_group"), GROWING)],
    "NEU025": [lambda: serving.server(memory_mib=0)],
    "TRF001": [lambda: traffic.traffic(rate=1000, input_tokens=2000)],
}
"""Subjects that break a rule, were it not that another one tells of them, or that nobody knows the number."""


@pytest.mark.parametrize(("id_", "subject"), [(id_, subject) for id_, subjects in OF_OTHERS.items() for subject in subjects])
def test_what_another_rule_tells_is_not_told_twice(id_: str, subject: Callable[[], Any]):
    assert judged(RULES[id_], subject()) == []


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
