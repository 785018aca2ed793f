"""Asks a pair through its router, whole, streamed and as a chat, and reads what comes: exit code 0 when all answers have text.

    answers.py URL MODEL SECONDS

SECONDS is how long the pair may take until it is well. A status says little: the engine's own router answers errors with 200, and
so may others. Standard library only.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

_PAUSE_S = 5.0
_SILENCE_S = 300

# The source system's question. Nothing is drawn at random, so both answers should be the same; what numbers do last may differ.
QUESTION = {"prompt": "a tornado is a", "max_tokens": 10, "temperature": 0}

# Needs the chat template, which is a file of its own in many repositories.
CHAT = {"messages": [{"role": "user", "content": "What is a tornado?"}], "max_tokens": 10, "temperature": 0}


class AnswerError(Exception):
    """No answer, or none with text in it."""


def wait(url: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    told = ""
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=30):
                return
        except urllib.error.HTTPError as error:
            reason = f"{error.code}: {error.read().decode(errors='replace')}"
        except OSError as error:
            reason = str(error)
        if time.monotonic() >= end:
            raise AnswerError(f"not well within {seconds:.0f} s: {reason}")
        if reason != told:
            print(f"waiting: {reason}", flush=True)
            told = reason
        time.sleep(min(_PAUSE_S, max(end - time.monotonic(), 0)))


def whole(url: str, model: str) -> str:
    with _ask(url, {**QUESTION, "model": model}) as response:
        return _text(_json(response.read()))


def streamed(url: str, model: str) -> str:
    with _ask(url, {**QUESTION, "model": model, "stream": True}) as response:
        return "".join(_text(event) for event in _events(response))


def chat(url: str, model: str) -> str:
    with _ask(url, {**CHAT, "model": model}, "/v1/chat/completions") as response:
        return _text(_json(response.read()))


def _events(response: Any) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data:"):
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                return
            yield _json(data)
        elif line.strip():
            raise AnswerError(f"this is no event: {line.decode(errors='replace').strip()}")
    raise AnswerError("the stream broke off")


def _ask(url: str, body: dict[str, Any], path: str = "/v1/completions") -> Any:
    request = urllib.request.Request(
        f"{url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        return urllib.request.urlopen(request, timeout=_SILENCE_S)
    except urllib.error.HTTPError as error:
        raise AnswerError(f"status {error.code}: {error.read().decode(errors='replace')}") from None


def _json(data: bytes) -> dict[str, Any]:
    try:
        return json.loads(data)
    except ValueError:
        raise AnswerError(f"this is not JSON: {data.decode(errors='replace')[:300]}") from None


def _text(body: dict[str, Any]) -> str:
    if not isinstance(body, dict) or not isinstance(body.get("choices"), list):
        raise AnswerError(f"this is no answer: {json.dumps(body)[:300]}")
    return "".join(choice.get("text") or (choice.get("message") or {}).get("content") or "" for choice in body["choices"])


def main(url: str, model: str, seconds: str) -> int:
    try:
        wait(url, float(seconds))
        answers = {"whole": whole(url, model), "streamed": streamed(url, model)}
        for form, text in {**answers, "chat": chat(url, model)}.items():
            print(f"{form}: {QUESTION['prompt'] if form in answers else ''}{text}", flush=True)
            if not text.strip():
                raise AnswerError(f"the {form} answer has no text")
    except (AnswerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if len(set(answers.values())) > 1:
        print("the two answers differ, although nothing was drawn at random: look at both", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
