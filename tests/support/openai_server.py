"""Imitates a model server with the OpenAI API and known latencies, on loopback. Standard library only.

    with OpenAIServer(ttft_s=0.05, itl_s=0.01, model="m") as server:
        ask(server.url)  # http://127.0.0.1:PORT/v1

Serves ``GET /v1/models``, ``GET /health``, ``POST /v1/chat/completions`` and ``POST /v1/completions``, whole and streamed. An
answer has ``max_tokens`` (or ``max_completion_tokens``) tokens, by default ``tokens``, with one word and one event per token. The
first token comes ``ttft_s`` after the request, each further one ``itl_s`` after the one before; a whole answer comes when its
last token would. Each request has a thread of its own, so latencies do not depend on the load.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from loopback import Handler, Request, Served, Server
from waiting import PATIENCE_S

Fault = Literal[
    "http_500",  # an error status with an error body
    "error_body",  # the same body with status 200
    "error_event",  # a stream whose first event is an error body
    "broken_stream",  # the connection ends after half of the tokens
    "no_content",  # a well-formed answer without any words
    "not_json",  # an HTML page
    "no_chat_template",  # only completions are answered
]


@dataclass(kw_only=True, eq=False)
class OpenAIServer(Served):
    """``requests`` lists the requests so far. The first ``failures`` requests for an answer get 503, as while a model loads.

    ``key`` is the bearer token that requests must carry; None accepts any. ``include_usage`` allows token counts in answers. No
    answer has a token before ``lets_begin`` is set, as it is at first.
    """

    ttft_s: float = 0.0
    itl_s: float = 0.0
    model: str = "m"
    tokens: int = 8
    word: str = "word"
    fault: Fault | None = None
    failures: int = 0
    key: str | None = None
    include_usage: bool = True
    requests: list[Request] = field(default_factory=list)
    lets_begin: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.lets_begin.set()
        self._lock = threading.Lock()
        self.servers = [Server(self, _Handler)]

    @property
    def port(self) -> int:
        return self.servers[0].server_address[1]

    @property
    def url(self) -> str:
        """The base URL for clients: with ``/v1`` and without a trailing slash."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The bodies of the requests for an answer."""
        return [request.body for request in self.requests if request.method == "POST"]

    def note(self, request: Request) -> bool:
        """Stores the request; returns whether it is one of the first, which get 503."""
        with self._lock:
            self.requests.append(request)
            if request.method == "GET" or self.failures == 0:
                return False
            self.failures -= 1
            return True


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        owner = self.owner
        owner.note(self.received())
        if self.path == "/health":
            self._answer(200, {})
        elif self.path == "/v1/models":
            self._answer(200, {"object": "list", "data": [{"id": owner.model, "object": "model", "owned_by": "test"}]})
        else:
            self._error(404, f"no such path: {self.path}")

    def do_POST(self) -> None:
        owner = self.owner
        request = self.received()
        body, began = request.body or {}, time.monotonic()
        if owner.note(request):
            self._error(503, "the model is loading")
        elif owner.key is not None and request.headers.get("authorization") != f"Bearer {owner.key}":
            self._error(401, "wrong key")
        elif self.path not in ("/v1/chat/completions", "/v1/completions"):
            self._error(404, f"no such path: {self.path}")
        elif body.get("model") != owner.model:
            self._error(404, f"the model {body.get('model')} does not exist")
        elif owner.fault == "no_chat_template" and self._chat:
            self._error(400, "default chat template is no longer allowed")
        elif owner.fault == "http_500":
            self._error(500, "the engine is dead")
        elif owner.fault == "error_body":
            self._error(200, "the engine is dead")
        elif owner.fault == "not_json":
            self.send(200, b"<html>welcome</html>", {"content-type": "text/html"})
        elif body.get("stream"):
            self._stream(body, began)
        else:
            self._whole(body, began)

    # -- answers ----------------------------------------------------------------------------------------------------------------

    def _whole(self, body: dict[str, Any], began: float) -> None:
        words = self._words(body)
        self._until(began + self._moment(max(len(words) - 1, 0)))
        text = "".join(words)
        chat = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}
        choice = chat if self._chat else {"index": 0, "text": text, "finish_reason": "length"}
        answer = self._head(body, "") | {"choices": [choice]}
        if self.owner.include_usage:
            answer["usage"] = self._usage(body, len(words))
        self._answer(200, answer)

    def _stream(self, body: dict[str, Any], began: float) -> None:
        owner = self.owner
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if owner.fault == "error_event":
            self._event({"error": {"message": "the engine is dead", "code": 500}})
            self._chunk(b"")
            return
        words = self._words(body)
        if self._chat:
            self._event(self._piece(body, {"role": "assistant", "content": ""}))
        for number, word in enumerate(words):
            if owner.fault == "broken_stream" and number >= len(words) / 2:
                self.close_connection = True
                self.connection.close()
                return
            self._until(began + self._moment(number))
            self._event(self._piece(body, {"content": word}))
        self._event(self._piece(body, {}, "length"))
        if owner.include_usage and (body.get("stream_options") or {}).get("include_usage"):
            self._event(self._head(body, ".chunk") | {"choices": [], "usage": self._usage(body, len(words))})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    @property
    def _chat(self) -> bool:
        return self.path.endswith("/chat/completions")

    def _words(self, body: dict[str, Any]) -> list[str]:
        owner = self.owner
        if owner.fault == "no_content":
            return []
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or owner.tokens
        return [owner.word if number == 0 else f" {owner.word}{number}" for number in range(asked)]

    def _moment(self, token: int) -> float:
        return self.owner.ttft_s + token * self.owner.itl_s

    def _head(self, body: dict[str, Any], kind: str) -> dict[str, Any]:
        name = f"chat.completion{kind}" if self._chat else "text_completion"
        return {"id": "answer-1", "object": name, "created": 1700000000, "model": body["model"]}

    def _piece(self, body: dict[str, Any], delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        choice = {"delta": delta} if self._chat else {"text": delta.get("content", "")}
        return self._head(body, ".chunk") | {"choices": [{"index": 0, **choice, "finish_reason": finish}]}

    def _usage(self, body: dict[str, Any], made: int) -> dict[str, int]:
        prompt = " ".join(str(message.get("content")) for message in body.get("messages", [])) or str(body.get("prompt", ""))
        read = len(prompt.split())
        return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}

    # -- the wire ---------------------------------------------------------------------------------------------------------------

    def _until(self, moment: float) -> None:
        assert self.owner.lets_begin.wait(PATIENCE_S), "nobody lets it begin"
        time.sleep(max(moment - time.monotonic(), 0))

    def _event(self, data: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _error(self, status: int, message: str) -> None:
        self._answer(status, {"error": {"message": message, "type": "server_error", "code": status}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send(status, json.dumps(body).encode(), {"content-type": "application/json"})
