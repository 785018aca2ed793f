"""Mocks for tests that stay with ``pulumi.runtime.set_mocks``: they answer as the recorder does."""

from typing import Any

import pulumi
from pulumi.runtime import mocks
from pulumi.runtime.settings import get_monitor

from stackgraph.graph.document import STACK_REFERENCE, build_urn
from stackgraph.recorder import functions, symbols, wire
from stackgraph.testing.running import GivenAnswers, answers_of


class Mocks(mocks.Mocks):
    """Answers with placeholders for what only a deployment knows: ``<name.property>`` for outputs that are texts.

    Outputs that are resources, such as ``eks.Cluster("c").eks_cluster``, are there too. Data sources are answered where the
    recorder can; ``answers`` has the results of others and the outputs of other stacks, as for ``record``. A subclass may
    override either method and call ours for the rest.
    """

    def __init__(self, answers: GivenAnswers = ()) -> None:
        self.answers = answers_of(answers)

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        if args.typ == STACK_REFERENCE:
            return args.resource_id, {**args.inputs, "outputs": self._outputs(str(args.resource_id)), "secretOutputNames": []}

        def reference(prop: str, cls: type) -> Any:
            return _reference(args, prop, cls)

        # Only a component of another package is not custom and yet asks for its outputs.
        outputs = symbols.symbolic_outputs(args.name, args.typ, args.inputs, None if args.custom else reference)
        return args.resource_id or symbols.token(args.name, "id"), {**args.inputs, **outputs}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        region = pulumi.Config("aws").get("region")
        found = self.answers.of_function(args.token, args.args, "", args.args.get("region") or region)
        if found is None:
            found = functions.compute(args.token, args.args, {"region": region} if region else {})
        if found is None:
            raise _unanswered(args.token, {"function": args.token, "result": {}})
        return dict(found), []

    def _outputs(self, stack: str) -> dict[str, Any]:
        """The outputs of another stack. Raises ``LookupError`` where no answer has them."""
        found = self.answers.of_stack(stack)
        if found is None:
            raise _unanswered(f"stack {stack}", {"stack": stack, "outputs": {}})
        return dict(found)


def _unanswered(what: str, example: Any) -> LookupError:
    return LookupError(f"no answer to {what}; give one: Mocks(answers=[{example}])")


def _reference(args: mocks.MockResourceArgs, prop: str, cls: type) -> Any:
    """A reference to a resource inside a component of another package, which the mock monitor gets to know."""
    type_ = symbols.type_of(cls)
    if type_ is None:
        return wire.UNKNOWN
    name = f"{args.name}.{prop}"
    urn = build_urn(pulumi.get_stack(), pulumi.get_project(), args.typ, type_, name)
    identity = symbols.token(name, "id")
    monitor: Any = get_monitor()
    monitor.resources[urn] = mocks.MockMonitor.ResourceRegistration(urn, identity, symbols.symbolic_outputs(name, type_, {}))
    return {wire.SIGNATURE: wire.RESOURCE, "urn": urn, "id": identity}
