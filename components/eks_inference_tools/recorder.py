"""The child process of ``eks-inference diff`` that records stacks at one revision, with what that revision's rules find."""

from typing import Any

from eks_inference_tools.program import REGION_KEY, StackProgram
from stackgraph.revisions.recorder import Reader, main


def findings(stack: StackProgram, graph: Any) -> list[dict[str, str]] | None:
    """The findings of the revision's own rules about the stack. None when it has no rules or they fail."""
    try:
        from eks_inference.stack.registry import check_spec
        from eks_inference_tools.check.registry import check_graph

        spec = stack.spec()
        region = stack.config.values.get(REGION_KEY)
        verdict = check_graph(graph, stack.silenced(spec))
        if spec and region:
            verdict = check_spec(spec, region) + verdict
        return [
            {
                "rule": finding.rule.id,
                "severity": finding.severity,
                "place": ".".join(map(str, finding.judgement.path)) or finding.judgement.resource.rpartition("::")[2],
                "message": finding.judgement.message,
            }
            for finding in verdict.findings
            if not finding.reason
        ]
    except Exception:
        return None


READER = Reader(StackProgram, ("eks_inference", "eks_inference_tools"), findings)

if __name__ == "__main__":
    main(READER)
