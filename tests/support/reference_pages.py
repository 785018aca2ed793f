"""Writes the reference pages of the documents from code and data: the command line, the stack file, metrics and alerts, IAM.

``component_pages.py`` writes those of the components; rules, bounds and refusals have tests of their own.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import yaml

from component_pages import field_row, prose, table
from conftest import ROOT, STACKS, recorded
from eks_inference.kubernetes.secrets import CONFIG_SECRETS
from eks_inference_tools.cli import EXIT_CODES, GROUPS, parser
from refresh.aws_bounds import TABLE

RULES = ROOT / "components" / "eks_inference" / "observability" / "assets" / "rules.yaml"


# -- the command line ---------------------------------------------------------------------------------------------------------


def command_line() -> str:
    (commands,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in commands._get_subactions()}
    parts = [
        "# Command line\n\n`eks-inference` has these commands. `--version` shows its version, and no command shows this list. "
        "An option that several commands have means the same in all of them."
    ]
    for title, names in GROUPS.items():
        rows = [(f"[`{name}`](#{name})", helps[name]) for name in names]
        parts.append(f"**{title[0].upper()}{title[1:]}**:\n\n{table(('command', 'what it does'), rows)}")
    parts.append(f"## Exit codes\n\n```text\n{EXIT_CODES.partition(chr(10))[2].rstrip()}\n```")
    for names in GROUPS.values():
        for name in names:
            parts += _command(name, commands.choices[name])
    return "\n\n".join(parts) + "\n"


def _command(name: str, found: argparse.ArgumentParser, level: str = "##") -> Iterator[str]:
    usage = argparse.HelpFormatter(found.prog, width=110)
    usage.add_usage(found.usage, found._actions, found._mutually_exclusive_groups, prefix="")
    examples = f"\n\n{(found.epilog or '').replace('examples:', '').strip()}".replace("\n  ", "\n") if found.epilog else ""
    yield f"{level} {name}\n\n{_text(found.description or '')}".rstrip()
    yield f"```text\n{usage.format_help().strip()}{examples}\n```"
    below = [action for action in found._actions if isinstance(action, argparse._SubParsersAction)]
    rows = [
        (f"`{', '.join(action.option_strings) or action.metavar or action.dest}`{_value(action)}", _text(_help(action)))
        for action in found._actions
        if action.dest != "help" and action.help != argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction)
    ]
    if rows:
        yield table(("option", "what"), rows)
    for action in below:
        for inner, each in action.choices.items():
            yield from _command(f"{name} {inner}", each, "###")


def _value(action: argparse.Action) -> str:
    if action.choices and not action.metavar:
        return " " + ", ".join(f"`{choice}`" for choice in action.choices)
    return f" `{action.metavar}`" if action.option_strings and action.nargs != 0 and isinstance(action.metavar, str) else ""


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {"default": action.default}


def _text(words: str) -> str:
    return words.replace("<", "&lt;")


# -- the stack file -----------------------------------------------------------------------------------------------------------

_STACK_FILE = """\
# The stack file

