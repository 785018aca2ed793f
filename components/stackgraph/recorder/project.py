"""A Pulumi project as the CLI would read it: ``Pulumi.yaml``, the stack's file, and the configuration texts a program gets.

Knows where every key stands, so that whoever judges a value can point at its line. Never decrypts: ``secure:`` values, and values
of keys declared ``secret: true``, become placeholders.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

import yaml

from stackgraph.problems import Problem, ProblemsFound


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as the CLI's Go library reads it: ``on`` and ``8000:80`` are texts there, dates too, where PyYAML follows YAML 1.1."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


_DIGITS = list("-+0123456789")
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9_]*|0o?[0-7_]+|0x[0-9a-fA-F_]+)", _DIGITS),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", [*_DIGITS, "."]),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_pattern})$"), _first)

# What a stack file may hold (pulumi/sdk/go/common/workspace/project.go, ProjectStack).
_STACK_FILE_KEYS = ("config", "encryptedkey", "encryptionsalt", "environment", "secretsprovider")

# Go writes JSON that is safe in HTML; the CLI hands structured values over in that form.
_GO_ESCAPES = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})

Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A YAML file with the line of every key."""

    path: Path
    shown: str
    data: Any
    lines: Mapping[Path_, int]

    def line(self, path: Sequence[str | int]) -> int:
        """The line of a key, or of the nearest key above it that the file has."""
        parts = tuple(path)
        while parts and parts not in self.lines:
            parts = parts[:-1]
        return self.lines.get(parts, 1)


@dataclass(frozen=True)
class StackConfig:
    """The configuration of one stack: texts by full key, as a program gets them, and which keys are secret."""

    values: Mapping[str, str]
    secret_keys: frozenset[str]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Project:
    """A folder with a ``Pulumi.yaml``."""

    root: Path
    file: Document
    name: str
    main: Path
    stack_dir: Path
    declared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def stacks(self) -> list[str]:
        """Names of the stacks that have a file."""
        files = [*self.stack_dir.glob("Pulumi.*.yaml"), *self.stack_dir.glob("Pulumi.*.yml")]
        return sorted(file.name.split(".", 1)[1].rpartition(".")[0] for file in files)

    def stack_file(self, stack: str) -> Document:
        """The file of a stack; raises ``ProblemsFound`` naming the nearest stacks when it has none."""
        for suffix in ("yaml", "yml"):
            path = self.stack_dir / f"Pulumi.{stack}.{suffix}"
            if path.is_file():
                return read_document(path, self.root)
        stacks = self.stacks()
        nearest = get_close_matches(stack, stacks, n=1, cutoff=0.4)
        expected = _shown(self.stack_dir / f"Pulumi.{stack}.yaml", self.root)
        raise ProblemsFound(
            [
                Problem(
                    f"there is no stack '{stack}'",
                    file=expected,
                    allowed=", ".join(stacks) or f"no stack files in {_shown(self.stack_dir, self.root)} yet",
                    hint=f"did you mean '{nearest[0]}'?" if nearest else "",
                )
            ]
        )

    def config(self, document: Document, optional_secrets: Collection[str] = ()) -> StackConfig:
        """The configuration of a stack file, with defaults of ``Pulumi.yaml``; raises ``ProblemsFound`` with all faults.

        ``optional_secrets`` are full keys the program reads when they are there: the CLI takes every key that ``Pulumi.yaml``
        declares without a default for required, so an optional secret cannot be declared. When they are named, any other
        undeclared key of the project is a fault: a misspelt key would be ignored in silence.
        """
        return _read_config(self, document, optional_secrets)


def find_project(start: Path) -> Project:
    """The project of a folder: the nearest ``Pulumi.yaml`` there or above."""
    start = start.resolve()
    for folder in (start, *start.parents):
        for name in ("Pulumi.yaml", "Pulumi.yml"):
            if (folder / name).is_file():
                return read_project(folder / name)
    raise ProblemsFound(
        [Problem("no Pulumi.yaml in this folder or above it", file=start.name, hint="run this in a Pulumi project, or name one")]
    )


