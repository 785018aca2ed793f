"""Python imports this before a program that `preview --write-answers` runs: writes what functions and other stacks give.

The rows are those of an answers file, as JSON, which is YAML. Secrets are left out, and functions that were asked with one.
"""

import json
import os

from pulumi.runtime import rpc
from pulumi.runtime.proto import resource_pb2_grpc

from stackgraph.recorder import wire

_asked_with_secrets = set()


def _write(row):
    with open(os.environ["STACKGRAPH_ANSWERS"], "a", encoding="utf-8") as file:
        file.write(f"- {json.dumps(row, sort_keys=True)}\n")


def _plain(values, secret=()):
    return {key: one for key, one in values.items() if key not in secret and wire.SECRET not in json.dumps(one)}


def _function(request, response):
    asked = request.tok, request.args.SerializeToString(deterministic=True)
    if not request.tok.startswith("pulumi:") and asked[1] not in _asked_with_secrets and not response.failures:
        provider = request.provider.rpartition("::")[0].rpartition("::")[2]
        named = {"provider": provider} if provider and not provider.startswith("default") else {}
        args = {key: value for key, value in wire.decode(request.args).items() if value is not None}
        _write({"function": request.tok, "args": args, **named, "result": _plain(wire.decode(getattr(response, "return")))})
    return response


def _stack(request, response):
    if request.type == "pulumi:pulumi:StackReference":
        state = wire.decode(response.properties)
        outputs = state["outputs"].get("value", {}) if wire.SIGNATURE in state["outputs"] else state["outputs"]
        plain = _plain(outputs, state.get("secretOutputNames") or ())
        _write({"stack": request.id, "outputs": plain, "secrets": sorted(outputs.keys() - plain.keys())})
    return response


def _unwrapped(struct):
    plain, secret = _unwrap(struct)
    if secret and hasattr(plain, "SerializeToString"):
        _asked_with_secrets.add(plain.SerializeToString(deterministic=True))
    return plain, secret


def _made(self, *given, **named):
    _make(self, *given, **named)
    for name, note in (("Invoke", _function), ("ReadResource", _stack)):
        setattr(self, name, _noting(getattr(self, name), note))


def _noting(call, note):
    return lambda request, *given, **named: note(request, call(request, *given, **named))


_unwrap, rpc._unwrap_rpc_secret_struct_properties = rpc._unwrap_rpc_secret_struct_properties, _unwrapped
_make, resource_pb2_grpc.ResourceMonitorStub.__init__ = resource_pb2_grpc.ResourceMonitorStub.__init__, _made
