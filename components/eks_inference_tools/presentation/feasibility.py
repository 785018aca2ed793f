"""How a model fits an instance type, as a table."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import RenderableType

from eks_inference.serving.feasibility import Feasibility, Fit, Split, engines_for
from eks_inference.serving.memory import GIB, MemoryUse, gib
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

_WIDTH = 100


def render_text(found: Feasibility) -> str:
    """The table, at most 100 characters wide."""
    columns = _columns(found)
    least = max(len("TP"), *(len(str(split.tensor_parallel)) for split in found.splits))
    table: list[RenderableType | tuple[str, ...]] = [tuple(column.heading[line] for column in columns) for line in (0, 1)]
    for split in found.splits:
        if split.refusal:
            repeats = f"; each KV head would be held {split.kv_repeats:g} times" if split.kv_repeats > 1 else ""
            table.append(f"{split.tensor_parallel:{least}}  no: {split.refusal}{repeats}")
        else:
            for position, fit in enumerate(split.fits):
                table.append(tuple("" if position and column.of_split else column.cell(split, fit) for column in columns))
        table += [f"{'':{least}}  {split.caution}"] if split.caution else []
    legend = _PAGED_LEGEND if found.engine.generation.paged else _CONTIGUOUS_LEGEND
    head = f"{found.model.name} on {found.instance.name}"
    right = range(len(columns))
    return drawn([head, "", *_about(found), "", Columns(table, right=right, least=least), "", *legend], width=_WIDTH)


@dataclass(frozen=True)
class _Column:
    """A column of the table: two lines of heading with the unit, and what stands in a row."""

    heading: tuple[str, str]
    cell: Callable[[Split, Fit], str]
    of_split: bool = False
    """Said once for each split, in its first row."""


_CONTIGUOUS_LEGEND = (
    "advised: the largest max_num_seqs without a warning (90 % of the memory); limit: that fits at all.",
    "KV cache and used: at the advised number, or at the limit where none is advised.",
)
_PAGED_LEGEND = (
    "advised, limit: sequences of that length in the KV cache at once, at 90 % and 100 % of its memory.",
    "max_num_seqs may be larger: shorter sequences share the pages, and others wait.",
    "KV cache and used: at the advised number, or at the limit where none is advised.",
)


def _columns(found: Feasibility) -> list[_Column]:
    neuron = found.instance.neuron
    unit, devices = ("core", "devices") if neuron else ("GPU", "GPUs")
    possible = [split for split in found.splits if not split.refusal]
    columns = [
        _Column(("", "TP"), lambda split, _: str(split.tensor_parallel), of_split=True),
        _Column((devices, "a pod"), lambda split, _: str(split.devices), of_split=True),
    ]
    if any(split.idle_cores for split in possible):
        columns.append(_Column(("idle", f"{unit}s"), lambda split, _: str(split.idle_cores), of_split=True))
    columns.append(_Column(("pods", "a node"), lambda split, _: str(split.pods), of_split=True))
    if any(split.idle_devices for split in possible):
        columns.append(_Column(("idle", devices), lambda split, _: str(split.idle_devices), of_split=True))
    if neuron:
        needed = {True: "needed", False: "-"}
        columns.append(_Column(("Neuron", "scheduler"), lambda split, _: needed[split.scheduler], of_split=True))
    if any(split.kv_repeats > 1 for split in possible):
        columns.append(_Column(("KV heads", "held"), lambda split, _: f"x {split.kv_repeats:g}", of_split=True))
    return [
        *columns,
        _Column(("length", "tokens"), lambda _, fit: str(fit.max_model_len)),
        _Column(("sequences", "advised"), lambda _, fit: str(fit.advised.sequences or "-")),
        _Column(("", "limit"), lambda _, fit: str(fit.most.sequences or "-")),
        _Column(("weights", f"GiB/{unit}"), lambda _, fit: gib(_shown(fit).weights)),
        _Column(("KV cache", f"GiB/{unit}"), lambda _, fit: gib(_shown(fit).kv) if fit.most.sequences else "-"),
        _Column(("used", "%"), lambda _, fit: f"{_shown(fit).fraction * 100:.0f}" if fit.most.sequences else "-"),
    ]


def _shown(fit: Fit) -> MemoryUse:
    return fit.advised if fit.advised.sequences else fit.most


def _about(found: Feasibility) -> list[Paragraph]:
    """Model, node and engine, each with the numbers everything else follows from."""
    model, instance, engine = found.model, found.instance, found.engine
    one = MemoryUse(model, instance, engine, 1, 1, 1)
    part = one.unit
    cores = (
        f"{instance.devices} Neuron devices x {instance.cores_per_device} cores"
        if instance.neuron
        else f"{instance.devices} GPUs"
    )
    logical = f" (LNC {instance.default_logical_core_setting})" if instance.default_logical_core_setting > 1 else ""
    release = ", ".join(filter(None, [f"vLLM {engine.vllm}", f"Neuron SDK {engine.sdk}" if engine.sdk else ""]))
    usable = f", of which the engine uses {one.capacity / GIB:.3g}" if one.capacity < one.memory else ""
    pool = "".join(f", at most {limit.available / GIB:.3g} GiB a {part}" for limit in one.limits[1:])
    way = f"in pages that sequences share{pool}" if engine.generation.paged else "set aside for the whole batch at its longest"
    others = [each.name for each in engines_for(instance, model) if each != engine]
    facts = [
        ("model", f"{model.parameters / 1e9:.2f} billion parameters, {model.dtype}: {gib(model.weight_bytes())} GiB"),
        ("", f"{model.layers} layers, {model.heads} heads, {model.kv_heads} KV heads; at most {model.max_positions} tokens"),
        ("", f"KV cache: {model.kv_bytes_per_token() / 1024:g} KiB a token with each KV head held once"),
        ("node", f"{_one(cores, instance.devices)}{logical}, {one.memory / GIB:g} GiB a {part}{usable}"),
        ("", f"{instance.vcpus} vCPU, {instance.memory_mib / 1024:g} GiB of host memory"),
        ("engine", f"{engine.name}: {release}"),
        ("", f"KV cache: {way}"),
    ]
    if engine.caveat:
        facts.append(("", f"caveat: {engine.caveat}"))
    if others:
        facts.append(("", f"others: {', '.join(others)} (--engine)"))
    return [Paragraph(words(text), f"  {title:<7} ") for title, text in facts]


def _one(text: str, count: int) -> str:
    return text.replace("devices", "device").replace("GPUs", "GPU") if count == 1 else text
