"""Reads the shape of a model from a ``config.json`` of Hugging Face. Pure: text in, ``Model`` or faults out.

The file may come from anywhere, so nothing in it is trusted: size, depth and every number are bounded. A fault names its key. An
architecture without a formula is ``NoFormulaError``: nothing about it is guessed.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from eks_inference.catalog.architectures import Architecture, architectures, tower_of, towers
from eks_inference.catalog.models import Model, Task
from eks_inference.catalog.quantization import METHODS, quantization
from eks_inference.catalog.tables import nearest
from eks_inference.catalog.weights import STATES
from eks_inference.faults import Fault, SpecError

LONGEST = 1 << 20
"""Largest file, in bytes. Those of the Hub have some thousand."""
LARGEST = 20_000_000
"""Largest number that any key may have: the longest sequences of published models, in tokens."""
MOST_LAYERS = 1_000

KEYS = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "mlp": "intermediate_size",
    "vocabulary": "vocab_size",
    "max_positions": "max_position_embeddings",
    "window": "sliding_window",
    "experts_used": "num_experts_per_tok",
    "q_rank": "q_lora_rank",
    "kv_rank": "kv_lora_rank",
    "nope_dim": "qk_nope_head_dim",
    "rope_dim": "qk_rope_head_dim",
    "value_dim": "v_head_dim",
    "index_heads": "index_n_heads",
    "index_dim": "index_head_dim",
    "encoder_layers": "encoder_layers",
    "heard": "max_source_positions",
    "mel": "num_mel_bins",
}
"""Our names of numbers → the keys that most architectures have; a row of architectures.toml names others."""

_PATTERN = ("sliding_window_pattern", "_sliding_window_pattern")
"""Keys that say that every so many layers one has no window, in place of ``Architecture.full_every``."""

_LETTERS = {
    **dict.fromkeys(("full_attention", "attention", "0", "*"), "*"),
    **dict.fromkeys(("sliding_attention", "1"), "W"),
    **dict.fromkeys(("mamba", "M"), "M"),
    **dict.fromkeys(("moe", "E"), "E"),
    **dict.fromkeys(("mlp", "-"), "-"),
}
"""What files say that a layer has → ``Layers.pattern``."""

_HEARING = ("encoder_layers", "heard", "mel")

_TWO_BYTES = {"bfloat16": "bfloat16", "float16": "float16", "float32": "bfloat16"}
"""Types of published weights → what engines load them as (vLLM, ``_resolve_auto_dtype``: the first type that the GPU has)."""

_WITHOUT = "write a row with counted_parameters (docs/models.md), or all keys of the server: its memory is then not judged"


class NoFormulaError(SpecError):
    """The architecture has no formula, or the size of its quantization is unknown: rules that need it judge nothing."""


def parse(text: str | bytes) -> Mapping[str, Any]:
    """Parses the text of a config.json. Raises ``SpecError`` for what is none."""
    allowed = f"a JSON object of at most {LONGEST >> 20} MiB, the config.json of a model"
    if len(text) > LONGEST:
        raise SpecError([Fault((), "this file is too large", given=f"{len(text)} bytes", allowed=allowed)])
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError([Fault((), f"this is not JSON: {error}", allowed=allowed)]) from None
    except (ValueError, RecursionError) as error:
        unread = {UnicodeDecodeError: "it is not in UTF-8", RecursionError: "it is nested too deep"}
        reason = unread.get(type(error), "a number in it has too many digits")
        raise SpecError([Fault((), f"this cannot be read: {reason}", allowed=allowed)]) from None
    if not isinstance(found, dict):
        raise SpecError([Fault((), "this is not a JSON object", given=json.dumps(found)[:60], allowed=allowed)])
    return found


def model_of_config(name: str, config: Mapping[str, Any], source: str = "config.json") -> Model:
    """Returns the model that a config.json describes.

    Raises ``SpecError`` with every fault, or ``NoFormulaError`` where there is no formula.
    """
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else config
    kind, architecture = _architecture(config, text)
    if further := next((key for key in kind.unread if text.get(key)), None):
        message = f"what it adds to {architecture} has no formula here"
        raise NoFormulaError([Fault((further,), message, json.dumps(text[further])[:60], "0, false or none", _WITHOUT)])
    reader = _Reader(text, kind)
    columns = reader.columns()
    if reader.faults:
        raise SpecError(reader.faults)
    said = text.get("quantization_config") or config.get("quantization_config")
    vision = config.get("vision_config")
    tower = tower_of(architecture, columns["hidden"], vision) if isinstance(vision, dict) else None
    return Model(
        name=name,
        source=source,
        read="",
        repositories=(),
        architecture=architecture,
        quantization=_quantization(said) if said else None,
        task=_task(config, kind),
        tower=tower,
        uncounted=("vision tower",) if isinstance(vision, dict) and tower is None else (),
        **columns,
    )


@cache
def keys_read() -> frozenset[str]:
    """Every key that ``model_of_config`` reads."""
    known = {"model_type", "tie_word_embeddings", "torch_dtype", "dtype", "layer_types", *_PATTERN, *KEYS.values()}
    known |= {"quantization_config", "text_config", "vision_config", "architectures", "id2label"}
    known |= {"encoder_ffn_dim", "encoder_attention_heads", "index_topk_freq", "index_skip_topk_offset", "index_topk_pattern"}
    for architecture in architectures().values():
        known |= {*architecture.keys.values(), *architecture.pattern, *architecture.unread}
        known |= {architecture.window_switch, architecture.window_from, architecture.experts_switch, architecture.bias_key or ""}
    return frozenset(filter(None, known))


def shape_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a config.json that describes the shape: what ``model_of_config`` reads and nothing else."""
    kept = {key: value for key, value in config.items() if key in keys_read() and value is not None}
    if isinstance(kept.get("text_config"), dict):
        kept["text_config"] = shape_keys(kept["text_config"])
    if isinstance(kept.get("vision_config"), dict):
        read = {key for tower in towers().values() for key, _ in tower.vision}
        kept["vision_config"] = {key: value for key, value in kept["vision_config"].items() if key in read}
    return kept


