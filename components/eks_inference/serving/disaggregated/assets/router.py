"""The one address of a pair: sends each request to prefill and decode at once and makes one answer of theirs.

    router.py PREFILL_URL DECODE_URL [PORT]

The protocol is that of Neuron's own neuron-proxy-server. Both servers get the same X-Request-Id, by which decode asks prefill for
the KV cache; prefill answers one token and decode all of them. A streamed answer begins with prefill's token, which is there
first, and goes on with what decode adds to it. A whole answer is decode's.

Unlike neuron-proxy-server it listens on every address, answers errors as errors instead of a 200 with an error inside, hangs up
on one server when the other refuses or the client leaves, and knows two more paths: GET /health (200 when both servers are well)
and GET /v1/models. Standard library only.
"""

import http.client
import json
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import urlsplit

PATHS = ("/v1/completions", "/v1/chat/completions")
_HEALTH_SECONDS = 5
_SILENCE_SECONDS = 1800  # of one server, a long queue included


class RefusedError(Exception):
    """What the client gets instead of an answer."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body


class Upstream:
    """One request to one server. ``close`` also ends a wait in another thread, and the server then drops the request."""

    def __init__(self, name: str, url: str, timeout: float = _SILENCE_SECONDS) -> None:
        parts = urlsplit(url)
        self.name = name
        self._closed = False
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
        """The response, when it is 200; raises ``RefusedError`` with what the server said otherwise, or that it is not there."""
        try:
            data = None if body is None else json.dumps(body).encode()
            self._connection.connect()
            if self._closed:  # while it was connecting
                raise ConnectionAbortedError("not needed any more")
            self._connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = self._connection.getresponse()
            if response.status != 200:
                raise RefusedError(response.status, response.read())
            return response
        except (OSError, http.client.HTTPException) as error:
            raise RefusedError(502, error_body(f"{self.name}: {error or type(error).__name__}")) from error

    def close(self) -> None:
        self._closed = True
        if self._connection.sock is not None:
            with suppress(OSError):  # it is closed already
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def error_body(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "router"}}).encode()


def one_token(request: dict[str, Any]) -> dict[str, Any]:
    """The request as prefill gets it. What else says how long the answer is must not contradict it."""
    other = ("max_completion_tokens", "min_tokens", "stream_options")
    return {**{key: value for key, value in request.items() if key not in other}, "max_tokens": 1}


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The events of a stream, without the last, which is no JSON. Without it the server broke off: ``ValueError``."""
    data = b""
    for line in response:
        if line.startswith(b"data:"):
            data = line.removeprefix(b"data:").strip()
            if data != b"[DONE]":
                yield json.loads(data)
    if data != b"[DONE]":
        raise ValueError("no end of the stream")


def first_tokens(response: http.client.HTTPResponse, seen: dict[int, str]) -> Iterator[dict[str, Any]]:
    """Prefill's part of a stream, whose answer ends there; the client's goes on. ``seen`` gets the text by choice."""
    for event in events(response):
        for choice in event.get("choices", ()):
            choice["finish_reason"] = None
            seen[choice["index"]] = seen.get(choice["index"], "") + text_of(choice)
        if "error" in event or any(text_of(choice) or opens(choice) for choice in event.get("choices", ())):
            yield event


def further_tokens(response: http.client.HTTPResponse, seen: dict[int, str]) -> Iterator[dict[str, Any]]:
    """Decode's part: without what prefill has said already, by choice, and without a second beginning of a chat message."""
    waiting = dict(seen)
    for event in events(response):
        kept = []
        for choice in event.get("choices", ()):
            text, known = text_of(choice), waiting.get(choice["index"])
            if known is not None:
                if text or not opens(choice):
                    del waiting[choice["index"]]
                    put_text(choice, text.removeprefix(known) if text.startswith(known) else "")
                if not text_of(choice) and choice.get("finish_reason") is None:
                    continue
            kept.append(choice)
        if kept or not event.get("choices"):
            yield {**event, "choices": kept} if "choices" in event else event


def text_of(choice: dict[str, Any]) -> str:
    return choice.get("text") or (choice.get("delta") or {}).get("content") or ""


