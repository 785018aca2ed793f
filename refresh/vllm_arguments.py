"""Flags of a release of vLLM, from its own parser: FROM is the folder of an unpacked wheel. Other releases stay as they are.

``pip download --no-deps vllm==VERSION``, then ``unzip``. What vLLM requires need not be installed. ``keys``, for Triton, are not
derived.
"""

import argparse
import inspect
import json
import os
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, get_args
from unittest import mock

from eks_inference.catalog.tables import PROVENANCE, version_numbers
from eks_inference.catalog.vllm_arguments import BY_FLAG, Takes, left, whole_rows
from refresh import ROOT
from refresh._stand_ins import stand_ins
from refresh.engine.asking import PARSERS, moved

FILE = ROOT / "components" / "eks_inference" / "catalog" / "vllm_arguments.toml"

_WIDTH = 125
_TYPES = {
    "human_readable_int": "size",
    "human_readable_int_or_auto": "size_or_auto",
    "parse_dataclass": "object",
    "parse_reasoning_parser": "text",
    "str": "text",
    "union_dict_and_str": "object_or_text",
}
"""Functions of vLLM, and types of Python, that an option's text goes through."""


def table(folder: str) -> str:
    (info,) = Path(folder).glob("vllm-*.dist-info")
    release = info.name.removesuffix(".dist-info").partition("-")[2]
    # vllm.ir registers kernels with PyTorch. With this variable, no import looks for a device; ``derived`` says which it is.
    with mock.patch.dict(os.environ, VLLM_TARGET_DEVICE="cpu"), stand_ins(folder, "vllm", without="vllm.ir"):
        return with_release(FILE.read_text("utf-8"), release, derived(release))


def with_release(text: str, release: str, row: Mapping[str, Any]) -> str:
    """Returns the file's text with a release. Of those that take flags, each has what differs from the one before it."""
    rows = whole_rows(tomllib.loads(text)["releases"]) | {release: row}
    before = ""
    for name in sorted((row for row in rows if "flags" in rows[row]), key=version_numbers):
        found = {"like": before, **differing(rows[name], rows[before])} if before else rows[name]
        text, before = placed(text, name, rendered(name, found)), name
    return text


