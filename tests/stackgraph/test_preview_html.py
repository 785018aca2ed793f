"""The page of a recorded graph: whole, harmless, the same each time; and what a browser makes of it and of keys pressed."""

import pickle
import re
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import browser
from demo_program import SECRETS
from odd_graphs import PLANTED, component, graph_of, odd_graphs, odd_values, recorded, urn
from stackgraph.domain import Bar, Chart, Domain, Part, Section
from stackgraph.graph.describe import identity, is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import plain, text
from stackgraph.presentation.markup import Markup, element, raw, together
from stackgraph.views.manifests import manifest
from stackgraph.views.page import render_html
from stackgraph.views.page_diagram import Box, render_diagram
from stackgraph.views.page_resources import render_values
from stackgraph.views.summary import Layers, division, layers
from waiting import until

VIEWS = Path(render_html.__code__.co_filename).parent
SCRIPT = VIEWS / "assets" / "preview.js"
STYLE = VIEWS.parent / "presentation" / "assets" / "base.css"
VOID = {"input", "link", "meta"}
ELEMENTS = {
    *("html", "head", "meta", "title", "link", "style", "body", "script", "header", "nav", "main", "footer", "section", "figure"),
    *("h1", "h2", "h3", "p", "ul", "li", "dl", "dt", "dd", "div", "span", "a", "b", "i", "em", "code", "pre", "mark", "kbd"),
    *("details", "summary", "label", "input", "select", "optgroup", "option", "button", "figcaption"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "defs", "marker", "path", "rect", "text"),
}
# None runs a script or loads anything; href is looked at below.
ATTRIBUTES = {
    *("aria-describedby", "aria-keyshortcuts", "aria-label", "aria-labelledby", "autocomplete", "charset", "class", "content"),
    *(
        "data-box",
        "data-from",
        "data-label",
        "data-to",
        "data-type",
        "for",
        "hidden",
        "href",
        "http-equiv",
        "id",
        "label",
        "lang",
    ),
    *("name", "open", "placeholder", "rel", "role", "scope", "spellcheck", "tabindex", "type", "value"),
    *("d", "height", "marker-end", "markerheight", "markerwidth", "orient", "refx", "refy", "rx", "viewbox", "width", "x", "y"),
}


@pytest.fixture
def graph() -> Graph:
    return recorded()


@cache
def page_of_demo() -> str:
    return render_html(recorded())


