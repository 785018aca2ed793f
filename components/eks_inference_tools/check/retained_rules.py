"""Rule KEP001: what a stack leaves in the account is said before it is left."""

from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts
from stackgraph.graph.describe import short_type
from stackgraph.graph.document import is_read


@rule(
    "KEP001",
    "Nothing outlives the stack unnoticed.",
    severity="warning",
    fix="note where to find it and who pays for it, or turn retain off and run `pulumi up` before `pulumi destroy`",
    source="Pulumi, resource option retainOnDelete: the engine forgets the resource and leaves it where it is",
)
def kept_is_known(facts: GraphFacts) -> Iterator[Judgement]:
    for resource in facts.graph.resources:
        if resource.type in _STORES and not is_read(resource):
            what = f"{short_type(resource.type)} {resource.name}"
            retained = bool(resource.options.get("retainOnDelete"))
            yield Judgement(
                holds=not retained,
                path=(),
                working=(f"{what}: {'retained' if retained else 'goes with the stack'}",),
                message=f"`pulumi destroy` leaves {what} with what it holds, and it goes on costing",
                given="retained",
                resource=resource.urn,
            )


_STORES = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2", "aws:efs/fileSystem:FileSystem")
"""Stores. What belongs to one, such as its policy, costs nothing."""
