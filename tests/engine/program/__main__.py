"""A program with one of everything that decides what the engine registers. It is only ever previewed."""

from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s
from pulumi import Alias, CustomTimeouts, ResourceOptions, ResourceTransformArgs, ResourceTransformResult

config = pulumi.Config()
token = config.require_secret("token")
structure = config.require_object("structure")


# -- transforms: of the stack, of a component, of a resource ------------------------------------------------------------------


def stamp(args: ResourceTransformArgs) -> ResourceTransformResult | None:
    """Of the stack: changes a property, adds one that depends on another resource, moves one, takes one away."""
    if args.type_ != "aws:s3/bucket:Bucket":
        return None
    props = {**args.props, "bucketPrefix": "stamped-", "acl": topic.arn}
    props["tags"] = pulumi.Output.all(args.props["tags"], "stack").apply(lambda known: {**known[0], "stamp": known[1]})
    props["policy"] = props.pop("accelerationStatus")
    return ResourceTransformResult(props=props, opts=args.opts)


def keep(args: ResourceTransformArgs) -> ResourceTransformResult | None:
    """Of a component: changes options of everything below it."""
    if not args.custom:
        return None
    added = ResourceOptions(retain_on_delete=True, ignore_changes=["tagsAll"], depends_on=[topic])
    return ResourceTransformResult(props=args.props, opts=ResourceOptions.merge(args.opts, added))


def redirect(args: ResourceTransformArgs) -> ResourceTransformResult:
    """Of a resource: changes properties, their dependencies, options, and the version of the provider."""
    added = ResourceOptions(
        protect=False,
        depends_on=[bucket],
        version="7.0.0",
        aliases=[Alias(name="straight")],
        custom_timeouts=CustomTimeouts(create="1h30m"),
        delete_before_replace=True,
    )
    props = {**args.props, "displayName": topic.arn, "kmsMasterKeyId": token}
    return ResourceTransformResult(props=props, opts=ResourceOptions.merge(args.opts, added))


def move(args: ResourceTransformArgs) -> ResourceTransformResult:
    return ResourceTransformResult(props=args.props, opts=ResourceOptions.merge(args.opts, ResourceOptions(provider=east)))


def rename(args: ResourceTransformArgs) -> ResourceTransformResult | None:
    """Of a remote component, and of what the program puts below it."""
    if args.type_ == "eks:index:Cluster":
        return ResourceTransformResult(props={**args.props, "name": "renamed", "version": topic.arn}, opts=args.opts)
    return ResourceTransformResult(props={**args.props, "description": topic.arn}, opts=args.opts)


pulumi.runtime.register_resource_transform(stamp)


# -- components, providers, a remote component --------------------------------------------------------------------------------


class Inner(pulumi.ComponentResource):
    def __init__(self, name: str, topic: pulumi.Input[str], opts: ResourceOptions | None = None) -> None:
        super().__init__("parity:index:Inner", name, {"topic": topic, "depth": 2}, opts)
        self.queue = aws.sqs.Queue(f"{name}-queue", tags={"topic": topic}, opts=ResourceOptions(parent=self))
        self.policy = aws.sqs.QueuePolicy(
            f"{name}-policy",
            queue_url=self.queue.url,
            policy=self.queue.arn.apply(lambda arn: f'{{"Resource": "{arn}"}}'),
            opts=ResourceOptions(parent=self, depends_on=[self.queue], protect=False),
        )
        self.register_outputs({"url": self.queue.url})


