"""The values that vLLM's arguments take, as flags on its command line and as keys in a model.json of Triton; and the kernels of
linear layers with quantized weights: which ``--linear-backend`` a server on GPUs needs, and which it has. Pure.

Source: vLLM 0.30.0, ``_get_linear_backend`` in ``model_executor/kernels/linear`` and ``EngineArgs.create_engine_config``.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from eks_inference.catalog.engine_facts import Capability, Failing, engine_facts, failing
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model, find_model
from eks_inference.catalog.quantization import Quantization
from eks_inference.catalog.vllm_arguments import SEVERAL, VllmArgument
from eks_inference.serving.flags import flag, object_flag

_BOUNDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
_STRUCTURES = {"object": dict, "object_or_text": dict, "list": list}
_WORDS = {
    "switch": "true or false",
    "on": "true, or leave it out",
    "int": "a whole number",
    "float": "a number",
    "size": "a whole number, also as 8k or 8K",
    "size_or_auto": "a whole number, also as 8k or 8K, or auto",
    "text": "a text",
    "name": "a text",
    "text_or_alone": "a text, or true for the flag alone",
    "object": "an object",
    "object_or_text": "an object or a text",
    "list": "a list of texts",
    "adapters": "name=path, an object, or a list of them",
    "texts": "a text or a list of texts",
    "ints": "a whole number or a list of them",
    "floats": "a number or a list of them",
}


def takes(argument: VllmArgument, value: Any, *, as_flag: bool) -> bool:
    """Whether the parser (``as_flag``) or ``AsyncEngineArgs`` takes a value, a number within its bounds."""
    if value is None:
        return argument.nullable and not as_flag
    kind = argument.takes
    if kind == "switch":
        return isinstance(value, bool)
    if kind == "on" or (kind == "text_or_alone" and isinstance(value, bool)):
        return value is True
    if kind == "adapters" and not isinstance(value, list):
        return isinstance(value, dict) or (isinstance(value, str) and ("=" in value or (as_flag and _parses(value, dict))))
    if kind in _STRUCTURES:
        shape = _STRUCTURES[kind]
        if kind == "object_or_text" and not isinstance(value, bool | list):
            return as_flag or isinstance(value, str | dict)
        if as_flag and isinstance(value, str):
            value = parsed(argument, value)
        # Lists are of texts; device_ids, a key only, is also of numbers (FrontendArgs and EngineArgs, annotations).
        one_of = str if as_flag else str | int
        return isinstance(value, shape) and (not isinstance(value, list) or all(isinstance(each, one_of) for each in value))
    one = partial(takes, argument, as_flag=as_flag) if kind == "adapters" else _scalar(argument, as_flag)
    if kind in SEVERAL and isinstance(value, list):
        # A value of its own that begins with a dash would be the next flag.
        return bool(value) and all(one(each) and not str(each).startswith("-") for each in value)
    return one(value)


def other_names(model_id: str, flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names in requests that flags of vLLM add to that of the model: --served-model-name and --lora-modules."""

    def listed(flag: str) -> list[Any]:
        value = flags.get(flag, [])
        return value if isinstance(value, list) else [value]

    names = [str(one) for one in listed("served-model-name")]
    for adapter in listed("lora-modules"):
        if isinstance(adapter, str) and not _parses(adapter, dict):
            names.append(adapter.partition("=")[0])
        else:
            names.append(str((json.loads(adapter) if isinstance(adapter, str) else adapter).get("name", "")))
    return tuple(dict.fromkeys(name for name in names if name not in ("", model_id)))


def allowed(argument: VllmArgument) -> str:
    """What ``takes`` takes, in words."""
    if argument.choices:
        return ", ".join(map(str, argument.choices))
    bounds = " and ".join(f"{_BOUNDS[name]} {bound:g}" for name, bound in argument.bounds.items())
    return f"{_WORDS[argument.takes]}{', ' if bounds else ''}{bounds}"


def parsed(argument: VllmArgument, text: str) -> Any:
    """Returns the value that the parser makes of a flag's text; the text itself if it is none that it takes."""
    if argument.takes in _STRUCTURES:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    number = _NUMBERS.get(argument.takes)
    found = number(text) if number else None
    return text if found is None else found


