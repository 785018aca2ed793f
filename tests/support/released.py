"""The graphs of the last release: names are public, so what they say may not be lost without a word in the changelog.

``tests/released/`` has a file for each program that people deploy: a line that says which release, and a line for each resource.
Long texts are there as digests, which show a change as well as the text would. What open keys resolve to is beside them
(``resolved_values.py``). ``python tests/support/released.py`` (``make release``) writes the files anew; docs/releases.md has the
steps.
"""

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/support")]

import resolved_values  # noqa: E402
from conftest import STACKS, recorded  # noqa: E402
from readme import program_of_a_team  # noqa: E402
from stackgraph.graph.document import SCHEMA, Graph, read_graph  # noqa: E402
from stackgraph.graph.values import mapped  # noqa: E402
from stackgraph.recorder.recording import record  # noqa: E402
from stackgraph.testing import Loss, losses  # noqa: E402

FOLDER = ROOT / "tests" / "released"
CHANGELOG = ROOT / "CHANGELOG.md"
_LONG = 60
_KEPT = ("urn", "type", "name", "parent", "custom", "remote", "provider", "inputs", "options")


def of_readme() -> Graph:
    """The program of a platform team, which was in the README before it came to docs/existing-cluster.md."""
    program = compile(program_of_a_team(), "docs/existing-cluster.md", "exec")
    return record(lambda: exec(program, {}), project="platform", stack="dev", config={"aws:region": "us-west-2"})


PROGRAMS: Mapping[str, Callable[[], Graph]] = {
    **{stack: partial(recorded, stack) for stack in STACKS},
    "readme": of_readme,
}
"""By name, how each program is recorded. The README's program with a transform is the first stack with one more input."""


def version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def reduced(graph: Graph) -> Graph:
    """The graph without what a name or a replacement never depends on: places in the source, edges, long texts."""
    return read_graph(
        {
            "schema": SCHEMA,
            "project": graph.project,
            "stack": graph.stack,
            "resources": [
                {key: mapped(value, _digest) for key, value in resource.document().items() if key in _KEPT}
                for resource in graph.resources
            ],
        },
        graph.stack,
    )


def _digest(leaf: Any) -> Any:
    long = isinstance(leaf, str) and len(leaf) > _LONG and not leaf.startswith("urn:")
    return f"sha256:{hashlib.sha256(leaf.encode()).hexdigest()[:16]}" if long else leaf


def written(graph: Graph, release: str) -> str:
    """The file of a program."""
    head = {"release": release, "schema": SCHEMA, "project": graph.project, "stack": graph.stack}
    # What a URN says, and what is so without a word, is left out.
    rows = (
        {key: value for key, value in resource.document().items() if key in _KEPT and value != _usual(resource.urn).get(key, "")}
        for resource in reduced(graph).resources
    )
    lines = (json.dumps(line, sort_keys=True, ensure_ascii=False) for line in (head, *rows))
    return "".join(f"{line}\n" for line in lines)


def read(program: str) -> tuple[str, Graph]:
    """The release of a program's file, and its graph."""
    head, *resources = map(json.loads, (FOLDER / f"{program}.jsonl").read_text("utf-8").splitlines())
    return head["release"], read_graph({**head, "resources": [_usual(one["urn"]) | one for one in resources]}, program)


def _usual(urn: str) -> dict[str, Any]:
    """What a row has unless it says otherwise."""
    *_, types, name = urn.split("::", 3)
    return {"type": types.rpartition("$")[2], "name": name, "custom": True, "remote": False, "inputs": {}, "options": {}}


@dataclass(frozen=True)
class Announcement:
    """A line of the changelog: ``- Replaces `TYPE` `NAME`: why``, or ``- Deletes …``. ``*`` in a name stands for any part."""

    kind: str
    type: str
    name: str

    def covers(self, loss: Loss) -> bool:
        kinds = ("delete",) if self.kind == "Deletes" else ("replace", "may replace")
        return loss.kind in kinds and self.type == loss.type and fnmatchcase(loss.name, self.name)


def announcements(changelog: str, section: str = "Unreleased") -> Sequence[Announcement]:
    """What a section announces."""
    section = changelog.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return [Announcement(*found) for found in re.findall(r"^- (Replaces|Deletes) `([^`]+)` `([^`]+)`: \S", section, re.MULTILINE)]


def unannounced(found: Iterable[Loss], announced: Sequence[Announcement]) -> Iterator[Loss]:
    return (loss for loss in found if not any(announcement.covers(loss) for announcement in announced))


def main() -> int:
    release = version()
    if f"\n## {release}\n" not in CHANGELOG.read_text("utf-8"):
        print(f"CHANGELOG.md: there is no section '## {release}', the version in pyproject.toml", file=sys.stderr)
        return 2
    graphs = {program: make() for program, make in PROGRAMS.items()}
    announced = announcements(CHANGELOG.read_text("utf-8"), release)
    before = {program: read(program)[1] for program in graphs if (FOLDER / f"{program}.jsonl").exists()}
    lost = [loss for program, old in before.items() for loss in unannounced(losses(old, reduced(graphs[program])), announced)]
    resolved = resolved_values.rows()
    spoken = resolved_values.resolutions(CHANGELOG.read_text("utf-8"), release)
    otherwise = resolved_values.unannounced(resolved_values.changes(resolved_values.read()[1], resolved), spoken)
    if lost or otherwise:
        print(
            f"CHANGELOG.md: section '## {release}' does not announce:",
            *dict.fromkeys(map(str, (*lost, *otherwise))),
            sep="\n  ",
            file=sys.stderr,
        )
        return 2
    texts = {program: written(graph, release) for program, graph in graphs.items()}
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.jsonl"):
        old.unlink()
    for program, text in texts.items():
        (FOLDER / f"{program}.jsonl").write_text(text, encoding="utf-8")
    (FOLDER / resolved_values.FILE.name).write_text(resolved_values.written(resolved, release), encoding="utf-8")
    print(f"wrote {len(texts)} graphs of release {release}, and what open keys resolve to")
    return 0


if __name__ == "__main__":
    sys.exit(main())
