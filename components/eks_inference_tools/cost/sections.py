"""Builds the sections that views show about cost."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from eks_inference.catalog.prices import HOUR, Price
from eks_inference_tools.cost.charges import Part
from eks_inference_tools.cost.estimate import Estimate, Priced, Total
from eks_inference_tools.cost.words import NAMES, money, per_month, total
from stackgraph.domain import Cell, Listing, Row, Section
from stackgraph.domain import Part as CellPart
from stackgraph.graph.values import joined, unique


def cost_section(found: Estimate) -> Section:
    """What a stack costs per hour and month, part by part; then what is in no total."""
    if not found.lines:
        return Section("Cost", (), (), ())
    rows = [*_nodes(found), *(_part(found, part) for part in found.parts if part != "nodes"), *_totals(found)]
    beside = [*_by_use(found), *_notes(found)]
    listings = [Listing(("PER HOUR", *(name.upper() for name in NAMES)), rows)]
    if beside:
        listings.append(Listing(("NOT IN THE TOTALS", ""), beside))
    columns = ("Per hour", *(name.capitalize() for name in NAMES))
    cells = [*map(_cells, rows), *([_text(row.cells[0]), _text(row.cells[1]), (), ()] for row in beside)]
    return Section("Cost", listings, columns, cells)


def _nodes(found: Estimate) -> Iterator[Row]:
    by_pool: dict[str, list[Priced]] = defaultdict(list)
    for one in found.lines:
        if one.charge.part == "nodes":
            by_pool[one.charge.owner].append(one)
    for pool, lines in by_pool.items():
        yield Row((f"nodes {pool}", *_amounts(lines)), {"": [_each(one) for one in lines]})


def _part(found: Estimate, part: Part) -> Row:
    lines = [one for one in found.lines if one.charge.part == part]
    return Row((part, *_amounts(lines)), {"": _items(lines)})


def _totals(found: Estimate) -> Iterator[Row]:
    yield Row(("in all", *map(total, found.totals)))
    months = [f"{'at least ' if one.at_least else ''}{per_month(one.usd_per_month)}" for one in found.totals]
    yield Row(("per month, 730 hours", *months))


def _amounts(lines: Sequence[Priced]) -> Iterator[str]:
    for scale in range(len(NAMES)):
        unknown = any(one.price is None and one.charge.amounts[scale] for one in lines)
        yield total(Total(sum(one.usd_per_hour(scale) for one in lines), unknown))


def _each(one: Priced) -> str:
    """``1–3 × inf2.8xlarge at $1.97, on demand``."""
    least, _, most = (f"{amount:g}" for amount in one.charge.amounts)
    price = money(one.price.usd) if one.price else "no price"
    return f"{'–'.join(unique((least, most)))} × {one.charge.item} at {price}"


def _items(lines: Sequence[Priced]) -> list[str]:
    """What a part consists of, by service: ``1,300 gp3_storage at $0.08 per GiB-month``."""
    by_item: dict[str, list[Priced]] = defaultdict(list)
    for one in lines:
        by_item[one.charge.item].append(one)
    return [_summed(item, group) for item, group in by_item.items()]


def _summed(item: str, lines: Sequence[Priced]) -> str:
    least, most = (f"{sum(one.charge.amounts[scale] for one in lines):,g}" for scale in (0, 2))
    price = next((one.price for one in lines if one.price), None)
    return f"{'–'.join(unique((least, most)))} {item} {_at(price)}"


def _at(price: Price | None) -> str:
    if price is None:
        return "without a price"
    return f"at {money(price.usd)}" + ("" if price.unit == HOUR else f" per {price.unit}")


def _by_use(found: Estimate) -> Iterator[Row]:
    by_item: dict[tuple[str, str], list[str]] = defaultdict(list)
    for use, price in found.by_use:
        by_item[use.item, f"{money(price.usd)} per {price.unit}" if price else "no price"].append(use.what)
    for (item, price), owners in by_item.items():
        yield Row((joined(item, f"by use, {price}", by=": "), ""), {"": unique(owners)})


def _notes(found: Estimate) -> Iterator[Row]:
    for line in found.missing():
        yield Row((line, ""))
    for one in found.uncounted:
        yield Row((f"{one.what}: {one.why}", ""))


def _cells(row: Row) -> list[Cell]:
    first, *others = row.cells
    details = tuple(text for texts in row.details.values() for text in texts)
    return [(CellPart((first,)), CellPart(details, "note")), *map(_text, others)]


def _text(text: str) -> Cell:
    return (CellPart((text,)),)
