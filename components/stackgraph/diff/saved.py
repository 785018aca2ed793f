"""Reads the JSON of a report that somebody else made, and trusts none of it.

What comes out has the types of ``Contents`` and is bounded in size; its texts may still say anything. Names that decide where and
as what it is shown (project, tool, link) are the caller's, never the document's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from stackgraph import strict_json
from stackgraph.diff.comparison_domain import Effect
from stackgraph.diff.contents import Contents, FactRow, FindingText, Revision, StackContents, Told, by_subject
from stackgraph.diff.document import SCHEMA
from stackgraph.diff.graphs import KINDS
from stackgraph.diff.titles import Titles
from stackgraph.graph.values import grouped, unique
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.strict_json import ANY, OrNull, Text

MOST_BYTES = 8 << 20
MOST_STACKS = 200

_LINE = Text("'- ', '+ ' or two blanks, and any text", r"[-+ ] .*")
_SOURCE = Text("FILE:LINE, or nothing", r"(.+:[0-9]{1,9})?")
_FILE = Text("a path in the repository", r"(?!\.\.?(/|$))[^/]+(/(?!\.\.?(/|$))[^/]+)*")
NAME = Text("letters, digits, '.', '_' and '-', at most 100", r"[A-Za-z0-9_.-]{1,100}")
"""The name of a project or stack, in the characters that Pulumi allows ("Understanding Stacks")."""

_REVISION = {"revision": str, "commit": str, "dirty": bool}
_PROPERTY = {"path": str, "before?": ANY, "after?": ANY}
_FINDING = {"rule": str, "severity": str, "place": str, "message": str}
_TOLD = {"section": OrNull(str), "type": str, "name": str, "lines": [_LINE], "notes": [str]}
_RESOURCE = {
    "kind": tuple(kind for kind in KINDS if kind != "same"),
    **dict.fromkeys(("urn", "type", "name"), str),
    "source": _SOURCE,
    "file": OrNull(_FILE),
    "movedFrom": OrNull(str),
    **dict.fromkeys(("counts", "replacementKnown", "dependencies", "remote"), bool),
    **{key: [str] for key in ("because", "refused", "mayReplace")},
    **{key: [_PROPERTY] for key in ("properties", "options", "ignored")},
    "told": OrNull(_TOLD),
}
_KEY = {"kind": ("create", "update", "delete"), "name": str, "source": _SOURCE, "file": _FILE, "lines": [_LINE]}
_SUMMARY = {f"{kind}?": int for kind in KINDS}
_STACK = {
    "stack": NAME,
    "status": ("both", "new", "gone", "failed"),
    "changed": bool,
    "problems": {"base": [str], "head": [str]},
    "summary": _SUMMARY,
    "opaque": int,
    "mayReplace": int,
    "steps": OrNull([str]),
    "measures": [{"title": str, "what": str}],
    "facts": [{"about": str, "before": str, "after": str}],
    "newFindings": [_FINDING],
    "curedFindings": [_FINDING],
    "rotatedConfig": [str],
    "outputs": [_PROPERTY],
    "outputLines": [_LINE],
    "keys": [_KEY],
    "resources": [_RESOURCE],
}
_DANGER = {
    **dict.fromkeys(("stack", "kind", "what", "urn", "subject", "avoid"), str),
    "effects": [get_args(Effect)],
    "seconds": int,
}
SHAPE = {
    "schema": int,
    "marker": str,
    "project": str,
    "base": _REVISION,
    "head": _REVISION,
    "headline": str,
    "changed": bool,
    "summary": _SUMMARY,
    "danger": [_DANGER],
    "failed": [str],
    "notes": [str],
    "onlyStackFiles": bool,
    "stacks": [_STACK],
}


def read_contents(written: bytes, *, shown: str, project: str, tool: str, link: str, titles: Titles) -> Contents:
    """The contents of a report's JSON. ``shown`` names the document in problems; the other texts are those of ``Contents``.

    Titles are those of the caller: a figure with another title is left out.

    Raises ``ProblemsFound`` if it is larger or deeper than a report is, has other keys or types, or is of another project.
    """
    hint = f"the document has to be that of `{tool} diff --json`, in the version that reads it"
    found = strict_json.read(written, SHAPE, limit=MOST_BYTES, shown=shown, hint=hint)
    stacks = [stack["stack"] for stack in found["stacks"]]
    problems = []
    if found["schema"] != SCHEMA:
        problems.append(
            Problem("unsupported schema", shown, key="schema", given=str(found["schema"]), allowed=str(SCHEMA), hint=hint)
        )
    if found["project"] != project:
        given, hint = strict_json.quoted(found["project"]), "the job that posts says which project it comments on"
        problems.append(Problem("is of another project", shown, key="project", given=given, allowed=project, hint=hint))
    if len(stacks) > MOST_STACKS or len(set(stacks)) < len(stacks):
        allowed = f"at most {MOST_STACKS}, none of them twice"
        problems.append(Problem("not what belongs here", shown, key="stacks", given=str(len(stacks)), allowed=allowed))
    if problems:
        raise ProblemsFound(problems)
    dangers = grouped((danger["stack"], danger) for danger in found["danger"])
    return Contents(
        project=project,
        base=_revision(found["base"]),
        head=_revision(found["head"]),
        stacks=tuple(_stack(stack, dangers.get(stack["stack"], ()), titles) for stack in found["stacks"]),
        notes=tuple(found["notes"]),
        link=link,
        tool=tool,
        titles=titles,
        only_stack_files=found["onlyStackFiles"],
    )


def _revision(found: Mapping[str, Any]) -> Revision:
    return Revision(found["revision"], found["commit"], found["dirty"])


def _stack(found: Mapping[str, Any], dangers: Sequence[Mapping[str, str]], titles: Titles) -> StackContents:
    """What is told of a stack. Its figures are counted here, so that table, headline and list say the same."""
    resources = found["resources"]
    figures = Counter(resource["kind"] for resource in resources if resource["counts"])
    return StackContents(
        found["stack"],
        side=found["status"] if found["status"] in ("new", "gone") else "",
        changed=any(resource["kind"] != "dependencies" for resource in resources)
        or any(found[key] for key in ("outputs", "outputLines", "rotatedConfig", "newFindings", "curedFindings")),
        counts={kind: figures[kind] for kind in KINDS if figures[kind]},
        problems={side: tuple(found["problems"][side]) for side in ("base", "head")},
        dangers=by_subject((danger["subject"], danger["what"]) for danger in dangers),
        avoid=unique(danger["avoid"] for danger in dangers),
        facts=tuple(FactRow(**row) for row in found["facts"]),
        new_findings=tuple(FindingText(**finding) for finding in found["newFindings"]),
        cured_findings=tuple(FindingText(**finding) for finding in found["curedFindings"]),
        rotated=tuple(found["rotatedConfig"]),
        outputs=tuple(found["outputLines"]),
        keys=tuple(
            Told("", one["kind"], None, "key", one["name"], one["source"], one["file"], tuple(one["lines"]), ())
            for one in found["keys"]
        ),
        changes=tuple(_told(resource) for resource in resources if resource["told"] and resource["kind"] != "dependencies"),
        opaque=found["opaque"],
        unsure=found["mayReplace"],
        measures={one["title"]: one["what"] for one in found["measures"] if one["title"] in titles.measures},
        steps=None if found["steps"] is None else tuple(found["steps"]),
    )


def _told(found: Mapping[str, Any]) -> Told:
    told = found["told"]
    words = (told["section"], told["type"], told["name"], found["source"], found["file"] or "")
    return Told(found["urn"], found["kind"], *words, tuple(told["lines"]), tuple(told["notes"]))
