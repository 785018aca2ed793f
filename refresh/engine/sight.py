"""What a model has to see with: weights of the model on the meta device, tokens of the engine's own processing of pictures."""

import inspect
import types
from typing import Any

import torch
from PIL import Image
from transformers import AutoImageProcessor
from vllm.config import VllmConfig
from vllm.model_executor.models import mllama4
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing import InputProcessingContext

SIZES = ((640, 480), (1024, 1024), (1920, 1080))


def asked(model: Any, config: VllmConfig) -> dict[str, Any]:
    if model.config.model_type == "kimi_k25":  # its processing info wants a tokenizer, of which nothing is counted
        return {"weights": _own(model), "tokens": _tokens_of_kimi(config)}
    info = _info(config)
    if hasattr(info, "_compute_num_soft_tokens"):  # Gemma 4: nearly as many, in its own shape
        made = {f"{width}x{height}": info._compute_num_soft_tokens(width, height) for width, height in SIZES}
        return {"weights": _own(model), "tokens": {**made, "largest": info.get_hf_config().vision_config.default_output_length}}
    biggest = info.get_image_size_with_most_features()
    sizes = {f"{width}x{height}": (width, height) for width, height in SIZES} | {"largest": (biggest.width, biggest.height)}
    return {"weights": _own(model), "tokens": {name: _tokens(info, *size) for name, size in sizes.items()}}


def _tokens_of_kimi(config: VllmConfig) -> dict[str, int]:
    from vllm.model_executor.models.kimi_k25 import MaxImageTokenMeta as Largest  # which older releases have elsewhere
    from vllm.transformers_utils.processors.kimi_k25_vision_fused import KimiK25FusedVisionProcessor

    made = KimiK25FusedVisionProcessor.from_pretrained(config.model_config.model)
    made.media_proc_cfg["fixed_output_tokens"] = None  # published as null, which TOML has not
    sizes = {f"{width}x{height}": (width, height) for width, height in SIZES} | {"largest": (Largest.width, Largest.height)}
    pictures = {name: {"type": "image", "image": Image.new("L", size)} for name, size in sizes.items()}
    return {name: made.media_tokens_calculator(one) for name, one in pictures.items()}


def _own(model: Any) -> int:
    """Numbers of all that is no part of the language model."""
    of_texts = {id(parameter) for parameter in model.get_language_model().parameters()}
    return sum(parameter.numel() for parameter in model.parameters() if id(parameter) not in of_texts)


def _info(config: VllmConfig) -> Any:
    """The engine's account of the model's pictures. The tokenizer, of which it counts nothing, is not there."""
    made = AutoImageProcessor.from_pretrained(config.model_config.model)
    whole = {"images_kwargs": {"do_pan_and_scan": False, "pan_and_scan_max_num_crops": 1}}  # as Gemma 3 is published
    processor = types.SimpleNamespace(image_processor=made, _merge_kwargs=lambda *given, **named: whole)
    processor.image_seq_length = getattr(made, "image_seq_length", 0)
    processor.tokenizer = types.SimpleNamespace(init_kwargs={})
    context = InputProcessingContext(config.model_config, processor.tokenizer)
    object.__setattr__(context, "get_hf_processor", lambda *given, **named: processor)
    return MULTIMODAL_REGISTRY._get_model_cls(config.model_config)._processor_factory.info(context)


def _tokens(info: Any, width: int, height: int) -> int:
    if hasattr(info, "get_max_num_tiles"):  # Llama 4: the tiles, and the whole picture as one more
        vision = info.get_hf_config().vision_config
        tile = mllama4.SizeDict(height=vision.image_size, width=vision.image_size)
        sizes = mllama4.find_supported_resolutions(max_num_chunks=info.get_max_num_tiles(), patch_size=tile)
        best = mllama4.get_best_fit((height, width), torch.tensor(sizes))
        tiles = int(best[0]) * int(best[1]) // vision.image_size**2
        return info.get_patch_per_chunk(vision) * (tiles + (tiles > 1))
    processor = info.get_hf_processor()
    further = {"image_processor": processor.image_processor, "processor": processor, "mm_kwargs": {}}
    wanted = inspect.signature(info.get_num_image_tokens).parameters
    given = {name: one for name, one in further.items() if name in wanted}
    return info.get_num_image_tokens(image_width=width, image_height=height, **given)
