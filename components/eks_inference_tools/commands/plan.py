"""``eks-inference plan``: how a model fits an instance type, as a table or as JSON. That nothing fits is an answer, too."""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from eks_inference_tools.commands.options import add_document

# The parser is built for every command; what a plan needs is imported when one is made.
if TYPE_CHECKING:
    from eks_inference.catalog.engines import EngineProfile
    from eks_inference.catalog.instances import InstanceType
    from eks_inference.catalog.models import Model
    from eks_inference.serving.feasibility import Feasibility, Fit, Split
    from eks_inference.serving.memory import MemoryUse

HELP = "how a model fits an instance type: splits, batches, lengths"
FORMATS = ("text", "json")
Found = TypeVar("Found")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "How a model can be split over the devices of an instance type, and which batches fit at which length: the arithmetic of "
        "the rules that `check` judges by. Nothing is measured, and nothing is asked of AWS."
    )
    parser.add_argument("--model", required=True, metavar="NAME", help="a model of the catalog, or its Hugging Face repository")
    parser.add_argument("--instance", required=True, metavar="TYPE", help="an EC2 instance type with Neuron devices or GPUs")
    parser.add_argument("--engine", metavar="PROFILE", help="an engine profile (default: the newest without a caveat)")
    parser.add_argument(
        "--max-model-len",
        metavar="TOKENS",
        type=_tokens,
        nargs="+",
        default=[],
        help="lengths of sequences, prompt and answer together (default: powers of two from 2048, and the model's longest)",
    )
    add_document(parser, FORMATS)


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``PreviewError`` when what was given cannot be used."""
    from eks_inference_tools.presentation.output import write

    found = answer(options.model, options.instance, options.engine, options.max_model_len)
    write(as_json(found) if options.format == "json" else as_text(found), options.output)
    return 0


def answer(model_name: str, instance_name: str, engine_name: str | None = None, lengths: Sequence[int] = ()) -> "Feasibility":
    """What fits, from names as a user gives them."""
    from eks_inference.catalog.engines import engine
    from eks_inference.catalog.instances import instance_type, instance_types
    from eks_inference.catalog.models import model, models
    from eks_inference.serving.feasibility import engines_for, feasibility

    wanted = _known(model, model_name, "--model", models())
    instance = _known(instance_type, instance_name, "--instance", ())
    if instance.accelerator is None:
        families = dict.fromkeys(one.family for one in instance_types().values() if one.accelerator)
        _refuse(f"{instance.name} has no accelerator", "--instance", instance_name, f"types of {', '.join(families)}")
    choices = engines_for(instance, wanted)
    allowed = ", ".join(one.name for one in choices) or "no profile of the catalog"
    if engine_name is None:
        if not choices:
            message = f"no engine serves {wanted.name} on {instance.family}"
            families = dict.fromkeys(one.family for one in instance_types().values() if engines_for(one, wanted))
            _refuse(message, "--instance", instance_name, f"types of {', '.join(families)}")
        chosen = choices[0]
    else:
        chosen = _known(engine, engine_name, "--engine", [one.name for one in choices])
        if chosen not in choices:
            reason = f": {chosen.retired}" if chosen.retired else ""
            _refuse(f"engine {chosen.name} is not for {wanted.name} on {instance.name}{reason}", "--engine", chosen.name, allowed)
    if lengths and max(lengths) > wanted.max_positions:
        message = f"{wanted.name} was made for sequences of {wanted.max_positions} tokens"
        _refuse(message, "--max-model-len", str(max(lengths)), f"at most {wanted.max_positions}")
    return feasibility(wanted, instance, chosen, lengths)


def _tokens(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of tokens")
    return int(text)


def _known(look_up: Callable[[str], Found], name: str, option: str, allowed: Iterable[str]) -> Found:
    try:
        return look_up(name)
    except KeyError as error:
        message, _, nearest = str(error.args[0]).partition("; ")
        _refuse(message, option, name, ", ".join(allowed), nearest)


def _refuse(message: str, option: str, given: str, allowed: str, hint: str = "") -> NoReturn:
    from stackgraph.problems import PreviewError, Problem

    raise PreviewError([Problem(message, key=option, given=given, allowed=allowed, hint=hint)])


# -- text -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of the table: two lines of heading with the unit, and what stands in a row."""

    heading: tuple[str, str]
    cell: "Callable[[Split, Fit], str]"
    of_split: bool = False
    """Said once for each split, in its first row."""


