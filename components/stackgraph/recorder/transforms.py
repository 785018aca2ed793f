"""Runs resource transforms: functions of the program that the engine calls for each registration."""

from collections.abc import Iterable, Mapping
from typing import Any

from pulumi.runtime.proto import callback_pb2, resource_pb2

from stackgraph.recorder import wire
from stackgraph.recorder.callbacks import Callbacks

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
