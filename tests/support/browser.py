"""Drives a headless Chromium over a pipe: real keys in a real page. Protocol: https://chromedevtools.github.io/devtools-protocol/"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

PATIENCE = 60.0
"""Seconds to wait for an answer."""

# Besides headless mode: no background network access, an empty profile.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
)
_CODES: Mapping[str, tuple[str, int]] = {
    "ArrowDown": ("ArrowDown", 40),
    "ArrowLeft": ("ArrowLeft", 37),
    "ArrowRight": ("ArrowRight", 39),
    "ArrowUp": ("ArrowUp", 38),
    "End": ("End", 35),
    "Enter": ("Enter", 13),
    "Escape": ("Escape", 27),
    "Home": ("Home", 36),
    "Tab": ("Tab", 9),
    " ": ("Space", 32),
}
_TEXTS = {"Enter": "\r"}


def chromium() -> str | None:
    """Returns the program on PATH; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One tab. ``requests`` lists the URLs it asked for, ``errors`` the errors of its scripts."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = 0
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def open(self, address: str) -> None:
        before = self._loaded
        self.send("Page.navigate", url=address)
        while self._loaded == before:
            self._take()

    def run(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def press(self, *keys: str, modifiers: int = 0) -> None:
        for key in keys:
            code, number = _CODES.get(key, ("", 0))
            text = _TEXTS.get(key, key if len(key) == 1 else "")
            pressed = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
            self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **pressed)
            self.send("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def type(self, text: str) -> None:
        self.press(*text)

    def show(self, width: int = 1280, dark: bool = False, media: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", media=media, features=features)
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._take()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def _take(self) -> dict[str, Any]:
        """Returns the next message, and records it if it is an event."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reader], [], [], max(deadline - time.monotonic(), 0))
            piece = os.read(self._reader, 1 << 20) if ready else b""
            if not piece:
                raise AssertionError("the browser does not answer" if not ready else "the browser has ended")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        event, parameters = message.get("method"), message.get("params", {})
        if event == "Page.loadEventFired":
            self._loaded += 1
        elif event == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif event == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        return message


@contextlib.contextmanager
def page() -> Iterator[Page]:
    """Runs a browser; removes its folder and all its processes afterwards."""
    program = chromium()
    assert program
    to_browser, writer = os.pipe()
    reader, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # The browser reads its descriptor 3 and writes its descriptor 4.
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        process = subprocess.Popen(
            ["bash", "-c", command, program, *_FLAGS, f"--user-data-dir={folder}/profile"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(reader, writer)
        finally:
            os.close(writer)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(reader)
