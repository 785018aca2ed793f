"""What output tokens cost at the rate that a load test measured. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eks_inference_tools.cost.estimate import Total
from stackgraph.graph.values import joined

if TYPE_CHECKING:
    from eks_inference_tools.loadtest_report.record import Run

_SECONDS_PER_HOUR = 3600
_MILLION = 1_000_000


@dataclass(frozen=True)
class Rate:
    """Output tokens per second of a whole run. ``run`` says which."""

    run: str
    tokens_per_s: float

    def usd_per_million(self, deployed: Total) -> float:
        """What a million output tokens cost while the stack, as deployed, answers at this rate without a pause."""
        return deployed.usd_per_hour / (self.tokens_per_s * _SECONDS_PER_HOUR) * _MILLION


def rates(runs: "Iterable[Run]") -> Iterator[Rate]:
    """Yields the rates of the runs that tell one."""
    for run in runs:
        if run.output_tokens_per_s:
            users = f"{run.users} users" if run.users else ""
            yield Rate(joined(run.label or run.tool, users, by=", "), run.output_tokens_per_s)
