"""The flags of a release of vLLM, from its parser: what is read of it, and how it is written."""

import argparse
import textwrap
import tomllib
from pathlib import Path

import pytest

from eks_inference.catalog.vllm_arguments import vllm_releases, whole_rows
from refresh import vllm_arguments as made

PACKAGE = {
    "vllm/__init__.py": "import torch",
    "vllm/platforms.py": "class current_platform: device_type = 'cpu'",
    "vllm/config/__init__.py": "",
    "vllm/config/cache.py": "KV_CACHE_DTYPES = ['fp8', 'auto']",
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": """
        import json
        from argparse import ArgumentParser, BooleanOptionalAction
        from typing import Literal, get_args
        import torch
        import triton.language as tl
        from pydantic import Field
        from pydantic.dataclasses import dataclass
        from torch.nn import Module
        from vllm.ir import kernels
        from vllm.platforms import current_platform

        class FlexibleArgumentParser(ArgumentParser): pass
        class EnableDisableAction(BooleanOptionalAction):
            def __init__(self, option_strings, dest, **given):
                super().__init__(option_strings, dest, **given)
                self.option_strings = [*option_strings, "--disable-lora"]
                self.negative_option_strings = {"--no-enable-lora", "--disable-lora"}
        class Layer(Module, tl.constexpr): pass

        @kernels.register("layer")
        def kernel(x: torch.Tensor | None) -> torch.Tensor: ...

        @dataclass
        class Config:
            max_loras: int = Field(default=1, ge=1)
            share: float = Field(default=0.5, gt=0, le=1.0)
            dtype: Literal["half", "auto"] | torch.dtype = "auto"

        def get_kwargs(config): return {"max_loras": {"type": int}, "share": {"type": float}}
        def optional(return_type): return lambda text: None if text == "None" else return_type(text)
        """,
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/launchers/__init__.py": "",
    "vllm/entrypoints/launchers/cli_args.py": """
        import json
        from vllm.engine import arg_utils as a

        def make_arg_parser(parser):
            given = a.get_kwargs(a.Config)
            parser.add_argument("--max-loras", **given["max_loras"])
            parser.add_argument("--share", "--part", **given["share"])
            parser.add_argument("--enable-lora", action=a.EnableDisableAction)
            parser.add_argument("--headless", action="store_true")
            parser.add_argument("--device", choices=["auto", a.current_platform.device_type, None])
            parser.add_argument("--backend", type=lambda one: one.lower().replace("-", "_"))
            parser.add_argument("--kv-cache-dtype", type=str)
            parser.add_argument("--origins", type=json.loads, default=[])
            parser.add_argument("--overrides", type=json.loads)
            parser.add_argument("--names", nargs="+", type=a.optional(str))
            parser.add_argument("--token", nargs="?", type=a.optional(str))
            return parser
        """,
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/layers/__init__.py": "",
    "vllm/model_executor/layers/quantization.py": "QUANTIZATION_METHODS = ['gptq', 'awq']",
    "vllm/tool_parsers.py": "class ToolParserManager: list_registered = staticmethod(lambda: ['xlam', 'hermes'])",
}
"""A vLLM with a parser, which imports what nobody has installed."""


def test_a_release_is_read_without_what_it_requires(tmp_path: Path) -> None:
    (tmp_path / "vllm-9.8.7.dist-info").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    releases = tomllib.loads(made.table(str(tmp_path)))["releases"]
    row = whole_rows(releases)["9.8.7"]
    assert row["flags"] == {
        "switch": ["enable-lora"],
        "on": ["headless"],
        "int": ["max-loras"],
        "float": ["share"],
        "text": ["device", "kv-cache-dtype"],
        "name": ["backend"],
        "text_or_alone": ["token"],
        "object": ["overrides"],
        "list": ["origins"],
        "texts": ["names"],
    }
    assert row["choices"] == {"device": ["auto", "cuda"], "kv-cache-dtype": ["auto", "fp8"]}
    assert row["bounds"] == {"max-loras": {"ge": 1}, "share": {"gt": 0, "le": 1}}
    assert row["spellings"] == {"disable-lora": "no-enable-lora", "part": "share"}
    assert (row["quantizations"], row["tool_parsers"], row["source"]) == (
        ["awq", "gptq"],
        ["hermes", "xlam"],
        "vllm 9.8.7 (wheel)",
    )
    assert list(releases) == [*vllm_releases(), "9.8.7"], "the others stay"


def test_a_release_that_is_read_again_changes_no_other() -> None:
    text = made.FILE.read_text("utf-8")
    rows = whole_rows(tomllib.loads(text)["releases"])
    assert made.with_release(text, "0.29.0", rows["0.29.0"]) == text
    changed = {**rows["0.29.0"], "flags": {"switch": ["new"], "text": ["host"]}, "choices": {"host": ["a"]}, "bounds": {}}
    again = whole_rows(tomllib.loads(made.with_release(text, "0.29.0", changed))["releases"])
    assert again == {**rows, "0.29.0": {**changed, "spellings": {}}}


def test_a_release_between_others_stands_between_them() -> None:
    releases = tomllib.loads(made.placed(made.FILE.read_text("utf-8"), "0.25.1", '[releases."0.25.1"]\n'))["releases"]
    assert list(releases) == sorted([*vllm_releases(), "0.25.1"], key=lambda name: [int(one) for one in name.split(".")[:3]])


def test_a_type_that_nobody_knows_is_told() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port-range", type=complex)
    with pytest.raises(SystemExit, match="--port-range: nobody has said what complex takes"):
        made.described(parser)


@pytest.mark.parametrize("release", [name for name, one in vllm_releases().items() if one.flags])
def test_what_is_written_is_what_is_there(release: str) -> None:
    text = made.FILE.read_text("utf-8")
    written = made.rendered(release, tomllib.loads(text)["releases"][release])
    assert made.placed(text, release, written) == text, "another line would hide what changes"
