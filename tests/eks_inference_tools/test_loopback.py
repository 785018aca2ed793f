"""The HTTP server on loopback that stand-ins answer with."""

import ssl
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from eks_inference_tools.simulate.control_plane.processes import plain, serving


def test_a_server_on_loopback_is_gone_with_its_context() -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with serving(lambda asked: plain(200 if asked.target == "/x" else 404, f"{asked.method} {asked.body.decode()}")) as port:
        assert opener.open(f"http://127.0.0.1:{port}/x").read() == b"GET "
        assert opener.open(f"http://127.0.0.1:{port}/x", data=b"a body").read() == b"POST a body"
        with pytest.raises(HTTPError, match="404"):
            opener.open(f"http://127.0.0.1:{port}/y")
    with pytest.raises(OSError, match="refused"):
        opener.open(f"http://127.0.0.1:{port}/x")


def test_a_certificate_that_cannot_be_read_leaves_no_server(tmp_path: Path) -> None:
    with pytest.raises((OSError, ssl.SSLError)), serving(lambda asked: plain(200, ""), certificate=tmp_path / "none.crt"):
        pass
