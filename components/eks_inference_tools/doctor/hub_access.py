"""Whether the Hugging Face Hub gives the stack's models to the holder of the token. Pure."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from eks_inference_tools.doctor.findings import Finding, error, ok
from eks_inference_tools.doctor.questions import HubFile, Inquiry
from eks_inference_tools.hub import TOKEN_VARIABLE
from eks_inference_tools.reading.served_models import models, workloads
from stackgraph.graph.document import Graph
from stackgraph.graph.values import is_token

TOPIC = "models"


def hub(graph: Graph, *, with_token: bool) -> Iterator[Inquiry]:
    """Yields the repositories that the graph's servers load models from."""
    found = {(model.model, model.settings.get("revision", "")) for model in models(graph, workloads(graph))}
    for repository, revision in sorted(found):
        if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", repository):
            asked = HubFile(repository, revision if revision and not is_token(revision) else "main")
            yield Inquiry(TOPIC, repository, (asked,), partial(_judged, asked=asked, with_token=with_token))


def _judged(answer: Mapping[str, Any] | None, asked: HubFile, with_token: bool) -> Iterator[Finding]:
    whose = "the token" if with_token else "anybody without a token"
    if answer is None:
        yield error(
            f"{asked.repository}: the Hub has no config.json at revision {asked.revision}", "correct model.id or its revision"
        )
    elif answer.get("refused"):
        remedy = f"accept the licence on huggingface.co/{asked.repository}" + (
            ", with the token's account" if with_token else f", and set {TOKEN_VARIABLE} and the stack's secret huggingFaceToken"
        )
        yield error(f"{asked.repository}: the Hub refuses {whose}: {answer['refused']}", remedy)
    else:
        yield ok(f"{asked.repository}: the Hub gives it to {whose}")
