"""Servers on vLLM's plugin for Neuron: what they get to start, and that rules refuse what the plugin refuses."""

from typing import Any

import pytest

from eks_inference.catalog.engines import engine
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.rules.neuron_plugin import workers_find_their_interface
from neuron_plugin import refusal
from neuron_servers import ENGINE, of_ray, of_vllm
from vectors.nixl import pool, servers

SKIP = "NEURON_SKIP_EFA_AFFINITY"


def of_pair(**keys: Any) -> ServingFacts:
    return servers(**keys).decode.server


@pytest.mark.parametrize(
    ("facts", "skips"),
    [
        (lambda: of_vllm(), True),
        (lambda: of_vllm(on="trn2.3xlarge", tensor_parallel=4), True),
        (lambda: of_ray(), True),
        (lambda: of_pair(), False),
        (lambda: servers().prefill.server, False),
        (lambda: of_pair(serving="baseline"), True),
        (lambda: of_pair(on=pool(instance_types=["trn2u.48xlarge"])), True),
    ],
)
def test_workers_look_for_efa_only_where_it_is(facts, skips: bool):
    found = facts()
    assert found.environment.get(SKIP) == ("1" if skips else None)
    assert not refusal(found)
    assert all(one.holds for one in workers_find_their_interface.judge(found))


@pytest.mark.parametrize("given", ["0", "1", "yes"])
@pytest.mark.parametrize("make", [of_vllm, of_ray, of_pair])
def test_a_users_own_value_wins(make, given: str):
    found = make(extra_env={SKIP: given})
    (judged,) = workers_find_their_interface.judge(found)
    assert found.environment[SKIP] == given
    assert judged.holds == (not refusal(found)) == (make is of_pair or given != "0")


@pytest.mark.parametrize("make", [of_vllm, of_ray, of_pair])
def test_the_engine_waits_as_long_as_the_budget_says(make):
    found, startup = make().environment, engine(ENGINE).startup
    assert found["VLLM_NEURON_COMPILATION_TIMEOUT"] == found["NEURON_LIBTORCH_COMPILATION_TIMEOUT"] == str(startup.compile_s)
    assert found["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == str(startup.load_s)
    assert int(found["VLLM_ENGINE_READY_TIMEOUT_S"]) >= startup.engine_s
    assert make(extra_env={"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "7"}).environment["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == "7"


def test_other_engines_get_none_of_it():
    found = of_vllm(2048, on="inf2.8xlarge", engine="neuron-2.28-vllm-0.13", tensor_parallel=2).environment
    assert not {SKIP, "VLLM_NEURON_COMPILATION_TIMEOUT", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"} & {*found}
