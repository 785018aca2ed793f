"""The graph as one page to look at and to share: what is inside what, all that is known of each resource, what matters about it.

The page needs no network and no further file. It can be read without its script; with it, it is searched and walked by keyboard.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from stackgraph.domain import NO_DOMAIN, Cell, Domain, Form
from stackgraph.domain import Section as DomainSection
from stackgraph.graph.describe import describe, identity, is_kubernetes_object, protection, short_component_type, short_type
from stackgraph.graph.document import Graph, Resource, is_component, is_opaque, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import joined, plain, text
from stackgraph.graph.wording import ELLIPSIS, counted, shorten
from stackgraph.presentation.markup import Markup, element, together
from stackgraph.presentation.page import Section, asset, render_page
from stackgraph.views.layers import branches, division, layers
from stackgraph.views.manifests import manifest
from stackgraph.views.page_diagram import Box, render_diagram
from stackgraph.views.page_values import render_values
from stackgraph.views.summary import by_path, counts, family, not_seen, opaque, opaque_kind

_MOST_BOXES = 60
_MOST_LETTERS = 28


def render_html(graph: Graph, domain: Domain = NO_DOMAIN) -> str:
    """The graph as a page, with the sections of the domain.

    Equal graphs give equal bytes; values of the graph are never markup in it.
    """
    return _Page(graph, domain).render()


class _Page:
    def __init__(self, graph: Graph, domain: Domain) -> None:
        self._graph = graph
        self._domain = domain
        self._composition = Structure(graph)
        self._opaque = opaque(graph, domain.words)
        self._division = division(self._composition)
        self._layers = layers(self._composition, self._division)

    def render(self) -> str:
        return render_page(
            title=f"{text(self._graph.stack)} · preview",
            header=self._header(),
            skip="Skip to the resources",
            first="resources",
            sections=self._sections(),
            footer=_footer(),
            script=asset("stackgraph.views", "preview.js"),
        )

    # -- around the sections -----------------------------------------------------------------------------------------------------

    def _header(self) -> list[Markup]:
        found = counts(self._composition)
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
        ]

    def _sections(self) -> Iterator[Section]:
        yield Section("warnings", "Warnings", _listed(self._graph.warnings), len(self._graph.warnings))
        yield Section("components", "How it hangs together", list(self._diagram()))
        yield Section("resources", "Resources", list(self._resources()))
        for section in self._domain.sections(self._graph):
            name = section.title.lower().replace(" ", "-")
            yield Section(name, section.title, list(self._of_domain(section)), len(section.rows))
        yield Section("outputs", "Outputs", list(self._outputs()))
        yield Section("not-seen", "Not seen inside", list(self._not_seen()), len(self._opaque))

    # -- addresses ---------------------------------------------------------------------------------------------------------------

    @cached_property
    def _ids(self) -> Mapping[str, str]:
        """Identifiers by URN: what a resource is called, numbered where several have that name."""
        ids: dict[str, str] = {}
        taken: set[str] = set()
        for urn in self._in_order(""):
            slug = f"r-{re.sub(r'[^A-Za-z0-9._-]+', '-', self._graph.by_urn[urn].name).strip('-')[:100]}"
            found, number = slug, 2
            while found in taken:
                found, number = f"{slug}-{number}", number + 1
            taken.add(found)
            ids[urn] = found
        return ids

    def _in_order(self, parent: str) -> Iterator[str]:
        for resource in self._children(parent):
            yield resource.urn
            yield from self._in_order(resource.urn)

    def _children(self, parent: str) -> list[Resource]:
        """Resources with nothing inside first, then those with something."""
        below = branches(self._composition, parent)
        urns = {resource.urn for resource in below}
        return [resource for resource in self._composition.ordered(parent) if resource.urn not in urns] + below

    def _link(self, urn: str, shown: str) -> Markup:
        return element("a", shown, href=f"#{self._ids[urn]}") if urn in self._ids else together(shown)

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[str]]:
        """URNs by logical name; components have no outputs that others would refer to by it."""
        found: dict[str, list[str]] = {}
        for urn in self._composition.parent:
            if not is_component(self._graph.by_urn[urn]):
                found.setdefault(self._graph.by_urn[urn].name, []).append(urn)
        return found

    def _referred(self, resource: Resource, reference: str) -> str:
        """The address for ``name.property`` in a resource's inputs; ``""`` where several resources might be meant."""
        needed = self._composition.needs.get(resource.urn, frozenset())
        name, _, rest = reference.partition(".")
        while rest:
            urns = self._by_name.get(name, ())
            meant = [urn for urn in urns if urn in needed] or urns
            if len(meant) == 1:
                return f"#{self._ids[meant[0]]}"
            more, _, rest = rest.partition(".")
            name = f"{name}.{more}"
        return ""

    # -- structure ---------------------------------------------------------------------------------------------------------------

    def _diagram(self) -> Iterator[Markup]:
        urns = [urn for layer in self._layers.layers for urn in layer]
        if len(urns) < 2 or len(urns) > _MOST_BOXES:
            return
        title = "Components, in the order in which they stand on each other"
        boxes = {urn: self._box(self._graph.by_urn[urn]) for urn in urns}
        caption = "An arrow leads from what must exist first to what stands on it. Arrows that follow from others are left out."
        drawing = element("div", render_diagram(self._layers, boxes, title), class_="wide")
        yield element("figure", drawing, element("figcaption", caption, class_="quiet"))

    def _box(self, resource: Resource) -> Box:
        name = shorten(self._name_within(resource, self._division), _MOST_LETTERS)
        kind = joined(shorten(_kind(resource), _MOST_LETTERS), str(self._made_inside(resource)), by=" · ")
        return Box(name, kind, f"#{self._ids[resource.urn]}")

    def _resources(self) -> Iterator[Markup]:
        if not self._ids:
            yield element("p", "The program makes none.")
            return
        yield self._tools()
        yield element("ul", *(self._item(resource) for resource in self._children("")), class_="tree", id="tree")

    def _tools(self) -> Markup:
        """What only works with the script, and is hidden without it."""
        families: dict[str, dict[str, list[str]]] = {}
        for urn in self._ids:
            resource = self._graph.by_urn[urn]
            families.setdefault(family(resource), {}).setdefault(resource.type, []).append(urn)
        groups = [
            element(
                "optgroup",
                *(
                    element("option", f"{_kind(self._graph.by_urn[urns[0]])} ({len(urns)})", value=text(type_))
                    for type_, urns in sorted(found.items(), key=lambda of: (_kind(self._graph.by_urn[of[1][0]]), of[0]))
                ),
                label=_FAMILY_TITLES[name],
            )
            for name in _FAMILY_TITLES
            if (found := families.get(name))
        ]
        search = element(
            "input",
            id="search",
            type="search",
            placeholder="Name, type, or any value",
            autocomplete="off",
            spellcheck="false",
            aria_keyshortcuts="/",
            aria_describedby="keys",
        )
        keys = (("/", "search"), ("↑ ↓", "move"), ("→ ←", "open, close"), ("Home End", "first, last"), ("Esc", "show all again"))
        hints = [together(*(element("kbd", key) for key in names.split()), f" {meaning}") for names, meaning in keys]
        return element(
            "div",
            element(
                "div",
                element("label", "Search", for_="search"),
                search,
                element("label", "Type", for_="type"),
                element("select", element("option", "All types", value=""), *groups, id="type"),
                element("button", "Open all", id="open", type="button"),
                element("button", "Close all", id="close", type="button"),
                class_="controls",
                role="search",
            ),
            element("p", *(element("span", hint) for hint in hints), id="keys", class_="keys quiet"),
            element("p", "", id="found", role="status"),
            class_="tools",
            id="tools",
            hidden=True,
        )

    def _item(self, resource: Resource) -> Markup:
        within = self._children(resource.urn)
        if not is_component(resource) and not within:
            content = element("div", *self._particulars(resource), id=self._ids[resource.urn], class_="body")
            row, class_, opened = self._row(resource), family(resource), False
        else:
            about = element(
                "details", element("summary", "Inputs and origin"), element("div", *self._particulars(resource), class_="body")
            )
            items = [element("li", about, class_="about"), *(self._item(inner) for inner in within)]
            content = element("ul", *items, id=self._ids[resource.urn])
            row, class_ = self._head(resource), f"branch {family(resource)}"
            opened = resource.urn in self._composition.above(self._division)
        return element(
            "li",
            element("details", element("summary", together(*row, by=" ")), content, class_=class_, open=opened),
            data_type=text(resource.type),
        )

    def _row(self, resource: Resource) -> Iterator[Markup]:
        yield element("span", _kind(resource), class_="kind")
        yield element("span", self._name_within(resource, resource.parent, ELLIPSIS), class_="name")
        yield element("span", describe(resource, self._domain.words), class_="quiet")
        yield from _marks(resource)

    def _head(self, resource: Resource) -> Iterator[Markup]:
        yield element("span", text(resource.name), class_="name")
        yield element("span", _kind(resource), class_="kind")
        yield element("span", "" if is_component(resource) else describe(resource, self._domain.words), class_="quiet")
        yield from _marks(resource)
        yield element("span", counted(self._made_inside(resource), "resource"), class_="count")

    def _made_inside(self, resource: Resource) -> int:
        return sum(not is_read(below) for below in self._composition.inside(resource.urn))

    def _name_within(self, resource: Resource, parent: str, instead: str = "") -> str:
        """The resource's identity; what only repeats the name of the component it is in is left out."""
        name = identity(resource)
        owner = self._graph.by_urn[parent].name if parent in self._graph.by_urn else ""
        repeated = bool(owner) and name == text(resource.name) and name.startswith(f"{text(owner)}-")
        return instead + name.removeprefix(f"{text(owner)}-") if repeated else name

    # -- one resource ------------------------------------------------------------------------------------------------------------

    def _particulars(self, resource: Resource) -> Iterator[Markup]:
        """Everything that is known of a resource."""
        known = {
            "Name": element("code", text(resource.name)),
            "Type": element("code", text(resource.type)),
            "Made at": element("code", text(resource.source)) if resource.source else "",
            "Stands on": self._links({urn: self._reasons(resource, urn) for urn in self._stands_on(resource)}),
            "Needed by": self._links(dict.fromkeys(self._needed_by.get(resource.urn, ()), "")),
            "URN": element("code", text(resource.urn), class_="urn"),
        }
        terms = [part for term, value in known.items() if value for part in (element("dt", term), element("dd", value))]
        yield element("dl", together(*terms, by="\n"))
        if resource.options:
            yield from self._values("Options", resource, resource.options)
        kubernetes = is_kubernetes_object(resource)
        # What a manifest never has, and no page either, is what a program put into a Secret as plain text.
        inputs = {key: value for key, value in manifest(resource).items() if kubernetes or key in resource.inputs}
        if inputs:
            yield from self._values("Manifest" if kubernetes else "Inputs", resource, inputs)

    def _values(self, title: str, resource: Resource, values: Mapping[str, object]) -> Iterator[Markup]:
        yield element("h3", title)
        shown = render_values(values, lambda reference: self._referred(resource, reference))
        yield element("pre", shown, tabindex=0, role="group", aria_label=f"{title} of {text(resource.name)}")

    def _stands_on(self, resource: Resource) -> Sequence[str]:
        urns = {first for first, second in self._layers.edges if second == resource.urn}
        return sorted(urns | self._composition.needs.get(resource.urn, frozenset()), key=self._place.__getitem__)

    def _reasons(self, resource: Resource, other: str) -> str:
        """Through which inputs a resource needs another."""
        through = [key for key, urns in sorted(resource.property_dependencies.items()) if other in urns]
        return joined(", ".join(map(text, through)), "provider" if resource.provider == other else "", by=", ")

    @cached_property
    def _needed_by(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, set[str]] = {}
        for urn in self._ids:
            for other in self._stands_on(self._graph.by_urn[urn]):
                found.setdefault(other, set()).add(urn)
        return {urn: sorted(urns, key=self._place.__getitem__) for urn, urns in found.items()}

    @cached_property
    def _place(self) -> Mapping[str, int]:
        return {urn: number for number, urn in enumerate(self._ids)}

    def _links(self, reasons: Mapping[str, str]) -> Markup | str:
        entries = []
        for urn, reason in reasons.items():
            resource = self._graph.by_urn[urn]
            kind = joined(_kind(resource), reason, by=" · ")
            entries.append(element("li", self._link(urn, text(resource.name)), " ", element("span", kind, class_="quiet")))
        return element("ul", *entries, class_="links") if entries else ""

    # -- sections ----------------------------------------------------------------------------------------------------------------

    def _of_domain(self, section: DomainSection) -> Iterator[Markup]:
        yield from _table(section.columns, [[self._cell(cell) for cell in row] for row in section.rows])
        words, amount = section.total
        if amount:
            yield element("p", f"{words[:1].upper()}{words[1:]}: ", element("b", amount))

    def _cell(self, cell: Cell) -> Markup:
        shown = []
        for part in cell:
            values = [self._link(part.urn, value) for value in part.texts] if part.urn else part.texts
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

    def _not_seen(self) -> Iterator[Markup]:
        if self._opaque:
            yield element("p", f"{not_seen(self._opaque)}.")
            rows = [(self._link(item.urn, item.name), item.type, item.detail) for item in self._opaque]
            yield from _table(("Name", "Kind", "What is known"), rows)


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

