"""The room that the engine reserves for LoRA adapters, asked of its own manager on a model on the meta device."""

from collections.abc import Iterator
from unittest import mock

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.lora import model_manager
from vllm.model_executor.layers.fused_moe.experts.lora_experts_mixin import LoRAExpertsMixin
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernelModularImpl
from vllm.v1.worker.lora_model_runner_mixin import LoRAModelRunnerMixin


def reserved(model: torch.nn.Module, config: VllmConfig) -> Iterator[torch.Tensor]:
    """Yields the buffers that adapters are loaded into. The layers of the model are wrapped then."""
    if not config.lora_config:
        return
    for layer in model.modules():
        method = getattr(layer, "quant_method", None)
        if isinstance(method, FusedMoEMethodBase):
            # The kernel is made of loaded weights. That it takes adapters was a condition when it was chosen.
            method.moe_quant_config = mock.MagicMock()
            experts, modular = (mock.MagicMock(spec=one) for one in (LoRAExpertsMixin, FusedMoEKernelModularImpl))
            method.moe_kernel = mock.MagicMock(fused_experts=experts, impl=modular, is_monolithic=False)
    meta = torch.device("meta")
    with set_current_vllm_config(config), meta, mock.patch.object(model_manager, "get_punica_wrapper", mock.MagicMock()):
        wrapped = LoRAModelRunnerMixin().load_lora_model(model, config, meta)
    for layer in wrapped.modules():
        for name, value in vars(layer).items():
            if name.endswith(("lora_a_stacked", "lora_b_stacked")):
                stacked = [value] if isinstance(value, torch.Tensor) else value
                yield from (one for one in stacked if one._base is None)  # experts have a second list, of views
