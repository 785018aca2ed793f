"""Vectors of the rules about servers on GPUs."""

from eks_inference.catalog.models import find_model
from eks_inference.catalog.engines import engine
from vectors import Vector
from vectors.serving import gpu, on

VECTORS = {
    "GPU001": Vector(gpu, lambda: gpu(placement=on("m5.large")) , "x"),
    "GPU002": Vector(gpu, lambda: gpu(engine=engine("triton-24.07-vllm-0.5"), model=find_model("Qwen3-8B")), "does not serve Qwen3-8B"),
    "GPU003": Vector(gpu, lambda: gpu(devices=4, tensor_parallel=4), "4 GPUs on g4dn.xlarge, which has 1"),
    "GPU004": Vector(gpu, lambda: gpu(tensor_parallel=4), "tensor_parallel 4 is more than the 1 GPU of a pod"),
    "GPU005": Vector(gpu, lambda: gpu(tensor_parallel=3), "16 attention heads of OPT-350M do not divide evenly among 3 GPUs"),
    "GPU006": Vector(gpu, lambda: gpu(model=find_model("Llama-2-13B")), "24.24 GiB"),
    "GPU007": Vector(gpu, lambda: gpu(arguments=("--dtype=bfloat16",)), "does not compute in bfloat16"),
    "GPU008": Vector(gpu, lambda: gpu(cpu_millis=4000), "no g4dn.xlarge has 4 CPU for a pod"),
    "GPU009": Vector(gpu, lambda: gpu(arguments=("--port=9000",)), "the engine listens on 9000"),
}
