"""Rules about what vLLM's plugin for Neuron checks when it starts, and what it ignores. Ids NEU…"""

from collections.abc import Iterator

from eks_inference.rules import Judgement
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.rules.neuron import neuron_rule

_PLUGIN = "vLLM's plugin for Neuron 0.24.0.1.1.0 (jinhuang12/vllm-neuron ed3580d)"


@neuron_rule(
    "NEU027",
    "Workers look for the EFA interface beside their device only where there is one.",
    fix="leave the variable out",
    source=f"{_PLUGIN}, worker/neuron_worker.py, utils/hardware_config.py; AWS Neuron documentation, deploying the DLC",
)
def workers_find_their_interface(server: ServingFacts) -> Iterator[Judgement]:
    affinity = server.engine.generation.efa_affinity
    if affinity is None:
        return
    seeks = server.environment.get(affinity.switch, affinity.seeks) == affinity.seeks
    finds = affinity.finds(server.instance.name, server.efa_interfaces)
    interfaces = f"{server.efa_interfaces or 'no'} EFA interface{'' if server.efa_interfaces == 1 else 's'}"
    yield Judgement(
        holds=finds or not seeks,
        path=server.under("extra_env", affinity.switch),
        working=(
            f"a pod on {server.instance.name} with {interfaces}; addresses are known on {', '.join(affinity.instance_types)}",
            f"{affinity.switch}: {'looks for them' if seeks else 'does not look'}",
        ),
        message="each worker looks for an EFA interface that it does not find: the server does not start",
        given=f"{affinity.switch}={affinity.seeks}",
        allowed=affinity.skips,
    )
