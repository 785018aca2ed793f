"""What a search assumes of a server of which nobody says it: ``plan``, ``new`` and open keys of stack files. Pure."""

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.models import Model

USUAL_CONTEXT = 8192
"""Tokens of a sequence if nobody says: half of a long chat fits, and every model of the catalog has it or less."""
USUAL_CONCURRENCY = 4
"""Sequences at once if nobody says. On Neuron the batch that is compiled."""
USUAL_SEQUENCES = 256
"""vLLM's own ``max_num_seqs`` on most GPUs (vLLM documentation, engine arguments): what does not fit the KV cache waits. On
Neuron the number is that of the batch that is compiled."""


def sequences_asked(concurrency: int, engine: EngineProfile, model: Model) -> int:
    """Returns ``max_num_seqs`` of a server that is to hold so many sequences at once."""
    return engine.batch_for(concurrency, model) if engine.neuron else max(concurrency, USUAL_SEQUENCES)