class Outer(pulumi.ComponentResource):
    def __init__(self, name: str, topics: list[pulumi.Input[str]], opts: ResourceOptions | None = None) -> None:
        super().__init__("parity:index:Outer", name, {"topics": topics, "resources": [topic, read], "nothing": None}, opts)
        self.inner = [Inner(f"{name}-{i}", topic, ResourceOptions(parent=self)) for i, topic in enumerate(topics)]
        self.note = k8s.core.v1.ConfigMap(
            f"{name}-note",
            metadata={"name": "note", "namespace": "default"},
            data={"url": self.inner[0].queue.url, "plain": "text"},
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


class Holder(pulumi.ComponentResource):
    def __init__(self, name: str, opts: ResourceOptions | None = None) -> None:
        super().__init__("parity:index:Holder", name, None, opts)
        self.cluster = eks.Cluster(f"{name}-cluster", name=name, opts=ResourceOptions(parent=self))
        self.queue = aws.sqs.Queue(
            f"{name}-queue", tags={"ca": self.cluster.eks_cluster.certificate_authority.data}, opts=ResourceOptions(parent=self)
        )


west = aws.Provider("west", region="us-west-2", default_tags={"tags": {"team": token}})
east = aws.Provider("east", region="us-east-1", opts=ResourceOptions(protect=True))
topic = aws.sns.Topic("topic", tags={"secret": token, "nested": "plain"}, opts=ResourceOptions(provider=east))
read = aws.ec2.Vpc.get("read", "vpc-1", opts=ResourceOptions(parent=topic))

cluster = eks.Cluster(
    "cluster",
    name="parity",
    vpc_id=topic.id,
    tags={"token": token},
    subnet_ids=[pulumi.Output.secret(topic.arn), "plain"],
    skip_default_node_group=True,
    opts=ResourceOptions(providers=[west], depends_on=[east], protect=True, transforms=[rename]),
)
kubeconfig = pulumi.Output.json_dumps({"server": cluster.eks_cluster.endpoint, "token": token})
unknown = k8s.Provider("unknown", kubeconfig=kubeconfig)
known = k8s.Provider("known", kubeconfig="{}", enable_server_side_apply=True)
inside = aws.iam.Role("inside", assume_role_policy="{}", opts=ResourceOptions(parent=cluster))

outer = Outer("outer", [topic.arn, topic.name, "plain"], ResourceOptions(providers=[west, known]))
second = Outer(
    "second",
    ["one"],
    ResourceOptions(
        providers={"aws": east, "kubernetes": unknown},
        depends_on=[outer, cluster],
        protect=True,
        transforms=[keep],
        aliases=[Alias(name="before"), Alias(type_="parity:index:Old")],
    ),
)
holder = Holder("holder", ResourceOptions(providers=[west], depends_on=[second.note]))
after = aws.sqs.Queue("after", opts=ResourceOptions(depends_on=[holder], provider=west))
third = Inner("third", token, ResourceOptions(parent=second, provider=west, retain_on_delete=True))

# -- options ------------------------------------------------------------------------------------------------------------------

hook = pulumi.ResourceHook("hook", lambda args: None, pulumi.ResourceHookOptions(on_dry_run=True))
hooks = pulumi.ResourceHookBinding(before_create=[hook], after_delete=[hook])
unready = aws.Provider("unready", region=topic.name)
bucket = aws.s3.Bucket(
    "bucket",
    tags={"a": topic.arn, "b": pulumi.Output.secret("hidden")},
    acceleration_status=topic.arn,
    opts=ResourceOptions(
        protect=True,
        retain_on_delete=True,
        delete_before_replace=True,
        ignore_changes=["tags", 'serverSideEncryptionConfiguration["rule"]'],
        replace_on_changes=["bucket"],
        custom_timeouts=CustomTimeouts(create="10m", update="90s", delete="1h"),
        additional_secret_outputs=["arn", "bucketPrefix"],
        aliases=[
            Alias(name="old"),
            "urn:pulumi:parity::parity::aws:s3/bucketV2:BucketV2::older",
            Alias(parent=outer),
            Alias(parent=None),
            Alias(stack="other", project="else"),
        ],
        depends_on=[outer, west],
    ),
)
thing = aws.s3.BucketObjectv2(
    "thing",
    bucket=bucket.id,
    key=bucket.arn.apply(lambda arn: arn),
    content_type=bucket.bucket_prefix,
    source=pulumi.StringAsset("text"),
    metadata=bucket.tags,
    tags={"region": bucket.region, "type": None},  # type: ignore[dict-item]
    opts=ResourceOptions(
        deleted_with=bucket, parent=bucket, hide_diffs=["tags"], replace_with=[topic], replacement_trigger="again", protect=False
    ),
)
function = aws.lambda_.Function(
    "function",
    role=bucket.tags.apply(lambda tags: (tags or {})["a"]),
    runtime="python3.13",
    handler="",
    environment={"variables": {"TOKEN": token, "REGION": "x", "LIST": pulumi.Output.all(topic.arn, token).apply(",".join)}},
    code=pulumi.AssetArchive({"a.py": pulumi.StringAsset("pass"), "b.py": pulumi.FileAsset("__main__.py")}),
    memory_size=128,
    timeout=1.5,  # type: ignore[arg-type]
    opts=ResourceOptions(
        transformations=[lambda args: pulumi.ResourceTransformationResult({**args.props, "description": "old style"}, args.opts)]
    ),
)
moved = aws.sns.Topic("moved", tags={"a": bucket.arn}, opts=ResourceOptions(transforms=[redirect], protect=True, hooks=hooks))
away = aws.sns.Topic("away", name="away", opts=ResourceOptions(transforms=[move], depends_on=pulumi.Output.from_input([moved])))
imported = aws.sqs.Queue("imported", name="there", opts=ResourceOptions(import_="https://queue/there"))
follower = aws.sqs.QueuePolicy("follower", queue_url=imported.id, policy="{}", opts=ResourceOptions(parent=away))
mirror = aws.sqs.Queue("mirror", opts=ResourceOptions(version="7.1.0", plugin_download_url="https://localhost/plugins"))
reread = aws.ec2.Vpc.get(
    "reread",
    "vpc-1234",
    cidr_block="10.0.0.0/16",
    opts=ResourceOptions(parent=outer, depends_on=[topic], additional_secret_outputs=["cidrBlock"]),
)
subnet = aws.ec2.Subnet("subnet", vpc_id=reread.arn, cidr_block=reread.cidr_block, opts=ResourceOptions(provider=west))
group = aws.ec2.SecurityGroup("group", ingress=[{"protocol": "tcp", "from_port": 1, "to_port": 2, "cidr_blocks": []}], tags={})
hooked = aws.sqs.Queue("hooked", opts=ResourceOptions(hooks=hooks, provider=unready))
heir = aws.sqs.Queue("heir", name=hooked.name, opts=ResourceOptions(parent=bucket, version="7.2.0"))

# -- objects for texts, functions of providers -----------------------------------------------------------------------------------

statement: Any = {"Effect": "Allow", "Resource": "*"}
known_role = aws.iam.Role("known-role", assume_role_policy=statement)
pending: Any = {"Version": "2012-10-17", "Statement": [statement | {"Resource": bucket.arn}]}
pending_policy = aws.s3.BucketPolicy("pending-policy", bucket=bucket.id, policy=pending)
policies = aws.sqs.Queue("policies", tags={"known": known_role.assume_role_policy, "pending": pending_policy.policy})
image = aws.ec2.get_ami_output(owners=["amazon"])
asked = aws.sqs.Queue(
    "asked",
    name=f"of-{aws.get_caller_identity(opts=pulumi.InvokeOptions(provider=east)).account_id}",
    tags={"image": image.id, "pending": aws.ec2.get_ami_output(owners=["amazon"], name_regex=bucket.arn).id},
)

# -- Kubernetes ---------------------------------------------------------------------------------------------------------------

namespace = k8s.core.v1.Namespace("namespace", metadata={"name": "n"}, opts=ResourceOptions(provider=known))
secret = k8s.core.v1.Secret(
    "secret",
    metadata={"namespace": namespace.metadata.name, "labels": {"a": second.inner[0].queue.name}},
    string_data={"token": token, "open": "yes"},
    opts=ResourceOptions(provider=known, parent=namespace),
)
later = k8s.core.v1.ConfigMap(
    "later",
    metadata={"namespace": "n", "name": "later"},
    data={"url": second.note.data["plain"]},
    opts=ResourceOptions(provider=unknown),
)
echoed = k8s.core.v1.ConfigMap("echoed", data={"name": later.metadata.name}, opts=ResourceOptions(provider=known))
wrong = k8s.core.v1.ConfigMap("wrong", data={"token": secret.string_data["token"]}, opts=ResourceOptions(provider=west))
release = k8s.helm.v3.Release(
    "release", chart="c", version="1", values={"a": {"b": [token, 1]}}, opts=ResourceOptions(provider=known, depends_on=[second])
)

pulumi.export("endpoint", cluster.eks_cluster.endpoint)
pulumi.export("bucket", bucket)
pulumi.export("token", token)
pulumi.export("structure", structure)
pulumi.export("topic", topic.arn)
pulumi.export("queue", {"nested": outer.inner[0].queue.tags, "list": [1, None, topic.tags]})
