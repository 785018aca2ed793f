"""Reads a Pulumi project as the CLI does: ``Pulumi.yaml``, the stack's file, and the configuration that a program gets.

Never decrypts. ``secure:`` values, and values of keys declared ``secret: true``, become placeholders.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from stackgraph.graph.values import mapped
from stackgraph.problems import Problem, ProblemsFound, real
from stackgraph.recorder.yaml_file import Document, read_document, shown_path

# The keys of a stack file (pulumi/sdk/go/common/workspace/project.go, ProjectStack).
_STACK_FILE_KEYS = ("config", "encryptedkey", "encryptionsalt", "environment", "secretsprovider")

PROJECT_FILES = ("Pulumi.yaml", "Pulumi.yml")

DEFAULT_STACK = "dev"
"""The stack that is meant where no stack has a file and none is named: what ``pulumi new`` proposes."""

_STACK_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_STACK_FILE = re.compile(r"Pulumi\.(.+)\.ya?ml")

# Go escapes JSON for HTML, and the CLI passes structured values on in that form.
_GO_ESCAPES = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})


@dataclass(frozen=True)
class StackConfig:
    """The configuration of one stack: texts by full key, as a program gets them, and which keys are secret."""

    values: Mapping[str, str]
    secret_keys: frozenset[str]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Project:
    """A folder with a ``Pulumi.yaml``. ``main`` is the program's folder or file, ``declared`` the declarations by full key."""

    root: Path
    file: Document
    name: str
    main: Path
    stack_dir: Path
    declared: Mapping[str, Mapping[str, Any]]

    def stacks(self) -> list[str]:
        """The names of all stacks with a file."""
        # Unlike Path.is_dir, os.path answers for names that are too long, too.
        if not os.path.isdir(self.stack_dir):
            return []
        files = [*self.stack_dir.glob("Pulumi.*.yaml"), *self.stack_dir.glob("Pulumi.*.yml")]
        return sorted(file.name.split(".", 1)[1].rpartition(".")[0] for file in files)

    def stack_named(self, given: str) -> str:
        """The stack that a name or the path of its file means. Raises ``ProblemsFound`` for a file of another project."""
        path = Path(given)
        found = _STACK_FILE.fullmatch(path.name)
        if not found:
            return given
        if real(path.parent) != real(self.stack_dir):
            allowed = f"a name, or a file in {shown_path(self.stack_dir, self.root)}"
            hint = "--program names another project"
            raise ProblemsFound([Problem("this is not a stack file of the project", given=given, allowed=allowed, hint=hint)])
        return found[1]

    def stack_file(self, stack: str, told: Collection[str] = ()) -> Document:
        """The file of a stack; empty if there is none, as for the CLI. ``told`` are keys whose values are given otherwise.

        Raises ``ProblemsFound`` for what is no name, and in a project with stack files for a name that must be wrong: it is like
        one of theirs, or the project requires configuration.
        """
        for suffix in ("yaml", "yml"):
            path = self.stack_dir / f"Pulumi.{stack}.{suffix}"
            if os.path.lexists(path):
                return read_document(path, self.root)
        stacks = self.stacks()
        path = self.stack_dir / f"Pulumi.{stack}.yaml"
        hint = _did_you_mean(stack, stacks, cutoff=0.6)
        known = {full_key(key, self.name) for key in told}
        required = any(item.get("value", item.get("default")) is None for key, item in self.declared.items() if key not in known)
        if _STACK_NAME.fullmatch(stack) and not (hint or (stacks and required)):
            return Document(path, shown_path(path, self.root), None, {})
        allowed = ", ".join(stacks) or "letters, digits, '-', '_' and '.', at most 100"
        raise ProblemsFound(
            [Problem(f"there is no stack '{stack}'", file=shown_path(path, self.root), allowed=allowed, hint=hint)]
        )

    def config(
        self, document: Document, optional_secrets: Collection[str] = (), told: Mapping[str, Any] | None = None
    ) -> StackConfig:
        """The configuration in a stack file, with defaults of ``Pulumi.yaml``. Raises ``ProblemsFound`` with all problems.

        ``told`` are values that go before the file's, in plain also those of secrets: by key, or for the project's own by name.

        ``optional_secrets`` are full keys that the program reads if they are set. They cannot be declared in ``Pulumi.yaml``,
        because the CLI requires every declared key without a default. If any are given, all other undeclared keys of the project
        are problems, since the program would silently ignore a misspelt key.
        """
        data = document.data if document.data is not None else {}
        if not isinstance(data, dict):
            raise ProblemsFound([document.problem("a stack file must be a mapping", given=_given(data), allowed="config: {...}")])
        problems = [_unknown_key(document, (key,), str(key), _STACK_FILE_KEYS) for key in data if key not in _STACK_FILE_KEYS]
        given = data.get("config") or {}
        if not isinstance(given, dict):
            problems.append(document.problem("config must be a mapping", "config", given=_given(given)))
            given = {}
        first = {full_key(str(key), self.name): value for key, value in (told or {}).items()}
        sealed = {full_key(str(key), self.name) for key in given if any(encrypted(given, key))}
        sealed |= {*optional_secrets} | {key for key, declaration in self.declared.items() if declaration.get("secret")}
        given = {key: value for key, value in given.items() if full_key(str(key), self.name) not in first} | first
        known = [*self.declared, *optional_secrets]
        values: dict[str, str] = {}
        secret_keys: set[str] = set()
        places: dict[str, Any] = {}
        for key, value in given.items():
            full = full_key(str(key), self.name)
            if full in places:
                first, second = (f"'{one}' in line {document.line(('config', one))}" for one in (places[full], key))
                message = f"this key stands here twice: as {first} and as {second}"
                problems.append(document.problem(message, "config", key, key=full, hint="remove one of them"))
            places[full] = key
            declaration = self.declared.get(full, {})
            placeholder = f"<secret {full}>"
            value = without_secrets(value, placeholder)
            message, details = "", {}
            if any(encrypted(given, key)) or (full in first and full in sealed):
                secret_keys.add(full)
            elif full in sealed:
                message = "a secret must be encrypted"
                details = {"given": "plain text", "hint": f"remove the line, then: pulumi config set --secret {full}"}
            elif (expected := declaration.get("type")) and not _has_type(value, expected):
                message, details = "wrong type", {"given": _given(value), "allowed": str(expected)}
            if message:
                problems.append(document.problem(message, "config", key, key=full, **details))
            if optional_secrets and full.startswith(f"{self.name}:") and full not in known:
                problems.append(_unknown_key(document, ("config", key), full, known))
            values[full] = _text(value)
        for full, declaration in self.declared.items():
            default = declaration.get("value", declaration.get("default"))
            if full not in values and default is not None:
                values[full] = _text(default)
            elif full not in values and full.startswith(f"{self.name}:"):
                allowed, hint = str(declaration.get("type", "string")), declaration.get("description")
                message = "this key is required and missing"
                problems.append(
                    document.problem(message, "config", key=full, allowed=allowed, hint=str(hint or f"-c {full}=VALUE gives it"))
                )
        if problems:
            raise ProblemsFound(problems)
        warnings = []
        if data.get("environment"):
            warnings.append("`environment:` imports of Pulumi ESC cannot be read offline; their values are missing here")
        if document.data is None and self.stacks() and not document.path.is_file():
            warnings.append(f"there is no {document.shown}: the stack has no configuration of its own")
        return StackConfig(values, frozenset(secret_keys), tuple(warnings))


