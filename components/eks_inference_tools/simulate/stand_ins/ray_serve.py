"""Works out where Ray places the initial replicas of a Serve configuration, and how many workers its autoscaler adds. Pure.

This is Ray's own arithmetic: a pod has the CPUs, GPUs and custom resources of its start parameters, or else of its limits; a
replica takes what its actor requests. Placement groups, memory of actors and growth under load are not modelled.

Sources: Ray 2.52.1 (``serve.schema``, autoscaler), KubeRay 1.7.0 (start parameters derived from limits).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from typing import Any

from eks_inference.place.quantity import amount
from eks_inference_tools.placing.provisioning import Amounts, add, covers
from eks_inference_tools.reading.kinds import serve_deployments
from stackgraph.graph.values import at, items, table, text


@dataclass(frozen=True, eq=False)
class Deployment:
    """The initial replicas of a deployment, and what each of them takes."""

    name: str
    replicas: int
    needs: Amounts


@dataclass(frozen=True)
class Growth:
    """A worker group that may grow by ``spare`` replicas, each of ``hosts`` pods that have ``room``."""

    name: str
    room: Amounts
    spare: int
    hosts: int


def applications_in(ray_service: Mapping[str, Any]) -> dict[str, tuple[Deployment, ...]]:
    """Returns the deployments of a RayService by Serve application."""
    return {name: tuple(map(_deployment, deployments)) for name, deployments in serve_deployments(ray_service).items()}


def _deployment(config: Any) -> Deployment:
    replicas = at(config, "num_replicas")
    if (scaling := at(config, "autoscaling_config")) is not None:
        replicas = next((n for key in ("initial_replicas", "min_replicas") if (n := at(scaling, key)) is not None), 1)
    options = table(at(config, "ray_actor_options"))
    needs = {"CPU": options.get("num_cpus", 1), "GPU": options.get("num_gpus", 0), **table(options.get("resources"))}
    return Deployment(
        text(at(config, "name")),
        replicas if isinstance(replicas, int) else 1,  # auto
        {resource: Decimal(str(number)) for resource, number in needs.items() if number},
    )


def room_of(group: Mapping[str, Any]) -> dict[str, Decimal]:
    """Returns the resources that Ray assigns to a pod of a head or worker group."""
    parameters = table(group.get("rayStartParams"))
    resources = table(at(items(at(group, "template", "spec", "containers"))[0], "resources"))
    limits = {**table(resources.get("requests")), **table(resources.get("limits"))}
    custom = json.loads(text(parameters.get("resources")).strip("'\"` ") or "{}")  # quoted for a shell
    return {
        "CPU": Decimal(str(parameters.get("num-cpus", ceil(amount(str(limits.get("cpu", "0"))))))),
        "GPU": Decimal(str(parameters.get("num-gpus", limits.get("nvidia.com/gpu", "0")))),
        "neuron_cores": Decimal(str(limits.get("aws.amazon.com/neuroncore", "0"))),
        **{name: Decimal(str(number)) for name, number in custom.items()},
    }


def placement(
    deployments: Iterable[Deployment], rooms: Iterable[Amounts], groups: Sequence[Growth] = ()
) -> tuple[dict[Deployment, int], dict[str, int]]:
    """Places every replica into the first room that holds it, and lets Ray's autoscaler grow ``groups`` if none does.

    Returns how many replicas of each deployment have a place, and how many replicas each group gains.
    """
    free = [dict(room) for room in rooms]
    counts: dict[Deployment, int] = {}
    added = {group.name: 0 for group in groups}
    for deployment in deployments:
        counts[deployment] = 0
        for _ in range(deployment.replicas):
            room = next((one for one in free if covers(one, deployment.needs)), None)
            if room is None:
                group = next((one for one in groups if added[one.name] < one.spare and covers(one.room, deployment.needs)), None)
                if group is None:
                    break
                added[group.name] += 1
                free += [room := dict(group.room), *(dict(group.room) for _ in range(group.hosts - 1))]
            add(room, deployment.needs, -1)
            counts[deployment] += 1
    return counts, added