A stack is one YAML file, `stacks/Pulumi.NAME.yaml`. This page has every key that may stand below `eks-inference:stack`, from the
schema that editors use (`eks-inference schema`). A key without a default that is not required
[follows from others](open-keys.md), or creates nothing. `eks-inference preview STACK --format stack` prints all values."""

_SECRETS = """\
Secrets are configuration keys of their own (`pulumi config set --secret eks-inference:NAME`), never part of the stack object:"""


def stack_file() -> str:
    """Every key of a stack file, from the schema that editors use."""
    schema = json.loads((ROOT / "stacks" / "schema.json").read_text())
    stack = schema["properties"]["config"]["properties"]["eks-inference:stack"]
    seen: dict[str, Mapping[str, Any]] = {}
    waiting = list(_specs_in(stack))
    while waiting:
        name = waiting.pop(0)
        if name not in seen and "properties" in schema["$defs"][name]:
            seen[name] = schema["$defs"][name]
            waiting += _specs_in(schema["$defs"][name])
    parts = [
        _STACK_FILE,
        "```yaml\nconfig:\n  aws:region: us-west-2\n  eks-inference:stack:\n    name: mine\n"
        "    cluster: {endpoint: {public: true, public_access_cidrs: [203.0.113.7/32]}}  # your own address\n    pools:\n"
        "      gpu: {instance_types: [g6.xlarge], size: 1}\n    servers:\n      chat: {model: {id: Qwen/Qwen3-8B}}\n```",
        f"{_SECRETS} {', '.join(f'`{one}`' for one in sorted(CONFIG_SECRETS))}.",
        "## The stack object\n\n" + _keys(stack, seen),
    ]
    parts += [
        f"## {name}\n\n{prose(spec.get('description', ''))}\n\n{_keys(spec, seen)}".strip() for name, spec in sorted(seen.items())
    ]
    return "\n\n".join(parts) + "\n"


def _specs_in(place: Any) -> Iterator[str]:
    """Names of the specs that a place leads to."""
    if isinstance(place, dict):
        if "$ref" in place:
            yield place["$ref"].rpartition("/")[2]
        for value in place.values():
            yield from _specs_in(value)
    elif isinstance(place, list):
        for value in place:
            yield from _specs_in(value)


def _keys(spec: Mapping[str, Any], specs: Collection[str]) -> str:
    required = spec.get("required", ())
    rows = []
    for key, value in spec.get("properties", {}).items():
        name, type_, default, description = field_row(key, _short(value), key in required)
        refs = [fromkey for fromkey in dict.fromkeys(_specs_in(value)) if fromkey != "JsonValue"]
        rows.append((name, _linked(type_, refs, specs), default, description))
    return table(("key", "type", "default", ""), rows)


_MANY = 12
"""Values from which on a list stands elsewhere: those of the catalog."""


def _short(place: Any) -> Any:
    """The schema of a key without long lists of the catalog's values, which only editors need."""
    if isinstance(place, dict):
        if "$ref" in place:
            return {"$ref": place["$ref"].rpartition("/")[2]}
        if len(place.get("enum", ())) > _MANY:
            return {"type": "string"}
        return {key: _short(value) for key, value in place.items()}
    return [_short(one) for one in place] if isinstance(place, list) else place


def _linked(type_: str, named: Iterable[str], specs: Collection[str]) -> str:
    """A type with links to the sections of this page instead of to the pages of components; values are the catalog's."""
    shown = re.sub(r"\[(\w+)\]\(\w+\.md\)", r"`\1`", type_)
    for name in named:
        shown = shown.replace(f"`{name}`", f"[{name}]({f'#{name.lower()}' if name in specs else 'catalog.md'})")
    return shown


# -- metrics and alerts -------------------------------------------------------------------------------------------------------

_METRICS = """\
# Metrics and alerts

The metrics and alerts of a stack with `observability.prometheus`. [Alerts](alerts.md) says who hears of them. Each alert
has a case in tests/promtool."""

_EXPORTED = """\
## What exporters export

The metrics that dashboards, rules and autoscalers may ask for, as the pinned release exports them. Histograms stand without
`_bucket`, `_sum` and `_count`."""


def metrics(exported: Mapping[str, Any]) -> str:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    alerts = [
        (
            f"`{rule['alert']}`",
            rule.get("labels", {}).get("severity", ""),
            rule.get("for", ""),
            rule.get("annotations", {}).get("summary", ""),
        )
        for rule in rules
        if "alert" in rule
    ]
    records = [(f"`{rule['record']}`", f"`{' '.join(rule['expr'].split())}`") for rule in rules if "record" in rule]
    parts = [
        _METRICS,
        "## Alerts\n\n" + table(("alert", "severity", "after", "says"), [tuple(map(_text, map(str, row))) for row in alerts]),
        "## Recorded series\n\n" + table(("series", "expression"), records),
        "## Dashboards\n\n"
        + table(
            ("dashboard", "panels"),
            [
                (json.loads(file.read_text())["title"], ", ".join(_panels(json.loads(file.read_text()))))
                for file in sorted(RULES.parent.glob("*.json"))
            ],
        ),
        _EXPORTED,
    ]
    for exporter, versions in exported.items():
        for version, found in versions.items():
            title = exporter if version == "-" else f"{exporter} {version}"
            kinds = [
                (kind, ", ".join(f"`{one}`" for one in found[kind]))
                for kind in ("gauges", "counters", "histograms")
                if found.get(kind)
            ]
            parts.append(f"### {title}\n\nSource: {_text(found['source'])}.\n\n{table(('kind', 'metrics'), kinds)}")
    return "\n\n".join(parts) + "\n"


