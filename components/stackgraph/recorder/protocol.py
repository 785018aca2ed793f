"""What a monitor answers about a program as a whole: features, transforms and hooks of its own, packages, log."""

from collections.abc import Callable
from typing import Any

from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, resource_pb2

from stackgraph.recorder import wire
from stackgraph.recorder.callbacks import Callbacks
from stackgraph.recorder.hooks import Hooks
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


class Protocol:
    """The part of a monitor that registers nothing. ``digest`` makes the digest that a graph keeps of a secret."""

    def __init__(self, digest: Callable[[Any], str] | None = None) -> None:
        self._callbacks = Callbacks()
        self._transforms = Transforms(self._callbacks)
        self._hooks = Hooks(self._callbacks)
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
        self._callbacks.close()
        return empty_pb2.Empty()
