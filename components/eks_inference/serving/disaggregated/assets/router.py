"""The one address of a pair: sends each request to prefill, then to decode, and makes one answer of theirs.

    router.py PREFILL_URL DECODE_URL [PORT [SEQUENCES]]

Both servers get the same X-Request-Id, by which decode asks prefill for the KV cache; prefill answers one token and decode all of
them. A streamed answer begins with prefill's token, and goes on with what decode adds to it. A whole answer is decode's.

The engine keeps what prefill has computed until decode has fetched it, and decode waits without end for what prefill never
computed; neither gives up when a client leaves (aws-neuron/upstreaming-to-vllm, scheduler.py: ``transferring``). So decode gets
only what prefill has answered. If decode then refuses, a small request with the same id makes it fetch the KV cache; if the
client leaves, decode is read until its first token. At most SEQUENCES sequences are in flight; further requests wait.

Unlike Neuron's own neuron-proxy-server it listens on every address, answers errors as errors instead of a 200 with an error
inside, and knows three more paths: GET /health (200 when both servers are well), /metrics and /v1/models. Standard library only.
"""

import http.client
import itertools
import json
import select
import signal
import socket
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import urlsplit

from exchange import Asked, RefusedError, error_body, events, failure, first_tokens, further_tokens, one_token, placeholder
from slots import FullError, Slots

PATHS = ("/v1/completions", "/v1/chat/completions")
_HEALTH_SECONDS = 5
_SILENCE_SECONDS = 1800  # of one server, a long queue included
_RELEASE_SECONDS = 300  # until a busy decode takes one more request
_RELEASE_PAUSES = (0, 1, 5)  # seconds, before each try
_CLIENT_SECONDS = 60.0  # that a client may take to send a part of a request, or to take a part of an answer
_LARGEST_BYTES = 64 * 2**20


class Upstream:
    """One request to one server. ``told`` is whether the server said what becomes of it, or never got it."""

    def __init__(self, name: str, url: str, timeout: float = _SILENCE_SECONDS) -> None:
        parts = urlsplit(url)
        self.name, self.told = name, True
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
        """The response, when it is 200; raises ``RefusedError`` with what the server said otherwise, or that it is not there."""
        try:
            data = None if body is None else json.dumps(body).encode()
            self._connection.connect()
            self.told = False
            self._connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = self._connection.getresponse()
            self.told = True
            if response.status != 200:
                raise RefusedError(response.status, response.read())
            return response
        except (OSError, http.client.HTTPException) as error:
            raise RefusedError(502, error_body(f"{self.name}: {error or type(error).__name__}")) from error

    def close(self) -> None:
        if self._connection.sock is not None:
            with suppress(OSError):  # it is closed already
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def __enter__(self) -> "Upstream":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


_COUNTED = {
    "answered_total": "Requests that the servers answered.",
    "refused_total": "Requests that a server or the router refused.",
    "failed_total": "Requests that ended without the whole answer.",
    "released_total": "Sequences that prefill computed and decode refused, released by a request in their place.",
    "lost_total": "Sequences whose slot may be lost until the pair restarts: nobody said what became of them.",
}