def _panels(dashboard: Mapping[str, Any]) -> Iterator[str]:
    for panel in dashboard.get("panels", ()):
        if panel.get("type") != "row" and panel.get("title"):
            yield panel["title"]
        yield from _panels(panel)


# -- IAM ----------------------------------------------------------------------------------------------------------------------

_IAM = """\
# IAM

Which rights a deployment needs, and which roles it makes, from the recorded graphs of the shipped stacks. Nobody here has an
account, so no policy was ever tried on AWS."""

_RIGHTS = """\
## Rights of the principal that deploys

The request of AWS's API that each resource becomes when it is created, by the names of the API's models. Most IAM actions are
called the same; `efs` is `elasticfilesystem` there. The provider also reads, tags, changes and deletes what it created, and hands
roles to EKS and EC2 (`iam:PassRole`), so this is the least that `pulumi up` needs, and no policy."""

_ROLES = """\
## Roles that a stack makes

Pods get their roles from Pod Identity; no static key exists. Names are without that of the stack."""


def iam() -> str:
    """Which rights a deployment needs, and which roles it makes."""
    used: dict[str, set[str]] = defaultdict(set)
    for stack in STACKS:
        for resource in recorded(stack).resources:
            if resource.type in TABLE["types"]:
                used[TABLE["types"][resource.type]["operation"].replace(".", ":", 1)].add(stack)
    requests = [(f"`{operation}`", _which(stacks)) for operation, stacks in sorted(used.items())]
    parts = (
        _IAM,
        f"{_RIGHTS}\n\n{table(('request', 'stacks'), requests)}",
        "`permissions_boundary_arn` of a stack is the boundary of every role that the stack makes.",
        f"{_ROLES}\n\n{table(('role', 'taken by', 'managed policies', 'own policies allow', 'stacks'), _role_rows())}",
    )
    return "\n\n".join(parts) + "\n"


def _role_rows() -> Iterator[tuple[str, ...]]:
    """Roles of the same name and principal of all stacks, together."""
    managed, actions, stacks = (defaultdict[tuple[str, str], set[str]](set) for _ in range(3))
    for stack in STACKS:
        graph = recorded(stack)
        for role in graph.of_type("aws:iam/role:Role"):
            trusted = {
                str(one) for statement in _statements(role.inputs["assumeRolePolicy"]) for one in _flat(statement["Principal"])
            }
            key = (role.name.replace(f"{stack}-", "", 1), ", ".join(sorted(trusted)))
            stacks[key].add(stack)
            for attached in graph.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment"):
                if role.urn in attached.property_dependencies["role"]:
                    managed[key].add(str(attached.inputs["policyArn"]).rpartition("/")[2])
            for policy in graph.of_type("aws:iam/rolePolicy:RolePolicy"):
                if role.urn in policy.property_dependencies["role"]:
                    actions[key].update(
                        one for each in _statements(policy.inputs["policy"]) for one in _flat(each.get("Action", []))
                    )
    for name, trusted in sorted(stacks):
        key = (name, trusted)
        named = (", ".join(f"`{one}`" for one in sorted(found[key])) for found in (managed, actions))
        yield (f"`{name}`", trusted, *named, _which(stacks[key]))


def _which(stacks: set[str]) -> str:
    return "all" if len(stacks) == len(STACKS) else ", ".join(sorted(stacks))


def _statements(policy: str) -> Iterator[Mapping[str, Any]]:
    yield from json.loads(policy)["Statement"]


def _flat(value: Any) -> Iterator[Any]:
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,):
        yield from one if isinstance(one, list) else (one,)
