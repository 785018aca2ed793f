"""Runs the resource hooks that ask to run in a preview (``on_dry_run``), before and after a resource would be created."""

from collections.abc import Callable, Mapping
from typing import Any

from pulumi.runtime.proto import resource_pb2

from stackgraph.recorder import wire
from stackgraph.recorder.callbacks import Callbacks


class HookError(Exception):
    """A hook that failed, in the words of the engine."""


class Hooks:
    """The hooks of a program by name. Follows ``RunHooks`` in ``pkg/resource/deploy/deployment.go`` of the engine."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._hooks: dict[str, resource_pb2.RegisterResourceHookRequest] = {}

    def add(self, hook: resource_pb2.RegisterResourceHookRequest) -> None:
        self._hooks[hook.name] = hook

    def run(
        self,
        when: str,
        request: resource_pb2.RegisterResourceRequest,
        urn: str,
        inputs: Mapping[str, Any],
        made: resource_pb2.RegisterResourceResponse | None = None,
        *,
        warn: Callable[[str], None],
    ) -> None:
        """Runs the hooks of a resource, ``before`` or ``after`` it is made. ``warn`` is told of failures that a hook may have.

        Raises ``HookError`` for the first other failure.
        """
        for name in getattr(request.hooks, f"{when}_create"):
            hook = self._hooks.get(name)
            if hook is None:
                raise HookError(f'hook "{name}" was not registered')
            if not hook.on_dry_run:
                continue
            asked = resource_pb2.ResourceHookRequest(
                urn=urn, name=request.name, type=request.type, new_inputs=wire.encode(inputs), id=made.id if made else ""
            )
            if made is not None:
                asked.new_outputs.CopyFrom(made.object)
            error = resource_pb2.ResourceHookResponse.FromString(self._callbacks.call(hook.callback, asked)).error
            if error and not hook.ignore_errors:
                raise HookError(f'{when} hook "{name}" failed: {error}')
            if error:
                warn(f'{urn}: {when}Create hook "{name}" failed: {error}')
