"""Who is asked: a person at a terminal, or nobody."""

import sys
import time
from dataclasses import dataclass, field

from eks_inference_tools.flight.course import Leg
from eks_inference_tools.flight.ladder import typically
from stackgraph.presentation.progress import Progress


class WallClock:
    """The time of the machine: between two commands it goes on."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass
class Unattended:
    """No person is at the terminal: it goes on within both caps only, and keeps what stands only where ``--keep`` says so."""

    keep: bool = False
    progress: Progress = field(default_factory=Progress)

    def say(self, line: str) -> None:
        self.progress.keep(line)

    def goes_on(self, leg: Leg) -> bool:
        self.say(f"{leg.name} needs --cap-usd and --cap-minutes, or a terminal where someone allows it")
        return False

    def keeps(self, why: str) -> bool:
        self.say(f"{why}: {'kept, as --keep says' if self.keep else 'destroyed, because there is no terminal to ask'}")
        return self.keep


class AtTerminal(Unattended):
    """A person answers. ``--keep`` answers the question about keeping."""

    def goes_on(self, leg: Leg) -> bool:
        return self._answer(f"deploy {leg.rung.title}? {typically(leg)} [y/N] ", "y")

    def keeps(self, why: str) -> bool:
        if self.keep:
            return super().keeps(why)
        return self._answer(f"{why}. keep it, or destroy it? [keep/DESTROY] ", "keep")

    def _answer(self, question: str, yes: str) -> bool:
        self.progress.show("")
        try:
            return input(question).strip().lower() == yes
        except EOFError:
            print(file=sys.stderr)
            return False
