"""Runs a small threaded HTTP server on loopback for the duration of a context."""

import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from eks_inference_tools.simulate.control_plane.processes import ComponentError
from stackgraph.problems import Problem


class Request(NamedTuple):
    """A ``GET`` or ``POST``. ``target`` is as the client sent it: a path, or a URL if the client uses a proxy."""

    method: str
    target: str
    body: bytes = b""


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes


def plain(status: int, text: str) -> Answer:
    return Answer(status, "text/plain; version=0.0.4", text.encode())


def document(status: int, content: Any) -> Answer:
    return Answer(status, "application/json", json.dumps(content).encode())


@contextmanager
def serving(answer: Callable[[Request], Answer], *, certificate: Path | None = None) -> Iterator[int]:
    """Answers every GET and POST with ``answer``, which threads call concurrently, and yields the port.

    Serves TLS if there is a ``certificate``, whose key lies beside it as ``.key``.
    """
    try:
        server = _Server(("127.0.0.1", 0), _handler(answer))
    except OSError as error:
        raise ComponentError([Problem(f"cannot listen on a loopback port: {error.strerror}")]) from error
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        # The thread of each connection does its handshake.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that disconnect: the programs of a simulation are killed without notice."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _handler(answer: Callable[[Request], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answer(Request(self.command, self.path, body))
            self.send_response(found.status)
            self.send_header("Content-Type", found.kind)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Prints nothing: the client reports what went wrong."""

    return Handler