def find_project(start: Path) -> Project:
    """The project of a folder: the nearest ``Pulumi.yaml`` there or above."""
    start = real(start)
    for folder in (start, *start.parents):
        for name in PROJECT_FILES:
            if (folder / name).is_file():
                return _read_project(folder / name)
    hint = "run this in a Pulumi project, or name one: --program DIR"
    raise ProblemsFound([Problem("no Pulumi.yaml in this folder or above it", file=str(start), hint=hint)])


def _read_project(path: Path) -> Project:
    root = path.parent
    document = read_document(path, root)
    problems = []
    data = document.data if isinstance(document.data, dict) else {}
    name = data.get("name")
    if not isinstance(name, str) or not name:
        problems.append(document.problem("a project needs a name", "name", given=_given(name), allowed="a text"))
    runtime = data.get("runtime")
    language = runtime.get("name") if isinstance(runtime, dict) else runtime
    if language != "python":
        message = "only Python programs can be recorded"
        problems.append(document.problem(message, "runtime", given=_given(language), allowed="python"))
    main = root / str(data.get("main") or ".")
    if os.path.isdir(main) and not os.path.isfile(main / "__main__.py"):
        problems.append(Problem("the program folder has no __main__.py", file=shown_path(main, root)))
    elif not os.path.exists(main):
        problems.append(document.problem("there is no program here", "main", given=main.name))
    if problems:
        raise ProblemsFound(problems)
    # Before Pulumi 3.42, `config` was the folder of the stack files.
    config: Any = data.get("config") or {}
    declared: dict[str, Any] = config if isinstance(config, dict) else {}
    return Project(
        root=root,
        file=document,
        name=str(name),
        main=main,
        stack_dir=root / str(data.get("stackConfigDir") or (config if isinstance(config, str) else "") or "."),
        # `key: text` is short for a default. `aws:region: {value: …}` sets a key of another project.
        declared={
            full_key(key, str(name)): item if isinstance(item, dict) else {"default": item} for key, item in declared.items()
        },
    )


