"""Titles of what a caller adds to a report. They are apart from the rest: whoever only posts a report needs nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Titles:
    """Titles of the sections with facts and findings, and of the figures that are columns in the table of stacks.

    ``measures_note`` says below that table what its figures compare.
    """

    facts: str = "Facts"
    findings: str = "Findings"
    measures: tuple[str, ...] = ()
    measures_note: str = ""


NO_TITLES = Titles()
