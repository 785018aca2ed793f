"""What an engine takes of the memory of its pod: the terms of rule GPU013 and its two limits."""

from typing import Any

import pytest

from eks_inference.catalog.models import model
from eks_inference.serving.rules.gpu import host_memory_suffices, host_terms, share_is_free
from vectors.gpu import gpu_server


def counted(**changes: Any) -> dict[str, float]:
    return {host_term.what: host_term.gib for host_term in host_terms(gpu_server(**changes)) if host_term.each_gib}


PROCESSES = 9.0
"""An API server, an engine and four workers."""


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({}, {}),
        ({"tensor_parallel": 1}, {"processes": 3.0}),
        ({"arguments": ("--kv-offloading-size=10",)}, {"KV cache offloaded": 10}),
        ({"arguments": ("--kv-offloading-size=10", "--kv-offloading-backend=lmcache")}, {}),
        (
            {"tensor_parallel": 2, "arguments": ("--kv-offloading-size=10", "--data-parallel-size=2")},
            {"KV cache offloaded": 20, "processes": 1.5 * (1 + 2 + 4)},
        ),
        (
            {
                "arguments": (
                    '--kv-transfer-config={"kv_connector": "OffloadingConnector", '
                    '"kv_connector_extra_config": {"cpu_bytes_to_use": 2147483648}}',
                )
            },
            {"KV cache offloaded": 2},
        ),
        (
            {
                "arguments": (
                    '--kv-transfer-config={"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": ['
                    '{"kv_connector": "NixlConnector"}, {"kv_connector": "OffloadingConnector", '
                    '"kv_connector_extra_config": {"cpu_bytes_to_use": 2147483648}}, {"kv_connector": "LMCacheConnectorV1"}]}}',
                )
            },
            {"KV cache offloaded": 2, "LMCache": 20},
        ),
        ({"arguments": ("--cpu-offload-gb=2",)}, {"weights offloaded": 8}),
        ({"arguments": ("--cpu-offload-gb=200",)}, {"weights offloaded": pytest.approx(15.08, abs=0.05)}),
        ({"arguments": ('--kv-transfer-config={"kv_connector": "LMCacheConnectorV1"}',)}, {"LMCache": 20}),
        (
            {
                "arguments": ('--kv-transfer-config={"kv_connector": "LMCacheConnectorV1"}',),
                "environment": {"LMCACHE_MAX_LOCAL_CPU_SIZE": "1.5"},
            },
            {"LMCache": 6},
        ),
        (
            {
                "arguments": ('--kv-transfer-config={"kv_connector": "LMCacheConnectorV1"}',),
                "environment": {"LMCACHE_LOCAL_CPU": "False"},
            },
            {},
        ),
        ({"arguments": ("--load-format=runai_streamer",)}, {"buffer of the streamer": pytest.approx(4 * 14.96, abs=0.05)}),
        ({"profile": "triton-24.07-vllm-0.5"}, {"swap space": 16}),
        ({"model": model("Gemma-3-27B")}, {"cache of images": 8}),
        ({"model": model("Gemma-3-27B"), "arguments": ("--language-model-only",)}, {}),
        ({"model": model("Gemma-3-27B"), "arguments": ("--mm-processor-cache-gb=0",)}, {}),
    ],
)
def test_each_flag_takes_what_its_documents_say(changes: dict[str, Any], taken: dict[str, float]) -> None:
    assert counted(**changes) == {"processes": PROCESSES, **taken}


def said(**changes: Any) -> list[tuple[object, object]]:
    return [(one.path[-1], one.severity) for one in host_memory_suffices.judge(gpu_server(**changes)) if not one.holds]


def test_what_is_sure_refuses_and_what_may_be_warns() -> None:
    assert said(memory_mib=9 * 1024) == []
    assert said(memory_mib=9 * 1024 - 1) == [("memory", "warning")]
    assert said(memory_mib=40 * 1024, arguments=("--kv-offloading-size=40",)) == [("memory", "warning")]
    assert said(memory_mib=40 * 1024, arguments=("--kv-offloading-size=41",)) == [("memory", "error")]


def test_what_is_offloaded_fits_shared_memory() -> None:
    offloaded = {"arguments": ("--kv-offloading-size=20",)}
    assert said(**offloaded, shared_memory_mib=20 * 1024) == []
    assert said(**offloaded, shared_memory_mib=19 * 1024) == [("shared_memory_gib", None)]
    assert said(**offloaded) == [], "how large it is nobody says"
    assert said(**offloaded, shared_memory_mib=1024, profile="triton-24.07-vllm-0.5") == [], "of this release nobody read it"


@pytest.mark.parametrize(
    ("instance", "share", "holds"),
    [
        ("g4dn.xlarge", 0.95, True),
        ("g4dn.xlarge", 0.98, False),
        ("g6.xlarge", 0.97, True),
        ("g6.xlarge", 0.98, False),
        ("p5.48xlarge", 0.99, True),
        ("p5.48xlarge", 0.995, False),
    ],
)
def test_what_is_left_beside_the_share_holds_the_context_of_the_process(instance: str, share: float, holds: bool) -> None:
    server = gpu_server(instance, "OPT-350M", max_model_len=2048, arguments=(f"--gpu-memory-utilization={share}",))
    assert [judgement.holds for judgement in share_is_free.judge(server)] == [holds]
