"""What is said of a stack file that was just written."""

from collections.abc import Iterator

from eks_inference_tools.check.report import StackReport
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.cost.quotas import needs
from eks_inference_tools.fitting.search import Found, Row
from eks_inference_tools.fitting.stack_file import Order
from eks_inference_tools.fitting.text import in_less_memory
from eks_inference_tools.notes import notes_of
from stackgraph.graph.values import grouped
from stackgraph.graph.wording import counted

_QUOTAS = 3
"""The scarcest that are named."""


def summary(report: StackReport, found: Found, order: Order, prices: OwnPrices, saving: Row | None) -> Iterator[str]:
    """What was chosen and why, what it costs, what it needs, what to do next."""
    row, wish, name = order.row, found.wish, report.program.stack
    trial = row.trial
    split = counted(trial.tensor_parallel, "NeuronCore" if trial.instance.neuron else "GPU")
    yield f"wrote {report.program.document.shown}: {wish.model.name} on {trial.instance.name} in {wish.region}"
    yield f"  chosen   {_why(found, row)}"
    yield f"  server   {trial.engine.name} over {split}, {trial.quantization}"
    written = f"; compiled for {trial.concurrency} (--concurrency)" if trial.instance.neuron else ""
    yield f"  holds    {trial.sequences} sequences of {wish.context} tokens at once{written}"
    yield f"  node     {row.offer.words}"
    if saving:
        yield f"  for less {in_less_memory(saving, row)}"
    if report.graph is not None:
        for note in notes_of(report.graph, prices):
            yield f"  {note}"
        for need in needs(report.graph, estimated(report.graph, prices))[:_QUOTAS]:
            what, amount, new = need.cells
            yield f"  quota    {amount} of {what}" + (f"; a new account has {new}" if new else "")
    yield f"  check    {report.state}"
    for one in report.verdict.findings:
        if not one.stops and not one.reason:
            yield f"  warning  {one.summary}"
    for one in report.not_judged:
        yield f"  open     {one.summary}"
    for secret in order.secrets:
        yield f"  secret   the repository is gated, and `check` refuses the stack until: pulumi config set --secret {secret}"
    yield f"next: eks-inference check {name}; eks-inference preview {name}; pulumi stack init {name}; pulumi up"


def _why(found: Found, row: Row) -> str:
    types = len(found.first_of_types)
    if types == 1:
        return "as asked for" if found.wish.types else "the only instance type where it fits"
    if row.usd_per_hour is None:
        return f"one of {types} instance types where it fits, of which none has a price"
    passed = [one for one in found.first_of_types if one.usd_per_hour is not None and one.usd_per_hour < row.usd_per_hour]
    reasons = grouped((_against(one), one.trial.instance.name) for one in passed)
    cheaper = "; ".join(f"{', '.join(names)} {why}" for why, names in reasons.items())
    return f"the cheapest of {types} instance types where it fits" + (f", passed over: {cheaper}" if cheaper else "")


def _against(row: Row) -> str:
    """Why a cheaper place is not chosen unless somebody names it."""
    if row.trial.engine.ends or row.trial.engine.caveat:
        return f"({row.trial.engine.name}: {row.trial.engine.ends or row.trial.engine.caveat})"
    return f"({', '.join(row.warnings)})" if row.warnings else "(by choice)"
