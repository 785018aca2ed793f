"""The report of a comparison in every format: what it tells, what it cuts, and what it never is."""

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from conftest import recorded
from odd_graphs import PLANTED, odd_graphs
from stackgraph.diff.contents import Contents, FactRow, FindingText, Revision, StackContents, by_subject
from stackgraph.diff.document import render_json
from stackgraph.diff.markdown import _code, _escaped, _fence, render_markdown
from stackgraph.diff.page import render_html
from stackgraph.diff.report import Recorded, Report, StackReport
from stackgraph.diff.saved import read_contents
from stackgraph.diff.telling import Entry, Place, contents
from stackgraph.diff.text import render_text
from stackgraph.github import LONGEST_BODY as LIMIT
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import Problem


def test_new_and_cured_findings():
    graph = recorded("gpu-opt350m")
    old = FindingText("AWS001", "warning", "cluster.endpoint", "anybody may knock")
    new = FindingText("NEU008", "error", "servers.a", "it does not fit")
    stack = StackReport("gpu-opt350m", Recorded(graph, findings=(old,)), Recorded(graph, findings=(new,)))
    report = Report("p", Revision("a"), Revision("b"), [stack])
    assert contents(report).changed
    text, comment, page = render_text(contents(report)), render_markdown(contents(report), LIMIT), render_html(contents(report))
    assert "new error: NEU008: servers.a: it does not fit" in text
    assert "cured: AWS001" in text
    assert "new error `NEU008`" in comment
    assert "cured `AWS001`" in comment
    assert "it does not fit" in page


def test_a_chart_is_no_remote_component():
    urn = "urn:pulumi:s::p::kubernetes:helm.sh/v3:Release::web"
    chart = Resource(urn, "kubernetes:helm.sh/v3:Release", "web", inputs={"version": "1"})
    before, after = (Recorded(Graph("p", "s", (resource,))) for resource in (chart, replace(chart, inputs={"version": "2"})))
    report = Report("p", Revision("a"), Revision("b"), [StackReport("s", before, after)])
    assert "version" in render_text(contents(report))
    assert "remote component: only its plugin" not in render_text(contents(report))


def test_what_cannot_be_told_is_said():
    def graph(length: int) -> Graph:
        odd = Resource("urn:pulumi:s::p::random:index:Id::one", "random:index:Id", "one", inputs={"length": length})
        box = Resource("urn:pulumi:s::p::team:index:Box::box", "team:index:Box", "box", custom=False, remote=True)
        return Graph("p", "s", (odd, replace(box, inputs={"a": length})))

    before, after = graph(1), graph(2)
    report = Report("p", Revision("a"), Revision("b"), [StackReport("s", Recorded(before), Recorded(after))])
    for shown in (render_text(contents(report)), render_markdown(contents(report), LIMIT), render_html(contents(report))):
        assert shown.count("no table knows the type") == 3
        assert shown.count("a remote component") == 1
        assert "the contents of 1 chart or remote component" in shown


def test_names_stay_whole_lines_fit_the_terminal_and_many_dangers_are_folded():
    def stack(name: str, dangers: tuple[str, ...]) -> StackContents:
        facts = (FactRow(f"model of {name}", "a", "b"), FactRow(f"cluster {name}", "1", "2"))
        return StackContents(name, changed=True, dangers=dangers, avoid=("mine: a second replica",) * bool(dangers), facts=facts)

    dangers = tuple(f"nodes of mine-pool-{number} are replaced, {'and ' * 20}named" for number in range(14))
    dangers = ("one waits, and `pulumi up` fails", *dangers)
    told = Contents("p", Revision("a"), Revision("b"), (stack("mine", dangers), stack("yours", ())))
    comment = render_markdown(told, LIMIT)
    assert "| mine | model of mine | a | b |" in comment
    assert "| yours | model of yours | a | b |" in comment
    assert "| mine, yours | cluster | 1 | 2 |" in comment
    first, _, folded = comment.partition("<details><summary>And 3 more</summary>")
    assert "one waits, and `pulumi up` fails" in first
    assert "nodes of mine-pool-10" in first
    assert "nodes of mine-pool-11" in folded
    assert "What avoids it" in folded
    text = render_text(told, width=80)
    assert "nodes of mine-pool-13" in text
    assert max(map(len, text.partition("Stacks")[0].splitlines())) <= 80
    assert 'data-label="after"' in render_html(told)


