"""A picker of pods on loopback, as the proxy of an endpoint asks it: a stand-in for llm-d's, over Envoy's external processing.

Only the messages and fields that a picker needs, by their numbers (envoy/service/ext_proc/v3/external_processor.proto).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from eks_inference.endpoints.proxy import PICKED_HEADER, PICKER_PORT, PICKER_SERVICE

Pick = Callable[[Mapping[str, str], bytes], str]
"""From the headers and the body of a request to the addresses of pods. A ``ValueError`` says what it cannot read."""
_CHUNK = 32_000

# By message: the fields, each a type (or the name of a message; `*` repeats it) and a number.
_MESSAGES: dict[str, dict[str, tuple[str, int]]] = {
    "Header": {"key": ("string", 1), "value": ("string", 2), "raw_value": ("bytes", 3)},
    "HeaderMap": {"headers": ("*Header", 1)},
    "HttpHeaders": {"headers": ("HeaderMap", 1), "end_of_stream": ("bool", 3)},
    "HttpBody": {"body": ("bytes", 1), "end_of_stream": ("bool", 2)},
    "HttpTrailers": {"trailers": ("HeaderMap", 1)},
    "Request": {"request_headers": ("HttpHeaders", 2), "request_body": ("HttpBody", 4), "request_trailers": ("HttpTrailers", 6)},
    "Option": {"header": ("Header", 1)},
    "HeaderMutation": {"set_headers": ("*Option", 1)},
    "StreamedBody": {"body": ("bytes", 1), "end_of_stream": ("bool", 2)},
    "BodyMutation": {"streamed_response": ("StreamedBody", 3)},
    "Common": {"header_mutation": ("HeaderMutation", 2), "body_mutation": ("BodyMutation", 3)},
    "Part": {"response": ("Common", 1)},
    "Status": {"code": ("int32", 1)},
    "Immediate": {"status": ("Status", 1), "body": ("bytes", 3)},
    "Response": {
        "request_headers": ("Part", 1),
        "request_body": ("Part", 3),
        "request_trailers": ("HttpTrailers", 5),
        "immediate": ("Immediate", 7),
    },
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="picker.proto", package="picker", syntax="proto3")
    types = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": types.TYPE_STRING, "bytes": types.TYPE_BYTES, "bool": types.TYPE_BOOL, "int32": types.TYPE_INT32}
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for key, (type_, number) in fields.items():
            kind = type_.removeprefix("*")
            label = types.LABEL_REPEATED if type_ != kind else types.LABEL_OPTIONAL
            made = message.field.add(name=key, number=number, label=label, type=scalars.get(kind, types.TYPE_MESSAGE))
            if kind in _MESSAGES:
                made.type_name = f".picker.{kind}"
    return message_factory.GetMessageClassesForFiles(["picker.proto"], _pool(file))


def _pool(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_CLASSES = _classes()
Request, Response = (_CLASSES[f"picker.{name}"] for name in ("Request", "Response"))


@dataclass(eq=False)
class Picker:
    """Names a pod for each request, once it has read it whole; remembers the requests."""

    pick: Pick
    host: str
    """Address of its own: the port is always the same."""
    lets_answer: asyncio.Event = field(default_factory=asyncio.Event)
    """It says nothing before that is set, as it is at first."""
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    open: int = 0
    """Streams that it is asked over at the moment."""

    def __post_init__(self) -> None:
        self.lets_answer.set()

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        handlers = {
            "Process": grpc.stream_stream_rpc_method_handler(
                self._process, request_deserializer=Request.FromString, response_serializer=Response.SerializeToString
            )
        }
        health = {"Check": grpc.unary_unary_rpc_method_handler(self._check)}
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(PICKER_SERVICE, handlers),
                grpc.method_handlers_generic_handler("grpc.health.v1.Health", health),
            )
        )
        assert self._server.add_insecure_port(f"{self.host}:{PICKER_PORT}")
        await self._server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.die()

    async def _check(self, *_: object) -> bytes:
        return b"\x08\x01"  # status: SERVING

    async def die(self) -> None:
        await self._server.stop(None)

    async def _process(self, asked: AsyncIterator[Any], _: Any) -> AsyncIterator[Any]:
        self.open += 1
        try:
            headers, body = dict[str, str](), b""
            async for part in asked:
                if part.HasField("request_headers"):
                    headers = {one.key: one.value or one.raw_value.decode() for one in part.request_headers.headers.headers}
                    ended = part.request_headers.end_of_stream
                else:
                    body += part.request_body.body
                    ended = part.request_body.end_of_stream or part.HasField("request_trailers")
                if ended:
                    for answer in await self._answers(headers, body):
                        yield answer
        finally:
            self.open -= 1

    async def _answers(self, headers: dict[str, str], body: bytes) -> list[Any]:
        self.seen.append((headers, body))
        await self.lets_answer.wait()
        named = Response()
        header = named.request_headers.response.header_mutation.set_headers.add().header
        try:
            header.key, header.raw_value = PICKED_HEADER, self.pick(headers, body).encode()
        except ValueError as error:
            refused = Response()
            refused.immediate.status.code, refused.immediate.body = 400, str(error).encode()
            return [refused]
        chunks = [body[at : at + _CHUNK] for at in range(0, len(body), _CHUNK)] or [b""]
        found = [named]
        for number, chunk in enumerate(chunks, start=1):
            part = Response()
            streamed = part.request_body.response.body_mutation.streamed_response
            streamed.body, streamed.end_of_stream = chunk, number == len(chunks)
            found.append(part)
        return found
