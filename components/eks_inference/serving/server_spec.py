"""A model server of any kind, as a stack file describes it."""

from typing import Annotated

from pydantic import Field

from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm.spec import VllmServerSpec

ServerSpec = Annotated[RayServeVllmSpec | VllmServerSpec | TritonServerSpec | DisaggregatedPairSpec, Field(discriminator="kind")]
"""Told apart by ``kind``."""
