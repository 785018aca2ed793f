"""docs/disaggregated.md: its tables are those of rules and catalog, and what it names exists."""

import re

from conftest import ROOT
from eks_inference.catalog.tables import table
from eks_inference.rules import Rule
from eks_inference.serving.prefill_decode import operation_rules, rules
from eks_inference.serving.rules import nixl
from eks_inference.stack.registry import spec_rules
from eks_inference_tools.check.registry import graph_rules
from golden import assert_golden

PAGE = ROOT / "docs" / "disaggregated.md"
MODULES = (nixl, rules, operation_rules)


def test_its_tables_are_those_of_the_rules_and_of_the_catalog() -> None:
    """``UPDATE_GOLDEN=1`` writes them."""
    judges = sorted((one for module in MODULES for one in vars(module).values() if isinstance(one, Rule)), key=lambda one: one.id)
    text = PAGE.read_text("utf-8")
    for name, head, lines in (
        (
            "rules",
            "| rule | | what has to hold | sources |\n|---|---|---|---|",
            [f"| {judge.id} | {judge.severity} | {judge.meaning} | {judge.source} |" for judge in judges],
        ),
        (
            "facts",
            "| fact | | sources | how a first run settles it |\n|---|---|---|---|",
            [
                f"| {one['says']} | {one['mark']} | {one['source']} | {one['settled_by']} |"
                for one in table("nixl.toml")["facts"].values()
            ],
        ),
    ):
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        assert "" not in (begin, end), f"the page has no place for {name}"
        text = before + begin + "\n".join([head, *lines]) + "\n" + end + after
    assert_golden("../../docs/disaggregated.md", text)


def test_the_rules_tests_metrics_and_alerts_it_names_exist() -> None:
    text = PAGE.read_text("utf-8")
    bench = "".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("test_vllm_router*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert len(named) > 10
    assert [name for name in named if f"async def {name}(" not in bench] == []
    known = {rule.id for rule in (*spec_rules(), *graph_rules())}
    assert {*re.findall(r"\b[A-Z]{2,3}\d{3}\b", text)} <= known
    names = {name for name in table("nixl.toml")["metrics"].values() if name.startswith("vllm:")}
    assert {name.removesuffix("_total") for name in re.findall(r"`(vllm:\w+)`", text)} <= names
    alerts = (ROOT / "components/eks_inference/observability/assets/rules.yaml").read_text("utf-8")
    assert all(f"alert: {name}" in alerts for name in ("KvTransfersFailing", "KvCachesExpired") if name in text)
