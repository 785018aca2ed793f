"""A small program with an edit for each kind of step. ``export.json`` and ``steps.json`` are what the engine says of it."""

import json

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
from pulumi import Alias, Output, ResourceOptions

edit = pulumi.Config().get("edit") or ""


class Store(pulumi.ComponentResource):
    def __init__(self, name: str, opts: ResourceOptions | None = None) -> None:
        super().__init__("shop:index:Store", name, None, opts)
        below = ResourceOptions(parent=self)
        self.bucket = aws.s3.Bucket(f"{name}-files", tags={"team": "b" if edit == "tags" else "a"}, opts=below)
        document = self.bucket.arn.apply(lambda arn: json.dumps({"Statement": [{"Resource": [arn, f"{arn}/*"]}]}))
        aws.s3.BucketPolicy(f"{name}-policy", bucket=self.bucket.id, policy=document, opts=below)


renamed = edit == "renamed"
store = Store("archive" if renamed else "store", ResourceOptions(aliases=[Alias(name="store")] if renamed else None))
key = aws.kms.Key("key", multi_region=edit == "key", description="orders")
orders = aws.rds.Instance(
    "orders",
    instance_class="db.t4g.micro",
    allocated_storage=20,
    kms_key_id=key.arn,
    storage_encrypted=edit != "encryption",
    password=Output.secret("a-password"),
    opts=ResourceOptions(protect=True if edit == "protected" else None),
)
if edit != "gone":
    table = aws.dynamodb.Table("carts", name="carts", hash_key="user" if edit == "hash key" else "id")
    aws.dynamodb.TableItem("first", table_name=table.name, hash_key=table.hash_key, item='{"id": {"S": "1"}}')
cluster = k8s.Provider("cluster", kubeconfig=store.bucket.arn.apply(lambda arn: json.dumps({"cluster": arn})))
settings = k8s.core.v1.ConfigMap(
    "settings",
    metadata={"name": "settings", "namespace": "shop"},
    data={"host": orders.endpoint, "level": "debug" if edit == "level" else "info"},
    opts=ResourceOptions(provider=cluster),
)
k8s.core.v1.Secret(
    "access", metadata={"name": "access"}, string_data={"password": Output.secret("b")}, opts=ResourceOptions(provider=cluster)
)
if edit == "more":
    aws.s3.BucketVersioning("versions", bucket=store.bucket.id, versioning_configuration={"status": "Enabled"})
pulumi.export("host", orders.endpoint)