_FAMILY_TITLES = {
    "component": "Components",
    "aws": "AWS",
    "kubernetes": "Kubernetes",
    "opaque": "Charts and remote components",
    "provider": "Providers",
    "other": "Others",
}


def _footer() -> list[Markup]:
    notes = [
        together(element("mark", "<a.b>"), " is known when ", element("code", "a"), " is deployed."),
        together(element("mark", "[secret]", class_="secret"), " is never shown, nor is it in this file."),
    ]
    return [element("p", note) for note in notes]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Markup]:
    """A table whose cells say what they are, for screens where they stand below each other."""
    if not rows:
        return
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    lines = []
    for first, *others in rows:
        cells = [element("td", cell, data_label=label) for label, cell in zip(header[1:], others, strict=True)]
        lines.append(element("tr", element("th", first, scope="row"), *cells))
    yield element("table", element("thead", head), element("tbody", *lines))


def _listed(lines: Sequence[str]) -> list[Markup]:
    return [element("ul", *(element("li", text(line)) for line in lines))] if lines else []


def _kind(resource: Resource) -> str:
    return short_component_type(resource.type) if is_component(resource) else short_type(resource.type)


def _marks(resource: Resource) -> Iterator[Markup]:
    if is_opaque(resource):
        yield element("span", f"{opaque_kind(resource)}, not seen inside", class_="badge")
    for word in protection(resource):
        yield element("span", word, class_="badge")
