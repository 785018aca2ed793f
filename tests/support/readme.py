"""Finds the code blocks of the documents, so that tests run what they show."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


@dataclass(frozen=True)
class Block:
    """A fenced block; ``heading`` is that of its section."""

    language: str
    heading: str
    text: str
    line: int


def blocks(document: Path = README) -> list[Block]:
    found, heading = [], ""
    lines = iter(enumerate(document.read_text().splitlines(), 1))
    for number, line in lines:
        if match := re.match(r"#+ (.*)", line):
            heading = match[1]
        elif match := re.match(r"```(\w*)$", line):
            body = []
            for _, inner in lines:
                if inner == "```":
                    break
                body.append(inner)
            found.append(Block(match[1], heading, "\n".join(body) + "\n", number))
    return found


def program_of_a_team() -> str:
    """The program of docs/existing-cluster.md: a team's own cluster with our pool, plugin and server."""
    return block("python", "A pool of Inferentia2 and a server", README.parent / "docs" / "existing-cluster.md").text


def block(language: str, heading: str, document: Path = README) -> Block:
    """Returns the only block of a language in a section."""
    found = [b for b in blocks(document) if (b.language, b.heading) == (language, heading)]
    assert len(found) == 1, f"{len(found)} {language} blocks under '{heading}'"
    return found[0]


def commands_of(page: Path, program: str) -> list[list[str]]:
    """The commands of a page in blocks and in code spans, by words; what a shell does with their output is left out."""
    text = page.read_text()
    fenced = [line.strip() for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    lines = dict.fromkeys(re.split(r" \|| </|; do", line)[0] for line in (*fenced, *spans) if f"{program} " in line)
    found = [shlex.split(line) for line in lines]
    return [words[words.index(program) :] for words in found if program in words]
