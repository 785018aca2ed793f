"""A program with one of everything that decides what the engine registers. It is never deployed."""

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s
from pulumi import Alias, CustomTimeouts, ResourceOptions, ResourceTransformArgs, ResourceTransformResult

config = pulumi.Config()
token = config.require_secret("token")


# -- transforms: of the stack, of a component, of a resource ------------------------------------------------------------------


def stamp(args: ResourceTransformArgs) -> ResourceTransformResult | None:
    if args.type_ != "aws:s3/bucket:Bucket":
        return None
    tags = pulumi.Output.all(args.props.get("tags") or {}, "stack").apply(lambda known: {**known[0], "stamp": known[1]})
    return ResourceTransformResult(props={**args.props, "tags": tags}, opts=args.opts)


def keep(args: ResourceTransformArgs) -> ResourceTransformResult | None:
    if not args.custom:
        return None
    return ResourceTransformResult(
        props=args.props, opts=ResourceOptions.merge(args.opts, ResourceOptions(retain_on_delete=True, ignore_changes=["tagsAll"]))
    )


pulumi.runtime.register_resource_transform(stamp)


# -- components ---------------------------------------------------------------------------------------------------------------


class Inner(pulumi.ComponentResource):
    def __init__(self, name: str, topic: pulumi.Input[str], opts: ResourceOptions | None = None) -> None:
        super().__init__("parity:index:Inner", name, {"topic": topic, "depth": 2}, opts)
        self.queue = aws.sqs.Queue(f"{name}-queue", tags={"topic": topic}, opts=ResourceOptions(parent=self))
        self.policy = aws.sqs.QueuePolicy(
            f"{name}-policy",
            queue_url=self.queue.url,
            policy=self.queue.arn.apply(lambda arn: f'{{"Resource": "{arn}"}}'),
            opts=ResourceOptions(parent=self, depends_on=[self.queue]),
        )
        self.register_outputs({"url": self.queue.url})


class Outer(pulumi.ComponentResource):
    def __init__(self, name: str, topics: list[pulumi.Input[str]], opts: ResourceOptions | None = None) -> None:
        super().__init__("parity:index:Outer", name, {"topics": topics}, opts)
        self.inner = [Inner(f"{name}-{i}", topic, ResourceOptions(parent=self)) for i, topic in enumerate(topics)]
        self.note = k8s.core.v1.ConfigMap(
            f"{name}-note",
            metadata={"name": "note", "namespace": "default"},
            data={"url": self.inner[0].queue.url, "plain": "text"},
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


west = aws.Provider("west", region="us-west-2", default_tags={"tags": {"team": token}})
east = aws.Provider("east", region="us-east-1", opts=ResourceOptions(protect=True))
topic = aws.sns.Topic("topic", tags={"secret": token, "nested": "plain"}, opts=ResourceOptions(provider=east))

cluster = eks.Cluster(
    "cluster", name="parity", vpc_id=topic.id, skip_default_node_group=True, opts=ResourceOptions(providers=[west])
)
kubeconfig = pulumi.Output.json_dumps({"server": cluster.eks_cluster.endpoint, "token": token})
unknown = k8s.Provider("unknown", kubeconfig=kubeconfig)
known = k8s.Provider("known", kubeconfig="{}", enable_server_side_apply=True)

outer = Outer("outer", [topic.arn, topic.name, "plain"], ResourceOptions(providers=[west, known]))
second = Outer(
    "second",
    ["one"],
    ResourceOptions(
        providers={"aws": east, "kubernetes": unknown},
        depends_on=[outer],
        protect=True,
        transforms=[keep],
        aliases=[Alias(name="before"), Alias(type_="parity:index:Old")],
    ),
)

# -- options ------------------------------------------------------------------------------------------------------------------

bucket = aws.s3.Bucket(
    "bucket",
    tags={"a": topic.arn, "b": pulumi.Output.secret("hidden")},
    opts=ResourceOptions(
        protect=True,
        retain_on_delete=True,
        delete_before_replace=True,
        ignore_changes=["tags", 'serverSideEncryptionConfiguration["rule"]'],
        replace_on_changes=["bucket"],
        custom_timeouts=CustomTimeouts(create="10m", update="90s", delete="1h"),
        additional_secret_outputs=["arn", "tagsAll"],
        aliases=[Alias(name="old"), "urn:pulumi:parity::parity::aws:s3/bucketV2:BucketV2::older", Alias(parent=outer)],
        depends_on=[outer, west],
    ),
)
thing = aws.s3.BucketObjectv2(
    "thing",
    bucket=bucket.id,
    key=bucket.arn.apply(lambda arn: arn),
    source=pulumi.StringAsset("text"),
    tags=bucket.tags_all,
    opts=ResourceOptions(deleted_with=bucket, parent=bucket, hide_diffs=["tags"], replace_with=[topic]),
)
archive = aws.lambda_.Function(
    "function",
    role=bucket.tags.apply(lambda tags: (tags or {})["a"]),
    runtime="python3.13",
    handler="a.b",
    environment={"variables": {"TOKEN": token, "REGION": "x", "LIST": pulumi.Output.all(topic.arn, token).apply(",".join)}},
    code=pulumi.AssetArchive({"a.py": pulumi.StringAsset("pass"), "b.py": pulumi.FileAsset("__main__.py")}),
    memory_size=128,
    timeout=1.5,  # type: ignore[arg-type]
)


def redirect(args: ResourceTransformArgs) -> ResourceTransformResult:
    opts = ResourceOptions.merge(args.opts, ResourceOptions(protect=False, depends_on=[archive], version="7.0.0"))
    return ResourceTransformResult(props={**args.props, "displayName": topic.arn, "kmsMasterKeyId": token}, opts=opts)


moved = aws.sns.Topic("moved", tags={"a": bucket.arn}, opts=ResourceOptions(transforms=[redirect], protect=True))
imported = aws.sqs.Queue("imported", name="there", opts=ResourceOptions(import_="https://queue/there"))
read = aws.ec2.Vpc.get("read", "vpc-1234", opts=ResourceOptions(parent=outer, depends_on=[topic]))
subnet = aws.ec2.Subnet("subnet", vpc_id=read.id, cidr_block=read.cidr_block, opts=ResourceOptions(provider=west))
group = aws.ec2.SecurityGroup("group", ingress=[{"protocol": "tcp", "from_port": 1, "to_port": 2.0, "cidr_blocks": []}], tags={})

# -- Kubernetes ---------------------------------------------------------------------------------------------------------------

namespace = k8s.core.v1.Namespace("namespace", metadata={"name": "n"}, opts=ResourceOptions(provider=known))
secret = k8s.core.v1.Secret(
    "secret",
    metadata={"namespace": namespace.metadata.name, "labels": {"a": second.inner[0].queue.name}},
    string_data={"token": token, "open": "yes"},
    opts=ResourceOptions(provider=known, parent=namespace),
)
later = k8s.core.v1.ConfigMap(
    "later", metadata={"namespace": "n"}, data={"url": second.note.data["url"]}, opts=ResourceOptions(provider=unknown)
)
echoed = k8s.core.v1.ConfigMap("echoed", data={"name": later.metadata.name}, opts=ResourceOptions(provider=known))
release = k8s.helm.v3.Release(
    "release", chart="c", version="1", values={"a": {"b": [token, 1]}}, opts=ResourceOptions(provider=known, depends_on=[second])
)

pulumi.export("endpoint", cluster.eks_cluster.endpoint)
pulumi.export("token", token)
pulumi.export("topic", topic.arn)
pulumi.export("queue", {"nested": outer.inner[0].queue.tags})
