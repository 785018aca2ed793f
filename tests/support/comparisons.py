"""Comparisons of two small graphs, as documents of ``diff --json``: honest ones, and ones with a text planted everywhere."""

import json
from typing import Any

from stackgraph.diff.contents import Revision
from stackgraph.diff.document import document
from stackgraph.diff.report import Recorded, Report, StackReport
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import Problem

COMMAND = "eks-inference"
COMMAND = "eks-inference"

BASE, HEAD = "b" * 40, "c" * 40
SOURCE = "infra/buckets.py"


def comparison(owner: str = "team-b", *, project: str = COMMAND, failed: bool = False, buckets: int = 1) -> dict[str, Any]:
    """A stack whose buckets go from ``team-a`` to another owner; with ``failed``, another stack cannot be compared."""

    def graph(whose: str) -> Graph:
        made = [
            Resource(
                f"urn:pulumi:dev::{project}::aws:s3/bucket:Bucket::b{number}",
                "aws:s3/bucket:Bucket",
                f"b{number}",
                inputs={"tags": {"owner": f"{whose}{number or ''}"}},
                source=f"{SOURCE}:7",
            )
            for number in range(buckets)
        ]
        return Graph(project, "dev", tuple(sorted(made, key=lambda resource: resource.urn)), {"owner": whose})

    before, after = (Recorded(graph(whose), findings=(), places={SOURCE: SOURCE}) for whose in ("team-a", owner))
    stacks = [StackReport("dev", before, after)]
    if failed:
        stacks.append(StackReport("prod", Recorded(problems=(Problem("it broke", file="a.py", line=3),)), None))
    return document(Report(project, Revision("HEAD^1", BASE), Revision("HEAD", HEAD), stacks, tool=COMMAND))


def planted(text: str) -> dict[str, Any]:
    """A document with the text wherever a document may have any."""
    found = comparison()
    (stack,) = found["stacks"]
    (resource,) = stack["resources"]
    finding = dict.fromkeys(("rule", "severity", "place", "message"), text)
    anywhere = {"path": text, "before": text, "after": {text: [text]}}
    lines = [f"{sign} {text}" for sign in "-+ "]
    setting = {**resource["told"], "section": None, "type": text, "name": text, "lines": lines, "notes": [text, text]}
    resource |= dict.fromkeys(("urn", "type", "name", "movedFrom"), text) | {"source": f"{text}:7", "properties": [anywhere]}
    resource |= {"because": [text], "refused": [text], "told": {**setting, "section": text}}
    stack |= {
        "problems": {"base": [text, f"a\n{text}\n{text}"], "head": []},
        "facts": [dict.fromkeys(("about", "before", "after"), text)],
        "newFindings": [finding],
        "curedFindings": [finding],
        "rotatedConfig": [text],
        "outputs": [anywhere],
        "outputLines": lines,
        "keys": [{"kind": "update", "name": text, "source": f"{text}/{text}:7", "file": "a/b.yaml", "lines": lines}],
        "resources": [resource, {**resource, "told": setting}, {**resource, "source": f"{text}/{text}:7", "kind": "delete"}],
    }
    found |= dict.fromkeys(("marker", "headline"), text) | {"failed": [text], "notes": [text]}
    found |= {side: {"revision": text, "commit": text, "dirty": True} for side in ("base", "head")}
    found["danger"] = [
        {"stack": "dev", **dict.fromkeys(("kind", "what", "urn", "subject", "avoid"), text), "effects": ["outage"], "seconds": 60}
    ]
    return json.loads(json.dumps(found))