def test_stacks_without_a_change_share_one_line():
    stacks = (StackContents("mine", changed=True), StackContents("calm", changed=False), StackContents("still", changed=False))
    page = render_html(Contents("p", Revision("a"), Revision("b"), stacks))
    assert '<th scope="row">mine</th>' in page
    assert "Unchanged: calm, still" in page
    assert "<table>" not in render_html(Contents("p", Revision("a"), Revision("b"), stacks[1:]))


def test_resources_that_change_alike_ask_once_for_their_stacks():
    """A comment asks for each of them: 8,000 took a minute."""
    entry = Entry("update", "t", tuple(Place("dev", f"n{number}") for number in range(3)), ())
    assert entry.stacks is entry.stacks
    assert entry.stacks == ("dev",)


TYPE = "random:index/randomId:RandomId"


@pytest.mark.parametrize(
    ("count", "text", "comment"),
    [
        (6, "b4, b5\n", "`b4`, `b5`\n"),
        (7, "b4, b5 and 1 more\n", "`b5`, `b6`\n"),
        (9, "b5 and 3 more\n", "`b6`, `b7` and 1 more\n"),
    ],
)
def test_of_many_resources_that_change_alike_some_are_named(count: int, text: str, comment: str):
    def graph(value: str) -> Recorded:
        many = (Resource(f"urn:pulumi:s::p::{TYPE}::b{n}", TYPE, f"b{n}", inputs={"size": value}) for n in range(count))
        return Recorded(Graph("p", "s", tuple(many)))

    told = contents(Report("p", Revision("a"), Revision("b"), [StackReport("s", graph("small"), graph("large"))]))
    assert text in render_text(told)
    assert comment in render_markdown(told, LIMIT)
    assert f"b3 and {count - 4} more may be replaced: no table knows the type" in " ".join(render_text(told).split())


def test_dangers_of_one_subject_are_one_line():
    lines = by_subject([("a", "a stops"), ("", "b goes"), ("a", "a serves c"), ("a", "a: 1 pod instead of 2"), ("", "d goes")])
    assert lines == ("a stops; serves c; 1 pod instead of 2", "b goes", "d goes")


# -- limits ----------------------------------------------------------------------------------------------------------------------


def huge(count: int = 3000) -> Report:
    def graph(value: str) -> Graph:
        resources = (
            Resource(
                f"urn:pulumi:s::p::aws:s3/bucket:Bucket::b{n}",
                "aws:s3/bucket:Bucket",
                f"b{n}",
                inputs={"tags": {"x": f"{value}{n}" * 9}},
            )
            for n in range(count)
        )
        return Graph("p", "s", tuple(sorted(resources, key=lambda resource: resource.urn)))

    stack = StackReport("s", Recorded(graph("𝔸")), Recorded(graph("𝔹")))
    return Report("p", Revision("a"), Revision("b"), [stack])


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [LIMIT, 5000, 1500])
def test_a_comment_never_outgrows_the_limit_and_says_what_was_cut(limit):
    comment = render_markdown(contents(huge()), limit)
    assert len(comment.encode("utf-16-le")) // 2 <= limit
    assert comment.startswith("<!-- stackgraph diff: p -->\n")
    assert "3000" in comment
    assert "Cut:" in comment
    assert "drift" in comment, "what it is not is never cut"
    assert comment.count("<details") == comment.count("</details>")
    assert comment.count("```") % 2 == 0


