"""Names are public: nothing that the last release deployed is replaced or deleted unless the changelog announces it."""

import json
from dataclasses import replace

import pytest

import released
import resolved_values
from released import (
    CHANGELOG,
    FOLDER,
    PROGRAMS,
    Announcement,
    announcements,
    read,
    reduced,
    unannounced,
    version,
    written,
)
from stackgraph.graph.document import Graph, build_urn
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import mapped
from stackgraph.testing import Loss, losses

SAID = """\
    {loss}
If that is meant, say so in CHANGELOG.md under Unreleased, with the reason: - {verb} `{loss.type}` `{loss.name}`: …
If something was renamed or moved, give it its old name: pulumi.ResourceOptions(aliases=[…])"""


@pytest.fixture(scope="module")
def lost() -> dict[str, list[Loss]]:
    return {program: [*losses(read(program)[1], reduced(make()))] for program, make in PROGRAMS.items()}


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_released_is_lost_without_a_word(lost, program):
    found = [*unannounced(lost[program], announcements(CHANGELOG.read_text("utf-8")))]
    said = (SAID.format(loss=loss, verb="Deletes" if loss.kind == "delete" else "Replaces") for loss in found)
    assert not found, f"a deployment over release {read(program)[0]} would\n" + "\n".join(said)


def test_every_announcement_says_what_happens(lost):
    happening = [loss for found in lost.values() for loss in found]
    for announcement in announcements(CHANGELOG.read_text("utf-8")):
        assert any(map(announcement.covers, happening)), f"{announcement} announces what no stack loses"


def test_a_version_without_a_section_is_not_released(monkeypatch, capsys):
    monkeypatch.setattr(released, "version", lambda: "99.0.0")
    before = {file: file.read_bytes() for file in FOLDER.iterdir()}
    assert released.main() == 2
    assert "no section '## 99.0.0'" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in FOLDER.iterdir()} == before


@pytest.mark.thorough
def test_a_loss_that_no_section_announces_is_not_released(monkeypatch, capsys, tmp_path):
    program, graph = next((name, graph) for name in PROGRAMS if (graph := read(name)[1]).of_type(BUCKET))
    monkeypatch.setattr(released, "PROGRAMS", {program: lambda: renamed(graph)})
    monkeypatch.setattr(released, "CHANGELOG", tmp_path / "CHANGELOG.md")
    monkeypatch.setattr(resolved_values, "rows", lambda: resolved_values.read()[1])
    before = {file: file.read_bytes() for file in FOLDER.iterdir()}
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## Unreleased\n\n## {version()}\n")
    assert released.main() == 2
    assert f"delete {BUCKET}" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in FOLDER.iterdir()} == before


def test_the_graphs_are_those_of_the_version():
    assert {file.stem for file in FOLDER.glob("*.jsonl")} == set(PROGRAMS)
    assert {read(program)[0] for program in PROGRAMS} == {version()}, "after a new version: make release"
    assert f"\n## {version()}\n" in CHANGELOG.read_text("utf-8")


BUCKET = "aws:s3/bucket:Bucket"


def planted(graph: Graph, **changes: object) -> Graph:
    """The graph with one bucket changed, as if the library had been edited."""
    bucket = graph.of_type(BUCKET)[0]
    edited = replace(bucket, **changes)
    return replace(graph, resources=tuple(sorted({**graph.by_urn, bucket.urn: edited}.values(), key=lambda one: one.urn)))


def renamed(graph: Graph, *aliases: object) -> Graph:
    bucket = graph.of_type(BUCKET)[0]
    chain = bucket.urn.split("::")[2].rpartition("$")[0]
    urn = build_urn(graph.stack, graph.project, chain, bucket.type, f"{bucket.name}-2")
    edited = planted(graph, urn=urn, name=f"{bucket.name}-2", options={**bucket.options, "aliases": list(aliases)})
    resources = (replace(one, inputs=mapped(one.inputs, lambda leaf: refers(leaf, bucket.name))) for one in edited.resources)
    return replace(edited, resources=tuple(resource for resource in resources if resource.urn != bucket.urn))


def refers(leaf: object, old: str) -> object:
    return leaf.replace(f"<{old}.", f"<{old}-2.") if isinstance(leaf, str) else leaf


def test_a_planted_rename_is_found_and_an_alias_saves_it():
    _, before = read("inf2-llama3")
    name = before.of_type(BUCKET)[0].name
    found = losses(before, renamed(before))
    assert ("delete", BUCKET, name) in [(loss.kind, loss.type, loss.name) for loss in found]
    assert [*unannounced(found, [])] == found
    assert not losses(before, renamed(before, {"name": name}))
    assert not losses(before, before)


def test_a_planted_rename_of_a_component_loses_all_that_is_inside():
    _, before = read("inf2-llama3")
    (vpc,) = before.of_type("eks-inference:index:Vpc")
    inside = sum(not resource.type.startswith("eks-inference:") for resource in Structure(before).inside(vpc.urn))
    moved = replace(
        before,
        resources=tuple(
            replace(one, urn=one.urn.replace(":Vpc$", ":Network$"), parent=one.parent.replace("index:Vpc::", "index:Network::"))
            for one in before.resources
        ),
    )
    assert len(losses(before, moved)) >= inside > 10


def test_a_planted_replacement_is_found():
    _, before = read("inf2-llama3")
    found, *_ = losses(before, planted(before, inputs={"bucket": "another"}))
    assert (found.kind, found.because) == ("replace", ("bucket",))


def test_a_line_of_the_changelog_announces_a_loss():
    next_release = "- Deletes `{0}` `*-cache`: kept elsewhere.\n- Replaces `{0}` `a`:\n"
    text = "# Changelog\n\n## Unreleased\n\n" + next_release + "\n## 0.1.0\n\n- Deletes `{0}` `b`: x\n"
    assert announcements(text.format(BUCKET)) == [Announcement("Deletes", BUCKET, "*-cache")], "without a reason, or released"
    (one,) = announcements(text.format(BUCKET))
    assert one.covers(Loss("delete", BUCKET, "x-cache", "urn"))
    assert not one.covers(Loss("replace", BUCKET, "x-cache", "urn"))
    assert not one.covers(Loss("delete", BUCKET, "x-store", "urn"))
    assert not one.covers(Loss("delete", "aws:s3/bucketPolicy:BucketPolicy", "x-cache", "urn"))
    assert Announcement("Replaces", BUCKET, "x").covers(Loss("may replace", BUCKET, "x", "urn"))


def test_a_file_holds_what_a_comparison_needs_and_no_secret():
    for program, make in PROGRAMS.items():
        graph = reduced(make())
        head, *rows = map(json.loads, written(graph, "1").splitlines())
        assert head["release"] == "1"
        assert [row["urn"] for row in rows] == [resource.urn for resource in graph.resources]
        assert program in ("readme", head["stack"])
