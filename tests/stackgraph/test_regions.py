"""Resources of AWS whose provider turns to another region."""

import importlib.util
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pulumi
import pulumi_aws as aws
import pytest

from stackgraph.diff import moves
from stackgraph.testing import RecordedStack, losses, record

EAST, WEST = "us-east-1", "us-west-2"
Place = Callable[[], RecordedStack]


@cache
def stack(provider: str = "", region: str = "", own: str | None = None, default: str = EAST) -> RecordedStack:
    def program() -> None:
        there = aws.Provider(provider, region=region) if provider else None
        opts = pulumi.ResourceOptions(provider=there)
        aws.dynamodb.Table("orders", attributes=[], hash_key="key", region=own, opts=opts)
        aws.iam.Role("reader", assume_role_policy="{}", opts=opts)

    return record(program, config={"aws:region": default})


def place(provider: str = "", region: str = "", own: str | None = None, default: str = EAST) -> Place:
    """A stack that a test records: while tests are collected, each process would."""
    return partial(stack, provider, region, own, default)


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (place(default=EAST), place(default=WEST), True),
        (place("there", EAST), place("there", WEST), True),
        (place("there", EAST), place("elsewhere", WEST), True),
        (place(default=EAST), place("there", WEST), True),
        (place(own=EAST, default=WEST), place(default=WEST), True),
        (place(own=WEST, default=EAST), place(default=WEST), False),
        (place("there", EAST), place("elsewhere", EAST), False),
        (place(default=EAST), place(own=EAST), False),
        (place(own=EAST, default=EAST), place(own=EAST, default=WEST), False),
        (place("there", EAST), place("there", ""), False),
    ],
)
def test_another_region_replaces_what_has_one(before: Place, after: Place, lost: bool) -> None:
    said = ["replace aws:dynamodb/table:Table orders: region"] if lost else []
    assert [str(loss) for loss in losses(before(), after()) if loss.name == "orders" or loss.type.startswith("aws:iam")] == said


@pytest.mark.thorough
def test_what_has_no_region_is_what_the_sdk_gives_none() -> None:
    """Reads the constructors as text: to import all modules takes a minute."""
    spec = importlib.util.find_spec("pulumi_aws")
    assert spec
    assert spec.submodule_search_locations
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for file in Path(spec.submodule_search_locations[0]).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if token := re.search(r'@pulumi\.type_token\("(aws:([^/"]+)[^"]*)"\)\nclass \w+\(pulumi\.CustomResource', text):
            signature = text[text.index("def _internal_init") :].partition("):")[0]
            found[token[2]][token[1]] = "region:" in signature
    assert len(found) > 200
    known = moves._global()
    assert known["services"] == sorted(name for name, types in found.items() if not any(types.values()))
    left = (type_ for types in found.values() if any(types.values()) for type_, regional in types.items() if not regional)
    assert known["types"] == sorted(left)
