"""What a release of vLLM says of itself on GPUs: PYTHON is that of an environment with its wheel for CUDA (`make engine`).

What stands outside of the two lines in a file is written by hand, and what it has is not asked. A new release begins with what is
written of the newest one.
"""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from eks_inference.catalog.tables import version_numbers
from refresh import ROOT

FILE = ROOT / "components" / "eks_inference" / "catalog" / "engine_facts"

BEGIN = "# ------------------------------------------------------------- asked of the engine: make refresh TABLE=engine_facts\n"
END = "# ------------------------------------------------------------------------------------------------------ by hand\n"
_WIDTH = 125


def file_of(python: str) -> Path:
    return FILE / f"vllm-{_said(python)['release']}.toml"


def table(python: str) -> str:
    ours = file_of(python)
    releases = sorted(FILE.glob("vllm-*.toml"), key=lambda one: version_numbers(one.stem.partition("-")[2]))
    before, _, rest = (ours if ours.exists() else releases[-1]).read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}{rendered(_said(python), without=after)}{END}{after}"


def rendered(said: dict[str, Any], without: str = "") -> str:
    """Returns what the engine says as TOML, except back ends that ``without`` has."""
    lines = [_line(name, value) for name, value in said.items() if isinstance(value, list)]
    lines += ["", "[quantization]", *(_line(name, value) for name, value in said["quantization"].items())]
    for name, row in sorted(said["attention"].items()):
        if f"[attention.{name}]" in without:
            continue
        lines += ["", f"[attention.{name}]", *(["latent = true"] if row["latent"] else []), _line("dtypes", row["dtypes"])]
        lines += [_line("head_sizes", row["head_sizes"])] if row["head_sizes"] else []
        lines += [_line(f"also.{need}", gpus) for need, gpus in row["also"].items()]
        lines += [_line(f'kv."{gpu}"', types) for gpu, types in row["kv"].items()]
    return "\n".join([*lines, "", ""])


def _line(name: str, value: list[Any]) -> str:
    whole = f"{name} = {json.dumps(value)}"
    if len(whole) <= _WIDTH:
        return whole
    rows, row = [], ""
    for one in map(json.dumps, value):
        if len(row) + len(one) > _WIDTH - 8:
            rows, row = [*rows, row], ""
        row = f"{row}{' ' if row else ''}{one},"
    return "\n".join([f"{name} = [", *(f"    {one}" for one in (*rows, row)), "]"])


@cache
def _said(python: str) -> dict[str, Any]:
    asked = [python, "-m", "refresh.engine.facts", Path(python).parents[1] / "libcuda.so.1"]
    answer = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])
