"""Steps of an engine by a formula."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """Steps that take longer with each sequence, each token of context and each token of a prompt."""

    step: float = 0.02
    sequence: float = 1e-4
    context: float = 1e-6
    prompt: float = 1e-4

    def seconds(self, *, decoding: int, context_tokens: int, prefill_tokens: int, prefill_pairs: float = 0) -> float:
        return self.step + self.sequence * decoding + self.context * context_tokens + self.prompt * prefill_tokens
