"""Rules about load tests. Their ids (NEU…) belong to the rules about serving on Neuron; NEU020 applies to GPUs too."""

from collections.abc import Iterator

from eks_inference.loadtest.facts import LoadTestFacts
from eks_inference.rules import Judgement, rule


@rule(
    "NEU019",
    "Requests ask for no more candidates (top_k) than the sampler on Neuron devices keeps.",
    fix="lower or remove top_k",
    source="NxD Inference and vLLM on Neuron, on-device sampling: global-topk 256",
)
def candidates_fit_the_sampler(test: LoadTestFacts) -> Iterator[Judgement]:
    top_k, kept = test.spec.sampling.get("top_k"), test.server.engine.generation.largest_top_k
    if kept is None or isinstance(top_k, bool) or not isinstance(top_k, int | float):
        return
    yield Judgement(
        holds=top_k <= kept,
        path=(*test.path, "sampling", "top_k"),
        working=(f"top_k: {top_k}; kept on the device: {kept}",),
        message=f"server '{test.name}' samples on Neuron devices, which keep {kept} candidates",
        given=str(top_k),
        allowed=f"at most {kept}",
    )


@rule(
    "NEU020",
    "A load test has no more users than the server handles at once.",
    severity="warning",
    fix="remove the larger numbers of users, or raise max_num_seqs or the number of pods",
    source="vLLM: requests beyond max_num_seqs wait; the source systems' tests stay below it (22 users of 24, 4 of 4)",
)
def users_fit_the_batches(test: LoadTestFacts) -> Iterator[Judgement]:
    server = test.server
    copies = max(server.copies // server.copies_per_request, 1) * server.pods_max
    room = copies * server.max_num_seqs
    for position, users in enumerate(test.spec.users):
        yield Judgement(
            holds=users <= room,
            path=(*test.path, "users", position),
            working=(f"{copies} engines or pairs of them x max_num_seqs {server.max_num_seqs} = {room}; users: {users}",),
            message=f"{users} users at once on server '{test.name}', which handles {room}: the figures measure the queue",
            given=str(users),
            allowed=f"at most {room}",
        )