def _scalar(argument: VllmArgument, as_flag: bool) -> Callable[[Any], bool]:
    """Returns the check of one value. A flag is text for the parser, whatever its type was; a key keeps its type."""
    number = _NUMBERS.get(argument.takes)

    def check(value: Any) -> bool:
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            return False
        if not as_flag and isinstance(value, str) == (number is not None):
            return False
        if number is None:
            return _chosen(argument, value)
        found = number(str(value))
        within = found is not None and all(getattr(operator, name)(found, bound) for name, bound in argument.bounds.items())
        return within and _chosen(argument, found)

    return check


def _chosen(argument: VllmArgument, value: Any) -> bool:
    text = str(value).lower().replace("-", "_") if argument.takes == "name" else str(value)
    return not argument.choices or text in map(str, argument.choices)


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def size(text: str) -> float | None:
    """vllm/utils: decimal suffixes in lower case, also of fractions; binary ones in upper case."""
    suffixed = re.fullmatch(r"(\d+)([KMGT])|(\d+(?:\.\d+)?)([kmgt])", text.strip())
    if not suffixed:
        return _whole(text)
    whole, binary, decimal, suffix = suffixed.groups()
    return int(whole) * 1024 ** ("KMGT".index(binary) + 1) if whole else float(decimal) * 1000 ** ("kmgt".index(suffix) + 1)


def _size_or_auto(text: str) -> float | None:
    return -1 if text.strip().lower() == "auto" else size(text)


_NUMBERS: dict[str, Callable[[str], float | None]] = {
    "int": _whole,
    "ints": _whole,
    "float": _float,
    "floats": _float,
    "size": size,
    "size_or_auto": _size_or_auto,
}


def _parses(text: str, shape: type) -> bool:
    """Whether a text is JSON of an object (dict) or a list."""
    try:
        return isinstance(json.loads(text), shape)
    except (ValueError, RecursionError):
        return False


_ONLINE = ("fp8", "fp8_per_tensor")
"""What ``--quantization`` says where the engine itself makes such weights, with one scale a tensor."""
_SCHEME = "fp8_w8a8"
"""What vLLM calls them in ``linear_backend_per_quant``."""


def quantized_weights(arguments: Sequence[str], model: Model | None) -> Quantization | None:
    """Returns how the weights of a server are quantized: as published, or by the engine when it loads them."""
    return _quantized(model, flag(arguments, "quantization"))


def quantized_draft(arguments: Sequence[str]) -> Quantization | None:
    """Returns how the weights of the draft model are quantized; None where they are not, and where nothing is known of it."""
    config = object_flag(arguments, "speculative-config")
    name = config.get("model")
    return _quantized(find_model(name) if isinstance(name, str) else None, config.get("quantization"))


def failing_kernel(vllm: str, has: Capability | None, quantization: Quantization | None) -> Failing | None:
    """Returns where the kernel fails that a release of vLLM selects for such weights on a GPU; None where it works."""
    facts = engine_facts(vllm)
    if not (quantization and facts and has):
        return None
    found = (failing().get(one) for one in facts.selected(quantization, has, experts=False) or ())
    return next((one for one in found if one and one.on(has)), None)


def linear_backend(arguments: Sequence[str]) -> str:
    """Returns the back end that the arguments name for fp8 weights without blocks; ``auto``: the engine selects it."""
    config = _kernel_config(arguments)
    several = config.get("linear_backend_per_quant")
    named = several.get(_SCHEME) if isinstance(several, Mapping) else None
    given = flag(arguments, "linear-backend") or "auto"
    found = named or (config.get("linear_backend", given) if given == "auto" else given)
    return str(found).lower().replace("-", "_")


def backend_settings(vllm: str, shape: InstanceType, arguments: Sequence[str], model: Model | None) -> dict[str, str]:
    """Returns the flag that the weights of model and draft need on a GPU; nothing where a user names a back end."""
    told = flag(arguments, "linear-backend") is not None or any(
        key.startswith("linear_backend") for key in _kernel_config(arguments)
    )
    wanted = (
        failing_kernel(vllm, shape.compute_capability, one)
        for one in (quantized_weights(arguments, model), quantized_draft(arguments))
    )
    found = "" if told else next((one.backend for one in wanted if one), "")
    return {"linear-backend": found} if found else {}


def _quantized(model: Model | None, online: object) -> Quantization | None:
    return (model.quantization if model else None) or (Quantization("fp8", 8) if online in _ONLINE else None)


def _kernel_config(arguments: Sequence[str]) -> Mapping[str, Any]:
    return {key.replace("-", "_"): value for key, value in object_flag(arguments, "kernel-config").items()}
