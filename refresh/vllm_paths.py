"""Paths at which a release of vLLM answers, from its own application: PYTHON is that of an environment with its wheel.

`make engine` builds one. Or PYTHON is the folder of an unpacked wheel, whose text alone is read. What a path does is written by
hand, below the releases.
"""

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from refresh import ROOT
from refresh.engine.asking import paths_in
from refresh.vllm_arguments import placed, rendered

FILE = ROOT / "refresh" / "vllm_paths.toml"
_OF_FASTAPI = {"/docs", "/docs/oauth2-redirect", "/openapi.json", "/redoc"}


def table(python: str) -> str:
    said = _of_wheel(Path(python)) if Path(python).is_dir() else _of_application(python)
    release = said.pop("release")
    row = {"source": f"vllm {release}, {said.pop('by')}", "read": datetime.now(UTC).strftime("%Y-%m"), **said}
    return placed(FILE.read_text("utf-8"), release, rendered(release, row))


def _of_application(python: str) -> dict[str, Any]:
    asked = [python, "-m", "refresh.engine.paths", Path(python).parents[1] / "libcuda.so.1"]
    answer = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return {"by": "its application and its text", **json.loads(answer.stdout.splitlines()[-1])}


def _of_wheel(folder: Path) -> dict[str, Any]:
    (info,) = folder.glob("vllm-*.dist-info")
    texts = [file.read_text("utf-8") for file in (folder / "vllm" / "entrypoints").rglob("*.py")]
    guarded = re.findall(r'GUARDED_PREFIX = (\(.+\))|url_path\.startswith\((".+?")\)', "\n".join(texts))
    return {
        "by": "its text",
        "release": info.name.removesuffix(".dist-info").partition("-")[2],
        "guarded": sorted({one for found in guarded for one in re.findall(r'"(.+?)"', "".join(found))}),
        "paths": sorted(_OF_FASTAPI.union(*map(paths_in, texts))),
    }
