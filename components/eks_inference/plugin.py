"""A whole stack as one component, for programs in other languages than Python (``PulumiPlugin.yaml``)."""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NotRequired, TypedDict, cast

import pulumi
from pulumi.errors import InputPropertiesError
from pulumi.output import Unknown
from pulumi.provider import main
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

from eks_inference.faults import Fault, SpecError, format_path
from eks_inference.kubernetes.secrets import CONFIG_SECRETS
from eks_inference.platform import InferencePlatform
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.references import missing_secrets

NAME = "eks-inference"
"""The name of the package in other languages, and of the distribution."""


class InferenceStackArgs(TypedDict):
    stack: dict[str, Any]
    """What stands under `eks-inference:stack` in a stack file. Its values must be known in a preview, and no secrets."""
    region: NotRequired[str]
    """The AWS region. Absent: `aws:region` of the stack's configuration, which it must equal where both are given."""
    profile: NotRequired[str]
    """The AWS profile of kubectl. Absent: `aws:profile` of the stack's configuration."""
    huggingFaceToken: NotRequired[pulumi.Input[str]]
    """Needed for models that are not public."""
    grafanaAdminPassword: NotRequired[pulumi.Input[str]]
    """Absent: the chart makes one."""
    openWebUiAdminPassword: NotRequired[pulumi.Input[str]]
    """The password of the web UI's administrator."""
    servingApiKey: NotRequired[pulumi.Input[str]]
    """With it, vLLM requires this key of every client."""
    gatewayClientSecret: NotRequired[pulumi.Input[str]]
    """The secret of the client at which people log in, where the gateway has a login with a client."""
    endpointKeys: NotRequired[pulumi.Input[str]]
    """Keys of clients by client, as a JSON object, for endpoints that ask for keys."""
    alertReceiverUrl: NotRequired[pulumi.Input[str]]
    """Where alerts are posted, for receivers that need a URL."""


