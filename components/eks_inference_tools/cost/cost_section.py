"""Builds the section that views show about cost."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from eks_inference.catalog.prices import Price
from eks_inference_tools.cost.estimate import Estimate, Priced, Rate, Total
from eks_inference_tools.cost.money import NAMES, per_month, total, unit_price
from eks_inference_tools.cost.needed_quotas import Need, needs
from eks_inference_tools.cost.price_book import Part
from stackgraph.domain import Cell, Listing, Row, Section
from stackgraph.domain import Part as CellPart
from stackgraph.graph.document import Graph
from stackgraph.graph.values import unique
from stackgraph.graph.wording import counted

HEAD = "PER HOUR"
_MISSING = ("NO PRICE OR NOT COUNTED",)


def cost_section(graph: Graph, found: Estimate, measured: Sequence[Rate] = ()) -> Section:
    """What a stack costs per hour and month, part by part; what is in no total; the quotas that it needs.

    With ``measured`` rates, also what output tokens cost.
    """
    if not (found.lines or found.uncounted):
        return Section("Cost", (), (), ())
    rows = [*_nodes(found), *(_part(found, part) for part in found.parts if part != "nodes"), *_totals(found)]
    beside = [
        (("PER MILLION OUTPUT TOKENS", "DEPLOYED", "MEASURED"), list(_per_token(found, measured))),
        (("BY USE, IN NO TOTAL", "PRICE", "OF"), list(_by_use(found))),
        (_MISSING, [Row((line,)) for line in found.missing()] + [Row((uncounted.shown,)) for uncounted in found.uncounted]),
        (("QUOTA", "NEEDED AT MOST", "NEW ACCOUNT"), _quotas(needs(graph, found))),
        (("ABOUT THESE PRICES",), [Row((note,)) for note in found.notes()]),
    ]
    listings = [Listing((HEAD, *(name.upper() for name in NAMES)), rows)]
    listings += [Listing(header, lines, "warning" if header == _MISSING else "") for header, lines in beside]
    cells = [_cells(row.cells, row) for row in rows]
    for (title, *_), lines in beside:
        cells += [_cells((title.capitalize() if row is lines[0] else "", *row.cells), row) for row in lines]
    return Section("Cost", listings, (HEAD.capitalize(), *(name.capitalize() for name in NAMES)), cells, _as_of(found))


def _nodes(found: Estimate) -> Iterator[Row]:
    by_pool: dict[str, list[Priced]] = defaultdict(list)
    for line in found.lines:
        if line.charge.part == "nodes":
            by_pool[line.charge.owner].append(line)
    for pool, lines in by_pool.items():
        yield Row((f"nodes {pool}", *_amounts(lines)), {"": [_each(line) for line in lines]})


def _part(found: Estimate, part: Part) -> Row:
    lines = [line for line in found.lines if line.charge.part == part]
    return Row((part, *_amounts(lines)), {"": _items(lines)})


def _totals(found: Estimate) -> Iterator[Row]:
    yield Row(("in all", *map(total, found.totals)))
    if any(one.usd_per_hour for one in found.totals):
        months = [f"{'at least ' if one.at_least else ''}{per_month(one.usd_per_month)}" for one in found.totals]
        yield Row(("per month, 730 hours", *months))


def _amounts(lines: Sequence[Priced]) -> Iterator[str]:
    for scale in range(len(NAMES)):
        unknown = any(line.price is None and line.charge.amounts[scale] for line in lines)
        yield total(Total(sum(line.usd_per_hour(scale) for line in lines), unknown))


def _each(one: Priced) -> str:
    """``1–3 × inf2.8xlarge at $1.96786``."""
    least, _, most = (f"{amount:g}" for amount in one.charge.amounts)
    bought = f", {one.charge.capacity}" if one.charge.capacity in ("spot", "reserved") else ""
    return f"{'–'.join(unique((least, most)))} × {one.charge.item}{bought} {_at(one.price)}"


def _items(lines: Sequence[Priced]) -> list[str]:
    """What a part consists of, by service and price: ``1,300 gp3 storage at $0.08 per GiB-month``."""
    by_item: dict[str, list[Priced]] = defaultdict(list)
    for line in lines:
        by_item[f"{line.charge.item.replace('_', ' ')} {_at(line.price)}"].append(line)
    return [f"{_summed(group)} {what}" for what, group in by_item.items()]


def _summed(lines: Sequence[Priced]) -> str:
    return "–".join(unique(f"{sum(line.charge.amounts[scale] for line in lines):,g}" for scale in (0, 2)))


def _at(price: Price | None) -> str:
    return f"at {unit_price(price)}" if price else "without a price"


def _per_token(found: Estimate, measured: Sequence[Rate]) -> Iterator[Row]:
    for rate in measured:
        price = total(Total(rate.usd_per_million(found.totals[1]), found.totals[1].at_least))
        yield Row((rate.run, price, f"{rate.tokens_per_s:,.1f} tokens/s"))


def _by_use(found: Estimate) -> Iterator[Row]:
    by_item: dict[tuple[str, str], list[str]] = defaultdict(list)
    for use, price in found.by_use:
        by_item[use.item.replace("_", " "), unit_price(price) if price else "no price"].append(use.what)
    for (what, price), owners in by_item.items():
        names = unique(owners)
        yield Row((what, price, names[0] if len(names) == 1 else counted(len(names), "resource")))


def _quotas(needed: Sequence[Need]) -> list[Row]:
    several = len(unique(need.region for need in needed)) > 1
    cells = ((need, *need.cells) for need in needed)
    return [Row((f"{what}, {need.region}" if several else what, *amounts)) for need, what, *amounts in cells]


def _as_of(found: Estimate) -> tuple[str, str]:
    prices = [line.price for line in found.lines if line.price]
    days = unique(sorted(price.as_of for price in prices if price.as_of))
    regions = ", ".join(unique(price.region for price in prices))
    return (f"list prices of {regions}", "of " + " to ".join(unique((*days[:1], *days[-1:])))) if days else ("", "")


def _cells(texts: Sequence[str], row: Row) -> list[Cell]:
    first, *others = (*texts, *("" for _ in range(len(NAMES) + 1 - len(texts))))
    details = tuple(detail for listed in row.details.values() for detail in listed)
    return [(CellPart((first,)), CellPart(details, "note")), *((CellPart((text,)),) for text in others)]
