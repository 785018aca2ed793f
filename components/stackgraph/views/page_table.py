"""A table of a page."""

from collections.abc import Iterator, Sequence

from stackgraph.presentation.markup import Markup, element


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Markup]:
    """A table. Each cell carries the label of its column, for screens too narrow for columns."""
    if not rows:
        return
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    lines = []
    for first, *others in rows:
        cells = [element("td", cell, data_label=label) for label, cell in zip(header[1:], others, strict=True)]
        lines.append(element("tr", element("th", first, scope="row"), *cells))
    yield element("table", element("thead", head), element("tbody", *lines))
