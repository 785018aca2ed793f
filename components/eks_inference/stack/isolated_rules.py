"""Rules about what a stack fetches through NAT, or cannot fetch without (``network.nat: none``). Ids NET…"""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from eks_inference.images.spec import InClusterImage
from eks_inference.kubernetes.network_policy import PRIVATE_RANGES
from eks_inference.network.spec import Endpoint
from eks_inference.observability.spec import SlackReceiver, SnsReceiver
from eks_inference.pools.node_spec import ReleaseAmi
from eks_inference.pools.spec import KarpenterPoolSpec
from eks_inference.rules import Judgement, Path, not_judged, rule
from eks_inference.serving.features import EngineFeatures
from eks_inference.serving.spec import HubModel
from eks_inference.stack.facts import StackFacts
from eks_inference.stack.spec import StackSpec

_OF_FILE_SYSTEMS: Mapping[str, Endpoint] = {"efs": "elasticfilesystem", "fsx_lustre": "fsx"}


@rule(
    "NET004",
    "A network without internet has an endpoint for each service that the stack's parts call.",
    fix="add the endpoints to network.endpoints, or give the network a NAT gateway",
    source="Karpenter 1.14, Getting started, Private Clusters (its list names sts too, for roles of service accounts, which are "
    "not used here); Amazon CloudWatch and CloudWatch Logs user guides and SNS developer guide, interface VPC endpoints",
)
def services_have_endpoints(stack: StackFacts) -> Iterator[Judgement]:
    if stack.spec.network.nat != "none":
        return
    given = stack.spec.network.endpoints
    if stack.spec.network.existing:
        what, why = "whether every service has an endpoint", "the VPC is there, and a stack file does not know its endpoints"
        yield not_judged(
            what, "the network", ("network", "existing"), why=why, fix="see that it has those of docs/isolated-network.md"
        )
        return
    for part, wanted in _calls(stack.spec).items():
        missing = [endpoint for endpoint in wanted if endpoint not in given]
        yield Judgement(
            holds=not missing,
            path=("network", "endpoints"),
            working=(f"{part} calls {', '.join(wanted)}; endpoints: {', '.join(given)}",),
            message=f"{part} would wait in vain for an answer of {', '.join(missing)}",
            given=", ".join(given),
            allowed=f"also {', '.join(missing)}",
        )


def _calls(spec: StackSpec) -> dict[str, tuple[Endpoint, ...]]:
    """Returns the AWS services that parts of the stack call, besides those that every node calls."""
    calls: dict[str, tuple[Endpoint, ...]] = {}
    filled = [pool for pool in spec.pools.values() if isinstance(pool, KarpenterPoolSpec)]
    if filled:
        aliases: tuple[Endpoint, ...] = ("ssm",) if any(isinstance(pool.ami, ReleaseAmi) for pool in filled) else ()
        calls["Karpenter"] = ("eks", "sqs", *aliases)
    if spec.observability.fluent_bit:
        calls["Fluent Bit"] = ("logs",)
    if spec.observability.cloudwatch:
        calls["CloudWatch Observability"] = ("logs", "monitoring")
    prometheus = spec.observability.prometheus
    if prometheus and isinstance(prometheus.receiver, SnsReceiver):
        calls["Alertmanager"] = ("sns",)
    if spec.gateway and not spec.gateway.ingress_class:
        calls["AWS Load Balancer Controller"] = ("elasticloadbalancing",)
    for kind in spec.file_systems:
        calls[f"the driver of {kind}"] = (_OF_FILE_SYSTEMS[kind],)
    return calls


@rule(
    "NET005",
    "Without internet, or with egress to private addresses alone, models, tokenizers, packages and receivers are within reach.",
    fix="take the model from S3 or a volume; set HF_ENDPOINT to a mirror of the Hub in extra_env; name an image that is built; "
    "send alerts to an SNS topic",
    source="Hugging Face Hub documentation, HF_ENDPOINT; serving/ray_serve/assets/Dockerfile installs packages; VPC user guide, "
    "gateway endpoints: S3 keeps its public addresses",
)
def what_is_wanted_is_in_reach(stack: StackFacts) -> Iterator[Judgement]:
    yield from _kept_inside(stack.spec)
    if stack.spec.network.nat != "none":
        return
    for path, source, reached in _wanted_outside(stack.spec):
        yield Judgement(
            holds=reached,
            path=path,
            working=(f"{'.'.join(map(str, path))}: {source}",),
            message=f"{source}, which nothing in the network reaches",
            given=source,
        )