class Document(HTMLParser):
    """What a parser finds in a page: elements with their attributes, texts by element, and the faults of its structure."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), attrs
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(attribute)) is not None]

    def shown(self) -> str:
        return "".join(data for tag, data in self.texts if tag not in ("style", "script"))


def assert_is_a_page(page: str) -> Document:
    """Well-formed, without a further file, and with no element, attribute or script but those a harmless graph gets."""
    document = Document(page)
    ids = document.values("id")
    assert not [found for found, count in Counter(ids).items() if count > 1]
    assert all(found and not any(letter.isspace() for letter in found) for found in ids)
    references = [*document.values("for"), *document.values("aria-labelledby"), *document.values("aria-describedby")]
    addresses = document.values("href")
    references += [address[1:] for address in addresses if address != "data:,"]
    assert all(address == "data:," or address.startswith("#") for address in addresses)
    assert set(references) <= set(ids), set(references) - set(ids)
    assert {tag for tag, _ in document.elements} <= ELEMENTS
    assert {name for _, attributes in document.elements for name in attributes} <= ATTRIBUTES
    scripts = [data for tag, data in document.texts if tag == "script"]
    styles = [data for tag, data in document.texts if tag == "style"]
    assert scripts == [SCRIPT.read_text()]
    assert styles == [STYLE.read_text()]
    return document


# -- the page as a file ----------------------------------------------------------------------------------------------------------


def test_the_page_is_whole(graph: Graph) -> None:
    assert_is_a_page(render_html(graph))


@pytest.mark.thorough
def test_the_pages_of_shipped_stacks(shipped: Graph) -> None:
    page = render_html(shipped)
    document = assert_is_a_page(page)
    assert len(page.encode()) < 1_500_000
    assert f"Would create {len(Structure(shipped).parent)} resources" in document.shown()


@pytest.mark.thorough
def test_a_program_that_makes_nothing() -> None:
    document = assert_is_a_page(render_html(graph_of()))
    assert "The program creates no resources." in document.shown()


def test_the_assets_load_nothing() -> None:
    style = STYLE.read_text()
    script = SCRIPT.read_text()
    assert not re.search(r"@import|@font-face|url\(", style)
    assert not re.search(r"fetch|XMLHttpRequest|import\s*\(|https?:|innerHTML|outerHTML|insertAdjacentHTML|eval", script)


def test_the_policy_allows_these_two_and_nothing_else(graph: Graph) -> None:
    (policy,) = [
        a["content"] for _, a in Document(render_html(graph)).elements if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    for file in (STYLE, SCRIPT):
        digest = b64encode(sha256(file.read_bytes()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy


@pytest.mark.thorough
def test_equal_graphs_give_equal_bytes(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "graph").write_bytes(pickle.dumps(graph))
    code = (
        "import pickle, sys; from pathlib import Path; from stackgraph.views.page import render_html\n"
        "sys.stdout.buffer.write(render_html(pickle.loads(Path('graph').read_bytes())).encode())"
    )
    for seed in ("1", "2"):
        environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=True)
        assert done.stdout == page_of_demo().encode()


@pytest.mark.thorough
def test_the_page_is_made_without_pulumi_and_the_rest_of_the_library() -> None:
    code = (
        "import sys, stackgraph.views.page\n"
        "heavy = {'pulumi', 'pydantic', 'google'} & set(sys.modules)\n"
        "ours = {m for m in sys.modules if m.startswith('eks_inference')}\n"
        "assert not heavy | ours, heavy | ours\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


# -- what it tells ---------------------------------------------------------------------------------------------------------------


def particulars(page: str, resource: Resource) -> dict[str, str]:
    """By title, the YAML shown for a resource."""
    name = re.escape(str(element("i", text(resource.name)))[3:-4])
    blocks = re.findall(rf'<pre tabindex="0" role="group" aria-label="(\w+) of {name}">(.*?)</pre>', page, re.DOTALL)
    return {title: written(Markup(block)) for title, block in blocks}


def written(markup: Markup) -> str:
    return "".join(data for _, data in Document(markup).texts) + "\n"


@pytest.mark.thorough
def test_everything_of_every_resource_is_in_the_page(graph: Graph) -> None:
    document = Document(page_of_demo())
    shown = document.shown()
    for of_urn in Structure(graph).parent:
        resource = graph.by_urn[of_urn]
        for value in (resource.urn, resource.type, resource.name, identity(resource).rpartition("/")[2], resource.source):
            assert value in shown, resource.urn


def test_inputs_are_yaml_that_loads_as_what_was_recorded(graph: Graph) -> None:
    compared = 0
    for resource in graph.resources:
        if [r.name for r in graph.resources].count(resource.name) > 1 or resource.urn not in Structure(graph).parent:
            continue
        found = particulars(page_of_demo(), resource)
        kubernetes = is_kubernetes_object(resource)
        expected = manifest(resource) if kubernetes else plain(resource.inputs)
        assert with_json_read(yaml.safe_load(found.get("Manifest" if kubernetes else "Inputs", "{}"))) == with_json_read(expected)
        compared += bool(expected)
    assert compared > 30


@pytest.mark.thorough
def test_what_stands_for_an_output_leads_to_its_resource(graph: Graph) -> None:
    page = page_of_demo()
    assert '<a href="#r-net-vpc">&lt;net-vpc.id&gt;</a>' in page
    assert '<mark class="secret">[secret]</mark>' in page


def test_dependencies_lead_both_ways(graph: Graph) -> None:
    page = page_of_demo()
    vpc = page.index('id="r-net-vpc"')
    table = page.index('id="r-net-public-routes"')
    needed = page[page.index("Needed by", vpc) :]
    assert needed.index('href="#r-net-public-routes"') < needed.index("URN")
    stands = page[page.index("Depends on", table) :]
    assert stands.startswith('Depends on</dt>\n<dd><ul class="links"><li><a href="#r-net-vpc">net-vpc</a> ')
    assert "ec2.Vpc · vpcId" in stands[: stands.index("URN")]


@pytest.mark.thorough
def test_sections_of_a_domain_are_tables_that_lead_to_resources() -> None:
    bucket = Resource(urn("a"), "aws:s3/bucket:Bucket", "a")

    def sections(graph: Graph) -> Iterator[Section]:
        rows = [((Part(("<a>",), urn=one.urn), Part(("store",), "note")), (Part(("x", "y"), "chip"),)) for one in graph.resources]
        yield Section("Kept data", [], ("Name", "Labels"), rows, ("all in all", "3 GiB"))
        yield Section("Nothing", [], ("Name",), [])

    page = render_html(graph_of(bucket), Domain(sections=sections))
    document = assert_is_a_page(page)
    content = page[page.index('<section id="kept-data"') :].partition("</section>")[0]
    assert '<a href="#r-a">&lt;a&gt;</a><div class="quiet">store</div>' in content
    assert '<code class="chip">x</code> <code class="chip">y</code>' in content
    assert "All in all: <b>3 GiB</b>" in content
    assert "nothing" not in document.values("id")


def steps_over_time(graph: Graph) -> Chart:
    """A chart with a long step that decides, one of unknown length, a short one, and one that belongs to nothing."""
    first, second, third, *_ = [resource.urn for resource in graph.resources if resource.custom]
    bars = [
        Bar("<a> begins", 0, 600, first, True, "12 samples", "twelve <logs>"),
        Bar("b follows", 600, None, second, True, "no typical time"),
        Bar("c is quick", 10, 11, third),
        Bar("nobody's", 30, 330),
    ]
    return Chart("Time it takes", bars, "no promises", ("<i>ten</i> minutes",), (("all is done", 600),))


def test_a_chart_of_a_domain_is_drawn_and_told_in_a_table(graph: Graph) -> None:
    page = render_html(graph, Domain(chart=steps_over_time))
    document = assert_is_a_page(page)
    content = page[page.index('<section id="chart"') :].partition("</section>")[0]
    drawing, table = content.partition("</svg>")[0], content.partition("</svg>")[2]
    assert "&lt;i&gt;ten&lt;/i&gt; minutes" in content
    # The long step decides and fills the width that is not for labels; twice the time is twice the width.
    widths = [float(width) for width in re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"', drawing)]
    assert max(widths) == pytest.approx(2 * sorted(widths)[-2], rel=0.01)
    assert drawing.count('class="decides"') == 2
    assert "c is quick" not in drawing
    assert "The table has 1 shorter step more" in content
    links = re.findall(r'<a href="#([^"]+)"', drawing)
    assert len(links) == 3
    assert set(links) <= set(document.values("id"))
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", table)
    assert len(rows) == 4
    assert "decides; 12 samples; twelve &lt;logs&gt;" in rows[0]
    assert ["10:00 min" in rows[0], "<td" in rows[0], ">?<" in rows[-1]] == [True, True, True]


@pytest.mark.parametrize(
    ("minutes", "step"),
    [(9, 1), (10, 1), (11, 2), (21, 5), (51, 10), (101, 15), (151, 30), (301, 60), (601, 120), (1201, 240), (2401, 241)],
)
def test_the_axis_of_a_chart_has_at_most_ten_round_steps(minutes: int, step: int) -> None:
    chart = Chart("Time it takes", [Bar("a", 0, minutes * 60)])
    page = render_html(Graph("demo", "dev", ()), Domain(chart=lambda graph: chart))
    assert re.findall(r">(\d+) min</text>", page) == [str(at) for at in range(0, minutes + 1, step)]


@pytest.mark.thorough
def test_a_chart_without_length_is_not_drawn(graph: Graph) -> None:
    page = render_html(graph, Domain(chart=lambda graph: Chart("Time it takes", [Bar("a", 0, None)], "no promises")))
    assert_is_a_page(page)
    assert "no promises" in page
    assert 'class="bars"' not in page


@pytest.mark.thorough
def test_warnings_and_what_is_not_seen_inside_are_in_the_page() -> None:
    page = page_of_demo()
    content = page[page.index('<section id="opaque"') :].partition("</section>")[0]
    assert not [link for link in ("r-demo-cluster", "r-small-karpenter") if f'href="#{link}"' not in content]
    assert "the model has no revision; its weights may change" in page


@pytest.mark.thorough
def test_resources_of_one_name_have_their_own_addresses() -> None:
    page = render_html(graph_of(component("a"), Resource(urn("other"), "aws:s3/bucket:Bucket", "a"), component('a "')))
    assert {"r-a", "r-a-2", "r-a-3"} <= set(assert_is_a_page(page).values("id"))


@pytest.mark.thorough
def test_an_output_of_a_resource_with_a_namesake_leads_to_the_one_it_depends_on() -> None:
    two = [Resource(urn(name), "aws:s3/bucket:Bucket", "a.b") for name in ("one", "two")]
    user = Resource(urn("user"), "aws:s3/bucket:Bucket", "user", inputs={"x": "<a.b.arn>"}, dependencies=(urn("two"),))
    stray = Resource(urn("stray"), "aws:s3/bucket:Bucket", "stray", inputs={"z": "<a.b.arn>"})
    page = render_html(graph_of(*two, user, stray))
    assert '<b>x</b>: <a href="#r-a.b-2">&lt;a.b.arn&gt;</a>' in page
    assert "<b>z</b>: <mark>&lt;a.b.arn&gt;</mark>" in page


# -- nothing breaks out ----------------------------------------------------------------------------------------------------------

HOSTILE = (
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror=window.broken=1>",
    '" onmouseover="window.broken=1" x="',
    "' autofocus onfocus='window.broken=1",
    "</style><style>*{display:none}",
    "<!-- -->",
    "]]><svg onload=window.broken=1>",
    "&lt;b&gt; &amp;#60;",
    "javascript:window.broken=1",
    "\x00\x1b[2J\u202e\ud800\ufffe\x85",
    "<a<b.c>d.e>",
    "#r-a",
    "<net.vpc>",
)


def hostile_graph() -> Graph:
    """Hostile texts wherever a graph has texts."""
    resources = []
    for number, bad in enumerate(HOSTILE):
        parent = urn(f"{number - 1}") if number % 3 else ""
        resources.append(
            Resource(
                urn(str(number)),
                f"kubernetes:core/v1:{bad}" if number % 2 else f"{bad}:index:{bad}",
                bad,
                parent=parent,
                custom=bool(number % 2),
                inputs={bad: [bad, {bad: bad}], "model": bad, "metadata": {"name": bad, "namespace": bad}},
                property_dependencies={bad: (urn("0"),)},
                dependencies=(urn("0"),),
                options={"protect": True, "aliases": [bad]},
                source=bad,
            )
        )
    outputs: dict[str, Any] = {bad: [bad] for bad in HOSTILE}
    return replace(graph_of(*resources, outputs=outputs, warnings=HOSTILE), project=HOSTILE[0], stack=HOSTILE[1])


def test_hostile_texts_stay_texts() -> None:
    document = assert_is_a_page(render_html(hostile_graph()))
    shown = document.shown()
    assert all(text(bad) in shown for bad in HOSTILE if bad.isprintable())
    render_html(hostile_graph()).encode()


@pytest.mark.thorough
@given(odd_graphs())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_graph_becomes_a_page_without_its_secrets(graph: Graph) -> None:
    page = render_html(graph)
    assert_is_a_page(page)
    assert PLANTED not in page
    assert page.encode() == render_html(graph).encode()


def test_no_secret_is_in_the_page() -> None:
    assert not [secret for secret in SECRETS if secret in page_of_demo()]


def with_json_read(value: Any) -> Any:
    """The value with what its texts hold as JSON: how that is laid out is not part of it."""
    if isinstance(value, dict):
        return {key: with_json_read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_json_read(item) for item in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return ["json", yaml.safe_load(value)]
        except yaml.YAMLError:
            return value
    return str(value) if isinstance(value, float) else value


_long_json = '{"Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","n":1.5}],"a":"<b.c>"}'
yaml_texts = st.sampled_from(
    (
        *("true", "No", "1e3", "0x1f", "1.35", "a: b", "- a", "a #b", "a:", "|", "<<", "=", "~", "2012-10-17", "é"),
        *("a\n\nb\n", " a\nb", "a\n b", "a\n\n", "\n", "a\r\nb", "tab\tin\nlines", "<a.b>", "[secret]"),
        *(_long_json, '{"a": 1, "a": 2, "c": "              "}'),
    )
)


@pytest.mark.thorough
@given(
    st.recursive(
        odd_values | yaml_texts,
        # Small ones: values are written one inside the other, and large ones cost 10 s to draw.
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20) | yaml_texts, inner, max_size=4),
        max_leaves=20,
    )
)
def test_any_value_is_written_as_yaml_that_loads_as_it(value: Any) -> None:
    shown = written(render_values({"value": value}, lambda reference: ""))
    assert with_json_read(yaml.safe_load(shown)["value"]) == with_json_read(plain(value))


@pytest.mark.thorough
def test_a_policy_in_one_line_is_laid_out() -> None:
    assert written(render_values({"policy": _long_json}, lambda reference: "")).startswith(
        'policy: |-  # JSON, laid out\n  {\n    "Statement": [\n      {\n        "Effect": "Allow",\n'
    )


@pytest.mark.thorough
def test_what_is_joined_to_markup_is_escaped() -> None:
    markup = element("b", "&", title='"')
    assert markup == '<b title="&#34;">&amp;</b>'
    assert together(markup + "<i>", f"{markup}") == f"{markup}&lt;i&gt;&lt;b title=&#34;&amp;#34;&#34;&gt;&amp;amp;&lt;/b&gt;"
    assert together("\x00\ud800") == "��"
    with pytest.raises(ValueError, match="script"):
        raw("script", "'</script>'")


# -- the drawing -----------------------------------------------------------------------------------------------------------------


def test_arrows_lead_from_what_must_exist_first(graph: Graph) -> None:
    structure = Structure(graph)
    found = layers(structure, division(structure))
    names = [[graph.by_urn[of_urn].name for of_urn in layer] for layer in found.layers]
    assert names == [["net"], ["demo"], ["core", "inf2"], ["small", "servers"]]
    edges = {(graph.by_urn[first].name, graph.by_urn[second].name) for first, second in found.edges}
    assert ("core", "small") in edges
    assert ("net", "core") not in edges  # by way of demo


@pytest.mark.thorough
def test_a_circle_of_components_is_drawn() -> None:
    crossing = graph_of(
        component("a"),
        component("b"),
        Resource(urn("a1"), "aws:s3/bucket:Bucket", "a1", parent=urn("a")),
        Resource(urn("a2"), "aws:s3/bucket:Bucket", "a2", parent=urn("a"), dependencies=(urn("b1"),)),
        Resource(urn("b1"), "aws:s3/bucket:Bucket", "b1", parent=urn("b"), dependencies=(urn("a1"),)),
    )
    assert render_html(crossing).count('class="edge"') == 2


@st.composite
def drawings(draw: st.DrawFn) -> tuple[Layers, dict[str, Box]]:
    rows = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    names = [[f"{row}.{number}" for number in range(many)] for row, many in enumerate(rows)]
    pairs = [(a, b) for n, row in enumerate(names) for a in row for later in names[n + 1 :] for b in later]
    edges = draw(st.frozensets(st.sampled_from(pairs), max_size=20)) if pairs else frozenset()
    boxes = {name: Box(draw(st.text("abc", max_size=30)), name, "#tree") for row in names for name in row}
    return Layers(tuple(map(tuple, names)), edges), boxes


@pytest.mark.thorough
@given(drawings())
def test_boxes_never_overlap_and_all_are_within_the_drawing(drawing: tuple[Layers, dict[str, Box]]) -> None:
    svg = Document(render_diagram(*drawing, "a drawing"))
    width, height = next((float(a["width"] or 0), float(a["height"] or 0)) for tag, a in svg.elements if tag == "svg")
    rects = [tuple(float(a[key] or 0) for key in ("x", "y", "width", "height")) for tag, a in svg.elements if tag == "rect"]
    assert len(rects) == len(drawing[1])
    for number, (x, y, w, h) in enumerate(rects):
        assert 0 <= x <= x + w <= width + 0.2
        assert 0 <= y <= y + h <= height
        for other_x, other_y, other_w, _ in rects[:number]:
            assert y != other_y or x + w < other_x or other_x + other_w < x
    paths = [a["d"] or "" for _, a in svg.elements if a.get("class") == "edge"]
    assert len(paths) == len(drawing[0].edges)
    for path in paths:
        ups_and_downs = [float(y) for y in re.findall(r"(?:,|V)(-?[\d.]+)", path)]
        assert ups_and_downs[0] < ups_and_downs[-1]


# -- colours ---------------------------------------------------------------------------------------------------------------------


def schemes() -> Iterator[tuple[str, dict[str, str]]]:
    blocks = re.findall(r":root \{(.*?)\}", STYLE.read_text(), re.DOTALL)
    for name, block in zip(("light", "dark"), blocks, strict=False):
        yield name, dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.thorough
@pytest.mark.parametrize(("scheme", "colours"), [*schemes()])
def test_texts_can_be_told_from_what_is_behind_them(scheme: str, colours: dict[str, str]) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    behind = {name: ["paper", "raised"] for name in ("text", "quiet", "link", "aws", "kubernetes", "opaque", "key", "literal")}
    behind |= {"unknown": ["unknown-paper"], "secret": ["secret-paper"]}
    assert set(colours) == {*behind, *(paper for papers in behind.values() for paper in papers), "line"}
    for ink, papers in behind.items():
        for paper in papers:
            low, high = sorted((luminance(colours[ink]), luminance(colours[paper])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (scheme, ink, paper)


# -- in a browser ----------------------------------------------------------------------------------------------------------------

needs_browser = pytest.mark.skipif(browser.chromium() is None, reason="no chromium on PATH")


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Page]:
    with browser.page() as tab:
        yield tab


def node_groups(graph: Graph) -> Iterator[Section]:
    """A section with every form that a cell can have."""
    rows = [
        [
            (Part((group.name,), urn=group.urn), Part(("a group of nodes",), "note")),
            (Part((group.urn, group.type), "line"), Part(("image/" * 12,), "code")),
            (Part(tuple(f"{key}={value}" for key, value in group.inputs["labels"].items()) * 9, "chip"),),
            (Part(("taint=" * 9,), "warning chip"), Part(("strong",), "strong"), Part(("outside",), "warning")),
        ]
        for group in graph.of_type("aws:eks/nodeGroup:NodeGroup")
    ]
    yield Section("Node groups", [], ("Name", "About", "Labels", "Else"), rows, ("in all", str(len(rows))))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "demo.html").write_text(render_html(recorded(), Domain(sections=node_groups, chart=steps_over_time)))
    (folder / "hostile.html").write_text(render_html(hostile_graph()))
    return folder


@pytest.fixture
def demo(tab: browser.Page, folder: Path) -> browser.Page:
    """The page of the demo program, opened anew."""
    tab.show()
    tab.requests.clear()
    tab.errors.clear()
    tab.open("about:blank")
    tab.open((folder / "demo.html").as_uri())
    return tab


FOCUSED = """(() => {
  const { id, localName, innerText } = document.activeElement;
  return localName === "summary" ? innerText.replace(/\\s+/g, " ").trim() : id;
})()"""
SHOWN = """[...document.querySelectorAll("#tree li[data-type] > details > summary")].filter((e) => e.checkVisibility()).length"""


@pytest.mark.thorough
@needs_browser
def test_the_page_asks_for_nothing_and_its_script_runs(demo: browser.Page) -> None:
    assert [address for address in demo.requests if not address.startswith("about:")] == [demo.run("location.href")]
    assert demo.errors == []
    assert demo.run("document.getElementById('tools').hidden") is False


@pytest.mark.thorough
@needs_browser
@pytest.mark.parametrize("width", [390, 800])
def test_a_wide_picture_scrolls_on_a_narrow_screen_and_is_whole_on_paper(demo: browser.Page, width: int) -> None:
    hidden = "[...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    demo.show(width)
    assert demo.run(hidden) > 0
    demo.show(width, media="print")
    assert demo.run(hidden) == 0


@pytest.mark.thorough
@needs_browser
def test_slash_searches_and_escape_shows_all_again(demo: browser.Page) -> None:
    before = demo.run(SHOWN)
    demo.press("/")
    assert demo.run(FOCUSED) == "search"
    demo.type("usw2-az2")
    assert demo.run("document.getElementById('found').innerText") == "5 of 46 resources"
    demo.press("Escape")
    assert demo.run("document.getElementById('search').value") == ""
    assert demo.run(SHOWN) == before
    assert demo.run(FOCUSED) == "search"
    demo.press("Escape")
    assert demo.run("document.activeElement.localName") == "summary"


@pytest.mark.thorough
@needs_browser
def test_a_value_inside_is_found_and_its_line_shown(demo: browser.Page) -> None:
    demo.press("/")
    demo.type("registry.example/exporter")
    assert demo.run("document.getElementById('found').innerText") == "1 of 46 resources"
    assert demo.run("document.querySelector('.snippet').innerText") == "image: registry.example/exporter:1.2"
    demo.press("ArrowDown")
    assert "demo/chat" in demo.run(FOCUSED)
    demo.press("Escape")
    assert demo.run("document.querySelector('.snippet')") is None


@pytest.mark.thorough
@needs_browser
def test_arrows_walk_through_the_tree(demo: browser.Page) -> None:
    demo.run("document.querySelector('#tree summary').focus()")
    demo.press("End")
    last = demo.run(FOCUSED)
    demo.press("Home", "ArrowUp")
    first = demo.run(FOCUSED)
    assert first != last
    demo.run("document.querySelector('details:has(> #r-net) > summary').focus()")
    assert demo.run(FOCUSED).startswith("net Network")
    demo.press("ArrowRight")
    assert demo.run("document.querySelector('details:has(> #r-net)').open") is True
    demo.press("ArrowRight", "ArrowDown")
    assert demo.run(FOCUSED).startswith("ec2.Vpc …vpc 10.0.0.0/16 protected")
    demo.press("Enter")
    assert demo.run("document.getElementById('r-net-vpc').checkVisibility()") is True
    demo.press("ArrowLeft")
    assert demo.run("document.querySelector('details:has(> #r-net-vpc)').open") is False
    demo.press("ArrowLeft")
    assert demo.run(FOCUSED).startswith("net Network")
    demo.press("ArrowLeft")
    assert demo.run("document.querySelector('details:has(> #r-net)').open") is False
    demo.press("*")
    assert demo.run("[...document.querySelectorAll('#tree > li > details.branch')].every((one) => one.open)") is True


@pytest.mark.thorough
@needs_browser
def test_the_tree_is_one_tab_stop(demo: browser.Page) -> None:
    stops = "[...document.querySelectorAll('#tree summary')].filter((one) => one.tabIndex === 0).length"
    demo.run("document.getElementById('close').focus()")
    demo.press("Tab")
    assert demo.run("document.activeElement.matches('#tree summary')") is True
    demo.press("ArrowDown", "ArrowDown")
    assert demo.run(stops) == 1
    demo.press("Tab")
    assert demo.run("document.activeElement.matches('#tree summary')") is False


@pytest.mark.thorough
@needs_browser
def test_a_type_can_be_chosen(demo: browser.Page) -> None:
    demo.run("document.getElementById('type').value = 'aws:ec2/subnet:Subnet'")
    demo.run("document.getElementById('type').dispatchEvent(new Event('change'))")
    assert demo.run("document.getElementById('found').innerText") == "3 of 46 resources"
    assert demo.run(SHOWN) == 4  # and the component they are in


@pytest.mark.thorough
@needs_browser
def test_links_open_what_they_lead_to(demo: browser.Page) -> None:
    demo.press("/")
    demo.type("no such thing")
    demo.run("document.querySelector('#node-groups a[href=\"#r-core-nodes\"]').focus()")
    demo.press("Enter")
    until(lambda: demo.run("document.getElementById('r-core-nodes').checkVisibility()"))
    assert demo.run(FOCUSED).startswith("eks.NodeGroup …nodes")
    assert demo.run("document.getElementById('search').value") == ""


@pytest.mark.thorough
@needs_browser
def test_tab_goes_from_bar_to_bar_and_enter_to_the_resource(demo: browser.Page) -> None:
    said = "document.activeElement.getAttribute('aria-label')"
    demo.run("document.querySelector('svg.bars a').focus()")
    found = []
    for _ in range(3):
        found.append(demo.run(said))
        demo.press("Tab")
    assert {one.partition(":")[0] for one in found} == {"<a> begins", "b follows", "nobody's"}
    assert "from 0 s, 10:00 min, 12 samples" in next(one for one in found if one.startswith("<a>"))
    demo.run("document.querySelector('svg.bars a.decides').focus()")
    target = demo.run("document.activeElement.href.baseVal.slice(1)")
    demo.press("Enter")
    until(lambda: demo.run(f"document.getElementById('{target}').checkVisibility()"))


@pytest.mark.thorough
@needs_browser
def test_without_its_script_the_page_can_be_read_and_links_still_open(tab: browser.Page, folder: Path) -> None:
    tab.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open("about:blank")
        tab.open((folder / "demo.html").as_uri() + "#r-net-vpc")
        assert tab.run("document.getElementById('tools').checkVisibility()") is False
        assert tab.run("document.getElementById('r-net-vpc').checkVisibility()") is True
    finally:
        tab.send("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.thorough
@needs_browser
@pytest.mark.parametrize("width", [320, 700, 1280])
def test_nothing_is_wider_than_the_screen(demo: browser.Page, width: int) -> None:
    demo.show(width=width)
    demo.run("document.querySelectorAll('#tree details').forEach((one) => (one.open = true))")
    assert demo.run("document.documentElement.scrollWidth") <= width


@pytest.mark.thorough
@needs_browser
def test_everything_that_can_be_used_has_a_name(demo: browser.Page) -> None:
    nodes = demo.send("Accessibility.getFullAXTree")["nodes"]
    used = [
        n for n in nodes if n.get("role", {}).get("value") in ("link", "button", "searchbox", "combobox", "DisclosureTriangle")
    ]
    shown = "[...document.querySelectorAll('a[href], summary, button, input, select')].filter((e) => e.checkVisibility()).length"
    assert len(used) == demo.run(shown) > 20
    assert not [node for node in used if not node.get("name", {}).get("value")]
    landmarks = {n.get("role", {}).get("value") for n in nodes}
    assert {"banner", "navigation", "main", "contentinfo", "search"} <= landmarks


@pytest.mark.thorough
@needs_browser
def test_on_paper_all_resources_are_there_and_no_tools(demo: browser.Page) -> None:
    demo.show(media="print")
    assert demo.run(SHOWN) == 46
    assert demo.run("document.getElementById('tools').checkVisibility()") is False


@pytest.mark.thorough
@needs_browser
def test_hostile_texts_do_nothing(tab: browser.Page, folder: Path) -> None:
    tab.show()
    tab.errors.clear()
    tab.open((folder / "hostile.html").as_uri())
    tab.press("/")
    tab.type("<img")
    assert tab.run("document.getElementById('found').innerText").endswith("resources")
    assert tab.run("typeof window.broken") == "undefined"
    assert tab.run("document.querySelectorAll('img, script:not(:last-child)').length") == 0
    assert tab.errors == []
