"""What a monitor answers about a program as a whole: features, transforms and hooks of its own, packages, log."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf import empty_pb2
from pulumi.runtime.proto import callback_pb2, engine_pb2, resource_pb2

from stackgraph.recorder import wire


class Callbacks:
    """The connections to the program's callback servers."""

    def __init__(self) -> None:
        self._stubs: dict[str, Any] = {}
        self._channels: list[Any] = []
        self._lock = threading.Lock()
        self.asked: dict[int, str] = {}
        """Whom the calls without an answer are about, by the id of their message."""

    def call(self, callback: callback_pb2.Callback, request: Any) -> bytes:
        """What a function of the program returns for a message."""
        import grpc
        from pulumi.runtime.proto import callback_pb2_grpc

        with self._lock:
            stub = self._stubs.get(callback.target)
            if stub is None:
                channel = grpc.insecure_channel(callback.target)
                self._channels.append(channel)
                stub = self._stubs[callback.target] = callback_pb2_grpc.CallbacksStub(channel)
        asked = callback_pb2.CallbackInvokeRequest(token=callback.token, request=request.SerializeToString())
        self.asked[id(request)] = getattr(request, "name", "") or getattr(request, "token", "")
        try:
            return stub.Invoke(asked).response
        finally:
            del self.asked[id(request)]

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


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


# Fields of a registration, and their names in the options that transforms get.
_FIELDS = {
    "additionalSecretOutputs": "additional_secret_outputs",
    "aliases": "aliases",
    "customTimeouts": "custom_timeouts",
    "deletedWith": "deleted_with",
    "hideDiffs": "hide_diff",
    "hooks": "hooks",
    "ignoreChanges": "ignore_changes",
    "importId": "import",
    "pluginDownloadURL": "plugin_download_url",
    "protect": "protect",
    "provider": "provider",
    "providers": "providers",
    "replaceOnChanges": "replace_on_changes",
    "replace_with": "replace_with",
    "replacement_trigger": "replacement_trigger",
    "retainOnDelete": "retain_on_delete",
    "version": "version",
}

_FUNCTION_FIELDS = {"provider": "provider", "version": "version", "pluginDownloadURL": "plugin_download_url"}
"""Fields of a call of a function, and their names in the options that transforms get."""


