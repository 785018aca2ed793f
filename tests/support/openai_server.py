"""A model server on loopback that speaks the OpenAI API with latencies known beforehand. Standard library only.

    with OpenAIServer(ttft_s=0.05, itl_s=0.01, model="m") as server:
        ask(server.url)  # http://127.0.0.1:PORT/v1

Answers ``GET /v1/models``, ``GET /health``, ``POST /v1/chat/completions`` and ``POST /v1/completions``, whole and streamed. An
answer has ``max_tokens`` (or ``max_completion_tokens``) tokens, else ``tokens`` of them, one word and one event a token. The
first token comes ``ttft_s`` after the request, each further one ``itl_s`` after the one before it; a whole answer comes when
its last token would. Every request is answered in a thread of its own, so latencies do not depend on the load.
"""

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, cast

Fault = Literal[
    "http_500",  # an error status with an error body
    "error_body",  # the same body with status 200
    "error_event",  # a stream whose first event is an error body
    "broken_stream",  # the connection ends after half of the tokens
    "no_content",  # a well-formed answer without a word in it
    "not_json",  # a page of something else
]


@dataclass(frozen=True)
class Request:
    """One request as it came; ``body`` is None for a GET, ``at`` is by ``time.monotonic``."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    at: float


class OpenAIServer:
    """``requests`` lists what came so far. ``failures`` requests for an answer get a 503 first, as from a server that loads.

    ``key`` is the bearer token that requests must carry; None: any. ``include_usage`` false: never says how many tokens it made.
    """

    def __init__(
        self,
        *,
        ttft_s: float = 0.0,
        itl_s: float = 0.0,
        model: str = "m",
        tokens: int = 8,
        fault: Fault | None = None,
        failures: int = 0,
        key: str | None = None,
        include_usage: bool = True,
    ) -> None:
        self.ttft_s = ttft_s
        self.itl_s = itl_s
        self.model = model
        self.tokens = tokens
        self.fault = fault
        self.failures = failures
        self.key = key
        self.include_usage = include_usage
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    @property
    def url(self) -> str:
        """The base of the API, as clients want it: with ``/v1`` and no slash behind."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The bodies of the requests for an answer."""
        return [request.body for request in self.requests if request.method == "POST"]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def note(self, request: Request) -> bool:
        """Keeps the request; true when it is one of the first that are turned away."""
        with self._lock:
            self.requests.append(request)
            if request.method == "GET" or self.failures == 0:
                return False
            self.failures -= 1
            return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: OpenAIServer
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def owner(self) -> OpenAIServer:
        return cast(_Server, self.server).owner

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        owner = self.owner
        self._note(None)
        if self.path == "/health":
            self._answer(200, {})
        elif self.path == "/v1/models":
            self._answer(200, {"object": "list", "data": [{"id": owner.model, "object": "model", "owned_by": "test"}]})
        else:
            self._error(404, f"no such path: {self.path}")

    def do_POST(self) -> None:
        owner = self.owner
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        began = time.monotonic()
        if self._note(body):
            self._error(503, "the model is loading")
        elif owner.key is not None and self.headers.get("Authorization") != f"Bearer {owner.key}":
            self._error(401, "wrong key")
        elif self.path not in ("/v1/chat/completions", "/v1/completions"):
            self._error(404, f"no such path: {self.path}")
        elif body.get("model") != owner.model:
            self._error(404, f"the model {body.get('model')} does not exist")
        elif owner.fault == "http_500":
            self._error(500, "the engine is dead")
        elif owner.fault == "error_body":
            self._error(200, "the engine is dead")
        elif owner.fault == "not_json":
            self._send(200, b"<html>welcome</html>", "text/html")
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
        return ["word" if number == 0 else f" word{number}" for number in range(asked)]

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

    def _note(self, body: Any) -> bool:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return self.owner.note(Request(self.command, self.path, headers, body, time.monotonic()))

    def _until(self, moment: float) -> None:
        time.sleep(max(moment - time.monotonic(), 0))

    def _event(self, data: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _error(self, status: int, message: str) -> None:
        self._answer(status, {"error": {"message": message, "type": "server_error", "code": status}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