def opens(choice: dict[str, Any]) -> bool:
    """Whether a chat message begins here."""
    return "role" in (choice.get("delta") or {})


def put_text(choice: dict[str, Any], text: str) -> None:
    if "text" in choice:
        choice["text"] = text
    elif choice.get("delta"):
        choice["delta"] = {"content": text}


class Router(ThreadingHTTPServer):
    """Requests are few and long: each has a thread. ``server_close`` waits for those under way."""

    daemon_threads = False
    request_queue_size = 256

    def __init__(self, prefill: str, decode: str, port: int, host: str = "") -> None:
        super().__init__((host, port), Handler)
        self.prefill, self.decode = prefill, decode

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            print(f"{client_address[0]}: {error!r}", file=sys.stderr, flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def router(self) -> Router:
        return cast(Router, self.server)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: probes come every few seconds."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._health()
        elif self.path == "/v1/models":
            upstream = Upstream("decode", self.router.decode, _HEALTH_SECONDS)
            try:
                self._whole(200, upstream.send("GET", self.path).read())
            except RefusedError as refused:
                self._whole(refused.status, refused.body)
            finally:
                upstream.close()
        else:
            self._whole(404, error_body(f"there is no {self.path}"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path not in PATHS:
            self._whole(404, error_body(f"there is no {self.path}"))
            return
        try:
            request = json.loads(body)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            self._whole(400, error_body("the request is not a JSON object"))
            return
        self._answer(request)

    def _health(self) -> None:
        states = {}
        for name, url in (("prefill", self.router.prefill), ("decode", self.router.decode)):
            upstream = Upstream(name, url, _HEALTH_SECONDS)
            try:
                upstream.send("GET", "/health").read()
                states[name] = "ok"
            except RefusedError as refused:
                states[name] = f"{refused.status}: {refused.body.decode(errors='replace')}"
            finally:
                upstream.close()
        self._whole(200 if set(states.values()) == {"ok"} else 503, json.dumps(states).encode())

    def _answer(self, request: dict[str, Any]) -> None:
        headers = {"X-Request-Id": f"cmpl-{uuid.uuid4()}"}
        if "Authorization" in self.headers:
            headers["Authorization"] = self.headers["Authorization"]
        prefill, decode = Upstream("prefill", self.router.prefill), Upstream("decode", self.router.decode)
        with ThreadPoolExecutor(max_workers=2) as both:
            try:
                first = both.submit(prefill.send, "POST", self.path, one_token(request), headers)
                further = both.submit(decode.send, "POST", self.path, request, headers)
                if request.get("stream"):
                    self._stream(first.result(), further)
                else:
                    first.result().read()
                    self._whole(200, further.result().read())
            except RefusedError as refused:
                self._whole(refused.status, refused.body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                print(f"{headers['X-Request-Id']}: {error!r}", file=sys.stderr, flush=True)
                self.close_connection = True
            finally:
                # Whoever still works on it stops: also ends the thread that waits for it.
                prefill.close()
                decode.close()

    def _stream(self, first: http.client.HTTPResponse, further: Any) -> None:
        """From here on the status is sent: what goes wrong becomes an event, and the stream ends without [DONE]."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        seen: dict[int, str] = {}
        try:
            for event in first_tokens(first, seen):
                self._event(json.dumps(event))
            for event in further_tokens(further.result(), seen):
                self._event(json.dumps(event))
            self._event("[DONE]")
        except RefusedError as refused:
            self._event(refused.body.decode(errors="replace"))
        except (http.client.HTTPException, ValueError) as error:
            self._event(error_body(f"a server broke off: {error!r}").decode())
        self._chunk(b"")

    def _event(self, data: str) -> None:
        self._chunk(f"data: {data}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _whole(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(prefill: str, decode: str, port: str = "8000") -> int:
    router = Router(prefill, decode, int(port))
    # shutdown() waits for serve_forever(), which runs in this thread.
    signal.signal(signal.SIGTERM, lambda number, frame: threading.Thread(target=router.shutdown).start())
    print(f"prefill {prefill}, decode {decode}, port {port}", flush=True)
    router.serve_forever()
    router.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
