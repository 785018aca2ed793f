"""Rows of the catalog in one line each, for lists to choose from: completion in editors and shells.

Each function returns names in the order of the catalog, with what tells one from the next. Prices are left out, because they
depend on the region.
"""

from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.catalog.models import Model, models
from eks_inference.catalog.prices import services
from eks_inference.catalog.versions import kubernetes_versions, support
from eks_inference.catalog.zones import region_zone_ids, regions, zone_ids

_MIB = 1024


def instance_lines() -> dict[str, str]:
    """Instance types: devices and their memory, vCPU and memory of the host, EFA, local disks."""
    return {instance_type.name: _instance(instance_type) for instance_type in instance_types().values()}


def family_lines() -> dict[str, str]:
    """Instance families: chip, and the sizes that the catalog has."""
    return {
        family: _line(types[0].chip or "no accelerator", ", ".join(one.name.partition(".")[2] for one in types))
        for family, types in _families().items()
    }


def engine_lines() -> dict[str, str]:
    """Engine profiles: releases, chips, architectures, and why not to choose one."""
    return {engine.name: _profile(engine) for engine in engines().values()}


def repository_lines() -> dict[str, str]:
    """Hugging Face repositories of the models: size, context, and whether a token is needed."""
    return {
        repository: _line(model_words(model), "gated: needs an accepted licence and a token" if repository in model.gated else "")
        for model in models().values()
        for repository in model.repositories
    }


def region_lines() -> dict[str, str]:
    """Regions: zones, and the accelerator families that they offer."""
    return {region: _line(f"{len(region_zone_ids(region))} zones", _offered(region)) for region in regions()}


def zone_lines() -> dict[str, str]:
    """Ids of zones: region, and the accelerator families that they offer."""
    return {zone: _line(region, _offered(region, zone)) for region in regions() for zone in region_zone_ids(region)}


def kubernetes_lines() -> dict[str, str]:
    """Kubernetes minor versions: when EKS ends their support."""
    ends = {version: support(version) for version in kubernetes_versions()}
    return {
        version: f"standard support until {end.standard}, extended support until {end.extended}" for version, end in ends.items()
    }


def service_lines() -> dict[str, str]:
    """Services that have prices: what one unit is of, and the unit."""
    return {name: f"{one.what}; USD per {one.unit}" for name, one in services().items()}


def chip_lines() -> dict[str, str]:
    """Kinds of devices: the families that have them."""
    found: dict[str, list[str]] = {}
    for family, types in _families().items():
        if types[0].chip:
            found.setdefault(types[0].chip, []).append(family)
    return {chip: ", ".join(there) for chip, there in found.items()}


def architecture_lines() -> dict[str, str]:
    """Architectures: the models of the catalog that have them."""
    found: dict[str, list[str]] = {}
    for model in models().values():
        found.setdefault(model.architecture, []).append(model.name)
    return {architecture: ", ".join(there) for architecture, there in sorted(found.items())}


def model_lines() -> dict[str, str]:
    """Names of models: size and context."""
    return {model.name: model_words(model) for model in models().values()}


def model_words(one: Model) -> str:
    """``llama, 8.0 B parameters, 16 GB as published (bfloat16), context 8192 tokens``."""
    how = one.quantization.method if one.quantization else one.dtype
    size = f"{one.parameters / 1e9:.3g} B parameters, {one.weight_bytes() / 1e9:.3g} GB as published ({how})"
    return f"{one.architecture}, {size}, context {one.max_positions} tokens"


def device_words(one: InstanceType) -> str:
    """``6 x Inferentia2 of 32 GiB, 12 NeuronCores``; empty without devices."""
    if not one.devices:
        return ""
    cores = f", {one.devices * one.cores_per_device} NeuronCores" if one.cores_per_device else ""
    return f"{one.devices} x {one.chip} of {one.device_memory_gib} GiB{cores}"


def efa_words(one: InstanceType) -> str:
    """``8 EFA interfaces``, or ``no EFA``."""
    several = "" if one.efa_interfaces == 1 else "s"
    return f"{one.efa_interfaces} EFA interface{several}" if one.efa_interfaces else "no EFA"


def _instance(one: InstanceType) -> str:
    return _line(
        device_words(one) or f"no accelerator, {one.architecture}",
        f"{one.vcpus} vCPU, {one.memory_mib / _MIB:g} GiB",
        efa_words(one),
        f"{one.nvme_gb} GB of local disk" if one.nvme_gb else "",
        "capacity only by reservation or capacity block" if one.needs_reservation else "",
    )


def _profile(one: EngineProfile) -> str:
    server = "" if one.standalone else f"{one.server}, "
    sdk = f" on Neuron SDK {one.sdk}" if one.sdk else ""
    return _line(
        f"retired: {one.retired}" if one.retired else "",
        f"{server}vLLM {one.vllm}{sdk}",
        ", ".join(one.tensor_parallel),
        f"serves {', '.join(one.architectures)}",
        f"caveat: {one.caveat}" if one.caveat else "",
    )


def _families() -> dict[str, list[InstanceType]]:
    found: dict[str, list[InstanceType]] = {}
    for instance_type in instance_types().values():
        found.setdefault(instance_type.family, []).append(instance_type)
    return found


def _offered(region: str, zone: str = "") -> str:
    accelerated = [family for family, types in _families().items() if types[0].accelerator]
    there = [one for one in accelerated if (zone in zone_ids(region, one) if zone else zone_ids(region, one))]
    return ", ".join(there) or "no accelerators in the catalog"


def _line(*parts: str) -> str:
    return "; ".join(filter(None, parts))
