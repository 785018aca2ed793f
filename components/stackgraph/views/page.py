"""Renders the graph as one HTML page: structure, resources with everything known about them, and the sections of a domain.

The page can be read without its script. The script adds search and keyboard navigation.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from stackgraph.domain import NO_DOMAIN, Cell, Domain, Form
from stackgraph.domain import Section as DomainSection
from stackgraph.graph.describe import kind, name_within
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import joined, plain, text
from stackgraph.graph.wording import counted, shorten
from stackgraph.presentation.curves import render_plot
from stackgraph.presentation.markup import Markup, Section, asset, element, render_page, together
from stackgraph.views.page_diagram import Box, render_bars, render_diagram, render_table
from stackgraph.views.page_resources import ResourceList
from stackgraph.views.summary import ANSWERS, arguments, by_path, counts, division, layers, opaque, opaque_counts

_MOST_BOXES = 60
_MOST_LETTERS = 28


def render_html(graph: Graph, domain: Domain = NO_DOMAIN) -> str:
    """The graph as a page, with the sections of the domain.

    Equal graphs give equal bytes. Values of the graph never become markup.
    """
    return _Page(graph, domain).render()


class _Page:
    def __init__(self, graph: Graph, domain: Domain) -> None:
        self._graph = graph
        self._domain = domain
        self._structure = Structure(graph)
        self._division = division(self._structure)
        self._layers = layers(self._structure, self._division)
        self._resources = ResourceList(self._structure, self._layers, self._division, domain.words)

    def render(self) -> str:
        return render_page(
            title=f"{text(self._graph.stack)} · preview",
            header=self._header(),
            skip="Skip to the resources",
            first="resources",
            sections=self._sections(),
            footer=[
                element("p", element("mark", "<a.b>"), " is known when ", element("code", "a"), " is deployed."),
                element("p", element("mark", "[secret]", class_="secret"), " stands for a value that is not in this file."),
            ],
            script=asset("stackgraph.views", "preview.js"),
        )

    def _header(self) -> list[Markup]:
        found = counts(self._structure)
        asides = [*found.asides, "recorded offline: nothing has been created"]
        families = (
            element("li", element("b", str(number)), f" {words}", class_=name) for name, (number, words) in found.families.items()
        )
        return [
            element("p", f"Preview · project {text(self._graph.project)}", class_="eyebrow"),
            element("h1", text(self._graph.stack)),
            element("p", f"Would create {counted(found.made, 'resource')}", class_="lede"),
            element("ul", *families, class_="counts"),
            element("p", *(f"{aside[0].upper()}{aside[1:]}. " for aside in asides), class_="quiet"),
            *(element("p", f"{note}.") for note in self._domain.notes(self._graph)),
        ]

    def _sections(self) -> Iterator[Section]:
        warnings = self._graph.warnings
        shown = [element("ul", *(element("li", text(line)) for line in warnings))] if warnings else []
        yield Section("warnings", "Warnings", shown, len(warnings))
        yield Section("components", "Components and their dependencies", list(self._diagram()))
        if chart := self._domain.chart(self._graph):
            yield Section("chart", chart.title, list(render_bars(chart, self._owner, self._resources)))
        yield Section("resources", "Resources", list(self._resources.render()))
        for section in self._domain.sections(self._graph):
            name = section.title.lower().replace(" ", "-")
            yield Section(name, section.title, list(self._of_domain(section)), len(section.rows))
        yield Section("outputs", "Outputs", list(self._outputs()))
        yield Section("opaque", "Opaque resources", list(self._opaque_resources()), len(self._graph.opaque))
        yield Section("functions", "Provider functions", list(self._functions()), len(self._graph.functions))

    def _diagram(self) -> Iterator[Markup]:
        urns = [urn for layer in self._layers.layers for urn in layer]
        if len(urns) < 2 or len(urns) > _MOST_BOXES:
            return
        boxes = {urn: self._box(self._graph.by_urn[urn]) for urn in urns}
        caption = "Arrows point from what must exist first to what depends on it. Arrows implied by others are left out."
        diagram = render_diagram(self._layers, boxes, "Components in the order of their dependencies")
        drawing = element("div", diagram, class_="wide")
        yield element("figure", drawing, element("figcaption", caption, class_="quiet"))

    @cached_property
    def _owner(self) -> Mapping[str, str]:
        """The name of the component that a resource is in, by URN."""
        boxes = [urn for layer in self._layers.layers for urn in layer]
        owner = self._graph.by_urn.get(self._division)
        return {
            inner: name_within(self._graph.by_urn[urn], owner)
            for urn in boxes
            for inner in (urn, *(resource.urn for resource in self._structure.inside(urn)))
        }

    def _box(self, resource: Resource) -> Box:
        owner = self._graph.by_urn.get(self._division)
        name = shorten(name_within(resource, owner), _MOST_LETTERS)
        made = str(self._structure.made_inside(resource.urn))
        return Box(name, joined(shorten(kind(resource), _MOST_LETTERS), made, by=" · "), f"#{self._resources.ids[resource.urn]}")

    def _of_domain(self, section: DomainSection) -> Iterator[Markup]:
        yield from render_table(section.columns, [[self._cell(cell) for cell in row] for row in section.rows])
        words, amount = section.total
        if amount:
            yield element("p", f"{words[:1].upper()}{words[1:]}: ", element("b", amount))
        for number, plot in enumerate(section.plots):
            drawing = element("div", render_plot(f"{section.title.lower()}-{number}", plot), class_="wide")
            yield element("figure", element("h3", plot.title), drawing)

    def _cell(self, cell: Cell) -> Markup:
        shown = []
        for part in cell:
            values = [self._resources.link(part.urn, value) for value in part.texts] if part.urn else part.texts
            by = " " if part.form in ("chip", "warning chip") else ""
            shown.append(together(*(_FORMS[part.form](value) for value in values if value), by=by))
        return together(*shown)

    def _outputs(self) -> Iterator[Markup]:
        entries = [
            together(element("dt", key), element("dd", *(element("div", element("code", value)) for value in values)))
            for key, values in by_path(plain(self._graph.outputs))
        ]
        if entries:
            yield element("dl", *entries, class_="outputs")

    def _functions(self) -> Iterator[Markup]:
        rows = [
            (element("code", text(called.token)), ", ".join(arguments(called)), ANSWERS[called.answer], text(called.source))
            for called in self._graph.functions
        ]
        if rows:
            yield from render_table(("Function", "Arguments", "Result", "Called at"), rows)

    def _opaque_resources(self) -> Iterator[Markup]:
        if self._graph.opaque:
            yield element("p", f"{opaque_counts(self._graph)}.")
            found = opaque(self._graph, self._domain.words)
            rows = [(self._resources.link(item.urn, item.name), item.type, item.detail) for item in found]
            yield from render_table(("Name", "Kind", "What is known"), rows)


_FORMS: Mapping[Form, Callable[[str], str]] = {
    "text": lambda value: value,
    "strong": lambda value: element("b", value),
    "warning": lambda value: element("span", value, class_="badge warning"),
    "note": lambda value: element("div", value, class_="quiet"),
    "line": lambda value: element("div", value),
    "code": lambda value: element("div", element("code", value)),
    "chip": lambda value: element("code", value, class_="chip"),
    "warning chip": lambda value: element("code", value, class_="taint"),
}
