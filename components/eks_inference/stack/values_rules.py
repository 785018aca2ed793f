"""Rules about what a stack says in the words of others: values of charts, configuration of add-ons, own programs. Ids VAL…

The values that a stack relies on are refused where the chart gets them (``merge.beside``); the rest are named here.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from eks_inference.catalog import charts, versions
from eks_inference.catalog.features import openings
from eks_inference.catalog.models import find_model
from eks_inference.cluster.plan import STORAGE_CLASS
from eks_inference.loadtest.rules import SAMPLING
from eks_inference.place.nodes import cpu_millis
from eks_inference.rules import Judgement, Path, not_judged, rule
from eks_inference.serving.rules.engine_flags import PROTECTED_VARIABLES
from eks_inference.serving.spec import described
from eks_inference.specs.late import is_output
from eks_inference.stack.facts import StackFacts

CHARTS = {
    ("karpenter", "values"): "karpenter",
    ("kuberay", "values"): "kuberay-operator",
    ("load_balancer_controller", "values"): "aws-load-balancer-controller",
    ("observability", "prometheus", "values"): "kube-prometheus-stack",
    ("scaling", "keda", "values"): "keda",
    ("scaling", "prometheus_adapter", "values"): "prometheus-adapter",
}
"""The chart of every key that holds values of one."""

_ADDONS = {(where, "addon_configuration"): charts.ADDONS for where in ("addons", "cluster")}

_OURS = {
    ("clients", "open_webui", "image"): versions.image("open-webui"),
    ("clients", "open_webui", "storage_class"): STORAGE_CLASS,
    ("clients", "smoke_test", "image"): versions.image("python"),
    ("clients", "triton", "image"): "",
    ("endpoints", "*", "image"): versions.image("envoy"),
    ("endpoints", "*", "picker", "image"): versions.image("llm-d-endpoint-picker"),
    ("load_test", "image"): versions.image("guidellm"),
    ("load_test", "storage_class"): STORAGE_CLASS,
    ("servers", "*", "compile_cache", "storage_class"): STORAGE_CLASS,
}
"""What each of these replaces, and is known to do; empty: the server's."""

OTHERS = {
    **dict.fromkeys(_OURS, "its pod"),
    **dict.fromkeys(_ADDONS, "the add-on"),
    ("addons", "addon_versions"): "EKS",
    ("cluster", "addon_versions"): "EKS",
    ("servers", "*", "extra_env"): "the engine",
    ("servers", "*", "*", "extra_env"): "the engine",
    ("clients", "open_webui", "extra_env"): "the web UI",
    ("load_test", "extra_env"): "GuideLLM",
    ("observability", "cloudwatch", "configuration"): "the add-on",
    ("load_test", "guidellm"): "GuideLLM",
    ("load_test", "sampling"): "the server",
    ("servers", "*", "image", "dockerfile"): "the build",
    ("clients", "triton", "tokenizer"): "the client",
    ("load_test", "tokenizer"): "GuideLLM",
    ("pools", "*", "kubelet", "evictionSoft"): "the kubelet",
    **{("pools", "*", "kubelet", key, "pid"): "the kubelet" for key in ("kubeReserved", "systemReserved")},
    ("pools", "*", "kubelet", "evictionHard", "pid.available"): "the kubelet",
}
"""Who else reads what a key holds. ``*`` is any name."""

