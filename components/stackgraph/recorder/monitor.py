"""The resource monitor of a recorded program. It handles registrations like the engine, up to the planning of steps.

Follows ``pkg/resource/deploy/source_eval.go`` of the Pulumi engine: URNs with the chain of parent types, options inherited from
parents, providers resolved through components, default providers, transforms run in the program's own process, duplicate URNs
refused.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote, urlparse

from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2, resource_pb2

from stackgraph.graph.describe import short_type
from stackgraph.graph.document import PROVIDER_PREFIX, STACK_REFERENCE, STACK_TYPE, Graph, Resource, build_urn
from stackgraph.graph.values import leaves
from stackgraph.recorder import symbols, wire
from stackgraph.recorder.answers import NO_ANSWERS, Answers
from stackgraph.recorder.functions import Functions, current_call
from stackgraph.recorder.protocol import HookError, Protocol


def inherit(child: resource_pb2.RegisterResourceRequest, parent: resource_pb2.RegisterResourceRequest) -> None:
    """Sets the options that a resource inherits, like ``inheritFromParent`` of the engine."""
    if not child.deletedWith:
        child.deletedWith = parent.deletedWith
    if not child.HasField("protect") and parent.HasField("protect"):
        child.protect = parent.protect
    if not child.HasField("retainOnDelete") and parent.HasField("retainOnDelete"):
        child.retainOnDelete = parent.retainOnDelete
    if not child.provider and parent.provider:
        package = parent.provider.split("::")[2].rpartition("$")[2].removeprefix(PROVIDER_PREFIX)
        if not (child.remote or child.custom) or package == child.type.split(":", 1)[0]:
            child.provider = parent.provider


def recorded(request: resource_pb2.RegisterResourceRequest, secrets: wire.Secrets) -> dict[str, Any]:
    """The options of a registration that differ from the default."""
    timeouts = request.customTimeouts
    given: dict[str, Any] = {
        "additionalSecretOutputs": sorted(request.additionalSecretOutputs),
        "aliases": [_alias(alias) for alias in request.aliases] + [{"urn": urn} for urn in request.aliasURNs],
        "customTimeouts": {
            action: value for action in ("create", "update", "delete", "read") if (value := getattr(timeouts, action, ""))
        },
        "deleteBeforeReplace": request.deleteBeforeReplace,
        "deletedWith": request.deletedWith,
        "hideDiffs": list(request.hideDiffs),
        "hooks": {field.camelcase_name: list(names) for field, names in request.hooks.ListFields()},
        "ignoreChanges": sorted(request.ignoreChanges),
        "import": request.importId,
        "pluginDownloadUrl": request.pluginDownloadURL,
        "protect": request.protect,
        "replaceOnChanges": sorted(request.replaceOnChanges),
        "replaceWith": sorted(request.replace_with),
        "replacementTrigger": wire.canonical(wire.decode_value(request.replacement_trigger), secrets),
        "retainOnDelete": request.retainOnDelete,
    }
    return {key: value for key, value in given.items() if value or (key == "replacementTrigger" and value is not None)}


def _alias(alias: Any) -> dict[str, Any]:
    if alias.WhichOneof("alias") == "urn":
        return {"urn": alias.urn}
    spec = alias.spec
    fields = {"name": spec.name, "type": spec.type, "stack": spec.stack, "project": spec.project}
    fields |= {"parent": spec.parentUrn} if spec.WhichOneof("parent") == "parentUrn" else {"noParent": spec.noParent}
    return {key: value for key, value in fields.items() if value}


DYNAMIC_PACKAGE = "pulumi-python"
"""The package of resources whose provider is written in the program itself."""

SDK_FILE = re.compile(r"[/\\]site-packages[/\\]pulumi(_\w+)?[/\\]")


class RegistrationError(Exception):
    """A registration that the engine would refuse."""


class Recorder(Protocol):
    """The monitor and engine of one program run. Thread-safe: the SDK registers from several threads.

    ``config`` is the stack's configuration by full key, ``secret_keys`` are its secret keys. ``locate`` turns the absolute path
    of a source file into the path to record. ``progress`` is called after each resource, with the number of resources so far.
    ``digest`` makes the digest that a graph keeps of a secret (``tokens.Sealed``). ``answers`` are those of functions.
    """

    def __init__(
        self,
        project: str,
        stack: str,
        config: Mapping[str, str],
        *,
        secret_keys: Collection[str],
        strict: bool,
        locate: Callable[[str], str],
        progress: Callable[[int], None] | None = None,
        digest: Callable[[Any], str] | None = None,
        answers: Answers = NO_ANSWERS,
        needs_files: bool = False,
    ) -> None:
        super().__init__(digest)
        self.project = project
        self.stack = stack
        self.config = config
        self.secret_keys = secret_keys
        self._strict = strict
        self._needs_files = needs_files
        self._locate = locate
        self._progress = progress
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._requests: dict[str, resource_pb2.RegisterResourceRequest] = {}
        self._states: dict[str, dict[str, Any]] = {}
        """Answers to ``getResource``, with which the SDK looks up resources that a program or a transform passes on as values."""
        self._inside: dict[str, str] = {}
        """The remote component around a resource that only a reference names, by the URN of that resource."""
        self._unconfigured: set[str] = set()
        self._outputs: dict[str, Any] = {}
        self._functions = Functions(answers, strict=strict)
        self.computed: set[str] = set()
        """Texts that the program makes of placeholders, without one inside."""
        self._taken: dict[str, dict[str, None]] = {}
        self._placeholders = {f"secret {key}" for key in secret_keys}
        """What placeholders begin with: names of resources and functions."""

    def graph(self) -> Graph:
        """The graph of everything registered so far."""
        with self._lock:
            resources = tuple(self._resources[urn] for urn in sorted(self._resources))
            taken = (f"the program takes {', '.join(names)} of stack {stack} at once" for stack, names in self.missed().items())
            without = "its value is unknown, and the program goes on without it (--answers FILE supplies it)"
            warnings = (*self._warnings, *self._functions.misspelt(), *(f"{what}: {without}" for what in taken))
            return Graph(self.project, self.stack, resources, self._outputs, warnings, self._functions.called())

    def is_made_up(self, text: str) -> bool:
        """Whether a placeholder of this recording is inside the text."""
        return "<" in text and symbols.is_made_up(text, self._placeholders)

    def take(self, reference: str, output: str) -> None:
        """Notes that the program takes an output of a stack reference at once."""
        self._taken.setdefault(reference, {})[output] = None

    def missed(self) -> Mapping[str, Iterable[str]]:
        """By stack, the outputs that the program takes at once and nobody knows."""
        unknown = {
            one.args["name"] for one in self._functions.called() if one.token == STACK_REFERENCE and one.answer == "unknown"
        }
        stacks = {one.name: one.options["read"] for one in self._resources.values() if one.type == STACK_REFERENCE}
        return {stacks[name]: outputs for name, outputs in self._taken.items() if stacks.get(name) in unknown}

    def lacking(self, output: str) -> list[str]:
        """The stacks whose answered outputs are without this one."""
        found = ((one, self._states[one.urn]["state"]) for one in self._resources.values() if one.type == STACK_REFERENCE)
        return [one.options["read"] for one, state in found if output not in state["outputs"]]

    # -- registration ---------------------------------------------------------------------------------------------------------

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> resource_pb2.RegisterResourceResponse:
        parent = self._requests.get(request.parent)
        if parent is not None:
            inherit(request, parent)
        properties = wire.decode(request.object)
        dependencies = set(request.dependencies)
        property_dependencies = {key: set(item.urns) for key, item in request.propertyDependencies.items()}

        managed = request.custom or request.remote
        if managed and not request.provider:
            request.provider = self._inherited_provider(request)
        chain = self._transforms.chain(request, self._parents(request.parent))
        if chain:
            properties, dependencies, property_dependencies = self._transforms.run(
                chain, request, properties, dependencies, property_dependencies
            )
        for key, value in properties.items():
            property_dependencies.setdefault(key, set()).update(wire.output_dependencies(value))
        properties = wire.downgrade_outputs(properties)

        is_provider = request.type.startswith(PROVIDER_PREFIX)
        provider = ""
        if managed and not is_provider:
            provider = request.provider.rpartition("::")[0] or self._default_provider(request, request.type)
            if request.custom:
                # Descendants of the same package inherit this provider.
                request.provider = f"{provider}::{wire.UNKNOWN}"
        if is_provider and request.version:
            properties["version"] = request.version
        if not request.custom and parent is not None and not parent.custom:
            for package, reference in parent.providers.items():
                if package not in request.providers:
                    request.providers[package] = reference

        urn = self._urn(request.parent, request.type, request.name)
        inputs = wire.canonical(properties, self.secrets, request.type, request.name)
        resource = Resource(
            urn=urn,
            type=request.type,
            name=request.name,
            parent=request.parent,
            custom=request.custom,
            remote=request.remote,
            provider=provider,
            inputs=inputs,
            dependencies=self._visible(dependencies),
            property_dependencies={key: self._visible(urns) for key, urns in property_dependencies.items() if urns},
            options=recorded(request, self.secrets),
            source=self._source(request),
            computed=tuple(sorted(self.computed.intersection(leaves(inputs)))) if self.computed else (),
        )
        for file in wire.refused_files(properties):
            what = f"{resource.source}: {short_type(resource.type)} {resource.name} takes the file {file}"
            if self._needs_files:
                raise RegistrationError(f"{what}; the engine refuses that")
            self.warn(what)
        self._add(resource, request)
        if is_provider and wire.has_unknown(properties):
            self._unconfigured.add(urn)
        self._transforms.remember(urn, request.transforms)
        if request.hooks.before_create or request.hooks.after_create:
            return self._hooked(resource, request, properties)
        return self._respond(resource, request, properties)

    def _hooked(
        self, resource: Resource, request: resource_pb2.RegisterResourceRequest, properties: dict[str, Any]
    ) -> resource_pb2.RegisterResourceResponse:
        """The response for a resource with hooks of its creation, which run before and after."""
        try:
            self._hooks.run("before", request, resource.urn, properties, warn=self.warn)
            response = self._respond(resource, request, properties)
            self._hooks.run("after", request, resource.urn, properties, response, warn=self.warn)
        except HookError as error:
            raise RegistrationError(f"{resource.urn}: {error}") from error
        return response

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> empty_pb2.Empty:
        resource = self._resources.get(request.urn)
        if resource is not None and resource.type == STACK_TYPE:
            outputs = wire.downgrade_outputs(wire.decode(request.outputs))
            self._outputs = wire.canonical(outputs, self.secrets, "output")
        return empty_pb2.Empty()

    def ReadResource(self, request: resource_pb2.ReadResourceRequest) -> resource_pb2.ReadResourceResponse:
        """Records a ``.get(...)`` as a resource that the program only reads."""
        properties = wire.downgrade_outputs(wire.decode(request.properties))
        resource = Resource(
            urn=self._urn(request.parent, request.type, request.name),
            type=request.type,
            name=request.name,
            parent=request.parent,
            provider=request.provider.rpartition("::")[0] or self._default_provider(request, request.type),
            inputs=wire.canonical(properties, self.secrets, request.type, request.name),
            dependencies=self._visible(request.dependencies),
            options={"read": request.id}
            | ({"additionalSecretOutputs": sorted(secret)} if (secret := request.additionalSecretOutputs) else {}),
            source=self._source(request),
        )
        self._add(resource, None)
        known = self._known(resource, properties)
        if request.type == STACK_REFERENCE:
            outputs = self._functions.outputs(str(request.id), resource.source)
            secret = [name for name, value in (outputs or {}).items() if value == wire.as_secret(value)]
            known |= {"outputs": wire.UNKNOWN if outputs is None else outputs, "secretOutputNames": secret}
            self._placeholders.add(str(request.id))
        elif not self._strict:
            known |= symbols.symbolic_outputs(request.name, request.type, known)
        self._states[resource.urn] = {"urn": resource.urn, "id": request.id, "state": known}
        return resource_pb2.ReadResourceResponse(urn=resource.urn, id=request.id, properties=wire.encode(known))

    def _add(self, resource: Resource, request: resource_pb2.RegisterResourceRequest | None) -> None:
        with self._lock:
            if resource.urn in self._resources:
                first = self._resources[resource.urn].source
                raise RegistrationError(
                    f"two resources have the same URN {resource.urn}: one from {first or 'the program'}, one from "
                    f"{resource.source or 'the program'}. Give one of them another name."
                )
            self._resources[resource.urn] = resource
            self._placeholders.add(resource.name)
            if request is not None:
                self._requests[resource.urn] = request
            count = len(self._resources)
        if self._progress:
            self._progress(count)

    def _respond(
        self, resource: Resource, request: resource_pb2.RegisterResourceRequest, properties: dict[str, Any]
    ) -> resource_pb2.RegisterResourceResponse:
        if not (resource.custom or resource.remote):
            # Like the engine: the constructor of a local component sets its outputs as attributes.
            return resource_pb2.RegisterResourceResponse(urn=resource.urn)
        known = self._known(resource, properties)
        # The engine gives a provider the text for unknown values as an id, which the SDK takes for known.
        identity = wire.UNKNOWN if resource.is_provider else request.importId
        if not self._strict:
            reference = partial(self._reference, resource) if resource.remote else None
            known |= symbols.symbolic_outputs(resource.name, resource.type, known, reference)
            identity = request.importId or (symbols.token(resource.name, "id") if resource.custom else "")
        self._states[resource.urn] = {"urn": resource.urn, "id": identity, "state": known}
        return resource_pb2.RegisterResourceResponse(urn=resource.urn, id=identity, object=wire.encode(known))

    def _known(self, resource: Resource, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs that a preview knows: the inputs, marked as secret where the resource's options say so.

        There are none for a remote component, whose outputs only its provider knows. When strict, there are none for a resource
        whose provider has unknown inputs either: the engine does not call such a provider.
        """
        if resource.remote or (self._strict and resource.provider in self._unconfigured):
            return {}
        secret = resource.options.get("additionalSecretOutputs", ())
        provided = symbols.as_provided(resource.type, properties)
        return {key: wire.as_secret(value) if key in secret else value for key, value in provided.items()}

    def _reference(self, resource: Resource, prop: str, cls: type) -> Any:
        """A reference to a resource inside a remote component. The URN is made up, since only the provider knows the real one."""
        type_ = symbols.type_of(cls)
        if type_ is None:
            return wire.UNKNOWN
        name = f"{resource.name}.{prop}"
        urn = self._urn(resource.urn, type_, name)
        identity = symbols.token(name, "id")
        self._inside[urn] = resource.urn
        self._states[urn] = {"urn": urn, "id": identity, "state": symbols.symbolic_outputs(name, type_, {})}
        return {wire.SIGNATURE: wire.RESOURCE, "urn": urn, "id": identity}

    def _visible(self, urns: Iterable[str]) -> tuple[str, ...]:
        """The URNs in the graph to depend on: for a resource inside a remote component, the component."""
        return tuple(sorted({self._inside.get(urn, urn) for urn in urns}))

    def _urn(self, parent: str, type_: str, name: str) -> str:
        chain = parent.split("::")[2] if parent else ""
        return build_urn(self.stack, self.project, chain, type_, name)

    def _parents(self, urn: str) -> Iterable[str]:
        while urn:
            yield urn
            request = self._requests.get(urn)
            urn = request.parent if request else ""

    def _inherited_provider(self, request: resource_pb2.RegisterResourceRequest) -> str:
        package = request.type.split(":", 1)[0]
        parent = self._requests.get(request.parent)
        return request.providers.get(package) or (parent.providers.get(package, "") if parent is not None else "")

    def _default_provider(self, request: Any, type_: str) -> str:
        """The URN of the default provider for a resource type or the token of a function."""
        package = type_.split(":", 1)[0]
        name = "_".join(filter(None, ("default", re.sub(r"[.+-]", "_", request.version), _qualified(request.pluginDownloadURL))))
        urn = self._urn("", PROVIDER_PREFIX + package, name)
        with self._lock:
            if urn not in self._resources:
                # Dynamic providers get the whole configuration, by full key (``GetPackageConfig`` of the engine).
                prefix = "" if package == DYNAMIC_PACKAGE else f"{package}:"
                inputs = {
                    key.removeprefix(prefix): wire.as_secret(value) if key in self.secret_keys else value
                    for key, value in self.config.items()
                    if key.startswith(prefix)
                }
                inputs |= {"version": request.version} if request.version else {}
                inputs = wire.canonical(inputs, self.secrets)
                self._resources[urn] = Resource(urn=urn, type=PROVIDER_PREFIX + package, name=name, inputs=inputs)
        return urn

    def _source(self, request: Any) -> str:
        """The place in the program that made the resource: the innermost frame outside the SDKs; of what an SDK makes of a file,
        that of the parent.
        """
        if request.type == STACK_TYPE:
            return ""
        for frame in request.stackTrace.frames:
            path = unquote(urlparse(frame.pc.uri).path)
            if path and not SDK_FILE.search(path):
                return f"{self._locate(path)}:{frame.pc.line}"
        return parent.source if (parent := self._resources.get(request.parent)) else ""

    # -- functions and methods ------------------------------------------------------------------------------------------------

    def Invoke(self, request: resource_pb2.ResourceInvokeRequest) -> resource_pb2.ResourceInvokeResponse:
        given = wire.decode(request.args)
        self._transforms.run_on_function(request)
        args = wire.decode(request.args)
        if request.tok == "pulumi:pulumi:getResource":
            answer = self._states.get(args["urn"])
            if answer is None:
                raise RegistrationError(f"the program looks up {args['urn']}, which it has not registered")
        else:
            urn = request.provider.rpartition("::")[0] or self._default_provider(request, request.tok)
            call = current_call()
            if args != given:
                kept = {key: value for key, value in (call.shown or {}).items() if args.get(key) == given.get(key)}
                call.shown = wire.canonical(args, self.secrets) | kept
            source = f"{self._locate(call.frame[0])}:{call.frame[1]}" if call.frame else ""
            self._placeholders.add(request.tok.rpartition(":")[2])
            provider = self._resources.get(urn)
            name, inputs = (provider.name, provider.inputs) if provider else ("", {})
            if self._strict and urn in self._unconfigured:  # like the engine, which asks no such provider
                answer = self._functions.method(request.tok, source)
            else:
                answer = self._functions.result(request.tok, args, call, source, name, inputs)
        if answer is None:
            return resource_pb2.ResourceInvokeResponse(unknown=True)
        return _returning(resource_pb2.ResourceInvokeResponse(), answer)

    def Call(self, request: resource_pb2.ResourceCallRequest) -> provider_pb2.CallResponse:
        """Answers a method of a remote component, whose result is unknown offline."""
        self._functions.method(request.tok, "")
        return _returning(provider_pb2.CallResponse(), {"result": wire.UNKNOWN})


def _returning(response: Any, value: Mapping[str, Any]) -> Any:
    # The name of the field is a Python keyword.
    getattr(response, "return").CopyFrom(wire.encode(value))
    return response


def _qualified(url: str) -> str:
    """A URL in the form the engine uses in names (``IntoQName``)."""
    return "/".join(re.sub(r"[^\w.-]", "_", part, flags=re.ASCII) for part in url.split("/") if part)
