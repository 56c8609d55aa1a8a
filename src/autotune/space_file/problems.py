"""Everything that is wrong with one file, each mistake with its line; and wordings they share."""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import SearchSpaceError

SHOWN_CHOICES = 16
MOST_PROBLEMS = 200
SHOWN_TEXT = 60
SHOWN_MESSAGE = 600
MOST_COMPARED = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    line: int
    where: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """The mistakes found so far in one file. Reading goes on after each, so that all are told."""

    file: Path
    found: dict[Problem, None] = field(default_factory=dict)

    def add(self, line: int, where: str, text: str) -> None:
        """Note a mistake.

        Raises:
            SearchSpaceError: There are so many that the file is probably something else.
        """
        # A block under an anchor is read once for every alias, but is wrong only once.
        self.found[Problem(line=line, where=where, text=shortened(text, SHOWN_MESSAGE))] = None
        if len(self.found) >= MOST_PROBLEMS:
            raise self.error(hint=f"There may be more: reading stopped after {MOST_PROBLEMS}.")

    def place(self, line: int) -> str:
        return f"{self.file}:{line}"

    def raise_if_any(self) -> None:
        """Stop when anything is wrong.

        Raises:
            SearchSpaceError: Every mistake.
        """
        if self.found:
            raise self.error()

    def error(self, *, hint: str | None = None) -> SearchSpaceError:
        """Gather what was found so far, in the order of the file."""
        ordered = sorted(self.found, key=lambda problem: problem.line)
        return SearchSpaceError([self._text(problem) for problem in ordered], hint=hint)

    def _text(self, problem: Problem) -> str:
        where = f"{problem.where}: " if problem.where else ""
        return f"{self.place(problem.line)}: {where}{problem.text}"


def shortened(text: str, longest: int = SHOWN_TEXT) -> str:
    """Show a person's text in one line of bearable length."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def listed(choices: Iterable[object]) -> str:
    """Join choices for a person, the long tail cut."""
    shown = [str(choice) for choice in choices]
    tail = [f"… ({len(shown)} in all)"] if len(shown) > SHOWN_CHOICES else []
    return ", ".join([*shown[:SHOWN_CHOICES], *tail]) or "(none)"


def closest(name: str, choices: Collection[str], *, cutoff: float = 0.6) -> str | None:
    """Find what was probably meant.

    >>> closest("max-num-seq", ["max_num_seqs", "max_model_len"])
    'max_num_seqs'
    """
    if len(choices) > MOST_COMPARED:
        return None
    spelled = {choice.lower(): choice for choice in choices}
    # difflib's time is quadratic in the length; nobody mistypes a name of 200 letters.
    wanted = name[:200].strip().lower().lstrip("-").replace("-", "_")
    found = difflib.get_close_matches(wanted, spelled, n=1, cutoff=cutoff)
    return spelled[found[0]] if found else None


def choose(name: str, choices: Collection[str]) -> str:
    """Point at the likely choice, else at all of them."""
    meant = closest(name, choices)
    return f"did you mean {meant}?" if meant else f"choose from: {listed(choices)}"