_VARIABLES = {
    "load_test": frozenset({"HF_ENDPOINT"}),
    "servers": frozenset(
        {
            *PROTECTED_VARIABLES,
            *openings("engine"),
            *("LMCACHE_LOCAL_CPU", "LMCACHE_MAX_LOCAL_CPU_SIZE", "RUNAI_STREAMER_MEMORY_LIMIT", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
        }
    ),
}
"""Variables that rules read, by section; those of interfaces they read everywhere."""

# The rules POO006 and LT002.
_JUDGED_ELSEWHERE = frozenset(
    {
        ("cluster", "addon_configuration", "vpc-cni", "env", "ENABLE_PREFIX_DELEGATION"),
        *(("load_test", "sampling", key) for key in SAMPLING),
    }
)


@rule(
    "VAL001",
    "Values of charts and add-ons have the keys that these know, and those that no rule reads are named.",
    severity="warning",
    fix="correct the key or its value; a chart ignores a key that it does not know, and EKS refuses the add-on",
    source="values.yaml of the pinned charts and of their dependencies (catalog/chart_values.json); schemas of add-ons",
)
def others_words(stack: StackFacts) -> Iterator[Judgement]:
    yield from read_by_others(stack.spec.inputs())


def read_by_others(inputs: Mapping[str, Any]) -> Iterator[Judgement]:
    """Judges what others read in a stack object, or in a part of one at its own key."""
    for where in (("servers", "*", "model"), ("servers", "*", "further_models", "*", "model")):
        for start, model in _at(inputs, where):
            if model["kind"] == "hugging_face" and "shape" in model:
                yield from _of_the_repository(model["id"], model["shape"], start)
    for where, reader in {**CHARTS, **OTHERS}.items():
        chart = CHARTS.get(where, "")
        known = chart or _ADDONS.get(where, "")
        for start, held in _at(inputs, where):
            wrong = [*charts.misspelt(known, held)] if known else []
            for found in wrong:
                if not is_output(_value_at(held, found.path)):
                    yield _misspelt(found, chart, held, start)
            judged = charts.judged(chart)
            for path, value in _leaves(held):
                dotted = ".".join(map(str, path))
                if dotted in judged and _within(value, judged[dotted]):
                    yield Judgement(
                        holds=True, path=(*start, *path), working=(f"{dotted}: {value}; up to {judged[dotted] or 'any value'}",)
                    )
                elif (
                    not any(path[: len(found.path)] == found.path for found in wrong)
                    and (*start, *path) not in _JUDGED_ELSEWHERE
                    and not (start[-1] == "extra_env" and dotted in {*openings("interface"), *_VARIABLES.get(str(start[0]), ())})
                    and not charts.relies_on(chart, path)
                    and not (_OURS.get(where) and _build(value) == _build(_OURS[where]))
                    and not (start[-1] == "tokenizer" and find_model(str(held["id"])))
                ):
                    asks = charts.requested(known, path)
                    yield not_judged(
                        dotted or str(start[-1]),
                        ".".join(map(str, start)),
                        (*start, *path),
                        why=f"{f'the chart {chart}' if chart else reader} reads it, and no rule does"
                        + (f"; {value} instead of {asks} that its authors request" if asks else ""),
                        fix="leave it out, or check on a cluster that the stack still works",
                    )


def _of_the_repository(repository: str, shape: Mapping[str, Any], path: Path) -> Iterator[Judgement]:
    """Whether a repository that the catalog knows has the shape that a user gives it: pods download what it has."""
    row, said = find_model(repository), described(repository, shape)
    if row and said and (row.layers, row.hidden) != (said.layers, said.hidden):
        ours, theirs = (f"{model.layers} layers of {model.hidden}" for model in (row, said))
        yield not_judged(
            "shape",
            repository,
            path,
            why=f"it has {ours} in the catalog, and {theirs} here",
            fix="leave config and shape out, or name the repository that they are of",
        )


def _misspelt(found: charts.Misspelt, chart: str, values: Mapping[str, Any], start: Path) -> Judgement:
    key = found.path[-1]
    who = f"the chart {chart}" if chart else f"the add-on {found.path[0]}"
    unknown = "A chart ignores" if chart else "EKS refuses"
    return Judgement(
        holds=False,
        path=(*start, *found.path),
        working=(f"{chart} {versions.chart(chart).version}" if chart else f"{who}, by a published schema of it",),
        message=f"{who} has {f'no value {key!r}' if found.nearest else 'another type of value'} here",
        given=key if found.nearest else repr(_value_at(values, found.path)),
        allowed=found.allowed,
        fix=f"did you mean '{found.nearest}'? {unknown} a key that it does not know" if found.nearest else "",
    )


def _at(inputs: Mapping[str, Any], where: tuple[str, ...], start: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields what a stack holds at a key, with the path to it."""
    if not where:
        yield start, inputs
        return
    first, *rest = where
    for key in inputs if first == "*" else [first]:
        inner = inputs.get(key)
        if isinstance(inner, Mapping) or (inner is not None and not rest):
            yield from _at(inner, tuple(rest), (*start, key))


def _leaves(held: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(held, Mapping) and (held or not path):
        for key, value in held.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path, held


def _build(image: str) -> str:
    """Name and tag, whatever registry it comes from."""
    return str(image).partition("@")[0].rpartition("/")[2]


def _value_at(values: Any, path: Path) -> Any:
    for key in path:
        values = values[key]
    return values


def _within(value: Any, most: str | None) -> bool:
    if most is None:
        return True
    with suppress(ValueError):
        return not isinstance(value, bool) and cpu_millis(str(value)) <= cpu_millis(most)
    return False
