"""The catalog: facts as data files, and the loaders that turn them into types."""

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from catalog_rows import VERSIONS, catalog_copy, left_out, unknown
from eks_inference.catalog import engines, models, nixl, tables, versions, zones
from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engines import EngineProfile, Generation, engine
from eks_inference.catalog.instances import (
    AmiType,
    InstanceType,
    ami_type,
    ami_type_for,
    ami_types,
    instance_type,
    instance_types,
)
from eks_inference.catalog.models import Model, find_model, model
from eks_inference.catalog.nixl import Connector
from eks_inference.catalog.tables import PROVENANCE, nearest, rows, table, version_numbers
from refresh import general_instances
from refresh.general_instances import moto_resource

FILES = sorted(path.name for path in tables.FOLDER.glob("*.toml"))
ALL_TYPES = sorted(instance_types().values(), key=lambda one: one.name)
ALL_PROFILES = sorted(engines.engines().values(), key=lambda one: one.name)
ALL_MODELS = sorted(models.models().values(), key=lambda one: one.name)
ALL_GENERATIONS = sorted(engines.generations().values(), key=lambda generation: generation.name)
ALL_CONNECTORS = sorted(nixl.connectors().values(), key=lambda connector: connector.name)
ALL_AMIS = sorted(ami_types().values(), key=lambda one: one.name)
ALL_ROWS = [*ALL_TYPES, *ALL_PROFILES, *ALL_GENERATIONS, *ALL_CONNECTORS, *ALL_MODELS, *ALL_AMIS]
MINORS = VERSIONS


def names(types: list[InstanceType]) -> list[str]:
    return [one.name for one in types]


each_type = pytest.mark.parametrize("one", ALL_TYPES, ids=names(ALL_TYPES))
each_profile = pytest.mark.parametrize("profile", ALL_PROFILES, ids=[engine_profile.name for engine_profile in ALL_PROFILES])
each_model = pytest.mark.parametrize("one", ALL_MODELS, ids=[one.name for one in ALL_MODELS])


# -------------------------------------------------------------------------------------------------- sources


