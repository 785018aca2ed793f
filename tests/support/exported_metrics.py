"""Reads from its source what an exporter exports: ``python tests/support/exported_metrics.py FILE_OR_FOLDER...``.

Prints the names as the keys of a table of ``tests/exported_metrics.toml``, whose rows say which files were read. Sources of the
pinned versions are tags of the repositories, Go modules and source distributions of Python packages.

What stands under an ``if`` is left out: without further options nobody exports it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

KINDS = ("gauge", "counter", "histogram")

_GO = (
    # kube-state-metrics: a family of metrics.
    re.compile(r'"(?P<name>kube_\w+)",\s*"(?:[^"\\]|\\.)*",\s*metric\.(?P<kind>\w+)'),
    # client_golang: the options of a metric.
    re.compile(
        r'(?P<kind>Gauge|Counter|Histogram)Opts\{\s*(?:Namespace:\s*"?(?P<space>[\w.]+)"?,\s*)?'
        r'(?:Subsystem:\s*"?(?P<part>[\w.]+)"?,\s*)?Name:\s*"(?P<name>\w+)"'
    ),
    # client_golang: a description; whoever writes them by hand has a value that goes up and down.
    re.compile(r'(?P<kind>)NewDesc\(\s*"(?P<name>\w+)"'),
)


def exported(path: Path) -> dict[str, list[str]]:
    """Returns the names of a source file, or of a folder of Go files, by kind."""
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    files = [path] if path.is_file() else [one for one in path.rglob("*.go") if not one.stem.endswith("_test")]
    for file in files:
        text = file.read_text("utf-8")
        for kind, name in _of_python(ast.parse(text)) if file.suffix == ".py" else _of_go(text):
            found[kind].add(name)
    return {kind: sorted(names) for kind, names in found.items()}


def _of_python(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields calls that make a metric: ``Counter(name=…)``, or ``MetricFamily(name=…, kind=MetricFamily.COUNTER)`` of Triton."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.If):
            continue
        if isinstance(inner, ast.Call):
            given = {each.arg: each.value for each in inner.keywords}
            text = ast.unparse(given.get("kind", inner.func)).lower()
            kind = next((kind for kind in KINDS if kind in text), None)
            name = given.get("name")
            if kind and isinstance(name, ast.Constant) and isinstance(name.value, str):
                # The Python client adds the suffix where it is missing.
                yield kind, name.value.removesuffix("_total") + "_total" if kind == "counter" else name.value
        yield from _of_python(inner)


def _of_go(text: str) -> Iterator[tuple[str, str]]:
    for pattern in _GO:
        for match in pattern.finditer(text):
            groups = match.groupdict()
            parts = [groups.get("space"), groups.get("part"), groups["name"]]
            # The namespace of Karpenter is a constant of that name in its package metrics.
            name = "_".join("karpenter" if part == "metrics.Namespace" else part for part in parts if part)
            yield (groups["kind"] or "gauge").lower(), name


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(f"# {argument}")
        for kind, names in exported(Path(argument)).items():
            print(f"{kind}s = [{', '.join(chr(34) + name + chr(34) for name in names)}]")
