"""What servers of tests on loopback share: a request as it came, an answer, a thread that ends. Standard library only."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    """One request as it came. Names of headers are in small letters; ``body`` is None where it has none."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Server(ThreadingHTTPServer):
    """Answers from ``start`` to ``stop``; ``owner`` is what its handler asks."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, owner: Any, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.owner = owner
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Takes no connection any more, and ends those there are."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    timeout = 20

    def received(self) -> Request:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Request(self.command, url.path, dict(parse_qsl(url.query)), headers, body)

    def send(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