def within(row: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables in a table, also those of a list."""
    for name, value in row.items():
        yield from ((name, one) for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict))


def unsourced(row: Mapping[str, Any], path: str, around: frozenset[str] = frozenset()) -> Iterator[str]:
    """The tables that hold facts and neither say where they come from nor stand in one that does."""
    known = around | (row.keys() & PROVENANCE)
    if known < set(PROVENANCE) and rows(row).keys() - {name for name, _ in within(row)}:
        yield path
    for name, value in within(row):
        yield from unsourced(value, f"{path}.{name}", known)


def provenance(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((name, row[name]) for name in PROVENANCE if name in row)
    for _, value in within(row):
        yield from provenance(value)


@pytest.mark.parametrize("file", FILES)
def test_every_row_says_where_it_comes_from(file: str):
    assert list(unsourced(table(file), file.removesuffix(".toml"))) == []


@pytest.mark.parametrize("file", FILES)
def test_sources_are_said_and_dates_are_dates(file: str):
    said = list(provenance(table(file)))
    assert said
    for name, value in said:
        pattern = (
            r"20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?" if name == "read" else r"\S.{9,}\S|log [A-Z]"
        )  # a log of times.toml
        assert isinstance(value, str), value
        assert re.fullmatch(pattern, value), value


def test_a_row_without_a_source_is_found():
    toy = tomllib.loads('[a]\nsource = "s"\n[a.x]\nread = "2026-11"\nn = 1\n[a.y]\nn = 1\n[b]\n[b.z]\nn = 1\n')
    assert list(unsourced(toy, "toy")) == ["toy.a.y", "toy.b.z"]


@pytest.mark.parametrize("one", ALL_ROWS, ids=lambda one: one.name)
def test_a_loaded_row_carries_its_source(one: InstanceType | EngineProfile | Generation | Connector | Model | AmiType):
    assert len(one.source) > 10
    assert one.read.startswith("20")


def test_a_file_is_parsed_once():
    assert table("versions.toml") is table("versions.toml")


# -------------------------------------------------------------------------------------------------- instance types


@pytest.mark.parametrize(
    ("name", "memory_gib", "setting", "degrees"),
    [
        ("inf2.48xlarge", 16, 1, (1, 2, 4, 8, 24)),
        ("trn1.32xlarge", 16, 1, (1, 2, 8, 16, 32)),
        ("trn2.48xlarge", 24, 2, (1, 2, 4, 8, 16, 32, 64)),
        ("g4dn.12xlarge", 14.56, 0, (1, 2, 4)),
        ("g5.48xlarge", 22, 0, (1, 2, 4, 8)),
        ("m5.large", 0, 0, ()),
    ],
)
def test_what_a_core_has_and_what_a_chip_takes(name: str, memory_gib: float, setting: int, degrees: tuple[int, ...]):
    one = instance_type(name)
    assert one.memory_per_core_gib == memory_gib
    assert one.default_logical_core_setting == setting
    assert one.tensor_parallel == degrees


def test_only_gpus_before_ampere_lack_bfloat16():
    assert {one.family for one in ALL_TYPES if one.accelerator and not one.has_bfloat16} == {"g4dn"}
    assert not instance_type("m5.large").has_bfloat16


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: instance_type("inf2.48xlage"), r"inf2\.48xlarge"),
        (lambda: engine("neuron-2.28"), r"neuron-2\.28-vllm-0\.13"),
        (lambda: ami_type("al2023_x86_64_neurons"), "AL2023_x86_64_NEURON"),
        (lambda: versions.neuron_sdk_driver("2.18.1"), r"versions\.toml \[neuron_sdk_drivers\] '2\.18' is not in the catalog"),
        (lambda: versions.addon("vpc-cnl", "1.35"), "vpc-cni"),
        (lambda: versions.addon("vpc-cni", "1.32"), r"Kubernetes 1\.32; available: 1\.33"),
        (lambda: versions.image("kube-scheduler"), "kube-scheduler has no pin for Kubernetes None"),
        (lambda: versions.ami_release("source", "1.35"), "'source' is not in"),
        (lambda: zones.zone_ids("mars-north-1", "inf2"), "us-west-2"),
        (lambda: zones.region_zone_ids("source"), "us-west-2"),
        (lambda: zones.zone_ids("us-west-2", "inf9"), "inf2"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(ask: Callable[[], object], said: str):
    with pytest.raises(KeyError, match=said):
        ask()


def test_the_table_cannot_be_changed_through_a_type():
    with pytest.raises(dataclasses.FrozenInstanceError):
        instance_type("m5.large").vcpus = 1  # pyright: ignore[reportAttributeAccessIssue]


@each_type
def test_a_row_does_not_contradict_itself(one: InstanceType):
    assert one.name == f"{one.family}.{one.name.partition('.')[2]}"
    assert one.vcpus > 0
    assert one.memory_mib % 1024 == 0
    assert (one.accelerator is None) == (one.devices == 0) == (one.device_memory_gib == 0) == (not one.tensor_parallel)
    assert (one.accelerator == "neuron") == bool(one.legal_device_counts) == bool(one.cores_per_device)
    assert (one.accelerator == "neuron") == bool(one.physical_cores_per_device) == bool(one.logical_core_settings)
    assert (one.accelerator == "nvidia") == (one.compute_capability is not None)
    if one.legal_device_counts:
        assert list(one.legal_device_counts) == sorted(set(one.legal_device_counts))
        assert one.legal_device_counts[0] == 1, "a single device is always a legal set"
        assert one.legal_device_counts[-1] == one.devices, "and so is the whole node"
        assert one.default_logical_core_setting == one.logical_core_settings[-1], "AWS joins as many cores as it can by default"
        assert one.default_logical_core_setting * one.cores_per_device == one.physical_cores_per_device
    assert list(one.tensor_parallel) == sorted(set(one.tensor_parallel))
    # The pod limit is interfaces x (addresses - 1) + 2 with at least two addresses an interface.
    assert one.max_pods > 2
    assert one.efa_interfaces == 0 or one.efa_interfaces >= one.network_cards - one.first_efa_card
    assert one.ip_card_step >= 1


# ------------------------------------------------------------------------------------- against EC2, as moto keeps its answers

# What the catalog says otherwise than the EC2 API, and why.
EXCEPTIONS = {
    ("trn2.3xlarge", "memory_gib"): (512, "the Neuron documentation says 96 GiB a chip, four banks of 24"),
    ("trn2.48xlarge", "memory_gib"): (512, "the Neuron documentation says 96 GiB a chip, four banks of 24"),
    ("trn2u.48xlarge", "accelerator"): (None, "the API reports no Neuron devices; the Neuron documentation says those of trn2"),
    ("trn2u.48xlarge", "chip"): ("", "as accelerator"),
    ("trn2u.48xlarge", "memory_gib"): (0, "as accelerator"),
    ("trn2u.48xlarge", "devices"): (0, "as accelerator"),
    ("trn2u.48xlarge", "cores"): (0, "as accelerator"),
}

# developer.nvidia.com/cuda-gpus, by the names EC2 gives the GPUs.
COMPUTE_CAPABILITIES = {
    "V100": (7, 0),
    "T4": (7, 5),
    "A100": (8, 0),
    "A10G": (8, 6),
    "L4": (8, 9),
    "L40S": (8, 9),
    "H100": (9, 0),
    "H200": (9, 0),
    "B200": (10, 0),
    "B300": (10, 3),
    "RTX PRO 4500": (12, 0),
    "RTX PRO Server 6000": (12, 0),
}


# What the API says of accelerators of all makers.
ACCELERATED = {"FpgaInfo", "GpuInfo", "InferenceAcceleratorInfo", "MediaAcceleratorInfo", "NeuronInfo"}


def ec2_types() -> dict[str, Any]:
    return moto_resource("instance_types.json.gz")


def differences(one: InstanceType) -> dict[tuple[str, str], Any]:
    ours, theirs = _as_ec2(one), _ec2(ec2_types()[one.name])
    assert ours.keys() == theirs.keys()
    return {(one.name, column): theirs[column] for column in ours if ours[column] != theirs[column]}


@each_type
def test_a_row_agrees_with_ec2(one: InstanceType):
    assert differences(one) == {key: value for key, (value, _) in EXCEPTIONS.items() if key[0] == one.name}


def test_every_type_with_accelerators_is_there_or_left_out_for_a_reason():
    families = {one.family for one in ALL_TYPES if one.accelerator}
    sold = {name for name, answer in ec2_types().items() if ACCELERATED & answer.keys() or name.partition(".")[0] in families}
    assert len(sold) > 70
    assert unknown(sold) == set()


@pytest.mark.parametrize("name", left_out())
def test_what_is_left_out_is_not_there(name: str):
    assert not [one.name for one in ALL_TYPES if name in (one.name, one.family)]


def test_new_types_and_families_are_found():
    assert unknown(["g6e.xlarge", "g4ad.large", "g9.xlarge", "g4dn.32xlarge"]) == {"g9.xlarge", "g4dn.32xlarge"}


def test_the_families_said_to_have_every_size_have_it():
    sold = {name.partition(".")[0]: set[str]() for name in ec2_types()}
    for name in ec2_types():
        sold[name.partition(".")[0]].add(name)
    ours = {one.family: {other.name for other in ALL_TYPES if other.family == one.family} for one in ALL_TYPES}
    assert {one.family: one.every_size for one in ALL_TYPES} == {family: names == sold[family] for family, names in ours.items()}


@pytest.mark.parametrize("region", zones.regions())
def test_every_type_is_offered_where_the_catalog_says_so(region: str):
    offered = moto_resource(f"instance_type_offerings/availability-zone-id/{region}.json.gz")
    pairs = {(one["InstanceType"], one["Location"]) for one in offered}
    sold = {name for name, _ in pairs}
    claimed = {(one.name, zone_id) for one in ALL_TYPES if one.name in sold for zone_id in zones.zone_ids(region, one.name)}
    assert claimed - pairs == set()


def _as_ec2(one: InstanceType) -> dict[str, Any]:
    return {
        "vcpus": one.vcpus,
        "memory_mib": one.memory_mib,
        "architectures": [one.architecture],
        "max_pods": one.max_pods,
        "accelerator": one.accelerator,
        "chip": one.chip,
        "devices": one.devices,
        "partitioned": one.partitioned,
        "cores": one.physical_cores_per_device,
        "memory_gib": one.device_memory_gib,
        "compute_capability": one.compute_capability,
        "efa": one.efa_interfaces,
        "cards": one.network_cards,
        "ebs_mb_s": one.ebs_mb_s,
        "nvme_gb": one.nvme_gb,
    }


def _ec2(answer: dict[str, Any]) -> dict[str, Any]:
    network = answer["NetworkInfo"]
    default_card = next(
        card for card in network["NetworkCards"] if card["NetworkCardIndex"] == network["DefaultNetworkCardIndex"]
    )
    neuron = answer.get("NeuronInfo", {}).get("NeuronDevices", [])
    gpus = answer.get("GpuInfo", {}).get("Gpus", [])
    device = (neuron + gpus)[0] if neuron or gpus else {"Count": 0, "MemoryInfo": {"SizeInMiB": 0}}
    return {
        "vcpus": answer["VCpuInfo"]["DefaultVCpus"],
        "memory_mib": answer["MemoryInfo"]["SizeInMiB"],
        "architectures": [one for one in answer["ProcessorInfo"]["SupportedArchitectures"] if one != "i386"],
        "max_pods": default_card["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2,
        "accelerator": "neuron" if neuron else device["Manufacturer"].lower() if gpus else None,
        "chip": device.get("Name", ""),
        "devices": device["Count"] or device.get("LogicalGpuCount", 0),
        "partitioned": device.get("GpuPartitionSize", 1) < 1,
        "cores": device.get("CoreInfo", {}).get("Count", 0),
        "memory_gib": device["MemoryInfo"]["SizeInMiB"] // 1024,
        "compute_capability": COMPUTE_CAPABILITIES[device["Name"]] if gpus else None,
        "efa": network["EfaInfo"]["MaximumEfaInterfaces"] if network["EfaSupported"] else 0,
        "cards": network["MaximumNetworkCards"],
        "ebs_mb_s": answer["EbsInfo"]["EbsOptimizedInfo"]["MaximumThroughputInMBps"],
        "nvme_gb": answer.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
    }


# -------------------------------------------------------------------------------------------------- models

KIB = 2**10


@pytest.mark.parametrize(
    ("repository", "parameters"),
    [
        ("NousResearch/Llama-2-13b-chat-hf", 13_015_864_320),
        ("NousResearch/Llama-2-70b-chat-hf", 68_976_648_192),
        ("NousResearch/Llama-2-7b-chat-hf", 6_738_415_616),
        ("NousResearch/Meta-Llama-3-8B-Instruct", 8_030_261_248),
        ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
        ("Qwen/Qwen3-32B", 32_762_123_264),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("facebook/opt-350m", 331_196_416),
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
        ("meta-llama/Llama-3.2-1B-Instruct", 1_235_814_400),
        ("meta-llama/Llama-3.3-70B-Instruct", 70_553_706_496),
        ("mistralai/Mistral-7B-Instruct-v0.3", 7_248_023_552),
    ],
)
def test_model_shapes_give_the_published_number_of_parameters(repository: str, parameters: int):
    """The numbers the Hub counts in the checkpoints."""
    assert model(repository).parameters == parameters


def test_eight_bits_halve_the_weights_and_the_cache():
    one = model("Llama-3.3-70B")
    assert one.weight_bytes(1) * 2 == one.weight_bytes()
    assert one.kv_bytes_per_token(bytes_per_element=1) * 2 == one.kv_bytes_per_token()


@pytest.mark.parametrize(
    ("name", "degree", "kv_heads"),
    [
        ("Llama-2-13B", 8, 40),
        ("Llama-2-13B", 24, 48),
        ("Llama-3-8B", 2, 8),
        ("Llama-3-8B", 4, 8),
        ("Llama-3-8B", 8, 8),
        ("Llama-3-8B", 24, 24),
        ("Llama-3-8B", 12, 36),
        ("Llama-3.3-70B", 32, 32),
        ("Llama-3.3-70B", 64, 64),
        ("Phi-4", 2, 10),
        ("Phi-4", 4, 40),
        ("Phi-4", 8, 40),
    ],
)
def test_kv_heads_are_repeated_up_to_the_degree_or_made_as_many_as_query_heads(name: str, degree: int, kv_heads: int):
    assert model(name).kv_heads_at(degree) == kv_heads


def test_only_degrees_that_divide_the_heads_split_a_model():
    degrees = engine("neuron-2.28-vllm-0.13").tensor_parallel["inf2"]
    assert [degree for degree in degrees if model("Llama-3-8B").splits_over(degree)] == [1, 2, 4, 8]


@each_model
def test_a_model_has_whole_groups_of_heads(one: Model):
    assert one.heads % one.kv_heads == 0
    assert one.repositories
    assert (one.counted_parameters is not None) == (one.architecture == "opt")


def test_a_repository_holds_one_model():
    repositories = [repository for one in ALL_MODELS for repository in one.repositories]
    assert len(set(repositories)) == len(repositories)
    assert not {one.name.casefold() for one in ALL_MODELS} & {repository.casefold() for repository in repositories}


def test_a_model_is_found_by_name_or_by_repository():
    assert find_model("llama-2-13b") is find_model("meta-llama/Llama-2-13b-hf") is models.models()["Llama-2-13B"]
    assert find_model("nobody/nothing") is None


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("qwen3-32", "Qwen3-32B"), ("LLAMA-3-80B", "Llama-3-8B"), ("facebook/opt-350", "facebook/opt-350m")],
)
def test_a_misspelt_model_is_answered_with_the_nearest_names(text: str, nearest: str):
    with pytest.raises(KeyError, match=rf"model '{text}' is not in the catalog; nearest: .*{re.escape(nearest)}"):
        model(text)


# -------------------------------------------------------------------------------------------------- engines


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


@each_profile
def test_a_profile_is_named_by_what_is_in_its_image(profile: EngineProfile):
    assert profile.name.endswith(f"-vllm-{minor(profile.vllm)}")
    tag = profile.image.rpartition(":")[2]
    if profile.accelerator == "neuron":
        assert profile.sdk is not None
        assert profile.name.startswith(f"neuron-{minor(profile.sdk)}-")
        assert f"-sdk{profile.sdk}-" in tag
        assert tag.startswith(profile.vllm) or profile.retired, "the images of old hold no vLLM"
    elif profile.server == "triton":
        assert profile.name.startswith(f"triton-{tag.removesuffix('-vllm-python-py3')}-")
        assert profile.client_image == profile.image.replace("-vllm-python-py3", "-py3-sdk"), (
            "server and clients are of one release"
        )
    elif profile.efa_userspace:
        assert tag.startswith(f"{profile.vllm}-gpu-"), "an image of AWS"
    else:
        assert tag == f"v{profile.vllm}"


@each_profile
def test_a_profile_does_not_contradict_itself(profile: EngineProfile):
    neuron = profile.accelerator == "neuron"
    assert neuron == profile.neuron == (not profile.nvidia) == (profile.sdk is not None)
    assert profile.accelerator == profile.generation.accelerator
    assert neuron == (profile.minimum_compute_capability is None)
    assert profile.minimum_driver or not neuron or profile.retired
    assert (profile.server == "triton") == (profile.client_image is not None)
    assert profile.tensor_parallel, "a profile is for some instance family"
    for family, degrees in profile.tensor_parallel.items():
        (accelerator,) = {one.accelerator for one in ALL_TYPES if one.family == family}
        assert accelerator == profile.accelerator
        assert degrees[0] == 1
    assert set(profile.architectures) <= set(architectures())
    assert profile.kv_connectors == () or profile.efa_userspace, "a KV cache between hosts goes over EFA"
    startup = profile.startup
    whole = startup.node_start_s + startup.image_pull_s + startup.engine_s
    assert whole >= 1800, "peers' two minutes end servers that are still loading"


@each_profile
def test_flags_are_filled_in(profile: EngineProfile):
    flags = profile.flags(max_num_seqs=24, max_model_len=4096)
    assert len(flags) == len(profile.arguments)
    assert all(flag.startswith("--") and "{max" not in flag for flag in flags)


def test_the_flags_of_each_generation():
    flags = {one.generation.name: one.flags(max_num_seqs=24, max_model_len=4096) for one in ALL_PROFILES if one.neuron}
    assert flags == {
        "A": ["--block-size=4096"],
        "B": ["--device=neuron", "--use-v2-block-manager", "--override-neuron-config={}"],
        "C": ["--no-enable-prefix-caching", "--num-gpu-blocks-override=24"],
        "D": [],
    }


@pytest.mark.parametrize(
    ("instance", "usable"),
    [
        ("inf2.48xlarge", {"neuron-2.26-vllm-0.9", "neuron-2.28-vllm-0.13", "neuron-2.31-vllm-0.16"}),
        ("trn2.48xlarge", {"neuron-2.26-vllm-0.9", "neuron-2.31-vllm-0.16", "neuron-2.32-vllm-0.24", "neuron-2.33-vllm-0.29"}),
        (
            "g4dn.xlarge",
            {"cuda-efa-vllm-0.30", "cuda-vllm-0.30", "cuda-vllm-0.33", "triton-26.08-vllm-0.27", "triton-24.07-vllm-0.5"},
        ),
        ("m5.large", set()),
    ],
)
def test_which_engines_run_on_what(instance: str, usable: set[str]):
    assert {one.name for one in ALL_PROFILES if one.serves(instance_type(instance)) and not one.retired} == usable


def test_degrees_are_those_of_the_chips():
    assert engine("neuron-2.32-vllm-0.24").tensor_parallel == dict.fromkeys(("trn2", "trn2u"), (1, 2, 4, 8, 16, 32, 64))
    assert engine("cuda-vllm-0.30").tensor_parallel["g4dn"] == (1, 2, 4)


def test_opt_runs_on_gpus_only():
    assert {one.accelerator for one in ALL_PROFILES if model("OPT-350M").architecture in one.architectures} == {"nvidia"}


def test_what_is_retired_names_what_serves_instead():
    (retired,) = [engine_profile for engine_profile in ALL_PROFILES if engine_profile.retired]
    (instead,) = [engine_profile for engine_profile in ALL_PROFILES if engine_profile.name in retired.retired]
    assert not instead.retired
    assert instead.tensor_parallel.keys() >= retired.tensor_parallel.keys()
    assert set(instead.architectures) >= set(retired.architectures)


@pytest.mark.parametrize("profile", [one for one in ALL_PROFILES if one.ray], ids=lambda one: one.name)
def test_ray_is_not_of_the_releases_whose_dashboard_hangs(profile: EngineProfile):
    """KubeRay, "Upgrade guide": not 2.11 to 2.37."""
    assert profile.ray is not None
    assert version_numbers(profile.ray) > (2, 37)


@pytest.mark.parametrize("profile", [one for one in ALL_PROFILES if one.minimum_driver], ids=lambda one: one.name)
def test_the_oldest_driver_of_an_image_is_one_it_works_with_and_every_pinned_ami_has_it(profile: EngineProfile):
    assert profile.minimum_driver is not None
    oldest = version_numbers(profile.minimum_driver)
    if profile.sdk is None:
        for kubernetes in MINORS:
            release = versions.ami_release("AL2023_x86_64_NVIDIA", kubernetes)
            assert version_numbers(versions.nvidia_driver(release)) >= oldest
        return
    floor = versions.neuron_driver_floor(profile.sdk)
    assert floor is None or oldest[:2] > version_numbers(floor)
    assert oldest <= version_numbers(versions.neuron_sdk_driver(profile.sdk))
    for kubernetes in () if profile.on_request else MINORS:  # NEU015 tells whoever asks for it
        release = versions.ami_release("AL2023_x86_64_NEURON", kubernetes)
        assert version_numbers(versions.neuron_driver(release)) >= oldest


# -------------------------------------------------------------------------------------------------- AMI types


@each_type
@pytest.mark.parametrize("kubernetes", MINORS)
def test_every_instance_type_has_an_image_on_every_supported_version(one: InstanceType, kubernetes: str):
    found = ami_type_for(one)
    assert found.covers(kubernetes)
    assert not found.ended
    assert versions.ami_release(found.name, kubernetes)


def test_the_image_of_an_instance_type_is_the_one_for_its_devices():
    chosen = {name: ami_type_for(instance_type(name)).name for name in ("inf2.xlarge", "g5.xlarge", "m5.large")}
    assert chosen == {
        "inf2.xlarge": "AL2023_x86_64_NEURON",
        "g5.xlarge": "AL2023_x86_64_NVIDIA",
        "m5.large": "AL2023_x86_64_STANDARD",
    }
    assert ami_type_for(dataclasses.replace(instance_type("g5.xlarge"), architecture="arm64")).name == "AL2023_ARM_64_NVIDIA"
    with pytest.raises(KeyError, match=r"no AMI type of Amazon Linux 2023 for inf2\.xlarge"):
        ami_type_for(dataclasses.replace(instance_type("inf2.xlarge"), architecture="arm64"))


def test_amazon_linux_2_ended_with_kubernetes_1_32():
    ended = [one for one in ALL_AMIS if one.ended]
    assert {one.name for one in ended} == {"AL2_x86_64", "AL2_x86_64_GPU", "AL2_ARM_64"}
    for one in ended:
        assert (one.covers("1.29"), one.covers("1.32"), one.covers("1.33")) == (True, True, False)
        assert any(other.name in one.note for other in ALL_AMIS if not other.ended), "it says what to use instead"


def test_an_image_type_covers_nothing_before_its_first_version():
    assert not ami_type("AL2023_x86_64_NVIDIA").covers("1.9")
    assert ami_type("AL2023_x86_64_NVIDIA").covers("1.24")


@pytest.mark.parametrize("one", ALL_AMIS, ids=lambda one: one.name)
def test_an_image_type_is_spelt_as_eks_does_and_its_parameters_are_paths(one: AmiType):
    name = one.name.casefold()
    assert name.startswith(one.operating_system)
    assert one.architecture.replace("arm64", "arm_64") in name
    for parameter in (one.image_parameter, one.release_parameter):
        path = parameter.format(kubernetes_version="1.35")
        assert re.fullmatch(r"/aws/service/(eks|bottlerocket)(/[a-z0-9._-]+)+", path)
        assert "1.35" in path
        assert one.architecture in path or one.operating_system == "al2"
    assert one.image_parameter.endswith("/image_id")


# -------------------------------------------------------------------------------------------------- versions


def sections() -> dict[str, dict[str, Any]]:
    return {name: rows(section) for name, section in table("versions.toml").items()}


def pins(row: Any) -> list[str]:
    return [row] if isinstance(row, str) else [row["reference"]] if "reference" in row else list(rows(row).values())


def test_the_supported_minor_versions_are_those_of_the_design():
    assert MINORS == ("1.33", "1.34", "1.35", "1.36")


@pytest.mark.parametrize("section", ["images", "addons", "ami_releases"])
def test_what_depends_on_the_minor_version_covers_all_of_them(section: str):
    depending = {name: rows(row) for name, row in sections()[section].items() if "reference" not in row}
    assert depending
    assert {name: row for name, row in depending.items() if tuple(row) != MINORS} == {}


@pytest.mark.parametrize("section", sorted(sections()))
def test_the_pins_are_sorted(section: str):
    pinned = sections()[section]
    assert list(pinned) == sorted(pinned, key=lambda name: version_numbers(name) if name[0].isdigit() else name)


@pytest.mark.parametrize("name", sorted(sections()["charts"]))
def test_a_chart_is_pinned_exactly(name: str):
    chart = versions.chart(name)
    assert chart.reference.startswith(("oci://", "https://"))
    assert re.fullmatch(r"v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", chart.version)


def test_karpenter_and_its_crds_are_of_one_version():
    assert versions.chart("karpenter").version == versions.chart("karpenter-crd").version


def test_a_chart_from_an_oci_registry_is_located_by_its_reference():
    karpenter = versions.chart("karpenter")
    assert karpenter.location(karpenter.reference) == ("oci://public.ecr.aws/karpenter/karpenter", None)
    assert karpenter.location("oci://mirror.example/karpenter/karpenter") == ("oci://mirror.example/karpenter/karpenter", None)


def test_a_chart_from_a_repository_is_located_by_name_there_and_below_its_mirror():
    kuberay = versions.chart("kuberay-operator")
    assert kuberay.location(kuberay.reference) == ("kuberay-operator", "https://ray-project.github.io/kuberay-helm/")
    assert kuberay.location("oci://mirror.example/kuberay/") == ("oci://mirror.example/kuberay/kuberay-operator", None)


@pytest.mark.parametrize("kubernetes", MINORS)
def test_what_must_match_the_cluster_matches_its_minor_version(kubernetes: str):
    assert versions.image("kube-scheduler", kubernetes).partition(":")[2].startswith(f"v{kubernetes}.")
    assert versions.addon("kube-proxy", kubernetes).startswith(f"v{kubernetes}.")
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", versions.addon(name, kubernetes)) for name in sections()["addons"])
    for name in (name for name in ami_types() if name.startswith("AL2023_")):
        assert re.fullmatch(rf"{re.escape(kubernetes)}\.\d+-\d{{8}}", versions.ami_release(name, kubernetes))
        assert ami_type(name).covers(kubernetes)


@pytest.mark.parametrize("kubernetes", MINORS)
def test_the_driver_inside_every_pinned_neuron_ami_is_known(kubernetes: str):
    assert versions.neuron_driver(versions.ami_release("AL2023_x86_64_NEURON", kubernetes)) == "2.29.0"


def test_the_driver_of_an_sdk_is_that_of_its_minor_release():
    assert versions.neuron_sdk_driver("2.28.0") == versions.neuron_sdk_driver("2.28") == "2.26.5"
    assert versions.neuron_sdk_driver("2.31.1") == "2.29.0"


@pytest.mark.parametrize(("sdk", "floor"), [("2.9.0", None), ("2.29.1", None), ("2.30.0", "2.26"), ("2.32.0", "2.26")])
def test_containers_of_sdk_2_30_and_later_need_a_newer_driver_than_2_26(sdk: str, floor: str | None):
    assert versions.neuron_driver_floor(sdk) == floor


def test_every_driver_inside_an_ami_came_with_an_sdk_or_patches_one_that_did():
    released = {version_numbers(driver)[:2] for driver in sections()["neuron_sdk_drivers"].values()}
    assert {version_numbers(driver)[:2] for driver in sections()["neuron_drivers"].values()} <= released


def test_images_are_pinned_by_tag_or_digest_never_latest():
    references = [reference for row in sections()["images"].values() for reference in pins(row)]
    references += [image for one in ALL_PROFILES for image in (one.image, one.client_image) if image]
    for reference in references:
        tag = reference.rpartition("/")[2].partition(":")[2]
        assert tag, f"{reference} has no tag"
        assert "latest" not in tag


# -------------------------------------------------------------------------------------------------- zones


def test_the_zones_the_source_system_prefers_come_first():
    assert zones.zone_ids("us-west-2", "inf2")[:2] == ("usw2-az4", "usw2-az1")
    assert zones.zone_ids("us-east-1", "trn1") == ("use1-az6", "use1-az5")
    assert zones.zone_ids("us-east-2", "trn2")[0] == "use2-az3"


def test_a_cpu_family_is_in_all_zones_and_an_absent_accelerator_in_none():
    assert zones.zone_ids("us-west-2", "m5") == zones.region_zone_ids("us-west-2")
    assert zones.zone_ids("eu-west-1", "trn2") == ()


def test_no_table_holds_a_zone_that_control_planes_refuse():
    assert zones.refused_by_control_plane() == {"use1-az3", "usw1-az2", "cac1-az3"}
    for region in zones.regions():
        assert not zones.refused_by_control_plane() & set(zones.region_zone_ids(region))


@pytest.mark.parametrize("region", zones.regions())
def test_a_region_has_two_zones_and_its_families_are_in_them(region: str):
    everywhere = zones.region_zone_ids(region)
    assert len(everywhere) >= 2
    assert len({zone_id.partition("-")[0] for zone_id in everywhere}) == 1
    for family in {one.family for one in ALL_TYPES}:
        where = zones.zone_ids(region, family)
        assert set(where) <= set(everywhere)
        assert len(where) == len(set(where))


def test_every_key_of_a_region_is_a_family_or_a_type_of_the_catalog():
    known = {one.family for one in ALL_TYPES} | {one.name for one in ALL_TYPES}
    for region, offered in rows(table("zones.toml")["regions"]).items():
        assert set(offered) - {"zones"} <= known, region


def test_a_size_may_have_zones_of_its_own():
    assert zones.zone_ids("ap-northeast-1", "p5.48xlarge") == zones.zone_ids("ap-northeast-1", "p5") == ("apne1-az1", "apne1-az4")
    assert zones.zone_ids("ap-northeast-1", "p5.4xlarge") == ("apne1-az1",)
    assert zones.zone_ids("us-west-1", "p5.4xlarge") == ()
    assert zones.sold_as([instance_type("p5.4xlarge"), instance_type("m5.large")]) == ["m5", "p5.4xlarge"]
    assert zones.sold_as([instance_type("p5.4xlarge"), instance_type("p5.48xlarge")]) == ["p5"]


# ------------------------------------------------------------------- the next instance type, engine or model is a row of data


@pytest.fixture
def add_rows(tmp_path: Path) -> Iterator[Callable[..., None]]:
    with catalog_copy(tmp_path) as add:
        yield add


P3DN = """
[p3dn]
source = "EC2 DescribeInstanceTypes (moto 5.2.5)"
read = "2026-11"
accelerator = "nvidia"
chip = "V100"
compute_capability = [7, 0]
device_memory_gib = 32

[p3dn.sizes]
24xlarge = { vcpus = 96, memory_mib = 786432, ebs_mb_s = 2375, max_pods = 737, devices = 8, efa_interfaces = 1, nvme_gb = 1800 }
"""

NEURON_2_99 = """
["neuron-2.99-vllm-0.99"]
source = "nobody"
read = "2026-11"
server = "vllm"
generation = "D"
sdk = "2.99.0"
vllm = "0.99.0"
image = "public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.99.0.1.2.0-neuronx-py314-sdk2.99.0-ubuntu26.04"
architectures = ["llama", "qwen3"]
chips = ["Trainium2"]
startup = { node_start_s = 600, image_pull_s = 600, download_s = 1800, compile_s = 2400, load_s = 1200 }
"""

QWEN3_1_7B = """
["Ours-1.7B"]
source = "config.json of Qwen/Qwen3-1.7B, as in mlc-ai/mlc-llm 79d603f0"
read = "2026-11"
repositories = ["ours/1.7B"]
architecture = "qwen3"
dtype = "bfloat16"
hidden = 2048
layers = 28
heads = 16
kv_heads = 8
head_dim = 128
mlp = 6144
vocabulary = 151936
max_positions = 40960
tied_embeddings = true
"""


def test_an_instance_type_nobody_thought_of_is_a_row(add_rows: Callable[..., None]):
    add_rows("instances.toml", P3DN)
    one = instance_type("p3dn.24xlarge")
    assert differences(one) == {}
    assert one.tensor_parallel == (1, 2, 4, 8)
    assert not one.has_bfloat16
    assert not engine("cuda-vllm-0.30").serves(one), "vLLM needs 7.5"
    assert ami_type_for(one).name == "AL2023_x86_64_NVIDIA"
    assert zones.zone_ids("us-west-2", "p3dn") == ()


def test_an_engine_nobody_thought_of_is_a_row(add_rows: Callable[..., None]):
    add_rows("engines.toml", NEURON_2_99)
    one = engine("neuron-2.99-vllm-0.99")
    test_a_profile_is_named_by_what_is_in_its_image(one)
    assert one.serves(instance_type("trn2.48xlarge"))
    assert not one.serves(instance_type("inf2.48xlarge"))
    assert one.tensor_parallel["trn2"][-1] == 64


def test_a_model_nobody_thought_of_is_a_row(add_rows: Callable[..., None]):
    add_rows("models.toml", QWEN3_1_7B)
    assert model("ours/1.7B").parameters == 1_720_574_976
    assert model("qwen3-1.7b").kv_bytes_per_token(8) == 112 * KIB


def test_an_engine_that_unpacks_a_checkpoint_holds_it_in_two_bytes_and_is_told_to():
    """GPT-OSS on Trn2: AWS's recipe runs it in BF16, with an override of the checkpoint's MXFP4."""
    published, trn2 = model("GPT-OSS-20B"), engine("neuron-2.32-vllm-0.24")
    assert trn2.served(published).weight_bytes() == 2 * published.parameters
    assert '--hf-overrides={"quantization_config": {}}' in trn2.flags(max_num_seqs=4, max_model_len=8192, model=published)
    assert trn2.flags(max_num_seqs=4, max_model_len=8192, model=model("Qwen3-32B")) == []
    assert engine("cuda-vllm-0.30").served(published) == published


def test_what_has_a_price_in_capacity_blocks_only_needs_a_reservation():
    blocks = {type_ for row in rows(table("prices.toml")["blocks_only"]).values() for type_ in row["types"]}
    assert {one.name for one in instance_types().values() if one.needs_reservation} == blocks


def test_at_most_three_names_are_near_and_case_does_not_count() -> None:
    assert nearest("LLAMA", ["llama", "llamas", "a llama", "llama2", "qwen"]) == ["llama", "llamas", "llama2"]


def test_the_types_without_accelerators_are_those_that_ec2_sells() -> None:
    assert general_instances.FILE.read_text("utf-8") == general_instances.table(), "make refresh TABLE=general_instances"
    for name in ("t3.large", "m6a.large", "m7i-flex.large", "c8i.large", "r7a.large", "m5.large"):
        assert instance_type(name).accelerator is None