class InferenceStack(pulumi.ComponentResource):
    """VPC, EKS cluster, node pools, accelerator support, model servers and observability: what a stack file describes."""

    cluster_name: pulumi.Output[str]
    """The name of the EKS cluster."""
    kubeconfig: pulumi.Output[str]
    """A kubeconfig as JSON, which gets its tokens from `aws eks get-token`. Secret."""
    endpoints: pulumi.Output[dict[str, str]]
    """By model server, the URL of its API inside the cluster."""

    def __init__(self, name: str, args: InferenceStackArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Raises ``InputPropertiesError`` with every fault, in the words of a stack file."""
        given = cast(dict[str, Any], args)
        try:
            # In the order of a stack file, as the CLI passes it: on the wire, mappings have none.
            spec = parse_stack(json.dumps(_known(given["stack"]), sort_keys=True))
            profile = _text(given, "profile")
            region = _region(_text(given, "region"))
            # Secret also where the program forgot to say so.
            secrets = {key: pulumi.Output.secret(_secret(given, key)) for key in CONFIG_SECRETS if given.get(key) is not None}
            missing = [*missing_secrets(spec, secrets)]
            if missing:
                raise SpecError(missing)
            super().__init__(f"{NAME}:index:InferenceStack", name, {}, opts)
            platform = InferencePlatform(
                spec,
                region=region,
                profile=profile,
                hugging_face_token=secrets.get("huggingFaceToken"),
                grafana_admin_password=secrets.get("grafanaAdminPassword"),
                alert_receiver_url=secrets.get("alertReceiverUrl"),
                open_webui_admin_password=secrets.get("openWebUiAdminPassword"),
                serving_api_key=secrets.get("servingApiKey"),
                gateway_client_secret=secrets.get("gatewayClientSecret"),
                endpoint_keys=secrets.get("endpointKeys"),
                opts=pulumi.ResourceOptions(parent=self),
            )
        except SpecError as error:
            raise InputPropertiesError("the stack cannot be built", [*map(_as_input, error.faults)]) from error
        self.cluster_name = pulumi.Output.from_input(platform.outputs["clusterName"])
        self.kubeconfig = pulumi.Output.secret(platform.control_plane.control_plane.kubeconfig_json)
        self.endpoints = pulumi.Output.from_input(platform.outputs["endpoints"])
        self.register_outputs({"clusterName": self.cluster_name, "kubeconfig": self.kubeconfig, "endpoints": self.endpoints})


_KNOWN = "a stack decides which resources exist, so this value must be known during a preview, and no secret"


def _known(value: Any) -> Any:
    """The stack object as a stack file has it. Raises ``SpecError`` with each value that only a deployment knows."""
    if faults := [*_unknown(value, ())]:
        raise SpecError(faults)
    return _whole(value)


def _unknown(value: Any, path: tuple[str | int, ...]) -> Iterator[Fault]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _unknown(item, (*path, str(key)))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _unknown(item, (*path, position))
    elif not (value is None or isinstance(value, str | int | float)):
        hint = f"secrets are inputs of their own: {', '.join(CONFIG_SECRETS)}"
        yield Fault(path, _KNOWN, given=type(value).__name__, hint=hint)


def _whole(value: Any) -> Any:
    """The value with integers where they are meant: on the wire, every number is a float."""
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(given: Mapping[str, Any], key: str) -> str | None:
    if not isinstance(value := given.get(key), str | None):
        raise SpecError([Fault((), _KNOWN, given=type(value).__name__, allowed="a text", config_key=key)])
    return value


def _secret(given: Mapping[str, Any], key: str) -> Any:
    if not isinstance(value := given[key], str | pulumi.Output | Unknown):
        message = "the argument has a wrong type"
        raise SpecError([Fault((), message, given=type(value).__name__, allowed="a text", config_key=f"{NAME}:{key}")])
    return value


def _region(given: str | None) -> str:
    configured = pulumi.Config("aws").get("region")
    if given and configured and given != configured:
        message = "this is another region than aws:region of the stack's configuration, where the AWS provider works"
        raise SpecError([Fault((), message, given=given, allowed=configured, config_key="region")])
    if region := given or configured:
        return region
    fault = Fault((), "this key is required and missing", allowed="an AWS region", hint="or set aws:region", config_key="region")
    raise SpecError([fault])


def _as_input(fault: Fault) -> Any:
    """A fault at its input: keys of the stack object below ``stack``, configuration keys by their names."""
    if fault.config_key:
        where = fault.config_key.removeprefix(f"{NAME}:")
        hint = "pass it as an input of this name" if where in CONFIG_SECRETS else fault.hint
        fault = replace(fault, config_key="", path=(), hint=hint)
    else:
        where = format_path(("stack", *fault.path))
        fault = replace(fault, path=())
    return {"property_path": where if where.isprintable() else ascii(where)[1:-1], "reason": fault.render()}


class _Provider(ComponentProvider):
    def construct(self, name: str, resource_type: str, inputs: Mapping[str, Any], options: Any = None) -> Any:
        """Like the SDK's, but faults of inputs stay what they are, and inputs that do not exist are faults. The SDK would add a
        traceback, and drop them."""
        known = InferenceStackArgs.__annotations__
        wrong = {key: f"there is no such input\n    allowed: {', '.join(known)}" for key in inputs if key not in known}
        if wrong:
            faults: Any = [{"property_path": ascii(key)[1:-1], "reason": reason} for key, reason in wrong.items()]
            raise InputPropertiesError("the stack cannot be built", faults)
        try:
            return super().construct(name, resource_type, inputs, options)
        except ComponentInitError as error:
            if isinstance(error.inner, InputPropertiesError):
                raise error.inner from error
            raise


def serve() -> None:
    """Serves the component to the engine, which passes its address as the first argument, until the engine ends the process."""
    main(_Provider([InferenceStack], NAME, None, version(NAME)), sys.argv[1:])
