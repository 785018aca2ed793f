"""The monitor a recorded program talks to: what the engine does with a registration, up to the point where it would plan steps.

Follows ``pkg/resource/deploy/source_eval.go`` of the Pulumi engine: URNs with the whole chain of parent types, options inherited
from parents, providers resolved through components, default providers, transforms run in the program's own process, duplicate
URNs refused.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlparse

from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, provider_pb2, resource_pb2

from stackgraph.graph.document import PROVIDER_PREFIX, STACK_TYPE, Graph, Resource
from stackgraph.recorder import invokes, options, symbols, wire
from stackgraph.recorder.transforms import Transforms

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

SDK_FILE = re.compile(r"[/\\]site-packages[/\\]pulumi(_\w+)?[/\\]")


class RegistrationError(Exception):
    """A registration the engine would refuse."""


class Recorder:
    """Monitor and engine of one program run. Thread-safe: the SDK registers from several threads.

    ``config`` is the stack's configuration by full key, for default providers and built-in answers; ``secret_keys`` are its keys
    that hold secrets; ``locate`` turns the absolute path of a source file into what the graph shows; ``progress`` is called with
    the number of resources after each one; ``digest`` of a secret is kept in its place (``tokens.Sealed``).
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
    ) -> None:
        self._project = project
        self._stack = stack
        self._config = config
        self._secret_keys = secret_keys
        self._strict = strict
        self._locate = locate
        self._progress = progress
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._requests: dict[str, resource_pb2.RegisterResourceRequest] = {}
        self._states: dict[str, dict[str, Any]] = {}
        """What ``getResource`` answers: the SDK looks up resources that a program or a transform passes on whole."""
        self._inside: dict[str, str] = {}
        """The remote component that a resource named only by a reference is inside of."""
        self._unconfigured: set[str] = set()
        self._outputs: dict[str, Any] = {}
        self._warnings: list[str] = []
        self._transforms = Transforms()
        self.secrets = wire.Secrets(digest)
        self.unanswered: list[str] = []
        """Functions the program called that cannot be answered offline."""

    def graph(self) -> Graph:
        """What was registered so far."""
        with self._lock:
            resources = tuple(self._resources[urn] for urn in sorted(self._resources))
            return Graph(self._project, self._stack, resources, self._outputs, tuple(self._warnings))

    # -- registration ---------------------------------------------------------------------------------------------------------

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> resource_pb2.RegisterResourceResponse:
        parent = self._requests.get(request.parent)
        if parent is not None:
            options.inherit(request, parent)
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
            provider = request.provider.rpartition("::")[0] or self._default_provider(request)
            if request.custom:
                # Resources of the same package below this one inherit what was chosen here.
                request.provider = f"{provider}::{wire.UNKNOWN}"
        if is_provider and request.version:
            properties["version"] = request.version
        if not request.custom and parent is not None and not parent.custom:
            for package, reference in parent.providers.items():
                if package not in request.providers:
                    request.providers[package] = reference

        urn = self._urn(request.parent, request.type, request.name)
        resource = Resource(
            urn=urn,
            type=request.type,
            name=request.name,
            parent=request.parent,
            custom=request.custom,
            remote=request.remote,
            provider=provider,
            inputs=wire.canonical(properties, self.secrets),
            dependencies=self._visible(dependencies),
            property_dependencies={key: self._visible(urns) for key, urns in property_dependencies.items() if urns},
            options=options.recorded(request, self.secrets),
            source=self._source(request),
        )
        self._add(resource, request)
        if is_provider and wire.has_unknown(properties):
            self._unconfigured.add(urn)
        self._transforms.remember(urn, request.transforms)
        return self._respond(resource, request, properties)

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> empty_pb2.Empty:
        resource = self._resources.get(request.urn)
        if resource is not None and resource.type == STACK_TYPE:
            outputs = wire.downgrade_outputs(wire.decode(request.outputs))
            self._outputs = wire.canonical(outputs, self.secrets)
        return empty_pb2.Empty()

    def ReadResource(self, request: resource_pb2.ReadResourceRequest) -> resource_pb2.ReadResourceResponse:
        """A ``.get(...)``: recorded as a resource that the program only reads."""
        properties = wire.downgrade_outputs(wire.decode(request.properties))
        resource = Resource(
            urn=self._urn(request.parent, request.type, request.name),
            type=request.type,
            name=request.name,
            parent=request.parent,
            provider=request.provider.rpartition("::")[0] or self._default_provider(request),
            inputs=wire.canonical(properties, self.secrets),
            dependencies=self._visible(request.dependencies),
            options={"read": request.id}
            | ({"additionalSecretOutputs": sorted(secret)} if (secret := request.additionalSecretOutputs) else {}),
            source=self._source(request),
        )
        self._add(resource, None)
        known = self._known(resource, properties)
        if not self._strict:
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
            if request is not None:
                self._requests[resource.urn] = request
            count = len(self._resources)
        if self._progress:
            self._progress(count)

    def _respond(
        self, resource: Resource, request: resource_pb2.RegisterResourceRequest, properties: dict[str, Any]
    ) -> resource_pb2.RegisterResourceResponse:
        if not (resource.custom or resource.remote):
            # As the engine: outputs of a local component are the attributes its own constructor sets.
            return resource_pb2.RegisterResourceResponse(urn=resource.urn)
        known = self._known(resource, properties)
        identity = request.importId
        if not self._strict:

            def reference(prop: str, cls: type) -> Any:
                return self._reference(resource, prop, cls)

            known |= symbols.symbolic_outputs(resource.name, resource.type, known, reference if resource.remote else None)
            identity = identity or (symbols.token(resource.name, "id") if resource.custom else "")
        self._states[resource.urn] = {"urn": resource.urn, "id": identity, "state": known}
        return resource_pb2.RegisterResourceResponse(urn=resource.urn, id=identity, object=wire.encode(known))

    def _known(self, resource: Resource, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs that a preview knows: the inputs again, secret where the resource says so.

        Not of a remote component, whose outputs only its provider knows. Nor, when strict, of a resource whose provider has
        inputs that are not known yet: the engine does not ask such a provider anything.
        """
        if resource.remote or (self._strict and resource.provider in self._unconfigured):
            return {}
        secret = resource.options.get("additionalSecretOutputs", ())
        return {key: wire.as_secret(value) if key in secret else value for key, value in properties.items()}

    def _reference(self, resource: Resource, prop: str, cls: type) -> Any:
        """A reference to a resource inside a remote component: its real URN is the component provider's business."""
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
        """A resource inside a remote component is not in the graph: depend on the component."""
        return tuple(sorted({self._inside.get(urn, urn) for urn in urns}))

    def _urn(self, parent: str, type_: str, name: str) -> str:
        if parent:
            chain = parent.split("::")[2]
            if chain != STACK_TYPE:
                type_ = f"{chain}${type_}"
        return f"urn:pulumi:{self._stack}::{self._project}::{type_}::{name}"

    def _parents(self, urn: str) -> Iterable[str]:
        while urn:
            yield urn
            request = self._requests.get(urn)
            urn = request.parent if request else ""

    def _inherited_provider(self, request: resource_pb2.RegisterResourceRequest) -> str:
        package = request.type.split(":", 1)[0]
        if package in request.providers:
            return request.providers[package]
        parent = self._requests.get(request.parent)
        return parent.providers[package] if parent is not None and package in parent.providers else ""

    def _default_provider(self, request: Any) -> str:
        package = request.type.split(":", 1)[0]
        name = "_".join(filter(None, ("default", re.sub(r"[.+-]", "_", request.version), _qualified(request.pluginDownloadURL))))
        urn = self._urn("", PROVIDER_PREFIX + package, name)
        with self._lock:
            if urn not in self._resources:
                prefix = f"{package}:"
                inputs = {
                    key.removeprefix(prefix): wire.as_secret(value) if key in self._secret_keys else value
                    for key, value in self._config.items()
                    if key.startswith(prefix)
                }
                inputs |= {"version": request.version} if request.version else {}
                inputs = wire.canonical(inputs, self.secrets)
                self._resources[urn] = Resource(urn=urn, type=PROVIDER_PREFIX + package, name=name, inputs=inputs)
        return urn

    def _source(self, request: Any) -> str:
        """Where the program made the resource: the innermost frame outside the SDKs, whose constructors call one another."""
        if request.type == STACK_TYPE:
            return ""
        for frame in request.stackTrace.frames:
            path = unquote(urlparse(frame.pc.uri).path)
            if path and not SDK_FILE.search(path):
                return f"{self._locate(path)}:{frame.pc.line}"
        return ""

    # -- functions and methods ------------------------------------------------------------------------------------------------

    def Invoke(self, request: resource_pb2.ResourceInvokeRequest) -> resource_pb2.ResourceInvokeResponse:
        args = wire.decode(request.args)
        if request.tok == "pulumi:pulumi:getResource":
            found = self._states.get(args["urn"])
            if found is None:
                raise RegistrationError(f"the program looks up {args['urn']}, which it has not registered")
            return _returning(resource_pb2.ResourceInvokeResponse(), found)
        answer = invokes.answer(request.tok, args, self._config)
        if answer is None:
            self.unanswered.append(request.tok)
            return resource_pb2.ResourceInvokeResponse(unknown=True)
        return _returning(resource_pb2.ResourceInvokeResponse(), answer)

    def Call(self, request: resource_pb2.ResourceCallRequest) -> provider_pb2.CallResponse:
        """A method of a remote component: its result is not known offline."""
        self.unanswered.append(request.tok)
        return _returning(provider_pb2.CallResponse(), {"result": wire.UNKNOWN})

    # -- the rest of the protocol ---------------------------------------------------------------------------------------------

    def GetDeploymentInfo(self, request: Any) -> resource_pb2.DeploymentInfo:
        return resource_pb2.DeploymentInfo(supportedFeatures=_FEATURES)

    def RegisterStackTransform(self, callback: Any) -> empty_pb2.Empty:
        self._transforms.add_stack_transform(callback)
        return empty_pb2.Empty()

    def RegisterStackInvokeTransform(self, callback: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def RegisterResourceHook(self, request: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def RegisterErrorHook(self, request: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def RegisterPackage(self, request: resource_pb2.RegisterPackageRequest) -> resource_pb2.RegisterPackageResponse:
        return resource_pb2.RegisterPackageResponse(ref=f"{request.name}@{request.version}")

    def SignalAndWaitForShutdown(self, request: Any) -> empty_pb2.Empty:
        self._transforms.close()
        return empty_pb2.Empty()

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:
        if request.severity in (engine_pb2.WARNING, engine_pb2.ERROR):
            self._warnings.append(self.secrets.scrub(request.message))
        return empty_pb2.Empty()

    def RequirePulumiVersion(self, request: Any) -> Any:
        return engine_pb2.RequirePulumiVersionResponse()


def _returning(response: Any, value: Mapping[str, Any]) -> Any:
    # The name of the field is a word of Python.
    getattr(response, "return").CopyFrom(wire.encode(value))
    return response


def _qualified(url: str) -> str:
    """A URL as part of a name (``IntoQName`` of the engine)."""
    return "/".join(re.sub(r"[^\w.-]", "_", part, flags=re.ASCII) for part in url.split("/") if part)