def differing(row: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """What one release has otherwise than another. What it has no more is ``gone``, or empty."""
    kinds, before = (left(one["flags"], {}) for one in (row, like))
    gone = sorted(before.keys() - kinds)
    found: dict[str, Any] = {name: row[name] for name in PROVENANCE}
    found |= {name: value for name, value in row.items() if not isinstance(value, dict) and value != like.get(name)}
    if gone:
        found["gone"] = gone
    new = {kind: [name for name in names if before.get(name) != kind] for kind, names in row["flags"].items()}
    found["flags"] = {kind: names for kind, names in new.items() if names}
    for part in BY_FLAG:
        now, kept = row.get(part, {}), {name: value for name, value in like.get(part, {}).items() if name not in gone}
        none = {name: type(value)() for name, value in kept.items() if name not in now}
        found[part] = dict(sorted({**none, **{name: value for name, value in now.items() if value != kept.get(name)}}.items()))
    return found


def derived(release: str) -> dict[str, Any]:
    """Returns the row of the importable vLLM."""
    import_module("vllm.platforms").current_platform.device_type = "cuda"
    arguments: Any = import_module("vllm.engine.arg_utils")
    make_arg_parser = moved("make_arg_parser", *PARSERS) or sys.exit(f"the parser of vllm serve is in none of {PARSERS}")
    configurations: list[type] = []
    of_class: Callable[[type], Any] = arguments.get_kwargs
    arguments.get_kwargs = lambda one: configurations.append(one) or of_class(one)
    row = described(make_arg_parser(arguments.FlexibleArgumentParser(prog="vllm serve")))
    if "kv-cache-dtype" not in row["choices"]:  # since 0.33 the configuration refuses others, not the parser
        row["choices"]["kv-cache-dtype"] = sorted(import_module("vllm.config.cache").KV_CACHE_DTYPES)
    row["choices"] = dict(sorted(row["choices"].items()))
    row["bounds"] = {name: bounds for name, bounds in sorted(_bounds(configurations).items()) if name in _names(row["flags"])}
    return {
        "source": f"vllm {release} (wheel)",
        "read": datetime.now(UTC).strftime("%Y-%m"),
        "quantizations": sorted(import_module("vllm.model_executor.layers.quantization").QUANTIZATION_METHODS),
        "tool_parsers": sorted(import_module("vllm.tool_parsers").ToolParserManager.list_registered()),
        **row,
    }


def described(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Returns the flags of a parser by what they take, their choices, and their other spellings."""
    flags: dict[str, list[str]] = {kind: [] for kind in get_args(Takes)}
    choices: dict[str, list[Any]] = {}
    spellings: dict[str, str] = {}
    for action in parser._actions:
        names = [one.removeprefix("--") for one in action.option_strings if one.startswith("--")]
        if not names or isinstance(action, argparse._HelpAction):
            continue
        name = names[0]
        flags[_kind(name, action)].append(name)
        # Quantizations have a list of their own. An option that is left out is None.
        if name != "quantization" and (known := [choice for choice in action.choices or () if choice not in (None, "None")]):
            choices[name] = known
        negative = getattr(action, "negative_option_strings", ())
        spellings |= {one: f"no-{name}" if f"--{one}" in negative else name for one in names[1:] if one != f"no-{name}"}
    return {
        "flags": {kind: sorted(names) for kind, names in flags.items() if names},
        "choices": choices,
        "spellings": dict(sorted(spellings.items())),
    }


def _kind(name: str, action: argparse.Action) -> str:
    if isinstance(action, argparse.BooleanOptionalAction):
        return "switch"
    if isinstance(action, argparse._StoreTrueAction):
        return "on"
    if type(action).__name__ == "LoRAParserAction":
        return "adapters"
    one = _scalar(name, action)
    return f"{one}s" if action.nargs == "+" else f"{one}_or_alone" if action.nargs == "?" else one


def _scalar(name: str, action: argparse.Action) -> str:
    parse = action.type or str
    # A function that takes "None" too, or one that turns an error of parsing into one of the command line.
    while isinstance(parse, Callable) and "return_type" in (inner := _nonlocals(parse)):
        parse = inner["return_type"]
    called = getattr(parse, "__name__", "")
    if parse is json.loads:
        return "list" if isinstance(action.default, list) else "object"
    if called == "<lambda>" and isinstance(parse, Callable):
        return "name" if parse("A-b") == "a_b" else "text"
    if parse in (int, float):
        return called
    if called not in _TYPES:
        sys.exit(f"--{name}: nobody has said what {called} takes: add it to _TYPES of {Path(__file__).name}")
    return _TYPES[called]


def _nonlocals(function: Any) -> Mapping[str, Any]:
    return inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}


def _names(flags: Mapping[str, Sequence[str]]) -> set[str]:
    return {name for names in flags.values() for name in names}


def _bounds(configurations: Sequence[type]) -> dict[str, dict[str, float]]:
    """Bounds of the fields that options set; of a name in several classes, those of the first that the parser asks for."""
    found: dict[str, dict[str, float]] = {}
    for configuration in configurations:
        for name, field in getattr(configuration, "__pydantic_fields__", {}).items():
            limits = [(key, getattr(each, key, None)) for each in field.metadata for key in ("gt", "ge", "lt", "le")]
            if bounds := {key: bound for key, bound in limits if bound is not None}:
                found.setdefault(name.replace("_", "-"), bounds)
    return found


def rendered(release: str, row: Mapping[str, Any]) -> str:
    """Returns the tables of one release."""
    plain = {key: value for key, value in row.items() if not isinstance(value, dict)}
    tables = {f".{key}": value for key, value in row.items() if isinstance(value, dict) and value}
    return "\n".join(
        "\n".join([f'[releases."{release}"{name}]', *(line for key, value in rows.items() for line in _lines(key, value)), ""])
        for name, rows in {"": plain, **tables}.items()
    )


def _lines(key: str, value: Any) -> Iterator[str]:
    line = f"{key} = {_written(value)}"
    if not isinstance(value, list) or len(line) <= _WIDTH:
        yield line
        return
    items = f"{', '.join(map(_written, value))},"
    fill = textwrap.wrap(items, _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    yield from (f"{key} = [", *(f"    {one}" for one in fill), "]")


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_written(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def placed(text: str, release: str, section: str) -> str:
    """Returns the file's text with the tables of one release: in place of its old ones, or before those of the next newer one."""
    known = re.compile(rf'^\[releases\."{re.escape(release)}".*?(?=^\[(?!releases\."{re.escape(release)}"))', re.M | re.S)
    if known.search(text):
        return known.sub(lambda _: f"{section}\n", text, count=1)
    starts = re.finditer(r'^\[releases\."([\d.]+)[^"]*"\]$|^\[\w+\]$', text, re.M)
    place = next(one.start() for one in starts if not one[1] or version_numbers(one[1].rstrip(".")) > version_numbers(release))
    return f"{text[:place]}{section}\n{text[place:]}"