def as_text(found: "Feasibility") -> str:
    """The table, at most 100 characters wide."""
    columns = _columns(found)
    rows = [(split, fit) for split in found.splits if not split.refusal for fit in split.fits]
    widths = [max(map(len, (*column.heading, *(column.cell(*row) for row in rows)))) for column in columns]
    lines = [f"{found.model.name} on {found.instance.name}", "", *_about(found), ""]
    lines += [
        "  ".join(column.heading[line].rjust(width) for column, width in zip(columns, widths, strict=True)) for line in (0, 1)
    ]
    for split in found.splits:
        if split.refusal:
            repeats = f"; each KV head would be held {split.kv_repeats:g} times" if split.kv_repeats > 1 else ""
            lines.append(f"{str(split.tensor_parallel).rjust(widths[0])}  no: {split.refusal}{repeats}")
        for position, fit in enumerate(split.fits if not split.refusal else ()):
            cells = ["" if position and column.of_split else column.cell(split, fit) for column in columns]
            lines.append("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))
        lines += [" " * widths[0] + f"  {split.caution}"] if split.caution else []
    lines += ["", *(_PAGED_LEGEND if found.engine.generation.paged else _CONTIGUOUS_LEGEND)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


_CONTIGUOUS_LEGEND = (
    "advised: the largest max_num_seqs without a warning (90 % of the memory); limit: that fits at all.",
    "KV cache and used: at the advised number, or at the limit where none is advised.",
)
_PAGED_LEGEND = (
    "advised, limit: sequences of that length in the KV cache at once, at 90 % and 100 % of its memory.",
    "max_num_seqs may be larger: shorter sequences share the pages, and others wait.",
    "KV cache and used: at the advised number, or at the limit where none is advised.",
)


def _columns(found: "Feasibility") -> list[_Column]:
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
        _Column(("weights", f"GiB/{unit}"), lambda _, fit: _gib(_shown(fit).weights)),
        _Column(("KV cache", f"GiB/{unit}"), lambda _, fit: _gib(_shown(fit).kv) if fit.most.sequences else "-"),
        _Column(("used", "%"), lambda _, fit: f"{_shown(fit).fraction * 100:.0f}" if fit.most.sequences else "-"),
    ]


def _shown(fit: "Fit") -> "MemoryUse":
    return fit.advised if fit.advised.sequences else fit.most


def _about(found: "Feasibility") -> list[str]:
    """Model, node and engine, each with the numbers everything else follows from."""
    from eks_inference.serving.feasibility import engines_for
    from eks_inference.serving.memory import GIB, MemoryUse

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
        ("model", f"{model.parameters / 1e9:.2f} billion parameters, {model.dtype}: {_gib(model.weight_bytes())} GiB"),
        ("", f"{model.layers} layers, {model.heads} heads, {model.kv_heads} KV heads; at most {model.max_positions} tokens"),
        ("", f"KV cache: {model.kv_bytes_per_token() / 1024:g} KiB a token with each KV head held once"),
        ("node", f"{instance.devices} {_one(cores, instance.devices)}{logical}, {one.memory / GIB:g} GiB a {part}{usable}"),
        ("", f"{instance.vcpus} vCPU, {instance.memory_mib / 1024:g} GiB of host memory"),
        ("engine", f"{engine.name}: {release}"),
        ("", f"KV cache: {way}"),
    ]
    if engine.caveat:
        facts.append(("", f"caveat: {engine.caveat}"))
    if others:
        facts.append(("", f"others: {', '.join(others)} (--engine)"))
    return [line for title, text in facts for line in _wrapped(f"  {title:<7} ", text)]


def _wrapped(margin: str, text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 99, initial_indent=margin, subsequent_indent=" " * len(margin), break_on_hyphens=False)


def _one(text: str, count: int) -> str:
    return text.replace("devices", "device").replace("GPUs", "GPU") if count == 1 else text


def _gib(size: int) -> str:
    from eks_inference.serving.memory import gib

    return gib(size)


# -- JSON -----------------------------------------------------------------------------------------------------------------------


def as_json(found: "Feasibility") -> str:
    """Everything the table says and more; sizes in bytes."""
    return json.dumps(_document(found), indent=2) + "\n"


def _document(found: "Feasibility") -> dict[str, Any]:
    return {
        "model": _model(found.model),
        "instance": _instance(found.instance),
        "engine": _engine(found.engine) | {"kv_cache": found.engine.generation.kv_cache},
        "splits": [_split(split) for split in found.splits],
    }


def _model(model: "Model") -> dict[str, Any]:
    return {
        "name": model.name,
        "architecture": model.architecture,
        "dtype": model.dtype,
        "parameters": model.parameters,
        "weight_bytes": model.weight_bytes(),
        "kv_bytes_per_token": model.kv_bytes_per_token(),
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "max_positions": model.max_positions,
    }


def _instance(instance: "InstanceType") -> dict[str, Any]:
    return {
        "name": instance.name,
        "accelerator": instance.accelerator,
        "devices": instance.devices,
        "cores_per_device": instance.cores_per_device,
        "device_memory_gib": instance.device_memory_gib,
    }


def _engine(engine: "EngineProfile") -> dict[str, Any]:
    return {"name": engine.name, "vllm": engine.vllm, "sdk": engine.sdk, "image": engine.image, "caveat": engine.caveat}


def _split(split: "Split") -> dict[str, Any]:
    head = {"tensor_parallel": split.tensor_parallel, "kv_repeats": split.kv_repeats}
    if split.refusal:
        return head | {"refusal": split.refusal}
    return head | {
        "devices": split.devices,
        "idle_cores": split.idle_cores,
        "pods_per_node": split.pods,
        "idle_devices_per_node": split.idle_devices,
        "neuron_scheduler": split.scheduler,
        "caution": split.caution,
        "fits": [
            {
                "max_model_len": fit.max_model_len,
                "advised_sequences": fit.advised.sequences,
                "most_sequences": fit.most.sequences,
                "weight_bytes": fit.most.weights,
                "kv_bytes_advised": fit.advised.kv,
                "kv_bytes_most": fit.most.kv,
                "usable_bytes": fit.most.capacity,
            }
            for fit in split.fits
        ],
    }
