"""A client of the OpenAI chat API that asks, measures and tells what went wrong: the command ``eks-inference chat``.

Standard library only, Python 3.11 and newer: ``SmokeTest`` runs this very file in a pod. Exit codes: 0 every answer came; 1 the
server is not there or answers badly; 2 what was given cannot be used. A key, where the server wants one, is read from the
environment variable OPENAI_API_KEY.
"""

import argparse
import io
import json
import math
import os
import sys
import time
import wave
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from http.client import HTTPResponse

DEFAULT_URL = "http://localhost:8000/v1"
SCHEMA = 1
"""Of the document of ``--format json``."""

_PAUSE_S = 5.0
_LONGEST_MESSAGE = 300


class ChatError(Exception):
    """What kept an answer from coming, with the fields of every error of the commands and the exit code."""

    code = 1

    def __init__(self, message: str, *, given: str = "", allowed: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.fields: Mapping[str, Any] = {"message": message, "given": given, "allowed": allowed, "hint": hint}

    def render(self) -> str:
        """The error on one line, its other fields below."""
        message, *more = ((name, " ".join(text.split())) for name, text in self.fields.items() if text)
        return "\n".join([f"error: {message[1]}", *(f"    {name}: {text}" for name, text in more)])


class ServerError(ChatError):
    """The server is not there, or did not answer as the API demands."""


class GivenError(ChatError):
    """What was given cannot be used: the URL, the model, the key."""

    code = 2


class Question(NamedTuple):
    """A request for an answer. ``parameters`` are fields of the request such as ``temperature``."""

    title: str
    prompt: str
    stream: bool = False
    parameters: Mapping[str, Any] = MappingProxyType({})


# max_tokens everywhere: a base model does not stop by itself, and 4096 tokens on a small chip take minutes.
EXAMPLES = (
    Question("A plain question", "What is the capital of Portugal?", parameters={"max_tokens": 128}),
    Question(
        "A question with parameters",
        "Begin a short story about a lighthouse keeper who finds a message in a bottle.",
        parameters={"temperature": 0.8, "top_p": 0.9, "frequency_penalty": 0.5, "max_tokens": 200},
    ),
    Question("A streamed answer", "Count from one to ten in words.", stream=True, parameters={"max_tokens": 128}),
)
"""The three requests of the source system's client, in our words."""


TASKS: Mapping[str, tuple[str, Mapping[str, Any], tuple[str | int, ...]]] = {
    "complete": ("/completions", {"prompt": "The capital of Portugal is", "max_tokens": 32}, ("choices", 0, "text")),
    "embed": ("/embeddings", {"input": ["Lisbon is a capital.", "A lighthouse."]}, ("data", 1, "embedding", 0)),
    "rerank": ("/rerank", {"query": "A capital?", "documents": ["Lisbon", "A lighthouse"]}, ("results", 1, "relevance_score")),
    "classify": ("/classify", {"input": ["Lisbon is a capital.", "A lighthouse."]}, ("data", 1, "label")),
    "transcribe": ("/audio/transcriptions", {"language": "en"}, ("text",)),
}
"""Of a model that does not chat: where it is asked, what, and where the last part of its answer is."""
_FORM = "eks-inference-form"


def _form(fields: Mapping[str, str]) -> bytes:
    """A form of these fields and of a second of a tone, which a model may transcribe as nothing."""
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        tone = (int(8_000 * math.sin(2 * math.pi * 440 * at / 16_000)) for at in range(16_000))
        file.writeframes(b"".join(one.to_bytes(2, "little", signed=True) for one in tone))
    head = f"--{_FORM}\r\nContent-Disposition: form-data; name="
    texts = "".join(f'{head}"{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    texts += f'{head}"file"; filename="tone.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    return texts.encode() + sound.getvalue() + f"\r\n--{_FORM}--\r\n".encode()


class Answer(NamedTuple):
    """What came, and when. Seconds count from sending the request.

    ``tokens`` is None when the server does not say how many there are and they did not come one by one; ``first_token_s`` is
    None for an answer that came whole.
    """

    text: str
    tokens: int | None
    seconds: float
    first_token_s: float | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Of a streamed answer: after its first token, which stands for reading the prompt. Of a whole one: over all its time."""
        if not self.tokens:
            return None
        if self.first_token_s is None:
            return self.tokens / self.seconds if self.seconds > 0 else None
        decoding = self.seconds - self.first_token_s
        return (self.tokens - 1) / decoding if decoding > 0 and self.tokens > 1 else None

    def figures(self) -> str:
        """One line for people."""
        count = "" if self.tokens is None else f"{self.tokens} token{'' if self.tokens == 1 else 's'} "
        line = f"{count}in {self.seconds:.2f} s"
        rate = self.tokens_per_second
        pace = "" if rate is None else f"{rate:.1f} tokens/s"
        if self.first_token_s is None:
            return ", ".join(part for part in (line, pace) if part)
        first = f"time to first token {self.first_token_s:.3f} s"
        return f"{line}; {first}" + (f", then {pace}" if pace else "")


class Chat:
    """One server. ``url`` is the base of its API, with ``/v1``; ``timeout_s`` is how long nothing may come from it.

    Connects directly: proxies of the environment are for other traffic than a port forward's or a cluster's.
    """

    def __init__(
        self, url: str, *, key: str | None = None, timeout_s: float = 600, clock: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            parts = urlsplit(url)
            self._address = (parts.hostname, parts.port)
        except ValueError as error:
            raise GivenError(f"this is not a URL: {error}", given=url) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise GivenError("this is not a URL of a server", given=url, allowed=f"a URL such as {DEFAULT_URL}")
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._timeout_s = timeout_s
        self._clock = clock

    def models(self) -> list[str]:
        """The names of the models it serves."""
        with self._open("GET", "/models", None) as response:
            body = self._body(response)
        try:
            return [model["id"] for model in body["data"]]
        except (KeyError, TypeError):
            raise ServerError(f"{self.url}/models lists no models: {_message(body)}") from None

    def ask(self, question: Question, *, model: str, show: Callable[[str], None] = lambda text: None) -> Answer:
        """The answer; ``show`` gets its text as it comes. ``ServerError`` when none comes, or an empty or broken one."""
        request = {"model": model, "messages": [{"role": "user", "content": question.prompt}], **question.parameters}
        if question.stream:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        began = self._clock()
        with self._open("POST", "/chat/completions", request) as response:
            answer = self._streamed(response, began, show) if question.stream else self._whole(response, began, show)
        if not answer.text.strip():
            raise ServerError("the answer has no text")
        return answer

    def do(self, task: str, *, model: str) -> Answer:
        """The last part of the answer to an example of a task. ``ServerError`` when there is none."""
        path, body, place = TASKS[task]
        began = self._clock()
        with self._open("POST", path, {"model": model, **body}) as response:
            answer = found = self._body(response)
        with _expected(answer):
            for step in place:
                found = found[step]
        if found is None or (found == "" and task != "transcribe"):
            raise ServerError(f"the answer has nothing in {place[-1]}")
        return Answer(str(found), _tokens(answer), self._clock() - began)

    def wait(self, seconds: float, *, tell: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> list[str]:
        """The models, once the server lists any. ``tell`` hears each new reason why it does not yet."""
        end = self._clock() + seconds
        told = ""
        while True:
            hint = ""
            try:
                models = self.models()
                if models:
                    return models
                reason = f"{self.url} serves no model yet"
            except ServerError as error:
                reason, hint = str(error), error.fields["hint"]
            if self._clock() >= end:
                raise ServerError(f"not ready after {seconds:.0f} s: {reason}", hint=hint)
            if reason != told:
                tell(reason)
                told = reason
            sleep(min(_PAUSE_S, max(end - self._clock(), 0)))

    def _whole(self, response: "HTTPResponse", began: float, show: Callable[[str], None]) -> Answer:
        body = self._body(response)
        took = self._clock() - began
        with _expected(body):
            text = "".join(body["choices"][0]["message"]["content"] or "")
        show(text)
        return Answer(text, _tokens(body), took)

    def _streamed(self, response: "HTTPResponse", began: float, show: Callable[[str], None]) -> Answer:
        if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
            raise ServerError(f"status 200, but no stream: {_message(self._body(response))}")
        pieces: list[str] = []
        tokens = first_token_s = None
        last = began
        for event in self._events(response):
            if "choices" not in event:
                raise ServerError(f"an error in the stream after {len(pieces)} tokens: {_message(event)}")
            tokens = tokens if (counted := _tokens(event)) is None else counted
            with _expected(event):
                text = "".join((choice.get("delta") or {}).get("content") or "" for choice in event["choices"])
            if text:
                last = self._clock()
                first_token_s = last - began if first_token_s is None else first_token_s
                pieces.append(text)
                show(text)
        # An event may hold several tokens: the server's own count comes first.
        return Answer("".join(pieces), len(pieces) if tokens is None else tokens, last - began, first_token_s)

    @contextmanager
    def _open(self, method: str, path: str, body: Any) -> Iterator["HTTPResponse"]:
        """The response of status 200; every other end is an exception of this module."""
        import http.client  # takes longer to load than everything else here, and other commands load this module too

        host, port = self._address
        made = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = made(host or "", port, timeout=self._timeout_s)
        try:
            with self._network():
                base = self._path.removesuffix("/v1") if path == TASKS["classify"][0] else self._path
                form = path == TASKS["transcribe"][0]
                kind = {"Content-Type": f"multipart/form-data; boundary={_FORM}"} if form else {}
                data = None if body is None else _form(body) if form else json.dumps(body)
                connection.request(method, base + path, data, {**self._headers, **kind})
                response = connection.getresponse()
                if response.status != 200:
                    raise self._refusal(response.status, path, response.read())
            yield response
        finally:
            connection.close()

    @contextmanager
    def _network(self) -> Iterator[None]:
        """Faults of the connection as ``ServerError``. Around nothing else: writing to a closed pipe is an OSError too."""
        import http.client

        try:
            yield
        except ConnectionRefusedError:
            raise ServerError(f"nothing listens at {self.url}", hint=self._forward_hint()) from None
        except TimeoutError:
            raise ServerError(f"{self.url} sent nothing for {self._timeout_s:g} s") from None
        except (http.client.HTTPException, OSError) as error:
            raise ServerError(f"the connection to {self.url} broke: {str(error) or type(error).__name__}") from None

    def _body(self, response: "HTTPResponse") -> Any:
        with self._network():
            data = response.read()
        return _json(data)

    def _events(self, response: "HTTPResponse") -> Iterator[dict[str, Any]]:
        """The events of a stream, which must end with [DONE]."""
        count = 0
        while True:
            with self._network():
                line = response.readline()
            if not line:
                raise ServerError(f"the stream broke off after {count} events")
            if line.startswith(b"data:"):
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    return
                count += 1
                yield _json(data)

    def _refusal(self, status: int, path: str, body: bytes) -> Exception:
        try:
            message = _message(json.loads(body))
        except ValueError:
            message = _shortened(body.decode("utf-8", "replace"))
        told = f"status {status} from {self.url}{path}: {message}"
        if status in (401, 403):
            return GivenError(told, hint="set the environment variable OPENAI_API_KEY to a key of the server")
        if status == 404 and not self._path:
            return ServerError(told, hint=f"the base of the API ends in /v1: --url {self.url}/v1")
        return ServerError(told)

    def _forward_hint(self) -> str:
        host, port = self._address
        if host not in ("localhost", "127.0.0.1", "::1"):
            return ""
        forward = f"kubectl -n NAMESPACE port-forward svc/SERVICE {port or 80}:8000"
        return f"start the port forward: {forward}; `pulumi stack output next` has the names"


def _json(data: bytes) -> Any:
    try:
        body = json.loads(data)
    except ValueError:
        raise ServerError(f"this is not JSON: {_shortened(data.decode('utf-8', 'replace'))}") from None
    if not isinstance(body, dict):
        raise ServerError(f"this is not an answer: {_shortened(str(body))}")
    return body


@contextmanager
def _expected(answer: Mapping[str, Any]) -> Iterator[None]:
    """Around what reads an answer, which may be of another shape than the API's."""
    try:
        yield
    except (AttributeError, LookupError, TypeError):
        raise ServerError(f"status 200, but no answer: {_message(answer)}") from None


def _tokens(answer: Mapping[str, Any]) -> int | None:
    """How many tokens an answer, or what came of a stream, counts. None: it does not count them."""
    usage = answer.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def _message(body: Any) -> str:
    """What an error body says; vLLM and Ray Serve differ in where."""
    error = body.get("error", body) if isinstance(body, dict) else body
    text = error.get("message", error) if isinstance(error, dict) else error
    return _shortened(text if isinstance(text, str) else json.dumps(text))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + "…"


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--url", default=DEFAULT_URL, help="base of the server's API (default: %(default)s)")
    parser.add_argument("--model", help="model to ask (default: the first one the server lists)")
    parser.add_argument("--prompt", metavar="TEXT", help="what to ask (default: three examples)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--task", choices=("chat", *TASKS), default="chat", help="what the model does (default: %(default)s)")
    parser.add_argument("--no-stream", action="store_true", help="let every answer come whole")
    parser.add_argument("--timeout", metavar="SECONDS", type=_above_0, default=600, help="longest silence (default: %(default)s)")
    waiting = "how long to wait for a server that starts (default: not at all)"
    parser.add_argument("--wait", metavar="SECONDS", type=_seconds, default=0, help=waiting)


def _seconds(given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    # Sockets take no longer timeouts.
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"not a number of seconds from 0 to 999999: {given}")
    return seconds


def _above_0(given: str) -> float:
    if seconds := _seconds(given):
        return seconds
    raise argparse.ArgumentTypeError("0 seconds leave no time for an answer; give more")


def run(options: argparse.Namespace) -> int:
    """Asks and prints; the exit code. Raises ``ChatError`` when no answer comes."""
    try:
        _converse(options)
    except BrokenPipeError:
        raise
    except OSError as error:  # of standard output: those of the connection are a ServerError
        raise GivenError(f"cannot write the answer: {error.strerror}") from None
    return 0


def _converse(options: argparse.Namespace) -> None:
    chat = Chat(options.url, key=os.environ.get("OPENAI_API_KEY"), timeout_s=options.timeout)
    served = chat.wait(options.wait, tell=_tell) if options.wait else chat.models()
    if not served:
        raise ServerError(f"{chat.url} serves no model")
    if options.model is not None and options.model not in served:
        raise GivenError(f"{chat.url} does not serve this model", given=options.model, allowed=", ".join(served))
    model = options.model or served[0]
    if options.task != "chat":
        answer = chat.do(options.task, model=model)
        if options.format == "json":
            print(json.dumps({"schema": SCHEMA, "url": chat.url, "model": model, "answers": [answer._asdict()]}, indent=2))
            return
        print(f"{chat.url} serves {_printable(model)}")
        print(f"{options.task}: {_printable(_shortened(answer.text))}\n[{answer.figures()}]", flush=True)
        return
    questions = EXAMPLES if options.prompt is None else (Question("", options.prompt, stream=True),)
    asked = [question._replace(stream=question.stream and not options.no_stream) for question in questions]
    if options.format == "json":
        answers = [{"prompt": one.prompt, **chat.ask(one, model=model)._asdict()} for one in asked]
        print(json.dumps({"schema": SCHEMA, "url": chat.url, "model": model, "answers": answers}, indent=2))
        return
    print(f"{chat.url} serves {_printable(model)}")
    for number, question in enumerate(asked, start=1):
        if question.title:
            print(f"\n{number}. {question.title}: {question.prompt}")
        try:
            answer = chat.ask(question, model=model, show=_show)
        finally:
            print()
        print(f"[{answer.figures()}]", flush=True)


def _show(text: str) -> None:
    print(_printable(text), end="", flush=True)


def _printable(text: str) -> str:
    """The text with a space for each letter that could control a terminal. Joiners stay: scripts and emoji need them."""
    return "".join(letter if letter.isprintable() or letter in "\n\t\u200c\u200d" else " " for letter in text)


def _tell(reason: str) -> None:
    print(f"waiting: {_printable(reason)}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """As a script of its own, without the library."""
    parser = argparse.ArgumentParser(prog="chat", description="Ask a server with an OpenAI API.", allow_abbrev=False)
    configure(parser)
    try:
        return run(parser.parse_args(arguments))
    except ChatError as error:
        print(_printable(error.render()), file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
