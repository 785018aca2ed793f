"""What can be wrong with a project, a stack file or a program, said once and in full."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One problem, with the place it has in a file when it has one."""

    message: str
    file: str = ""
    line: int = 0
    key: str = ""
    given: str = ""
    allowed: str = ""
    hint: str = ""
    rule: str = ""
    working: tuple[str, ...] = ()
    """The arithmetic behind it, a line a step."""

    def render(self) -> str:
        place = self.file + (f":{self.line}" if self.line else "")
        head = ": ".join(part for part in (place, self.key, self.rule, self.message) if part)
        because = "\n             ".join(self.working)
        details = (("given", self.given), ("allowed", self.allowed), ("because", because), ("hint", self.hint))
        return "\n".join([head, *(f"    {label}: {text}" for label, text in details if text)])


class ProblemsFound(Exception):
    """What was asked for cannot be done. ``problems`` holds every reason found, each one for whoever asked."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.render() for problem in self.problems))


class ProgramError(ProblemsFound):
    """The program itself failed. ``__cause__`` is its exception."""
