"""Base of the servers that tests run on loopback. Standard library only."""

import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    """One request. Header names are in lower case; ``body`` is the JSON body or the fields of a form, None without one."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


def _form(kind: str, sent: bytes) -> dict[str, bytes]:
    """The fields of a form by their names."""
    parts = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + sent).get_payload()
    return {
        str(message.get_param("name", header="content-disposition")): cast(bytes, message.get_payload(decode=True))
        for message in cast(list[Message], parts)
    }


class Server(ThreadingHTTPServer):
    """Serves from ``start`` to ``stop``; ``owner`` is the object that the handler asks for answers."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

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
        """Accepts no more connections, and ends the existing ones."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints a traceback, unless the client has closed the connection or does not trust the certificate."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Served:
    """A context in which ``servers`` run."""

    servers: list[Server]

    def __enter__(self) -> Self:
        for server in self.servers:
            server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Accepts no more connections, and ends the existing ones."""
        for server in self.servers:
            server.stop()


class Handler(BaseHTTPRequestHandler):
    @property
    def owner(self) -> Any:
        return cast(Server, self.server).owner

    def received(self) -> Request:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        sent, kind = self.rfile.read(length), headers.get("content-type", "")
        body = _form(kind, sent) if kind.startswith("multipart/") else json.loads(sent) if length else None
        return Request(self.command, url.path, dict(parse_qsl(url.query)), headers, body)

    def send(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""
