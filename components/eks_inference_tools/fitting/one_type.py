"""How a model fits one instance type, as a table and as JSON. Sizes are in bytes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack

from rich.console import RenderableType

from eks_inference.catalog.models import Model
from eks_inference.serving.choosing import engines_for
from eks_inference.serving.feasibility import Feasibility, Fit, Split
from eks_inference.serving.memory import GIB, MemoryUse, gib
from eks_inference_tools.cost.money import Offer
from eks_inference_tools.fitting.document import SCHEMA
from stackgraph.graph.wording import counted
from stackgraph.presentation.output import Drawing
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

T = TypeVar("T")
_Column = tuple[tuple[str, str], Callable[[T], str]]
"""The two lines of a heading, the second with the unit, and the text of a cell."""

_CONTIGUOUS_LEGEND = (
    "advised: the largest max_num_seqs without a warning (90 % of the memory); limit: the most that fits.",
    "KV cache and used: at the advised number, or at the limit where none is advised.",
)
_PAGED_LEGEND = (
    "advised: sequences of that length at once without a warning; limit: the most that may fit.",
    "max_num_seqs may be larger: shorter sequences share the pages, and others wait.",
    "KV cache and used: at the advised number, or at the limit where none is advised.",
)

_PRICE = float | None
_MEMORY = ("weight_bytes", "kv_bytes_advised", "kv_bytes_most", "usable_bytes")
SHAPE = {
    "model": {
        **dict.fromkeys(("name", "architecture", "dtype"), str),
        **dict.fromkeys(("parameters", "weight_bytes", "kv_bytes_per_token", "heads", "kv_heads", "window_layers"), int),
        "quantization": str | None,
        "window": int | None,
        "not_counted": [str],
        "max_positions": int,
    },
    "instance": {
        **dict.fromkeys(("name", "accelerator"), str),
        **dict.fromkeys(("devices", "cores_per_device"), int),
        "device_memory_gib": float,
    },
    "engine": {**dict.fromkeys(("name", "image", "caveat", "kv_cache"), str), **dict.fromkeys(("vllm", "sdk"), str | None)},
    "rules": [str],
    "region": str,
    "usd_per_hour": _PRICE,
    **dict.fromkeys(("price_source", "quota"), str | None),
    "splits": [
        {
            "tensor_parallel": int,
            "kv_repeats": float,
            "refusal?": str,
            **dict.fromkeys(("devices?", "idle_cores?", "pods_per_node?", "idle_devices_per_node?"), int),
            "usd_per_hour_and_pod?": _PRICE,
            "neuron_scheduler?": bool,
            "cautions?": [str],
            "fits?": [
                {
                    **dict.fromkeys(("max_model_len", "advised_sequences", "most_sequences", *_MEMORY), int),
                    "beside_bytes": int | None,
                }
            ],
        }
    ],
}
"""Of `plan --instance`."""


def render_text(found: Feasibility, offer: Offer, told: Sequence[str] = (), **drawing: Unpack[Drawing]) -> str:
    """Returns the facts, what rules say (``told``), the table and its legend."""
    of_split, of_fit = _columns(found, offer)
    headings = [heading for heading, _ in (*of_split, *of_fit)]
    least = max(len("TP"), *(len(str(split.tensor_parallel)) for split in found.splits))
    table: list[RenderableType | tuple[str, ...]] = list(zip(*headings, strict=True))
    for split in found.splits:
        if split.refusal:
            repeats = f"; each KV head would be held {split.kv_repeats:g} times" if split.kv_repeats > 1 else ""
            table.append(Paragraph(words(f"{split.refusal}{repeats}"), f"{split.tensor_parallel:{least}}  no: "))
        else:
            # Only the first row of a split has the cells about the whole split.
            first = [cell(split) for _, cell in of_split]
            table += [
                (*("" if position else cell for cell in first), *(cell(fit) for _, cell in of_fit))
                for position, fit in enumerate(split.fits)
            ]
        for caution in split.cautions:
            table.append(Paragraph(words(f"caution: {caution}"), " " * (least + 2), " " * (least + 4)))
    legend = _PAGED_LEGEND if found.engine.generation.paged else _CONTIGUOUS_LEGEND
    head = f"{found.model.name} on {found.instance.name}"
    right = range(len(headings))
    rules = [Paragraph(words(one), f"  {'' if position else 'rules':<7} ") for position, one in enumerate(told)]
    parts = [head, "", *_about(found, offer), *rules, "", Columns(table, right=right, least=least, headings=2), "", *legend]
    return drawn(parts, **drawing)


def _columns(found: Feasibility, offer: Offer) -> tuple[list[_Column[Split]], list[_Column[Fit]]]:
    """The columns about a whole split, then those about each of its lengths."""
    neuron = found.instance.neuron
    unit, devices = ("core", "devices") if neuron else ("GPU", "GPUs")
    possible = [split for split in found.splits if not split.refusal]
    idle_cores, idle_devices = any(split.idle_cores for split in possible), any(split.idle_devices for split in possible)
    of_split: list[tuple[bool, _Column[Split]]] = [
        (True, (("", "TP"), lambda split: str(split.tensor_parallel))),
        (True, ((devices, "a pod"), lambda split: str(split.devices))),
        (idle_cores, (("idle", f"{unit}s"), lambda split: str(split.idle_cores))),
        (True, (("pods", "a node"), lambda split: str(split.pods))),
        (offer.price is not None, (("USD/h", "a pod"), lambda split: f"{offer.per_pod(split.pods) or 0:.2f}")),
        (idle_devices, (("idle", devices), lambda split: str(split.idle_devices))),
        (neuron, (("Neuron", "scheduler"), lambda split: "needed" if split.scheduler else "-")),
        (any(split.kv_repeats > 1 for split in possible), (("KV heads", "held"), lambda split: f"x {split.kv_repeats:g}")),
    ]
    of_fit: list[_Column[Fit]] = [
        (("length", "tokens"), lambda fit: str(fit.max_model_len)),
        (("sequences", "advised"), lambda fit: str(fit.advised.sequences or "-")),
        (("", "limit"), lambda fit: str(fit.most.sequences or "-")),
        (("weights", f"GiB/{unit}"), lambda fit: gib(_shown(fit).weights)),
        (("KV cache", f"GiB/{unit}"), lambda fit: gib(_shown(fit).kv) if fit.most.sequences else "-"),
        (("used", "%"), lambda fit: f"{_shown(fit).fraction * 100:.0f}" if fit.most.sequences else "-"),
    ]
    return [column for shown, column in of_split if shown], of_fit


def _shown(fit: Fit) -> MemoryUse:
    return fit.advised if fit.advised.sequences else fit.most


def _about(found: Feasibility, offer: Offer) -> list[Paragraph]:
    """The figures of model, node and engine from which the table follows."""
    model, instance, engine = found.model, found.instance, found.engine
    one = MemoryUse(model, instance, engine, 1, 1, 1)
    part = one.unit
    cores = counted(instance.devices, "Neuron device" if instance.neuron else "GPU")
    cores += f" x {instance.cores_per_device} cores" if instance.neuron else ""
    logical = f" (LNC {instance.default_logical_core_setting})" if instance.default_logical_core_setting > 1 else ""
    release = ", ".join(filter(None, [f"vLLM {engine.vllm}", f"Neuron SDK {engine.sdk}" if engine.sdk else ""]))
    usable = f", of which the engine uses {one.capacity / GIB:.3g}" if one.capacity < one.memory else ""
    pool = "".join(f", at most {limit.available / GIB:.3g} GiB a {part}" for limit in one.limits[1:])
    way = f"in pages that sequences share{pool}" if engine.generation.paged else "set aside for the whole batch at its longest"
    others = [each.name for each in engines_for(instance, model) if each != engine]
    size, kept_as = gib(model.weight_bytes()), "one latent vector" if model.kv_rank else f"{model.kv_heads} KV heads"
    seeing = f" and {model.tower.weights / 1e9:.2f} for vision" if model.tower else ""
    left_out = "".join(f", without the {part}" for part in model.uncounted)
    held = engine.served(model)
    left_out += f"; the engine unpacks it: {gib(held.weight_bytes())} GiB" if held != model else ""
    window = f"; {model.window_layers} of {model.layers} layers attend to {model.window} tokens" if model.window_layers else ""
    if model.state_layers:
        window = f"; {model.state_layers} of {model.layers} layers keep a state of a sequence instead"
    kept = "" if not model.window_layers else ", and keep them all" if one.beyond is None else ""
    facts = [
        ("model", f"{model.parameters / 1e9:.2f} billion parameters{seeing}, {_format(model)}: {size} GiB{left_out}"),
        ("", f"{model.layers} layers, {model.heads} heads, {kept_as}; at most {model.max_positions} tokens"),
        ("", f"KV cache: {model.kv_bytes_per_token() / 1024:g} KiB a token with each KV head held once{window}{kept}"),
        ("node", f"{cores}{logical}, {one.memory / GIB:g} GiB a {part}{usable}"),
        ("", f"{instance.vcpus} vCPU, {instance.memory_mib / 1024:g} GiB of host memory"),
        *([("", line) for line in one.reserved.working] if one.reserved else []),
        ("price", offer.words),
        ("engine", f"{engine.name}: {release}"),
        ("", f"KV cache: {way}"),
    ]
    if engine.caveat:
        facts.append(("", f"caveat: {engine.caveat}"))
    if others:
        facts.append(("", f"others: {', '.join(others)} (--engine)"))
    return [Paragraph(words(text), f"  {title:<7} ") for title, text in facts]


def _format(model: Model) -> str:
    """The type of the published weights."""
    return f"{model.quantization.method} and {model.dtype}" if model.quantization else model.dtype


def document(found: Feasibility, offer: Offer, told: Sequence[str] = ()) -> dict[str, Any]:
    """Everything in the table and more, as JSON. Sizes are in bytes."""
    model, instance, engine = found.model, found.instance, found.engine
    return {
        "schema": SCHEMA,
        "model": {
            "name": model.name,
            "architecture": model.architecture,
            "dtype": model.dtype,
            "parameters": model.parameters,
            "weight_bytes": model.weight_bytes(),
            "kv_bytes_per_token": model.kv_bytes_per_token(),
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "quantization": model.quantization.method if model.quantization else None,
            "window": model.window or None,
            "window_layers": model.window_layers,
            "not_counted": list(model.uncounted),
            "max_positions": model.max_positions,
        },
        "instance": {
            "name": instance.name,
            "accelerator": instance.accelerator,
            "devices": instance.devices,
            "cores_per_device": instance.cores_per_device,
            "device_memory_gib": instance.device_memory_gib,
        },
        "engine": {
            "name": engine.name,
            "vllm": engine.vllm,
            "sdk": engine.sdk,
            "image": engine.image,
            "caveat": engine.caveat,
            "kv_cache": engine.generation.kv_cache,
        },
        "rules": list(told),
        "region": offer.region,
        "usd_per_hour": offer.price.usd if offer.price else None,
        "price_source": offer.source,
        "quota": offer.quota.title if offer.quota else None,
        "splits": [_split(split, offer) for split in found.splits],
    }


def _split(split: Split, offer: Offer) -> dict[str, Any]:
    head = {"tensor_parallel": split.tensor_parallel, "kv_repeats": split.kv_repeats}
    if split.refusal:
        return head | {"refusal": split.refusal}
    return head | {
        "devices": split.devices,
        "idle_cores": split.idle_cores,
        "pods_per_node": split.pods,
        "usd_per_hour_and_pod": offer.per_pod(split.pods),
        "idle_devices_per_node": split.idle_devices,
        "neuron_scheduler": split.scheduler,
        "cautions": list(split.cautions),
        "fits": [
            {
                "max_model_len": fit.max_model_len,
                "advised_sequences": fit.advised.sequences,
                "most_sequences": fit.most.sequences,
                "weight_bytes": fit.most.weights,
                "beside_bytes": fit.most.reserved.size if fit.most.reserved else None,
                "kv_bytes_advised": fit.advised.kv,
                "kv_bytes_most": fit.most.kv,
                "usable_bytes": fit.most.capacity,
            }
            for fit in split.fits
        ],
    }
