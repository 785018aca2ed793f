"""The graphs of the covering set, recorded once for all tests of a process: that takes most of a minute.

Modules that use them stand side by side in the order of their names, so that one process runs them.
"""

import json
from collections.abc import Mapping
from functools import cache

import conftest
import covering
from conftest import PROJECT, STACKS
from covering import Example
from eks_inference.kubernetes.secrets import CONFIG_SECRETS
from stackgraph.graph.document import Graph
from stackgraph.recorder.lazy_sdk import lazy_sdks
from stackgraph.recorder.recording import record

_NEEDED = ("huggingFaceToken", "alertReceiverUrl", "gatewayClientSecret", "endpointKeys")
_KEYS = {f"{PROJECT.name}:endpointKeys": '{"team-a": "a-key-of-team-a-in-a-test"}'}


@cache
def covering_graphs() -> Mapping[str, Graph]:
    """The graph of every stack of the set. With odd ones every secret is configured."""
    with lazy_sdks():
        return {one.name: recorded(one, secrets=bool(place % 2)) for place, one in enumerate(covering.covering_set())}


def shipped_and_covering_graphs() -> list[Graph]:
    """What tests and ``refresh/`` derive bounds from."""
    return [*covering_graphs().values(), *map(conftest.recorded, STACKS)]


def recorded(example: Example, *, secrets: bool) -> Graph:
    keys = [f"{PROJECT.name}:{key}" for key in (CONFIG_SECRETS if secrets else _NEEDED)]
    config = {
        "aws:region": example.region,
        "eks-inference:stack": json.dumps(example.stack),
        **dict.fromkeys(keys, "secret"),
        **_KEYS,
    }
    return record(PROJECT.main, project=PROJECT.name, stack=example.name, config=config, secret_keys=keys, root=PROJECT.root)
