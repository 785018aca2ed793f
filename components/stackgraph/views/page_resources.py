"""Renders the resources of a graph for a page: a nested list to search and walk through, with values as YAML, and links between
resources.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from stackgraph.graph.describe import Words, describe, is_kubernetes_object, kind, name_within
from stackgraph.graph.document import Resource, is_component
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import SECRET, UNKNOWN, grouped, joined, plain, text
from stackgraph.graph.wording import ELLIPSIS, counted, numbered
from stackgraph.presentation.markup import Markup, element, escaped, together
from stackgraph.views.manifests import key_rank, manifest
from stackgraph.views.summary import Layers, family, leaves_and_branches, marks

Link = Callable[[str], str]
"""Returns the address of the resource that ``name.property`` refers to, or ``""``."""

_LONG = 40


def render_values(values: Mapping[str, Any], link: Link) -> Markup:
    """Lines of YAML that load as the values. Long JSON strings are spread over several lines."""
    return together(*_lines(plain(values), link), by="\n")


def _lines(value: Any, link: Link) -> list[Markup]:
    """The lines of a value, without indentation."""
    if isinstance(value, Mapping) and value:
        return [line for key in sorted(value, key=key_rank) for line in _entry(key, value[key], link)]
    if isinstance(value, list) and value:
        return [line for item in value for line in _behind("-", _lines(item, link))]
    if isinstance(value, str):
        return _text(value, link)
    return [element("i", _number(value) if isinstance(value, int | float) else json.dumps(value))]


def _entry(key: str, value: Any, link: Link) -> Iterator[Markup]:
    name = together(element("b", key if _is_plain(key) else _quoted(key)), ":")
    lines = _lines(value, link)
    if isinstance(value, Mapping | list) and value:
        yield name
        yield from (together("  ", line) for line in lines)
    else:
        yield from _behind(name, lines)


def _behind(lead: str, lines: list[Markup]) -> Iterator[Markup]:
    yield together(lead, " ", lines[0])
    yield from (together("  ", line) for line in lines[1:])


def _number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    shown = str(value)
    # YAML 1.1 reads a number with an exponent as a string unless it contains a point.
    return shown.replace("e", ".0e") if "e" in shown and "." not in shown else shown


# -- texts -----------------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(rf"({re.escape(SECRET)})|({re.escape(UNKNOWN)})|<([^\s<>]+\.[^\s<>]+)>")
# A conservative subset of the strings that YAML allows without quotes, which covers most that people write.
_PLAIN = re.compile(r"(?:[A-Za-z/_]|<(?=[^\s<>=]+>$))(?:[\w./@+=<>-]|[: ](?=[\w./@+=<>-]))*", re.ASCII)
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def _is_plain(value: str) -> bool:
    return _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS


def _text(value: str, link: Link) -> list[Markup]:
    if "\n" in value and _fits_block(value):
        lines = value.removesuffix("\n").split("\n")
        return [escaped("|" if value.endswith("\n") else "|-"), *(_marked(line, link) for line in lines)]
    if len(value) > _LONG and value[0] in "{[" and (laid_out := _laid_out(value)):
        head = together("|-", element("em", "  # JSON, laid out"))
        return [head, *(_marked(line, link) for line in laid_out.split("\n"))]
    return [_marked(value if _is_plain(value) else _quoted(value), link)]


def _fits_block(value: str) -> bool:
    """Whether a YAML block can hold the text."""
    lines = value.removesuffix("\n").split("\n")
    return (
        bool(lines[0])
        and bool(lines[-1])
        and not lines[0][0].isspace()
        and all(not line or (line.strip(" ") and line.replace("\t", "").isprintable()) for line in lines)
    )


def _laid_out(value: str) -> str:
    """A JSON string over several lines; ``""`` if it is no JSON or would lose information."""
    try:
        found = json.loads(value, object_pairs_hook=_without_repetition)
        shown = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return ""
    return shown if found and shown.replace("\n", "").isprintable() else ""


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def _quoted(value: str) -> str:
    return f'"{"".join(_ESCAPES.get(letter) or _printable(letter) for letter in value)}"'


def _printable(letter: str) -> str:
    number = ord(letter)
    return letter if letter.isprintable() else f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}"


def _marked(line: str, link: Link) -> Markup:
    """The line with its placeholders marked or linked."""
    parts: list[str] = []
    end = 0
    for found in _TOKEN.finditer(line):
        parts.append(line[end : found.start()])
        address = link(found[3]) if found[3] else ""
        if address:
            parts.append(element("a", found[0], href=address))
        else:
            parts.append(element("mark", found[0], class_="secret" if found[1] else None))
        end = found.end()
    return together(*parts, line[end:])


_FAMILIES = {
    "component": "Components",
    "aws": "AWS",
    "kubernetes": "Kubernetes",
    "opaque": "Charts and remote components",
    "provider": "Providers",
    "other": "Others",
}


class ResourceList:
    """The list of resources. ``layers`` are the components inside ``division``, down to which the list starts expanded."""

    def __init__(self, structure: Structure, layers: Layers, division: str, words: Words) -> None:
        self._structure = structure
        self._by_urn = structure.graph.by_urn
        self._layers = layers
        self._division = division
        self._words = words

    def render(self) -> Iterator[Markup]:
        if self.ids:
            yield self._tools()
            yield element("ul", *map(self._item, self._children("")), class_="tree", id="tree")
        else:
            yield element("p", "The program creates no resources.")

    # -- addresses ---------------------------------------------------------------------------------------------------------------

    @cached_property
    def ids(self) -> Mapping[str, str]:
        """HTML ids by URN, in the order of the list: the logical name, with a number if several resources have it."""
        slugs = {urn: re.sub(r"[^A-Za-z0-9._-]+", "-", self._by_urn[urn].name).strip("-")[:100] for urn in self._in_order("")}
        return numbered(((urn, f"r-{slug}") for urn, slug in slugs.items()), by="-")

    def _in_order(self, parent: str) -> Iterator[str]:
        for resource in self._children(parent):
            yield resource.urn
            yield from self._in_order(resource.urn)

    def _children(self, parent: str) -> list[Resource]:
        leaves, branches = leaves_and_branches(self._structure, parent)
        return leaves + branches

    def link(self, urn: str, shown: str) -> Markup:
        """The text as a link to a resource of the list; plain if the list does not have it."""
        return element("a", shown, href=f"#{self.ids[urn]}") if urn in self.ids else together(shown)

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[str]]:
        """URNs by logical name, without components: no reference names an output of theirs."""
        return grouped((self._by_urn[urn].name, urn) for urn in self._structure.parent if not is_component(self._by_urn[urn]))

    def _referred(self, resource: Resource, reference: str) -> str:
        """The address of the resource meant by ``name.property`` in the inputs of another; ``""`` if it is ambiguous."""
        needed = self._structure.needs.get(resource.urn, frozenset())
        name, _, rest = reference.partition(".")
        while rest:
            urns = self._by_name.get(name, ())
            meant = [urn for urn in urns if urn in needed] or urns
            if len(meant) == 1:
                return f"#{self.ids[meant[0]]}"
            more, _, rest = rest.partition(".")
            name = f"{name}.{more}"
        return ""

    # -- list --------------------------------------------------------------------------------------------------------------------

    def _tools(self) -> Markup:
        """The controls of the script, hidden without it."""
        types = grouped((self._by_urn[urn].type, self._by_urn[urn]) for urn in self.ids)
        by_family = grouped((family(found[0]), (kind(found[0]), type_, len(found))) for type_, found in types.items())
        groups = [
            element(
                "optgroup",
                *(element("option", f"{name} ({count})", value=text(type_)) for name, type_, count in sorted(by_family[key])),
                label=title,
            )
            for key, title in _FAMILIES.items()
            if key in by_family
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
        branch = is_component(resource) or bool(within)
        if branch:
            body = element("div", *self._particulars(resource), class_="body")
            about = element("details", element("summary", "Inputs and source"), body)
            items = [element("li", about, class_="about"), *map(self._item, within)]
            content = element("ul", *items, id=self.ids[resource.urn])
        else:
            content = element("div", *self._particulars(resource), id=self.ids[resource.urn], class_="body")
        return element(
            "li",
            element(
                "details",
                element("summary", together(*self._row(resource, branch), by=" ")),
                content,
                class_=f"branch {family(resource)}" if branch else family(resource),
                open=branch and resource.urn in self._structure.above(self._division),
            ),
            data_type=text(resource.type),
        )

    def _row(self, resource: Resource, branch: bool) -> Iterator[Markup]:
        name = text(resource.name) if branch else name_within(resource, self._by_urn.get(resource.parent), ELLIPSIS)
        row = [element("span", kind(resource), class_="kind"), element("span", name, class_="name")]
        yield from reversed(row) if branch else row
        yield element("span", "" if is_component(resource) else describe(resource, self._words), class_="quiet")
        yield from (element("span", word, class_="badge") for word in marks(resource))
        if branch:
            yield element("span", counted(self._structure.made_inside(resource.urn), "resource"), class_="count")

    # -- one resource ------------------------------------------------------------------------------------------------------------

    def _particulars(self, resource: Resource) -> Iterator[Markup]:
        """Everything known about a resource."""
        known = {
            "Name": element("code", text(resource.name)),
            "Type": element("code", text(resource.type)),
            "Source": element("code", text(resource.source)) if resource.source else "",
            "Depends on": self._links({urn: self._reasons(resource, urn) for urn in self._dependencies(resource)}),
            "Needed by": self._links(dict.fromkeys(self._needed_by.get(resource.urn, ()), "")),
            "URN": element("code", text(resource.urn), class_="urn"),
        }
        terms = [part for term, value in known.items() if value for part in (element("dt", term), element("dd", value))]
        yield element("dl", together(*terms, by="\n"))
        if resource.options:
            yield from self._values("Options", resource, resource.options)
        kubernetes = is_kubernetes_object(resource)
        # `manifest` hides the data of a Secret that a program passes as plain text.
        inputs = {key: value for key, value in manifest(resource).items() if kubernetes or key in resource.inputs}
        if inputs:
            yield from self._values("Manifest" if kubernetes else "Inputs", resource, inputs)

    def _values(self, title: str, resource: Resource, values: Mapping[str, object]) -> Iterator[Markup]:
        yield element("h3", title)
        shown = render_values(values, lambda reference: self._referred(resource, reference))
        yield element("pre", shown, tabindex=0, role="group", aria_label=f"{title} of {text(resource.name)}")

    def _dependencies(self, resource: Resource) -> Sequence[str]:
        """The resources to depend on, and for a component in the diagram also the components."""
        urns = {first for first, second in self._layers.edges if second == resource.urn}
        return sorted(urns | self._structure.needs.get(resource.urn, frozenset()), key=self._place.__getitem__)

    def _reasons(self, resource: Resource, other: str) -> str:
        """The inputs through which a resource depends on another."""
        through = [key for key, urns in sorted(resource.property_dependencies.items()) if other in urns]
        return joined(", ".join(map(text, through)), "provider" if resource.provider == other else "", by=", ")

    @cached_property
    def _needed_by(self) -> Mapping[str, Sequence[str]]:
        return grouped((other, urn) for urn in self.ids for other in self._dependencies(self._by_urn[urn]))

    @cached_property
    def _place(self) -> Mapping[str, int]:
        return {urn: number for number, urn in enumerate(self.ids)}

    def _links(self, reasons: Mapping[str, str]) -> Markup | str:
        entries = []
        for urn, reason in reasons.items():
            words = joined(kind(self._by_urn[urn]), reason, by=" · ")
            entries.append(
                element("li", self.link(urn, text(self._by_urn[urn].name)), " ", element("span", words, class_="quiet"))
            )
        return element("ul", *entries, class_="links") if entries else ""
