"""A user's own prices: those of a recorded stack, and those of a file.

A file has them by region, otherwise as a stack file has them::

    us-west-2:
      trn2.48xlarge: {reserved: 35.76, source: "capacity block of 14 days, invoice of 2026-10"}
      nat_gateway: {usd: 0.04, source: "private price list"}
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eks_inference.faults import Fault, SpecError, faults_under, format_path
from eks_inference.settings import region_fault
from eks_inference.stack.prices import OwnPrice, price_faults
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.reading.platforms import PLATFORM
from stackgraph.graph.document import Graph
from stackgraph.problems import Problem, ProblemsFound


def prices_of(graph: Graph) -> OwnPrices:
    """The prices that the stacks of a graph gave, by their region."""
    found: dict[str, dict[str, OwnPrice]] = {}
    for resource in graph.of_type(PLATFORM):
        given, region = resource.inputs.get("prices"), resource.inputs.get("region")
        if isinstance(given, Mapping) and isinstance(region, str):
            for name, own in given.items():
                # A platform has checked its own. Another program's resource of this type may have anything there.
                with contextlib.suppress(SpecError):
                    found.setdefault(region, {})[name] = OwnPrice.model_validate(own)
    return found


def read_price_file(path: Path) -> OwnPrices:
    """The prices of a file. Raises ``ProblemsFound`` with everything that is wrong in it."""
    from stackgraph.recorder.yaml_file import read_document

    document = read_document(path)
    faults: list[Fault] = []
    found = _regions(document.data, faults)
    if faults:
        raise ProblemsFound(
            [
                Problem(
                    fault.message,
                    document.shown,
                    document.line(fault.path),
                    format_path(fault.path),
                    fault.given,
                    fault.allowed,
                    fault.hint,
                )
                for fault in sorted(faults, key=lambda fault: document.line(fault.path))
            ]
        )
    return found


def _regions(data: Any, faults: list[Fault]) -> dict[str, dict[str, OwnPrice]]:
    if not isinstance(data, Mapping):
        faults.append(Fault((), "prices must be a mapping", type(data).__name__, "regions, each with prices by name"))
        return {}
    found: dict[str, dict[str, OwnPrice]] = {}
    for region, rows in data.items():
        if fault := region_fault(region):
            faults.append(Fault((region,), fault.message, region, fault.allowed, fault.hint))
        elif not isinstance(rows, Mapping):
            faults.append(Fault((region,), "a region has prices by name", type(rows).__name__, "instance types and services"))
        else:
            found[region] = _prices(region, rows, faults)
            faults += price_faults(found[region], (region,), catalog_only=False)
    return found


def _prices(region: str, rows: Mapping[str, Any], faults: list[Fault]) -> dict[str, OwnPrice]:
    found: dict[str, OwnPrice] = {}
    for name, row in rows.items():
        if not isinstance(row, Mapping):
            allowed = "on_demand, spot, reserved or usd, and source"
            faults.append(Fault((region, name), "a price is a mapping", type(row).__name__, allowed))
            continue
        try:
            with faults_under(region, name):
                # Strict, as in a stack file: a number in quotes is no number.
                found[name] = OwnPrice.model_validate_json(json.dumps(row), strict=True)
        except SpecError as error:
            faults += error.faults
    return found