class Router(ThreadingHTTPServer):
    """Requests are few and long: each has a thread. ``server_close`` waits for those under way."""

    daemon_threads = False
    request_queue_size = 256

    def __init__(self, prefill: str, decode: str, port: int, host: str = "", sequences: int = 1) -> None:
        super().__init__((host, port), Handler)
        self.prefill, self.decode = prefill, decode
        self.slots = Slots(sequences)
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()

    def count(self, what: str, number: int = 1) -> None:
        with self._counting:
            self._counts[what] += number

    def metrics(self) -> str:
        """In Prometheus' text format."""
        slots = self.slots
        found = [("sequences", "gauge", "Sequences in flight.", slots.taken)]
        found += [("sequences_max", "gauge", "Sequences that may be in flight.", slots.number)]
        found += [("waiting", "gauge", "Requests that wait for others to end.", slots.waiting)]
        found += [(name, "counter", help_, self._counts[name]) for name, help_ in _COUNTED.items()]
        return "".join(
            f"# HELP pair_router_{name} {help_}\n# TYPE pair_router_{name} {kind}\npair_router_{name} {value}\n"
            for name, kind, help_, value in found
        )

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError)):
            print(f"{client_address[0]}: {error!r}", file=sys.stderr, flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = _CLIENT_SECONDS

    @property
    def router(self) -> Router:
        return cast(Router, self.server)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: probes come every few seconds."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._health()
        elif self.path == "/metrics":
            self._whole(200, self.router.metrics().encode(), "text/plain; version=0.0.4")
        elif self.path == "/v1/models":
            with Upstream("decode", self.router.decode, _HEALTH_SECONDS) as upstream:
                try:
                    self._whole(200, upstream.send("GET", self.path).read())
                except RefusedError as refused:
                    self._whole(refused.status, refused.body)
        else:
            self._whole(404, error_body(f"there is no {self.path}"))

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _LARGEST_BYTES:
            self.close_connection = True  # the body is not read
            self._whole(413, error_body(f"Content-Length is to be at most {_LARGEST_BYTES}"))
            return
        body = self.rfile.read(int(length))
        if self.path not in PATHS:
            self._whole(404, error_body(f"there is no {self.path}"))
            return
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            self._whole(400, error_body("the request is not a JSON object"))
            return
        try:
            self._in_turn(request)
        except RefusedError as refused:
            self.router.count("refused_total")
            self._whole(refused.status, refused.body)
        except FullError:
            self.router.count("refused_total")
            self._whole(503, error_body("too many requests wait already"))

    def _health(self) -> None:
        states = {}
        for name, url in (("prefill", self.router.prefill), ("decode", self.router.decode)):
            with Upstream(name, url, _HEALTH_SECONDS) as upstream:
                try:
                    upstream.send("GET", "/health").read()
                    states[name] = "ok"
                except RefusedError as refused:
                    states[name] = f"{refused.status}: {refused.body.decode(errors='replace')}"
        self._whole(200 if set(states.values()) == {"ok"} else 503, json.dumps(states).encode())

    def _in_turn(self, body: dict[str, Any]) -> None:
        headers = {"X-Request-Id": f"cmpl-{uuid.uuid4()}"}
        if "Authorization" in self.headers:
            headers["Authorization"] = self.headers["Authorization"]
        asked, most = Asked(self.path, body, headers), self.router.slots.number
        if asked.sequences > most:
            raise RefusedError(400, error_body(f"{asked.sequences} sequences in one request: at most {most} have room"))
        with self.router.slots.held(asked.sequences):
            if self._has_left():
                return
            first = self._computed(asked)
            with Upstream("decode", self.router.decode) as decode:
                try:
                    further = decode.send("POST", asked.path, body, headers)
                except RefusedError as refused:
                    self.router.count("refused_total")
                    self._whole(refused.status, refused.body)
                    self._release(asked, decode.told)
                    return
                if body.get("stream"):
                    self._stream(asked, first, further)
                else:
                    self._pass_on(asked, further)

    def _computed(self, asked: Asked) -> list[dict[str, Any]]:
        """What prefill says, when it has computed the KV cache. The events of a stream; otherwise nothing, as it says no more."""
        with Upstream("prefill", self.router.prefill) as prefill:
            try:
                response = prefill.send("POST", asked.path, one_token(asked.body), asked.headers)
                said = list(events(response)) if asked.body.get("stream") else []
                response.read()
            except RefusedError:
                self.router.count("lost_total", 0 if prefill.told else asked.sequences)
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.router.count("lost_total", asked.sequences)
                raise RefusedError(502, error_body(f"prefill broke off: {error!r}")) from error
        for refused in filter(None, map(failure, said)):
            raise refused
        return said

    def _pass_on(self, asked: Asked, further: http.client.HTTPResponse) -> None:
        try:
            body = further.read()
        except (OSError, http.client.HTTPException) as error:
            self.router.count("lost_total", asked.sequences)
            self.router.count("failed_total")
            self._whole(502, error_body(f"decode broke off: {error!r}"))
            return
        self.router.count("answered_total")
        self._whole(200, body)

    def _stream(self, asked: Asked, first: list[dict[str, Any]], further: http.client.HTTPResponse) -> None:
        """From here on the status is sent: what goes wrong becomes an event, and the stream ends without [DONE]."""
        seen: dict[int, str] = {}
        self._put(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in first_tokens(first, seen):
            self._event(json.dumps(event))
        said, settled, outcome = events(further), False, "failed_total"
        try:
            begun = next(said)
            settled = True
            if refused := failure(begun):
                outcome = "refused_total"
                self._event(refused.body.decode())
                self._release(asked, told=True)
            else:
                for event in further_tokens(itertools.chain([begun], said), seen):
                    self._event(json.dumps(event))
                    if self._left:
                        break
                else:
                    self._event("[DONE]")
                    outcome = "answered_total"
        except (OSError, http.client.HTTPException, ValueError, StopIteration) as error:
            self._event(error_body(f"decode broke off: {error!r}").decode())
        self.router.count("lost_total", 0 if settled else asked.sequences)
        self.router.count(outcome)
        self._chunk(b"")

    def _release(self, asked: Asked, told: bool) -> None:
        """Decode does not want what prefill holds for it: makes it fetch that for a request that it takes."""
        for pause in _RELEASE_PAUSES if told else ():
            time.sleep(pause)
            with Upstream("decode", self.router.decode, _RELEASE_SECONDS) as decode:
                try:
                    decode.send("POST", asked.path, placeholder(asked), asked.headers).read()
                    self.router.count("released_total", asked.sequences)
                    return
                except (RefusedError, OSError, http.client.HTTPException):
                    if not decode.told:  # once more could wait for what it has fetched
                        break
        print(f"{asked.headers['X-Request-Id']}: prefill may hold this for ever", file=sys.stderr, flush=True)
        self.router.count("lost_total", asked.sequences)

    # -- the client ----------------------------------------------------------------------------------------------------------

    _left = False

    def _has_left(self) -> bool:
        """Whether the client has closed the connection while it waited."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        with suppress(OSError):
            if not readable or self.connection.recv(1, socket.MSG_PEEK):
                return False
        self.close_connection = True
        return True

    def _event(self, data: str) -> None:
        self._chunk(f"data: {data}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self._put(b"%x\r\n%b\r\n" % (len(data), data))

    def _put(self, data: bytes) -> None:
        """Not an error when the client has left: what the servers hold for it is to be fetched all the same."""
        if not self._left:
            try:
                self.wfile.write(data)
            except OSError:
                self._left = self.close_connection = True

    def _whole(self, status: int, body: bytes, kind: str = "application/json") -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
        except OSError:
            self._left = self.close_connection = True
        self._put(body)


def main(prefill: str, decode: str, port: str = "8000", sequences: str = "1") -> int:
    router = Router(prefill, decode, int(port), sequences=int(sequences))
    # shutdown() waits for serve_forever(), which runs in this thread.
    signal.signal(signal.SIGTERM, lambda number, frame: threading.Thread(target=router.shutdown).start())
    print(f"prefill {prefill}, decode {decode}, port {port}, {sequences} sequences", flush=True)
    router.serve_forever()
    router.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