def _architecture(config: Mapping[str, Any], text: Mapping[str, Any]) -> tuple[Architecture, str]:
    """The structure of the decoder, and the name that engines know the whole model by."""
    outer, inner = config.get("model_type"), text.get("model_type", config.get("model_type"))
    if not isinstance(outer, str) or not isinstance(inner, str):
        message, given = "this key is required and missing", json.dumps(outer)[:40] if outer is not None else ""
        raise SpecError([Fault(("model_type",), message, given=given, allowed="the architecture of the model, e.g. llama")])
    known = architectures()
    unknown = next((one for one in (inner, outer) if one not in known), None)
    if unknown is not None:
        like = nearest(unknown, known)
        hint = "; or ".join([f"nearest: {', '.join(like)}"] * bool(like) + [_WITHOUT])
        raise NoFormulaError(
            [Fault(("model_type",), "this architecture has no formula here", unknown[:60], ", ".join(known), hint)]
        )
    return known[inner], outer


def _task(config: Mapping[str, Any], kind: Architecture) -> Task:
    """What the class of the model is for. A decoder that makes embeddings has that of one that chats."""
    if str(config.get("architectures")).endswith("ForSequenceClassification']"):
        labels = config.get("id2label")
        return "rerank" if isinstance(labels, dict) and len(labels) == 1 else "classify"
    return "embed" if kind.encoder else "transcribe" if kind.hears else "chat"


def _quantization(said: Any) -> Any:
    found = quantization(said) if isinstance(said, dict) else None
    if found is None:
        method = said.get("quant_method") if isinstance(said, dict) else said
        message = "the size of weights in this format is unknown"
        raise NoFormulaError([Fault(("quantization_config", "quant_method"), message, str(method)[:60], ", ".join(METHODS))])
    return found


