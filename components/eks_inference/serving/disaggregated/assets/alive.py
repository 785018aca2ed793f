"""Exit code 1 when a pair does not answer any more: a liveness probe that asks prefill and then decode for one token.

    alive.py MODEL SECONDS PREFILL_URL DECODE_URL

The engine's /health stays 200 while every slot waits for a transfer that never comes. A completion takes a slot, so it waits as
long as the answers under way: SECONDS has to be more. A decode on another host has a probe of its own. Standard library
only: it runs in the engine's image.
"""

import json
import sys
import time
import urllib.error
import urllib.request
import uuid
from urllib.parse import urlsplit

_HEALTH_SECONDS = 5
_HEALTH_PAUSES = (0, 30, 30, 30, 30)  # seconds, before each try


def healthy(url: str, pauses: tuple[float, ...] = (0,)) -> bool:
    for pause in pauses:
        time.sleep(pause)
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=_HEALTH_SECONDS):
                return True
        except OSError as error:
            print(f"{url}/health: {error}", file=sys.stderr)
    return False


def ask(url: str, model: str, request_id: str, end: float) -> None:
    """Raises ``OSError`` when there is no answer until ``end``, a moment of the monotonic clock."""
    body = json.dumps({"model": model, "prompt": "a", "max_tokens": 1, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
    request = urllib.request.Request(f"{url}/v1/completions", body, headers)
    with urllib.request.urlopen(request, timeout=max(end - time.monotonic(), 0.001)) as response:
        response.read()


def main(model: str, seconds: str, prefill: str, decode: str) -> int:
    here = urlsplit(prefill).hostname == urlsplit(decode).hostname
    if not healthy(prefill, _HEALTH_PAUSES) or (here and not healthy(decode, _HEALTH_PAUSES)):
        return 1
    if not here and not healthy(decode):
        return 0
    end, request_id = time.monotonic() + float(seconds), f"cmpl-alive-{uuid.uuid4()}"
    for url in (prefill, decode):
        try:
            ask(url, model, request_id, end)
        except urllib.error.HTTPError as error:
            print(f"{url}: {error}", file=sys.stderr)
            return int(error.code >= 500)  # whoever says that the question is wrong is alive
        except OSError as error:
            print(f"{url} does not answer: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
