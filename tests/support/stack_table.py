"""The table of the shipped stacks in the README, from their files, their graphs and the tests that run them."""

import re
from collections.abc import Iterator

from conftest import ROOT, STACKS, recorded
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.cost.money import in_short
from eks_inference_tools.cost.needed_quotas import needs
from eks_inference_tools.simulate.day.metrics import tools_for
from eks_inference_tools.timeline.durations import duration
from eks_inference_tools.timeline.timeline import timeline

_PROVEN = "graph, rollout"
"""Of every stack: test_engine_parity.py compares its graph with the real engine's, and cluster/test_simulate.py rolls it out on a
real control plane."""


def stack_table(pages: str) -> str:
    """The table, with links to the stacks' pages in the folder ``pages``."""
    head = ("stack", "what it runs", "list price", "quota", "first answer", "proven by")
    rows = (head, tuple("---" for _ in head), *(_row(stack, pages) for stack in STACKS))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(stack: str, pages: str) -> tuple[str, ...]:
    graph = recorded(stack)
    cost = estimated(graph)
    short = [need.cells for need in needs(graph, cost) if need.quota is None or need.amount > need.quota.default]
    ends = timeline(graph).answers
    answer = "" if not ends else f"{'≥ ' if any(end.untimed for end in ends) else ''}{duration(ends[0].p50 // 60 * 60)}"
    return (
        f"[`{stack}`]({pages}/{_page_of(stack)}.md)",
        described(stack),
        in_short(cost),
        ", ".join(f"{amount} of {quota}" for quota, amount, _ in short),
        answer,
        ", ".join((_PROVEN, *_replayed(stack))),
    )


def described(stack: str) -> str:
    """The first sentence of the comment at the top of a stack's file, without its full stop."""
    return " ".join(_comment(stack)).partition(". ")[0].rstrip(".")


def _comment(stack: str) -> list[str]:
    lines = (ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text().splitlines()
    return [line.removeprefix("#").strip() for line in lines if line.startswith("# ") and "yaml-language-server" not in line]


def _page_of(stack: str) -> str:
    """The page that the comment of a stack's file names."""
    (found,) = re.findall(r"docs/stacks/([\w-]+)\.md", " ".join(_comment(stack)))
    return found


def _replayed(stack: str) -> Iterator[str]:
    if tools_for(recorded(stack)):
        yield "autoscaler under load"
