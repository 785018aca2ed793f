"""What the catalog knows of NIXL: its rows fit those of other files, and what no document settles says how a run settles it."""

from typing import get_args

import pytest

from eks_inference.catalog.engines import engines
from eks_inference.catalog.instances import Accelerator, instance_type, instance_types
from eks_inference.catalog.models import models
from eks_inference.catalog.nixl import Mark, connectors, leases, nixl_connectors, nixl_profile, side_channel
from eks_inference.catalog.tables import table

KINDS = get_args(Accelerator)
FACTS = table("nixl.toml")["facts"].values()
METRICS = table("nixl.toml")["metrics"]
CROSSING = {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "trn2", "trn2u"}


@pytest.mark.parametrize("one", [one for one in instance_types().values() if one.accelerator], ids=lambda one: one.name)
def test_kv_caches_cross_efa_on_trn2_and_on_gpus_with_gpudirect_rdma_only(one) -> None:
    assert one.accelerator
    reason = nixl_profile(one.accelerator).reason_against(one)
    assert (reason == "") == (one.family in CROSSING and one.efa_interfaces > 0), reason


def test_a_small_size_without_interfaces_is_refused_for_that() -> None:
    small = [one for one in instance_types().values() if one.family in CROSSING and not one.efa_interfaces]
    assert all(nixl_profile(one.accelerator or "").reason_against(one) == "it has no EFA" for one in small)


@pytest.mark.parametrize("kind", KINDS)
def test_a_profile_names_what_other_files_know(kind: str) -> None:
    profile, known = nixl_profile(kind), nixl_connectors()
    assert {*profile.chips} <= {one.chip for one in instance_types().values()}
    assert {*profile.models} <= models().keys()
    assert {*profile.unproven} <= {model.architecture for model in models().values()}
    for name in (profile.connector, profile.connector_of_windows):
        assert not known[name].refused
    served = [engine for engine in engines().values() if engine.accelerator == kind and profile.connector in engine.kv_connectors]
    assert served, "some engine has the connector"
    assert all(engine.efa_userspace for engine in served)


def test_every_connector_of_an_engine_is_known() -> None:
    assert {name for engine in engines().values() for name in engine.kv_connectors} <= {*nixl_connectors(), *connectors()}


def test_every_neuron_chip_has_an_interface_of_its_own() -> None:
    profile = nixl_profile("neuron")
    for one in instance_types().values():
        if one.accelerator == "neuron" and not profile.reason_against(one):
            assert one.efa_interfaces == profile.interfaces_per_device * one.devices, one.name


def test_windows_take_another_connector_on_neuron_only() -> None:
    window = models()["GPT-OSS-20B"].window
    assert nixl_profile("neuron").connector_for(window) == nixl_profile("neuron").connector_for(0, context_parallel=True)
    assert nixl_profile("neuron").connector_for(window) != nixl_profile("neuron").connector_for(0)
    assert nixl_profile("nvidia").connector_for(window) == nixl_profile("nvidia").connector_for(0)


def test_leases_are_sensible_and_longer_than_the_engine_s_own() -> None:
    assert leases().engine_default_s < leases().least_s < leases().most_s
    assert nixl_profile("neuron").reason_against(instance_type("trn2.48xlarge")) == ""


def test_every_open_fact_says_how_a_run_settles_it() -> None:
    for fact in FACTS:
        assert fact["mark"] in ("inferred", "unknown")
        assert fact["says"].endswith(".")
        assert fact["settled_by"]
        assert not fact["settled_by"].endswith(".")


def test_every_other_row_is_documented() -> None:
    rows = [*map(nixl_profile, KINDS), leases(), side_channel(), *nixl_connectors().values()]
    assert {row.mark for row in rows} == {METRICS["mark"]} == {"documented"}
    assert {*get_args(Mark)} == {"documented"} | {one["mark"] for one in FACTS}


def test_names_of_metrics_are_those_of_counters_and_histograms_without_a_suffix() -> None:
    names = [METRICS[key] for key in ("failed_transfers", "failed_notifications", "expired", "transfer_seconds", "bytes")]
    assert len({*names}) == len(names)
    assert all(name.startswith("vllm:nixl_") and not name.endswith("_total") for name in names)