def test_a_limit_that_nothing_fits_into():
    assert len(render_markdown(contents(huge(10)), 200)) <= 200


def test_a_failed_stack_is_told_with_its_reason():
    stack = StackReport("s", Recorded(problems=(Problem("it broke", file="a.py", line=3),)), None)
    report = Report("p", Revision("a"), Revision("b"), [stack])
    assert "a.py:3: it broke" in render_markdown(contents(report), LIMIT)
    assert "a.py:3: it broke" in render_html(contents(report))
    assert "\n1 stack could not be compared\n" in render_text(contents(report))
    same = StackReport("t", Recorded(Graph("p", "t", ())), Recorded(Graph("p", "t", ())))
    both = Report("p", Revision("a"), Revision("b"), [stack, same])
    assert "\nNo change in 1 stack, 1 could not be compared\n" in render_text(contents(both))


# -- values are never markup -----------------------------------------------------------------------------------------------------

NASTY = st.text(alphabet=st.sampled_from("`<>|*_[]()#@&!~\\\n\r\t -a1\x1b\u202e"), max_size=40)


@given(NASTY)
def test_text_is_never_markup(value):
    shown = _escaped(value)
    assert not re.search(r"[<>`|@\[\]*\n\x1b]", shown)


@given(NASTY)
@example("`a")
@example("a`")
def test_code_is_closed_where_it_is_opened(value):
    shown = _code(value)
    (line,) = MarkdownIt("commonmark").parseInline(shown)
    assert [token.type for token in line.children or ()] == ["code_inline"]
    assert "\n" not in shown
    assert "|" not in shown


@given(st.lists(NASTY.map(lambda value: value.replace("\n", " ").replace("\r", " "))))
@example(["```"])
def test_no_line_ends_a_block_of_code(lines):
    (block,) = MarkdownIt("commonmark").parse(_fence(lines, "diff"))
    assert (block.type, block.info, block.content.count("\n")) == ("fence", "diff", len(lines))


def test_a_value_that_would_be_markup_is_text_on_the_page_and_in_the_comment():
    planted = "</details><script>alert(1)</script>@everyone ```\n[x](javascript:y)"
    one = Resource("urn:pulumi:s::p::t:i:T::" + planted, "t:i:T", planted, inputs={"a": "1", planted: "x"})
    other = replace(one, inputs={"a": planted, planted: planted})
    graphs = [Graph("p", "s", (found,)) for found in (one, other)]
    report = Report(
        "p", Revision(planted), Revision("b"), [StackReport("s", Recorded(graphs[0]), Recorded(graphs[1]))], [planted]
    )
    assert "<script>alert" not in render_html(contents(report))
    outside = re.sub(r"(?ms)^(`{3,})[^\n]*\n.*?^\1$|(`+)[^\n]*?\2", "", render_markdown(contents(report), LIMIT))
    assert "<script" not in outside
    assert "@everyone" not in outside
    assert "](javascript" not in outside


@pytest.mark.thorough
@given(before=odd_graphs(), after=odd_graphs())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_two_graphs_can_be_compared(before, after):
    graphs = [replace(graph, project="p", stack="s") for graph in (before, after)]
    report = Report("p", Revision("a"), Revision("b"), [StackReport("s", Recorded(graphs[0]), Recorded(graphs[1]))])
    told = contents(report)
    shown = [render_text(told), render_markdown(told, LIMIT), render_json(report), render_html(told)]
    assert PLANTED not in "".join(shown)
    assert read_contents(shown[2].encode(), shown="", project="p", tool=told.tool, link="", titles=told.titles) == told
    assert all(letter.isprintable() or letter == "\n" for letter in shown[0])
    same = Report("p", Revision("a"), Revision("b"), [StackReport("s", Recorded(graphs[0]), Recorded(graphs[0]))])
    assert not contents(same).changed
