"""Where Ray puts the first replicas of a Serve configuration, and how many workers its autoscaler adds for them. Pure.

Ray's own arithmetic: a pod has the CPUs, GPUs and custom resources that its start parameters tell, or else its limits; a replica
takes what its actor asks for. Not known: placement groups, memory that an actor sets aside, and what requests would add.

Sources: Ray 2.52.1 (``serve.schema``, autoscaler), KubeRay 1.7.0 (start parameters that it derives from limits).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from typing import Any

from eks_inference.kubernetes.quantity import amount
from eks_inference_tools.reading.kuberay import serve_applications
from stackgraph.graph.values import at, items, table, text

Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, eq=False)
class Deployment:
    """Replicas that a deployment begins with, and what each of them takes."""

    application: str
    name: str
    replicas: int
    needs: Amounts


@dataclass(frozen=True)
class Growth:
    """A worker group that may grow by ``spare`` more replicas, each of ``hosts`` pods with ``room``."""

    name: str
    room: Amounts
    spare: int
    hosts: int


def applications_in(ray_service: Mapping[str, Any]) -> dict[str, tuple[Deployment, ...]]:
    """The Serve applications of a RayService and their deployments."""
    found = serve_applications(ray_service).items()
    return {name: tuple(_deployment(name, one) for one in deployments) for name, deployments in found}


def _deployment(application: str, config: Any) -> Deployment:
    replicas = at(config, "num_replicas")
    if (scaling := at(config, "autoscaling_config")) is not None:
        replicas = next((n for key in ("initial_replicas", "min_replicas") if (n := at(scaling, key)) is not None), 1)
    options = table(at(config, "ray_actor_options"))
    needs = {"CPU": options.get("num_cpus", 1), "GPU": options.get("num_gpus", 0), **table(options.get("resources"))}
    return Deployment(
        application,
        text(at(config, "name")),
        replicas if isinstance(replicas, int) else 1,  # auto
        {resource: Decimal(str(number)) for resource, number in needs.items() if number},
    )


def room_of(group: Mapping[str, Any]) -> dict[str, Decimal]:
    """What Ray takes a pod of a head or worker group to have."""
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


def placed(deployments: Iterable[Deployment], rooms: Iterable[Amounts]) -> dict[Deployment, int]:
    """How many replicas of each deployment have a place in these rooms."""
    return _place(deployments, rooms, ())[0]


def grown(deployments: Iterable[Deployment], rooms: Iterable[Amounts], groups: Sequence[Growth]) -> dict[str, int]:
    """By how many replicas Ray's autoscaler lets worker groups grow so that all replicas of the deployments have a place."""
    return _place(deployments, rooms, groups)[1]


def _place(
    deployments: Iterable[Deployment], rooms: Iterable[Amounts], groups: Sequence[Growth]
) -> tuple[dict[Deployment, int], dict[str, int]]:
    """Every replica into the first room that holds it."""
    free = [dict(room) for room in rooms]
    counts: dict[Deployment, int] = {}
    added = {group.name: 0 for group in groups}
    for deployment in deployments:
        counts[deployment] = 0
        for _ in range(deployment.replicas):
            room = next((one for one in free if _holds(one, deployment.needs)), None)
            if room is None:
                group = next((one for one in groups if added[one.name] < one.spare and _holds(one.room, deployment.needs)), None)
                if group is None:
                    break
                added[group.name] += 1
                free += [room := dict(group.room), *(dict(group.room) for _ in range(group.hosts - 1))]
            for resource, number in deployment.needs.items():
                room[resource] -= number
            counts[deployment] += 1
    return counts, added


def _holds(room: Amounts, needs: Amounts) -> bool:
    return all(room.get(resource, Decimal()) >= number for resource, number in needs.items())
