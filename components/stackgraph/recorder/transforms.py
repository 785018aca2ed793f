"""Resource transforms: functions of the program that the engine calls back, over gRPC on loopback, for each registration."""

import threading
from collections.abc import Iterable
from typing import Any

from pulumi.runtime.proto import callback_pb2, resource_pb2

from stackgraph.recorder import wire


class Transforms:
    """Which transforms apply to a resource, and running them in the engine's order: own, parents', stack's."""

    def __init__(self) -> None:
        self._stack: list[callback_pb2.Callback] = []
        self._by_parent: dict[str, list[callback_pb2.Callback]] = {}
        self._stubs: dict[str, Any] = {}
        self._channels: list[Any] = []
        self._lock = threading.Lock()
        self.any = False
        """True once a transform was registered."""

    def add_stack_transform(self, callback: callback_pb2.Callback) -> None:
        self.any = True
        self._stack.append(callback)

    def remember(self, urn: str, callbacks: Iterable[callback_pb2.Callback]) -> None:
        """Transforms of a resource also apply to its descendants."""
        own = list(callbacks)
        if own:
            self.any = True
            self._by_parent[urn] = own

    def chain(self, request: resource_pb2.RegisterResourceRequest, parents: Iterable[str]) -> list[callback_pb2.Callback]:
        found = list(request.transforms)
        if not self.any and not found:
            return []
        for urn in parents:
            found += self._by_parent.get(urn, [])
        return found + self._stack

    def run(
        self,
        chain: list[callback_pb2.Callback],
        request: resource_pb2.RegisterResourceRequest,
        properties: dict[str, Any],
        dependencies: set[str],
        property_dependencies: dict[str, set[str]],
    ) -> tuple[dict[str, Any], set[str], dict[str, set[str]]]:
        """Properties and dependencies after all transforms; changed options are written into ``request``."""
        # As the engine: only transforms of the resource itself see the dependencies of its properties, and may change them.
        own = bool(request.transforms)
        properties = wire.upgrade_to_outputs(properties, property_dependencies if own else {})
        options = _options_of(request, dependencies)
        for callback in chain:
            response = resource_pb2.TransformResponse.FromString(
                self._call(
                    callback,
                    resource_pb2.TransformRequest(
                        type=request.type,
                        name=request.name,
                        custom=request.custom,
                        parent=request.parent,
                        properties=wire.encode(properties),
                        options=options,
                    ).SerializeToString(),
                )
            )
            if response.HasField("properties"):
                properties = wire.decode(response.properties)
            if response.HasField("options"):
                options = response.options
        _write_options(request, options)
        found = {key: wire.output_dependencies(value) for key, value in properties.items()}
        if own:
            return properties, set(options.depends_on).union(*found.values()), found
        for key, urns in property_dependencies.items():
            found[key] = found.get(key, set()) | urns
        return properties, dependencies, found

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def _call(self, callback: callback_pb2.Callback, request: bytes) -> bytes:
        import grpc
        from pulumi.runtime.proto import callback_pb2_grpc

        with self._lock:
            stub = self._stubs.get(callback.target)
            if stub is None:
                channel = grpc.insecure_channel(callback.target)
                self._channels.append(channel)
                stub = self._stubs[callback.target] = callback_pb2_grpc.CallbacksStub(channel)
        return stub.Invoke(callback_pb2.CallbackInvokeRequest(token=callback.token, request=request)).response


def _options_of(request: resource_pb2.RegisterResourceRequest, dependencies: set[str]) -> resource_pb2.TransformResourceOptions:
    options = resource_pb2.TransformResourceOptions(
        depends_on=sorted(dependencies),
        ignore_changes=request.ignoreChanges,
        replace_on_changes=request.replaceOnChanges,
        version=request.version,
        aliases=request.aliases,
        provider=request.provider,
        providers=request.providers,
        plugin_download_url=request.pluginDownloadURL,
        deleted_with=request.deletedWith,
        replace_with=request.replace_with,
        additional_secret_outputs=request.additionalSecretOutputs,
        hide_diff=request.hideDiffs,
        hooks=request.hooks,
        replacement_trigger=request.replacement_trigger,
    )
    setattr(options, "import", request.importId)
    if request.HasField("customTimeouts"):
        options.custom_timeouts.CopyFrom(request.customTimeouts)
    if request.HasField("protect"):
        options.protect = request.protect
    if request.HasField("retainOnDelete"):
        options.retain_on_delete = request.retainOnDelete
    if request.deleteBeforeReplaceDefined:
        options.delete_before_replace = request.deleteBeforeReplace
    return options


def _write_options(request: resource_pb2.RegisterResourceRequest, options: resource_pb2.TransformResourceOptions) -> None:
    for field, value in (
        ("ignoreChanges", options.ignore_changes),
        ("replaceOnChanges", options.replace_on_changes),
        ("replace_with", options.replace_with),
        ("additionalSecretOutputs", options.additional_secret_outputs),
        ("hideDiffs", options.hide_diff),
        ("aliases", options.aliases),
    ):
        values = list(value)
        request.ClearField(field)  # type: ignore[arg-type]
        getattr(request, field).extend(values)
    request.version = options.version
    request.provider = options.provider
    request.pluginDownloadURL = options.plugin_download_url
    request.deletedWith = options.deleted_with
    request.importId = getattr(options, "import")
    request.hooks.CopyFrom(options.hooks)
    request.replacement_trigger.CopyFrom(options.replacement_trigger)
    providers = dict(options.providers)
    request.providers.clear()
    request.providers.update(providers)
    if options.HasField("custom_timeouts"):
        request.customTimeouts.CopyFrom(options.custom_timeouts)
    if options.HasField("protect"):
        request.protect = options.protect
    if options.HasField("retain_on_delete"):
        request.retainOnDelete = options.retain_on_delete
    if options.HasField("delete_before_replace"):
        request.deleteBeforeReplace = options.delete_before_replace
        request.deleteBeforeReplaceDefined = True