class Transforms:
    """Finds the transforms of a resource and runs them in the engine's order: its own, its parents', the stack's."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._stack: list[callback_pb2.Callback] = []
        self._of_functions: list[callback_pb2.Callback] = []
        self._by_parent: dict[str, list[callback_pb2.Callback]] = {}

    def add_stack_transform(self, callback: callback_pb2.Callback) -> None:
        self._stack.append(callback)

    def add_invoke_transform(self, callback: callback_pb2.Callback) -> None:
        self._of_functions.append(callback)

    def run_on_function(self, request: resource_pb2.ResourceInvokeRequest) -> None:
        """Writes arguments and options of a call as the stack's transforms of functions change them, in the engine's order."""
        options = resource_pb2.TransformInvokeOptions()
        _copy(request, options, _FUNCTION_FIELDS)
        for callback in self._of_functions:
            asked = resource_pb2.TransformInvokeRequest(token=request.tok, args=request.args, options=options)
            response = resource_pb2.TransformInvokeResponse.FromString(self._callbacks.call(callback, asked))
            if response.HasField("args"):
                request.args.CopyFrom(response.args)
            if response.HasField("options"):
                options = response.options
        _copy(options, request, {option: field for field, option in _FUNCTION_FIELDS.items()})

    def remember(self, urn: str, callbacks: Iterable[callback_pb2.Callback]) -> None:
        """Keeps the transforms of a resource for its descendants, to which they also apply."""
        if own := list(callbacks):
            self._by_parent[urn] = own

    def chain(self, request: resource_pb2.RegisterResourceRequest, parents: Iterable[str]) -> list[callback_pb2.Callback]:
        inherited = (callback for urn in parents for callback in self._by_parent.get(urn, ())) if self._by_parent else ()
        return [*request.transforms, *inherited, *self._stack]

    def run(
        self,
        chain: list[callback_pb2.Callback],
        request: resource_pb2.RegisterResourceRequest,
        properties: dict[str, Any],
        dependencies: set[str],
        property_dependencies: dict[str, set[str]],
    ) -> tuple[dict[str, Any], set[str], dict[str, set[str]]]:
        """The properties and dependencies after all transforms. Writes changed options into ``request``."""
        # Like the engine: only the resource's own transforms see the dependencies of its properties and may change them.
        own = bool(request.transforms)
        properties = wire.upgrade_to_outputs(properties, property_dependencies if own else {})
        options = _options_of(request, dependencies)
        for callback in chain:
            transform = resource_pb2.TransformRequest(
                type=request.type,
                name=request.name,
                custom=request.custom,
                parent=request.parent,
                properties=wire.encode(properties),
                options=options,
            )
            response = resource_pb2.TransformResponse.FromString(self._callbacks.call(callback, transform))
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


def _options_of(request: resource_pb2.RegisterResourceRequest, dependencies: set[str]) -> resource_pb2.TransformResourceOptions:
    options = resource_pb2.TransformResourceOptions(depends_on=sorted(dependencies))
    _copy(request, options, _FIELDS)
    if request.deleteBeforeReplaceDefined:
        options.delete_before_replace = request.deleteBeforeReplace
    return options


def _write_options(request: resource_pb2.RegisterResourceRequest, options: resource_pb2.TransformResourceOptions) -> None:
    request.ClearField("hooks")
    request.ClearField("replacement_trigger")
    _copy(options, request, {option: field for field, option in _FIELDS.items()})
    if options.HasField("delete_before_replace"):
        request.deleteBeforeReplace = options.delete_before_replace
        request.deleteBeforeReplaceDefined = True


def _copy(source: Any, target: Any, names: Mapping[str, str]) -> None:
    """Copies fields from one message to another. An optional field that ``source`` does not set is left alone."""
    for name, other in names.items():
        if source.DESCRIPTOR.fields_by_name[name].has_presence and not source.HasField(name):
            continue
        value = getattr(source, name)
        if hasattr(value, "MergeFrom"):
            target.ClearField(other)
            getattr(target, other).MergeFrom(value)
        else:
            setattr(target, other, value)


_FEATURES = [
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_OUTPUT_VALUES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACEMENT_TRIGGER,
    resource_pb2.RESOURCE_MONITOR_FEATURE_TRANSFORMS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_INVOKE_TRANSFORMS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_PARAMETERIZATION,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ERROR_HOOKS,
]


class Protocol:
    """The part of a monitor that registers nothing. ``digest`` makes the digest that a graph keeps of a secret."""

    def __init__(self, digest: Callable[[Any], str] | None = None) -> None:
        self.callbacks = Callbacks()
        self._transforms = Transforms(self.callbacks)
        self._hooks = Hooks(self.callbacks)
        self._warnings: dict[str, None] = {}
        self.secrets = wire.Secrets(digest)

    def warn(self, message: str) -> None:
        """Adds a warning to the graph, once."""
        self._warnings.setdefault(self.secrets.scrub(message))

    def GetDeploymentInfo(self, request: Any) -> resource_pb2.DeploymentInfo:
        return resource_pb2.DeploymentInfo(supportedFeatures=_FEATURES)

    def RegisterStackTransform(self, callback: Any) -> empty_pb2.Empty:
        self._transforms.add_stack_transform(callback)
        return empty_pb2.Empty()

    def RegisterStackInvokeTransform(self, callback: Any) -> empty_pb2.Empty:
        self._transforms.add_invoke_transform(callback)
        return empty_pb2.Empty()

    def RegisterResourceHook(self, request: resource_pb2.RegisterResourceHookRequest) -> empty_pb2.Empty:
        self._hooks.add(request)
        return empty_pb2.Empty()

    def _accept(self, request: Any) -> empty_pb2.Empty:
        """Accepts what has no effect on the graph."""
        return empty_pb2.Empty()

    RegisterErrorHook = _accept

    def RegisterPackage(self, request: resource_pb2.RegisterPackageRequest) -> resource_pb2.RegisterPackageResponse:
        return resource_pb2.RegisterPackageResponse(ref=f"{request.name}@{request.version}")

    def RequirePulumiVersion(self, request: Any) -> Any:
        return engine_pb2.RequirePulumiVersionResponse()

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:
        if request.severity in (engine_pb2.WARNING, engine_pb2.ERROR):
            self.warn(request.message)
        return empty_pb2.Empty()

    def SignalAndWaitForShutdown(self, request: Any) -> empty_pb2.Empty:
        self.callbacks.close()
        return empty_pb2.Empty()