def read_project(path: Path) -> Project:
    root = path.parent
    document = read_document(path, root)
    problems = []
    data = document.data if isinstance(document.data, dict) else {}
    name = data.get("name")
    if not isinstance(name, str) or not name:
        problems.append(Problem("a project needs a name", file=document.shown, key="name", given=_given(name), allowed="a text"))
    runtime = data.get("runtime")
    language = runtime.get("name") if isinstance(runtime, dict) else runtime
    if language != "python":
        problems.append(
            Problem(
                "only Python programs can be recorded",
                file=document.shown,
                line=document.line(("runtime",)),
                key="runtime",
                given=_given(language),
                allowed="python",
            )
        )
    # `config` was the folder of the stack files once (Pulumi < 3.42).
    config: Any = data.get("config") or {}
    old_config_dir = config if isinstance(config, str) else ""
    declared: dict[str, Any] = config if isinstance(config, dict) else {}
    main = root / str(data.get("main") or ".")
    if not main.is_dir() and not main.is_file():
        problems.append(
            Problem(
                "there is no program here", file=document.shown, line=document.line(("main",)), key="main", given=str(main.name)
            )
        )
    elif main.is_dir() and not (main / "__main__.py").is_file():
        problems.append(Problem("the program folder has no __main__.py", file=_shown(main, root)))
    if problems:
        raise ProblemsFound(problems)
    return Project(
        root=root,
        file=document,
        name=str(name),
        main=main,
        stack_dir=root / str(data.get("stackConfigDir") or old_config_dir or "."),
        declared={_full_key(key, str(name)): _declaration(item) for key, item in declared.items()},
    )


def read_document(path: Path, root: Path) -> Document:
    shown = _shown(path, root)
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        raise ProblemsFound([Problem(f"not a UTF-8 text: {error.reason}", file=shown)]) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        raise ProblemsFound([Problem(f"not valid YAML: {error.problem or error.context}", file=shown, line=line)]) from error
    except yaml.YAMLError as error:
        raise ProblemsFound([Problem(f"not valid YAML: {str(error).splitlines()[0]}", file=shown)]) from error
    lines: dict[Path_, int] = {}
    twice: list[Problem] = []
    if node is not None:
        _collect_lines(node, (), lines, twice, shown)
    if twice:
        raise ProblemsFound(twice)
    try:
        data = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        # What the syntax admits but no value comes of, such as a list as a key.
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        reason = getattr(error, "problem", None) or str(error)
        raise ProblemsFound([Problem(f"not a value this file can hold: {reason}", file=shown, line=line)]) from error
    return Document(path, shown, data, lines)


