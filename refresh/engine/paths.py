"""The paths at which one release answers: ``python -m refresh.engine.paths LIBCUDA``, whose last line is JSON. No model is built.

They are those of the engine's own application, in development mode and with the switches that add paths, and those that its text
registers: what a model or a task decides may be in the text alone.
"""

import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from unittest import mock

from refresh.engine import stand_ins
from refresh.engine.asking import PARSERS, moved, paths_in

os.environ |= {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
stand_ins.load(Path(sys.argv[1]))

import vllm.entrypoints  # noqa: E402
from vllm.config import ProfilerConfig  # noqa: E402
from vllm.entrypoints.launchers.app import build_app  # noqa: E402
from vllm.entrypoints.serve.middleware.authenticate import GUARDED_PREFIX  # noqa: E402
from vllm.tasks import SupportedTask  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402


def main() -> None:
    make_arg_parser = moved("make_arg_parser", *PARSERS)
    args = make_arg_parser(FlexibleArgumentParser()).parse_args([])
    for switch in ("enable_fault_tolerance", "tokens_only", "enable_tokenizer_info_endpoint"):
        setattr(args, switch, True)
    args.profiler_config = ProfilerConfig(profiler="cuda")
    app = build_app(args, tuple(task for one in get_args(SupportedTask) for task in get_args(one) or (one,)), mock.MagicMock())
    texts = [file.read_text("utf-8") for file in Path(vllm.entrypoints.__path__[0]).rglob("*.py")]
    paths = {*_routes(app.routes)}.union(*map(paths_in, texts))
    release = importlib.metadata.version("vllm")
    print(json.dumps({"release": release, "guarded": sorted(GUARDED_PREFIX), "paths": sorted(paths)}))


def _routes(routes: Any) -> Iterator[str]:
    for route in routes:
        if path := getattr(route, "path", ""):
            yield path
        else:  # a router inside
            yield from _routes(getattr(route, "routes", ()))


main()