class _Reader:
    """Reads the numbers of one config.json and collects faults."""

    def __init__(self, config: Mapping[str, Any], kind: Architecture) -> None:
        self._config, self._kind = config, kind
        self._names = {**KEYS, **kind.keys}
        self.faults: list[Fault] = []

    def columns(self) -> dict[str, Any]:
        """The columns of ``Model`` that the numbers give; without meaning when there are faults."""
        kind = self._kind
        self._pattern = pattern = self._of_each_layer()
        layers = self._number("layers", len(pattern) or None, MOST_LAYERS) or 1
        if pattern and len(pattern) != layers:
            self._refuse("layers", "the file lists another number of layers", layers, str(len(pattern)))
        hidden = self._number("hidden") or 1
        heads = self._number("heads") or 1
        found: dict[str, Any] = {"hidden": hidden, "layers": layers, "heads": heads}
        found |= {name: self._number(name) or 1 for name in ("vocabulary", "max_positions")}
        if kind.positions_in_all:
            found["max_positions"] = max(found["max_positions"] - (kind.learned_positions or 0), 1)
        if kind.latent:
            found |= {name: self._number(name) or 1 for name in ("kv_rank", "nope_dim", "rope_dim", "value_dim")}
            found |= {"q_rank": self._number("q_rank", 0), "kv_heads": 1, "head_dim": found["nope_dim"] + found["rope_dim"]}
        else:
            found["kv_heads"] = self._number("kv_heads", heads)
            found["head_dim"] = self._number("head_dim", hidden // heads or None) or 1
        further = ("full_heads", "full_kv_heads", "full_head_dim", "expert_hidden", *(() if kind.latent else ("value_dim",)))
        found |= {name: self._number(name, 0) or 0 for name in further if name in kind.keys}
        for name in () if self.faults else ("kv_heads", "full_kv_heads"):
            if heads % (found.get(name) or 1):
                self._refuse(name, "the attention heads are not a multiple of it", found[name], f"a part of {heads}")
        if kind.indexed:
            found |= {name: self._number(name) or 1 for name in ("index_heads", "index_dim")}
            found["index_layers"] = self._index_layers(layers)
        if kind.hears:
            found |= {
                name: self._number(name, most=MOST_LAYERS if name == "encoder_layers" else LARGEST) or 1 for name in _HEARING
            }
            for key, same in (("encoder_ffn_dim", "mlp"), ("encoder_attention_heads", "heads")):
                if self._of_key(key, None, 1) != self._number(same):
                    self._refuse(key, "the encoder differs from the decoder", self._config.get(key), f"as {self._names[same]}")
        found |= self._experts(layers)
        if kind.single and "-" not in pattern:
            found["mlp"] = 0
        else:
            found["mlp"] = self._number("mlp", 0 if found["expert_layers"] == layers and found["expert_mlp"] else None) or 0
        found["pattern"] = pattern
        found |= self._window(layers) | (self._states(layers) if "state_heads" in kind.keys else {})
        if "embedding_width" in kind.keys:
            found["embedding_width"] = self._number("embedding_width", hidden)
        key = "torch_dtype" if "torch_dtype" in self._config else "dtype"
        dtype = self._config.get(key) or "float32"
        if not isinstance(dtype, str) or dtype not in _TWO_BYTES:
            self._refuse(key, "the type of weights is none that is known", dtype, ", ".join(_TWO_BYTES))
        found["dtype"] = _TWO_BYTES.get(dtype) if isinstance(dtype, str) else None
        found["tied_embeddings"] = self._flag("tie_word_embeddings", kind.tied)
        found["biased"] = kind.bias_key == "" or (kind.bias_key is not None and self._flag(kind.bias_key, False))
        return {key: value for key, value in found.items() if key in _COLUMNS}

    def _experts(self, layers: int) -> dict[str, int]:
        switch = self._kind.experts_switch
        without = (self._kind.single and "E" not in self._pattern) or (switch and not self._flag(switch, False))
        if "experts" not in self._kind.keys or without:
            return {"experts": 0, "experts_used": 0, "expert_mlp": 0, "shared_mlp": 0, "expert_layers": 0}
        keys = self._kind.keys
        width = self._number("expert_mlp", 0) if "expert_mlp" in keys else 0
        shared = self._number("shared_mlp", 0) if "shared_mlp" in keys else width
        several = self._number("shared_experts", 0) if "shared_experts" in keys else int("shared_mlp" in keys)
        first = (self._number("dense_layers", 0) or 0) if "dense_layers" in self._kind.keys else 0
        step = (self._number("expert_step", 1) or 1) if "expert_step" in self._kind.keys else 1
        listed = self._config.get(self._kind.keys.get("dense_list", ""), []) or []
        if not isinstance(listed, list) or not all(isinstance(one, int) for one in listed):
            self._refuse("dense_list", "not a list of layers", listed, "numbers of layers from 0")
            listed = []
        dense = frozenset(listed)
        begin = 0 if self._kind.keys.get("expert_step") == "moe_layer_freq" else 1
        sparse = sum(1 for layer in range(first, layers) if (layer + begin) % step == 0 and layer not in dense)
        of_each = self._config.get(self._kind.keys.get("expert_list", ""))
        if self._kind.single or isinstance(of_each, list):
            sparse = self._pattern.count("E") if self._kind.single else min((of_each or []).count(1), layers)
        return {
            "experts": self._number("experts") or 1,
            "experts_used": self._number("experts_used", 0) or 0,
            "expert_mlp": width or 0,
            "shared_mlp": (shared or 0) * (several or 0),
            "expert_layers": sparse,
        }

    def _index_layers(self, layers: int) -> int:
        """Layers with an index of their own (vLLM 0.30.0, ``DeepseekV32Attention``)."""
        every, first = self._of_key("index_topk_freq", 1, 1) or 1, self._of_key("index_skip_topk_offset", 2, 0) or 0
        pattern = self._config.get("index_topk_pattern")
        if isinstance(pattern, str):
            return layers - pattern[:layers].count("S")
        return sum(1 for layer in range(layers) if max(layer - first + 1, 0) % every == 0)

    def _window(self, layers: int) -> dict[str, int]:
        kind, window = self._kind, self._number("window", 0)
        if not window or (kind.window_switch and not self._flag(kind.window_switch, False)):
            return {"window": 0, "window_layers": 0}
        listed = self._config.get("layer_types")
        if self._pattern:
            return {"window": window, "window_layers": self._pattern.count("W")}
        if listed is not None and not isinstance(listed, list):
            self._refuse("layer_types", "not a list", listed, "the attention of each layer: sliding_attention or full_attention")
        elif listed is not None:
            return {"window": window, "window_layers": min(listed.count("sliding_attention"), layers)}
        if kind.window_from:
            return {"window": window, "window_layers": max(layers - (self._of_key(kind.window_from, layers, 0) or 0), 0)}
        every = next(filter(None, (self._of_key(key, 0, 0) for key in _PATTERN)), kind.full_every)
        return {"window": window, "window_layers": layers - (layers // every if every else 0)}

    def _states(self, layers: int) -> dict[str, int]:
        """Layers with a state, where every so many layers one has none."""
        found = {name: self._number(name) or 1 for name in STATES}
        if self._kind.pattern:
            return found
        found["full_every"] = every = self._number("full_every", self._kind.full_every) or 1
        if every > layers:
            self._refuse("layers", "none of them is an attention layer", layers, f"at least {every}")
        usual = ["full_attention" if layer % every == 0 else "linear_attention" for layer in range(1, layers + 1)]
        if (listed := self._config.get("layer_types")) not in (None, usual):
            self._refuse(
                "layer_types", "this order of layers has no formula here", listed, f"full_attention every {every} layers"
            )
        return found

    def _of_each_layer(self) -> str:
        """What each layer has, a letter each; empty where a rule of the architecture says it."""
        for key in self._kind.pattern:
            if (listed := self._config.get(key)) is not None:
                found = [_LETTERS.get(str(one)) for one in listed] if isinstance(listed, str | list) else [None]
                if len(found) <= MOST_LAYERS and None not in found and {"*", "W"} & set(found):
                    return "".join(map(str, found))
                self._refuse(key, "not what each layer has, some of them attention", listed, ", ".join(_LETTERS))
                return ""
        if self._kind.pattern:
            self._refuse(self._kind.pattern[0], "this key is required and missing", None, "a list of what each layer has")
        return ""

    def _number(self, name: str, default: int | None = None, most: int = LARGEST) -> int | None:
        """A number by our name. ``default`` stands for a key that is missing or null; None: the key is required."""
        return self._of_key(self._names[name], default, 0 if default == 0 else 1, most)

    def _of_key(self, key: str, default: int | None, least: int, most: int = LARGEST) -> int | None:
        given = self._config.get(key)
        if given is None:
            if default is None:
                self._refuse(key, "this key is required and missing", None, f"a number from {least} to {most}")
            return default
        if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
            self._refuse(key, "not such a number", given, f"a number from {least} to {most}")
            return default
        return given

    def _flag(self, key: str, default: bool) -> bool:
        given = self._config.get(key, default)
        if given is None:
            return default
        if not isinstance(given, bool):
            self._refuse(key, "neither true nor false", given, "true, false")
            return default
        return given

    def _refuse(self, name: str, message: str, given: Any, allowed: str) -> None:
        shown = "" if given is None else json.dumps(given, default=str)[:60]
        self.faults.append(Fault((self._names.get(name, name),), message, given=shown, allowed=allowed))


_COLUMNS = {field.name for field in fields(Model)}
