"""What the two servers of a pair are asked, and how their answers become one. For ``router.py``; standard library only."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


class RefusedError(Exception):
    """What the client gets instead of an answer."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body


def error_body(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "router"}}).encode()


def one_token(request: dict[str, Any]) -> dict[str, Any]:
    """The request as prefill gets it. What else says how long the answer is must not contradict it."""
    other = ("max_completion_tokens", "min_tokens", "stream_options")
    return {**{key: value for key, value in request.items() if key not in other}, "max_tokens": 1}


@dataclass(frozen=True)
class Asked:
    """What a client asks of both servers, under the same id in ``headers``."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def sequences(self) -> int:
        """How many sequences it makes of a server: each of its prompts, as often as it wants answers."""
        given = [self.body.get(name) for name in ("n", "best_of")]
        return self.prompts * max([1, *(one for one in given if isinstance(one, int))])

    @property
    def prompts(self) -> int:
        """A list is one prompt of tokens, or several prompts."""
        given = self.body.get("prompt")
        return len(given) if isinstance(given, list) and given and isinstance(given[0], (str, list)) else 1


def placeholder(asked: Asked) -> dict[str, Any]:
    """A request that the server takes whatever it had against what was asked, and that has as many sequences."""
    kept = {key: asked.body[key] for key in ("model", "n", "best_of") if key in asked.body}
    if asked.path == "/v1/completions":
        return {**kept, "max_tokens": 1, "prompt": ["a"] * asked.prompts}
    return {**kept, "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}


def failure(event: dict[str, Any]) -> RefusedError | None:
    """What an event says that is an error."""
    if "error" not in event and event.get("object") != "error":
        return None
    told = event.get("error") or event
    status = told.get("code") if isinstance(told, dict) else None
    return RefusedError(status if isinstance(status, int) and 400 <= status <= 599 else 502, json.dumps(event).encode())


def events(response: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The events of a stream, without the last, which is no JSON. Without it the server broke off: ``ValueError``."""
    data = b""
    for line in response:
        if line.startswith(b"data:"):
            data = line.removeprefix(b"data:").strip()
            if data != b"[DONE]":
                yield json.loads(data)
    if data != b"[DONE]":
        raise ValueError("no end of the stream")


def first_tokens(said: Iterable[dict[str, Any]], seen: dict[int, str]) -> Iterator[dict[str, Any]]:
    """Prefill's part of a stream, whose answer ends there; the client's goes on. ``seen`` gets the text by choice."""
    for event in said:
        for choice in event.get("choices", ()):
            choice["finish_reason"] = None
            seen[choice["index"]] = seen.get(choice["index"], "") + text_of(choice)
        if any(text_of(choice) or opens(choice) for choice in event.get("choices", ())):
            yield event


def further_tokens(said: Iterable[dict[str, Any]], seen: dict[int, str]) -> Iterator[dict[str, Any]]:
    """Decode's part: without what prefill has said already, by choice, and without a second beginning of a chat message."""
    waiting = dict(seen)
    for event in said:
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