def full_key(key: str, project: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _unknown_key(document: Document, path: tuple[str | int, ...], key: str, allowed: Iterable[str]) -> Problem:
    hint = _did_you_mean(key, allowed)
    return document.problem("unknown key", *path, key=key, allowed=", ".join(sorted(allowed)), hint=hint)


def _did_you_mean(given: str, allowed: Iterable[str], cutoff: float = 0.4) -> str:
    nearest = get_close_matches(given, list(allowed), n=1, cutoff=cutoff)
    return f"did you mean '{nearest[0]}'?" if nearest else ""


def _has_type(value: Any, expected: Any) -> bool:
    # Like the CLI, accept the strings "true" and "3" as a boolean and an integer.
    if expected == "object":
        return isinstance(value, dict)
    if expected == "array":
        return isinstance(value, list)
    if expected == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    if expected == "integer":
        digits = isinstance(value, str) and value.lstrip("-").isdigit()
        return digits or (isinstance(value, int) and not isinstance(value, bool))
    return isinstance(value, str | int | float | bool)


def encrypted(value: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """The path of each ``{secure: …}`` of a value, at a path or below it."""
    for step in path:
        value = value[step]
    if isinstance(value, dict) and set(value) == {"secure"}:
        yield path
    elif isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((*path, step, *found) for found in encrypted(item))


def without_secrets(value: Any, placeholder: str) -> Any:
    """The value with a placeholder for each ``{secure: …}``."""
    if isinstance(value, dict):
        return (
            placeholder if set(value) == {"secure"} else {key: without_secrets(item, placeholder) for key, item in value.items()}
        )
    return [without_secrets(item, placeholder) for item in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    """A configuration value as the CLI passes it to a program."""
    # Go prints the number 1e3 as 1000, Python as 1000.0.
    value = mapped(value, lambda leaf: int(leaf) if isinstance(leaf, float) and leaf.is_integer() else leaf)
    if isinstance(value, dict | list):
        shown = json.dumps(value, default=str, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        return shown.translate(_GO_ESCAPES)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _given(value: Any) -> str:
    text = "nothing" if value is None else f"{type(value).__name__} {value!r}" if not isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