_PRIVATE_WAYS = {"HF_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "HTTPS_PROXY"}


_MANY_GB = 1000


@rule(
    "NET008",
    "Pods do not fetch the same weights from the Hub through NAT again and again.",
    severity="warning",
    fix="put the model into a store (shared_store) or into S3, whose endpoint has no price",
    source="NVIDIA/aicr#1116: the Hub answers 429 to many downloads from one address; VPC pricing: NAT gateways bill each GB",
)
def weights_come_once(stack: StackFacts) -> Iterator[Judgement]:
    nat = stack.spec.network.nat
    for server in stack.servers.values():
        start, spec = server.cold_start, stack.spec.servers.get(str(server.path[1]))
        of_hub = spec is None or (isinstance(spec.model, HubModel) and "HF_ENDPOINT" not in spec.extra_env)
        if of_hub and nat != "none" and start.weights.downloads and not start.weights.stored and start.model:
            each = start.weight_bytes / 1e9
            yield Judgement(
                holds=server.pods_max == 1 or server.pods_max * each <= _MANY_GB,
                path=server.at("model"),
                working=(f"{server.pods_max} pods x {each:.0f} GB of {start.model.name}; NAT: {nat}",),
                message=f"{server.pods_max} pods fetch {each:.0f} GB each through NAT, at every roll-out",
                given=f"{server.pods_max * each:.0f} GB",
            )


def _kept_inside(spec: StackSpec) -> Iterator[Judgement]:
    """Models of servers whose pods may reach some addresses alone."""
    for name, server in spec.servers.items():
        if not server.egress or not server.downloads or "0.0.0.0/0" in server.egress:
            continue
        by_proxy = server.extra_env.keys() & _PRIVATE_WAYS
        ranges, where = ", ".join(server.egress), "the Hub" if isinstance(server.model, HubModel) else "S3"
        path, fix = (
            ("servers", name, "egress"),
            f"leave egress out, or set one of {', '.join(sorted(_PRIVATE_WAYS))} in extra_env",
        )
        reached = server.stores_model or bool(by_proxy)
        if not reached and not all(map(_is_private, server.egress)):
            yield not_judged(
                "reach", where, path, why=f"whether {where} is at {ranges} was not looked up", fix=f"try a pod there; {fix}"
            )
            continue
        yield Judgement(
            holds=reached,
            path=path,
            working=(f"the model comes from {where}; egress: {ranges}; by way of: {', '.join(sorted(by_proxy)) or 'nothing'}",),
            message=f"pods download the model from {where}, whose addresses are public",
            given=ranges,
            fix=f"add the ranges of {where}, {fix}",
        )


def _is_private(cidr: str) -> bool:
    return any(IPv4Network(cidr).subnet_of(IPv4Network(one)) for one in PRIVATE_RANGES)


def _wanted_outside(spec: StackSpec) -> Iterator[tuple[Path, str, bool]]:
    """Yields what parts want of the internet: the key that says so, what it is, and whether a mirror stands in for it."""
    for name, server in spec.servers.items():
        hub = isinstance(server.model, HubModel)
        source = "is on the Hub" if hub else f"comes from {server.model.kind}"
        reached = not hub or "HF_ENDPOINT" in server.extra_env
        yield ("servers", name, "model"), f"{server.model.id} {source}", reached
        draft = server.draft if isinstance(server, EngineFeatures) else None
        if draft and not draft.startswith(("/", ".")):  # of the pod's own folders
            key = ("servers", name, "speculation", "draft")
            yield key, f"the draft {draft} is on the Hub", "HF_ENDPOINT" in server.extra_env
        if isinstance(server.image_reference, InClusterImage):
            yield ("servers", name, "image"), "the build installs packages from the internet", False
    if spec.load_test and spec.tested:
        yield ("load_test",), "the tokenizer is on the Hub", "HF_ENDPOINT" in spec.load_test.extra_env
    if spec.clients.triton and spec.tested_by_triton_client:
        yield ("clients", "triton"), "the tokenizer is on the Hub", False
    if spec.gateway and spec.gateway.web_acl_arn is not None:
        yield ("gateway", "web_acl_arn"), "the API of AWS WAF has no endpoint here", False
    if spec.gateway and any(route.login for route in spec.routes):
        yield ("gateway", "login"), "the provider of the login is on the internet", False
    if spec.observability.prometheus and isinstance(spec.observability.prometheus.receiver, SlackReceiver):
        yield ("observability", "prometheus", "receiver"), "Slack is on the internet", False
