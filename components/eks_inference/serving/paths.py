"""Paths of model servers: what endpoints lead out, and nothing else. Pure; no pulumi.

A server answers at many more: docs/doors.md has those of vLLM. It asks for its key only below /v1, /v2, /inference and
/cohere: whoever reaches the others infers (/invocations), changes the engine (in some releases /pause) and reads its load
(/metrics) without one. Below /v1 are paths that change the server, too, such as /v1/load_lora_adapter.

Sources: vLLM 0.30.0, entrypoints/serve/middleware/authenticate.py (GUARDED_PREFIX) and docs/usage/security.md, which says to
allow paths at a proxy; Open Inference Protocol v2 (KServe).
"""

from collections.abc import Mapping, Sequence

from eks_inference.catalog.models import Task

MESSAGES_PATH = "/v1/messages"
"""Begins the paths of Anthropic's API."""
_COMPLETIONS = "/v1/completions"
PATHS: Mapping[Task, Sequence[str]] = {
    "chat": ("/v1/chat/completions", _COMPLETIONS, "/v1/responses", MESSAGES_PATH, f"{MESSAGES_PATH}/count_tokens"),
    "complete": (_COMPLETIONS,),
    "embed": ("/v1/embeddings", "/v1/score"),
    "rerank": ("/v1/rerank", "/v1/score"),
    # vLLM asks for no key at /classify.
    "classify": (),
    "transcribe": ("/v1/audio/transcriptions", "/v1/audio/translations"),
}
"""Where clients of an endpoint ask a model for what it does; its name is in a JSON body, or a form (vLLM 0.30.0, entrypoints)."""
FORM_PATHS: Sequence[str] = PATHS["transcribe"]
ASKING_PATHS = tuple(dict.fromkeys(path for paths in PATHS.values() for path in paths))
MODELS_PATH = "/v1/models"
KSERVE_SERVICE = "inference.GRPCInferenceService"
"""The KServe v2 API over gRPC."""