def _collect_lines(node: Any, path: Path_, lines: dict[Path_, int], twice: list[Problem], shown: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            key = (*path, str(key_node.value))
            if key in lines and key != path:
                twice.append(
                    Problem(
                        f"this key is given twice, first on line {lines[key]}",
                        file=shown,
                        line=key_node.start_mark.line + 1,
                        key=str(key_node.value),
                    )
                )
                continue
            lines[key] = key_node.start_mark.line + 1
            _collect_lines(value_node, key, lines, twice, shown)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect_lines(item, (*path, index), lines, twice, shown)


def _declaration(item: Any) -> Mapping[str, Any]:
    # `key: text` is short for a default; `aws:region: {value: …}` sets another project's key.
    return item if isinstance(item, dict) else {"default": item}


def _full_key(key: str, project: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _read_config(project: Project, document: Document, optional_secrets: Collection[str]) -> StackConfig:
    problems: list[Problem] = []
    data = document.data if document.data is not None else {}
    if not isinstance(data, dict):
        problem = Problem("a stack file is a map", file=document.shown, given=_given(data), allowed="config: {...}")
        raise ProblemsFound([problem])
    for key in data:
        if key not in _STACK_FILE_KEYS:
            problems.append(_unknown_key(document, (key,), str(key), _STACK_FILE_KEYS))
    given = data.get("config") or {}
    if not isinstance(given, dict):
        line = document.line(("config",))
        problems.append(Problem("config is a map of keys", file=document.shown, line=line, key="config", given=_given(given)))
        given = {}

    values: dict[str, str] = {}
    secret: set[str] = set()
    for key, value in given.items():
        full = _full_key(str(key), project.name)
        declaration = project.declared.get(full, {})
        place = Problem("", file=document.shown, line=document.line(("config", key)), key=full)
        if _holds_secure(value):
            secret.add(full)
            value = _without_secrets(value, full)
        elif declaration.get("secret") or full in optional_secrets:
            problems.append(
                replace(
                    place,
                    message="a secret must be encrypted",
                    given="a text in plain sight",
                    hint=f"remove the line, then: pulumi config set --secret {full}",
                )
            )
        elif (expected := declaration.get("type")) and not _has_type(value, expected):
            problems.append(replace(place, message="wrong type", given=_given(value), allowed=str(expected)))
        if optional_secrets and full.startswith(f"{project.name}:") and full not in {*project.declared, *optional_secrets}:
            problems.append(_unknown_key(document, ("config", key), full, [*project.declared, *optional_secrets]))
        values[full] = _text(value)
    for full, declaration in project.declared.items():
        if full in values:
            continue
        default = declaration.get("value", declaration.get("default"))
        if default is not None:
            values[full] = _text(default)
        elif full.startswith(f"{project.name}:"):
            problems.append(
                Problem(
                    "this key is required and missing",
                    file=document.shown,
                    line=document.line(("config",)),
                    key=full,
                    allowed=str(declaration.get("type", "string")),
                    hint=str(declaration.get("description", "")),
                )
            )
    if problems:
        raise ProblemsFound(problems)
    warnings = []
    if data.get("environment"):
        warnings.append("`environment:` imports of Pulumi ESC cannot be read offline; their values are missing here")
    return StackConfig(values, frozenset(secret), tuple(warnings))


def _unknown_key(document: Document, path: Path_, key: str, allowed: Sequence[str]) -> Problem:
    nearest = get_close_matches(key, allowed, n=1, cutoff=0.4)
    return Problem(
        "unknown key",
        file=document.shown,
        line=document.line(path),
        key=key,
        allowed=", ".join(sorted(allowed)),
        hint=f"did you mean '{nearest[0]}'?" if nearest else "",
    )


def _has_type(value: Any, expected: str) -> bool:
    # A secret or an ESC reference may be any type; the CLI, too, takes the texts "true" and "3" for booleans and integers.
    if expected == "object":
        return isinstance(value, dict)
    if expected == "array":
        return isinstance(value, list)
    if expected == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    if expected == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, str) and value.lstrip("-").isdigit()
        )
    return isinstance(value, str | int | float | bool)


def _holds_secure(value: Any) -> bool:
    return any(True for _ in _secure_values(value))


def _secure_values(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if set(value) == {"secure"}:
            yield value
        for item in value.values():
            yield from _secure_values(item)
    elif isinstance(value, list):
        for item in value:
            yield from _secure_values(item)


def _without_secrets(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        if set(value) == {"secure"}:
            return f"<secret {key}>"
        return {name: _without_secrets(item, key) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item, key) for item in value]
    return value


def _text(value: Any) -> str:
    """A configuration value as the CLI hands it to a program."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return json.dumps(_whole(value), default=str, separators=(",", ":"), sort_keys=True, ensure_ascii=False).translate(
            _GO_ESCAPES
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(_whole(value))


def _whole(value: Any) -> Any:
    """Go writes the number 1e3 as 1000, where Python says 1000.0."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _given(value: Any) -> str:
    text = "nothing" if value is None else f"{type(value).__name__} {value!r}" if not isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name
