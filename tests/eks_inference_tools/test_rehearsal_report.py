"""What the rehearsal of a change says: outages from samples, agreement with `diff`, text, JSON, the section of a comment."""

import json
import re
from dataclasses import replace

import pytest

from eks_inference_tools.simulate.rehearsal.report import Line, Rehearsal, compared, render_json
from eks_inference_tools.simulate.rehearsal.text import render_markdown, render_text
from json_schemas import unlike
from rehearsals import JOB, SAMPLES, SAW, STUCK, WELL


def test_a_server_is_away_from_its_last_pod_to_the_next():
    (away,) = SAW.away
    assert (away.server, away.began_s, away.seconds) == ("chat", 0.0, 300.0)
    assert not SAW.is_well
    assert [away.seconds for away in replace(SAW, samples=SAMPLES[:2]).away] == [None]
    assert [*replace(SAW, samples=((0.0, {"chat": 0}), (1.0, {"chat": 0}))).away] == []


def test_what_pulumi_waits_for_is_told_and_jobs_that_run_again():
    assert SAW.waits == (("Deployment demo/chat", 300.0),)
    assert SAW.again == (JOB,)


@pytest.mark.parametrize(
    ("line", "saw", "verdict"),
    [
        (Line("server-stopped", "", "chat", seconds=310), SAW, "agrees"),
        (Line("server-stopped", "", "chat", seconds=600), SAW, "differs"),
        (Line("server-stopped", "", "code", seconds=300), SAW, "differs"),
        (Line("server-stopped", "", "chat", seconds=300), replace(SAW, samples=SAMPLES[:2]), "differs"),
        (Line("server-stopped", "", "chat"), replace(SAW, samples=SAMPLES[:2]), "agrees"),
        (Line("server-stopped", "", "chat"), SAW, "agrees"),
        (Line("server-gone", "", "chat"), replace(SAW, samples=SAMPLES[:2]), "agrees"),
        (Line("server-gone", "", "chat"), SAW, "differs"),
        (Line("server-waits", "", "chat", title="Deployment demo/chat"), STUCK, "agrees"),
        (Line("server-waits", "", "chat", title="Deployment demo/chat"), SAW, "differs"),
        (Line("refused", "", "", title="Job a/b"), STUCK, "agrees"),
        (Line("refused", "", "", title=""), SAW, "open"),
        (Line("job-again", "", "", title=JOB), SAW, "agrees"),
        (Line("job-again", "", "", title=JOB), STUCK, "open"),
        (Line("job-again", "", "", title="Job demo/other"), SAW, "differs"),
        (Line("capacity-down", "", "code"), SAW, "agrees"),
        (Line("capacity-down", "", "chat"), SAW, "differs"),
        (Line("without-effect", "", "code"), SAW, "agrees"),
        (Line("without-effect", "", "chat"), SAW, "differs"),
        (Line("deleted-with", "", "", title="Namespace a"), replace(SAW, gone=("Deployment a/b",)), "agrees"),
        (Line("deleted-with", "", "", title="Namespace a"), SAW, "differs"),
        (Line("deleted-with", "", ""), SAW, "open"),
        (Line("pods-move", "", away=("chat",)), SAW, "agrees"),
        (Line("pods-move", "", away=("code",)), SAW, "differs"),
        (Line("pods-may-move", "", away=("chat",)), SAW, "agrees"),
        (Line("pods-may-move", "", away=("code",)), SAW, "open"),
        (Line("server-may-stop", "", "chat", away=("chat",), seconds=300), SAW, "agrees"),
        (Line("server-may-stop", "", "chat", away=("chat",), seconds=600), SAW, "differs"),
        (Line("server-may-stop", "", "code", away=("code",), seconds=600), SAW, "open"),
        (Line("nodes-rolled", "", ""), SAW, "open"),
        (Line("nodes-rolled", "nodes of inf2 drift"), replace(SAW, drifted=("nodes of inf2",)), "agrees"),
        (Line("nodes-rolled", "nodes of inf2-large drift"), replace(SAW, drifted=("nodes of inf2",)), "open"),
        (Line("endpoint-gone", "", ""), SAW, "open"),
    ],
)
def test_a_line_of_diff_is_compared_with_what_happened(line: Line, saw: Rehearsal, verdict: str):
    assert compared([line], saw)[0].verdict == verdict


def test_what_no_line_told_differs():
    saw = [foretold.saw for foretold in compared([], SAW)]
    assert saw == ["chat was away, and diff does not mention it", f"{JOB} ran again, and diff does not mention it"]
    assert [foretold.saw for foretold in compared([], STUCK)][1:] == [
        "Deployment demo/chat got stuck, and diff does not mention it",
        "Job a/b got stuck, and diff does not mention it",
    ]
    assert compared([], WELL) == ()
    assert [one.saw for one in compared([Line("server-stopped", "", "mine", away=("mine", "chat"), title=JOB)], SAW)][1:] == []


def test_the_text_tells_who_stopped_and_what_got_stuck():
    told = " ".join(render_text(SAW).split())
    assert "chat stops 0 s after the beginning, for 5 min; 300 requests lost" in told
    assert f"chat {'0' * 60} 1" in told
    assert f"code {'2' * 60} 1" in told
    assert "pulumi up waits 5 min for Deployment demo/chat" in told
    assert told.endswith("1 server stopped answering.")
    stuck = " ".join(render_text(STUCK).split())
    assert "Deployment demo/chat waits: 0 of 1 pods are ready (behind it: 1 object)" in stuck
    assert "Pod demo/chat-1: 0/3 nodes are available" in stuck
    assert "Job a/b is refused: immutable" in stuck
    assert "Nothing stopped answering, nothing got stuck." in render_text(WELL)
    assert re.search(r"as it is +300 +5 min.*\na\.b=1 +0 .*nothing got stuck", render_text(SAW, replace(WELL, tried="a.b=1")))
    assert "The base does not come up by itself" in render_text(replace(WELL, phases=WELL.phases[:1]))


def test_the_section_of_a_comment_has_the_verdict_in_its_heading():
    shown = render_markdown(SAW)
    assert shown.startswith("### Rehearsal of `demo`: 1 server stopped answering\n\nchat stops 0 s after")
    assert render_markdown(WELL).startswith("### Rehearsal of `demo`: nothing stopped answering, nothing got stuck\n\n<details>")


def test_the_document_has_every_part():
    found = json.loads(render_json(replace(STUCK, foretold=compared([], STUCK))))
    assert not unlike("rehearse change", found)
    assert (found["schema"], found["well"]) == (1, False)
    assert found["away"][0] == {"server": "chat", "beganSeconds": 0.0, "seconds": 300.0, "untimed": [], "lostRequests": 300}
    assert found["phases"][1]["stalls"][0]["words"] == ["Pod demo/chat-1: 0/3 nodes are available"]
    both = json.loads(render_json(WELL, replace(SAW, tried="a.b=1")))
    assert not unlike("rehearse change", both)
    assert (both["well"], [(one["with"], one["well"]) for one in both["tried"]]) == (True, [("a.b=1", False)])


def test_a_report_fits_into_a_narrow_terminal():
    text = render_text(
        replace(STUCK, samples=((0.0, {"a-server-with-a-name": 1}), (300.0, {"a-server-with-a-name": 0}))), width=80
    )
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"^ +a-server-with-a-name +1+ 0$", text, re.MULTILINE)
