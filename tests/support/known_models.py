"""docs/known-models.md: which models that people serve are known, and parameter counts against published ones."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.config_json import model_of_config, parse
from eks_inference.catalog.models import Model, find_model, listens

_DATA = Path(__file__).parent.parent / "data"
FOLDER = _DATA / "model_configs"
EVIDENCE: Mapping[str, Mapping[str, Any]] = tomllib.loads((FOLDER / "index.toml").read_text("utf-8"))
SERVED: Mapping[str, Any] = tomllib.loads((_DATA / "served.toml").read_text("utf-8"))


def config_of(name: str) -> dict[str, Any]:
    """The config.json of a row of the evidence."""
    return dict(EVIDENCE[name].get("config") or parse((FOLDER / f"{name}.json").read_text("utf-8")))


def counted(name: str) -> tuple[Model, int]:
    """The model of such a file, and its parameters in what the published count is of."""
    model = model_of_config(name, config_of(name))
    tower = model.tower.weights if model.tower and EVIDENCE[name].get("with_tower") else 0
    return model, model.parameters + tower


def document() -> str:
    """The page docs/known-models.md."""
    return "\n".join([*_served(), "", *_counts(), ""])


def _served() -> Iterator[str]:
    names = SERVED["models"]
    types = {name: kind for kind, of_kind in SERVED["model_types"].items() for name in of_kind}
    known = {name: row for name in names if (row := find_model(name))}
    speech = [name for name in names if listens(name) and name not in known]
    rest = [name for name in names if name not in known and name not in speech and name not in types]
    yield from ("# Models that people serve", "")
    yield f"vLLM has recipes for {len(names)} models of text, vision and pooling."
    yield f"Source: {SERVED['source']}; read {SERVED['read']}."
    yield "The list is maintained and has a date. It is no ranking: no dated count of what is served most was found."
    yield f"`plan --model NAME` knows {len(known)} of them without the Hub, and names the ways to a shape of each other."
    yield "Without a formula, write a row with `counted_parameters`, or all keys of the server ([models](models.md)):"
    yield "its memory is then not judged."
    yield from ("", "| | models |", "|---|---|")
    yield f"| in the catalog | {', '.join(known)} |"
    for kind in sorted(SERVED["model_types"]):
        of_kind = [name for name in SERVED["model_types"][kind] if name not in known]
        if of_kind:
            what = f"by their `config.json` (`{kind}`)" if kind in architectures() else f"no formula for `{kind}`"
            yield f"| {what} | {', '.join(of_kind)} |"
    yield f"| speech, not judged | {', '.join(speech)} |"
    yield f"| no `config.json` at hand | {', '.join(rest)} |"


def _counts() -> Iterator[str]:
    yield from ("## Parameter counts", "")
    published = {name: row for name, row in EVIDENCE.items() if "published" in row}
    yield "What the formulas count from a `config.json`, against a count that somebody else publishes. A test fails beyond 1 %,"
    yield "or half of the last digit. *Set aside*: chosen before the formulas were written, and tried once when they were done."
    yield from ("", "| model | `model_type` | computed | published | difference | set aside |", "|---|---|---:|---:|---:|---|")
    for name, row in sorted(published.items(), key=lambda item: item[0].casefold()):
        model, count = counted(name)
        off = (count / row["published"] - 1) * 100
        counts = f"{count:,} | {row['published']:,} | {off:+.3f} %"
        yield f"| {name} | {model.architecture} | {counts} | {'yes' if 'set_aside' in row else ''} |"
    others = sorted(EVIDENCE.keys() - published.keys(), key=str.casefold)
    yield from ("", f"Read without a published count: {', '.join(others)}.")
