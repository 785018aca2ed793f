"""Examines an account for a stack: plans the questions, asks them a few at a time, and judges the answers."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import Any, Protocol

from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.doctor.account import no_credentials
from eks_inference_tools.doctor.account_quotas import quotas
from eks_inference_tools.doctor.account_zones import zones
from eks_inference_tools.doctor.capacity import capacity
from eks_inference_tools.doctor.findings import Finding, Findings, error, unknown
from eks_inference_tools.doctor.given import given
from eks_inference_tools.doctor.hub_access import hub
from eks_inference_tools.doctor.identity import TOPIC, disabled, identity, who
from eks_inference_tools.doctor.images import images
from eks_inference_tools.doctor.linked_roles import linked_roles
from eks_inference_tools.doctor.offered_releases import releases
from eks_inference_tools.doctor.price_list import prices
from eks_inference_tools.doctor.questions import Answer, Answers, Call, HubFile, Inquiry, Manifest, Question, Unanswered
from eks_inference_tools.doctor.taken_names import names
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.calendar import today
from stackgraph.graph.document import Graph
from stackgraph.graph.wording import counted
from stackgraph.problems import Problem, ProblemsFound

AT_ONCE = 8
"""Questions that are under way at the same time. Services throttle by account and region."""


class Account(Protocol):
    """Who answers calls of AWS's API."""

    profile: str

    @property
    def own_region(self) -> str:
        """The region that `aws` commands use; empty without one."""
        ...

    @property
    def ended(self) -> str:
        """Why the credentials stopped being accepted; empty while they are."""
        ...

    def prepare(self, calls: set[Call]) -> None:
        """Gets ready for calls, before threads ask them."""
        ...

    def answer(self, asked: Call) -> Answer:
        """Asks one question."""
        ...


class Registries(Protocol):
    """Who answers for registries and the Hub."""

    @property
    def has_token(self) -> bool: ...

    def answer(self, asked: Manifest | HubFile) -> Answer: ...


Progress = Callable[[int, int], None]
"""Is told how many questions are answered, of how many."""


def examine(
    graph: Graph, account: Account, web: Registries | None = None, *, progress: Progress = lambda done, of: None
) -> Findings:
    """Returns what the account says about the stack. Without ``web``, registries and the Hub are not asked, which findings say.

    Raises ``ProblemsFound`` when the stack has no region, or nobody is behind the credentials.
    """
    regions = regions_of(graph)
    first = list(identity(graph, regions, own_region=account.own_region, profile=account.profile))
    answers = _answered(first, account, web, {}, progress)
    asker = answers[who(regions[0])]
    if isinstance(asker, Unanswered):
        raise no_credentials(asker.reason, account.profile)
    closed = {region for answer in answers.values() if (region := disabled(answer))}
    planned = list(inquiries(graph, regions, profile=account.profile, web=web))
    second = [one for one in planned if not any(isinstance(each, Call) and each.region in closed for each in one.questions)]
    answers = _answered(second, account, web, answers, progress)
    return tuple(_findings([*first, *second], answers, account, len(planned) - len(second)))


def needed_policy(graph: Graph) -> dict[str, Any]:
    """The least IAM policy with which everything about the stack can be asked. Raises ``ProblemsFound`` like ``examine``."""
    regions = regions_of(graph)
    return policy([*identity(graph, regions, own_region="", profile=""), *inquiries(graph, regions)])


def inquiries(graph: Graph, regions: tuple[str, ...], *, profile: str = "", web: Registries | None = None) -> Iterator[Inquiry]:
    """Everything that is asked once it is known who asks. ``regions`` has the cluster's first."""
    found, day = estimated(graph), today()
    yield from quotas(graph, found, profile)
    yield from zones(graph, found)
    yield from capacity(graph, day)
    yield from releases(graph, day)
    yield from linked_roles(graph, regions[0])
    yield from names(graph)
    yield from given(graph, regions)
    yield from images(graph, public=web is not None)
    if web is not None:
        yield from hub(graph, with_token=web.has_token)
    yield from prices(found, day)


def regions_of(graph: Graph) -> tuple[str, ...]:
    """The regions of the graph's resources, the cluster's first. Raises ``ProblemsFound`` without one."""
    named = (known_region(graph, None), *(known_region(graph, one) for one in graph.resources if one.package == "aws"))
    if not (found := tuple(dict.fromkeys(filter(None, named)))):
        hint = "pulumi config set aws:region"
        raise ProblemsFound([Problem("the program has no region to ask about", key="aws:region", hint=hint)])
    return found


def _answered(
    asked: Iterable[Inquiry], account: Account, web: Registries | None, known: Answers, progress: Progress
) -> dict[Question, Answer]:
    """The answers that are known and those to further questions."""
    answers = dict(known)
    questions = dict.fromkeys(question for inquiry in asked for question in inquiry.questions)
    open_ = [question for question in questions if question not in answers]
    account.prepare({call for call in open_ if isinstance(call, Call)})

    def answer(question: Question) -> Answer:
        if isinstance(question, Call):
            return account.answer(question)
        return web.answer(question) if web else Unanswered("not asked")

    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="doctor")
    try:
        running = {pool.submit(answer, one): one for one in open_}
        for number, done in enumerate(as_completed(running), start=1):
            answers[running[done]] = done.result()
            progress(number, len(open_))
    finally:
        # After Ctrl-C nothing new is asked, and nobody waits for what is under way.
        pool.shutdown(wait=False, cancel_futures=True)
    return answers


def _findings(asked: Iterable[Inquiry], answers: Answers, account: Account, left_out: int) -> Iterator[Finding]:
    for inquiry in asked:
        yield from inquiry.findings(answers)
    if left_out:
        yield replace(unknown(f"{left_out} further checks ask a region that is not enabled: none of them was made"), topic=TOPIC)
    if permissions := sorted({one.permission for one in answers.values() if isinstance(one, Unanswered) and one.permission}):
        said = f"{counted(len(permissions), 'permission')} missing, so something is not known"
        yield replace(unknown(said, "allow what --iam-policy prints", permissions=permissions), topic=TOPIC)
    if account.ended:
        yield replace(error(account.ended, "log in again, then repeat this"), topic=TOPIC)


def policy(inquiries: Iterable[Inquiry]) -> dict[str, Any]:
    """The policy's document. Actions that share their resources share a statement."""
    resources: dict[str, set[str]] = {}
    for asked in (question for inquiry in inquiries for question in inquiry.questions):
        if isinstance(asked, Call) and asked.permission:
            resources.setdefault(asked.permission, set()).add(asked.resource)
    actions: dict[tuple[str, ...], list[str]] = {}
    for permission, on in sorted(resources.items()):
        actions.setdefault(("*",) if "*" in on else tuple(sorted(on)), []).append(permission)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": allowed, "Resource": "*" if on == ("*",) else list(on)}
            for on, allowed in sorted(actions.items())
        ],
    }
