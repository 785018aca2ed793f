"""The same stack as a new release of its images would have it. Pure."""

import copy
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eks_inference_tools.simulate.world.objects import ClusterObject

_NEXT = "next"
_TAG_LENGTH = 128  # OCI distribution specification: a tag has at most 128 characters
_CONTAINERS = ("containers", "initContainers")

# How names of Jobs end that stand for their content: what makes them (serving, clients, load test) appends a part of a SHA-256.
_HASH = re.compile(r"-([0-9a-f]{8,64})$")


def with_other_images(objects: Sequence[ClusterObject]) -> tuple[ClusterObject, ...]:
    """Every container of every pod template has another image, and nothing else differs but what follows from that: where a Job's
    name stands for its content, it has another hash there and wherever else it is written (its ConfigMap, what mounts that, the
    image that it builds).
    """
    hashes = {old: hashlib.sha256(f"{old} {_NEXT}".encode()).hexdigest()[: len(old)] for old in _hashes(objects)}
    images = {image for item in objects for image in images_in(item.manifest)}
    others = {image: next_image(image) for image in images if _in_text(image, hashes) == image}
    return tuple(
        replace(item, manifest=_rewritten(_with_images(item.manifest, others), hashes), title=_in_text(item.title, hashes))
        for item in objects
    )


def next_image(image: str) -> str:
    """Another image of the same repository: another tag, or another digest where it is named by one."""
    name, at, digest = image.partition("@")
    if at:
        return f"{name}@sha256:{hashlib.sha256(digest.encode()).hexdigest()}"
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # without a tag; the colon, if any, is of the registry's port
        return f"{name}:{_NEXT}"
    return f"{repository}:{tag[: _TAG_LENGTH - len(_NEXT) - 1]}-{_NEXT}"


def images_in(value: Any) -> Iterator[str]:
    """Of every container in an object."""
    for container in _containers(value):
        if isinstance(image := container.get("image"), str):
            yield image


def _containers(value: Any) -> Iterator[Mapping[str, Any]]:
    """Of every pod template, wherever it is in the object."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in _CONTAINERS and isinstance(item, list):
                yield from (one for one in item if isinstance(one, Mapping))
            else:
                yield from _containers(item)
    elif isinstance(value, list):
        for item in value:
            yield from _containers(item)


def _with_images(manifest: Mapping[str, Any], others: Mapping[str, str]) -> dict[str, Any]:
    changed = copy.deepcopy(dict(manifest))
    for container in _containers(changed):
        if isinstance(container, dict) and container.get("image") in others:
            container["image"] = others[container["image"]]
    return changed


def _hashes(objects: Sequence[ClusterObject]) -> Iterator[str]:
    for item in objects:
        if item.kind == "Job" and (found := _HASH.search(item.name)):
            yield found.group(1)


def _rewritten(value: Any, hashes: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _rewritten(item, hashes) for key, item in value.items()}
    if isinstance(value, list):
        return [_rewritten(item, hashes) for item in value]
    return _in_text(value, hashes) if isinstance(value, str) else value


def _in_text(value: str, hashes: Mapping[str, str]) -> str:
    for old, new in hashes.items():
        value = value.replace(old, new)
    return value
