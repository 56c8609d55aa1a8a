"""How like two answers are: the same, where they part, and how much would have to be changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """Answers to the same questions at temperature 0.

    identical: share that is the same to the last character
    first_divergence: characters that two answers share before they part, the earliest; None where
    all are the same
    distance: normalized edit distance in words, 0 the same and 1 nothing in common, the mean
    """

    identical: float
    first_divergence: int | None
    distance: float


def likeness(own: Mapping[str, str], theirs: Mapping[str, str]) -> Likeness | None:
    """Compare the answers that both gave; None where there is none."""
    pairs = [(own[name], theirs[name]) for name in own if name in theirs]
    if not pairs:
        return None
    parting = [shared_start(one, other) for one, other in pairs if one != other]
    return Likeness(
        identical=1 - len(parting) / len(pairs),
        first_divergence=min(parting, default=None),
        distance=sum(edit_distance(one, other) for one, other in pairs) / len(pairs),
    )


def shared_start(one: str, other: str) -> int:
    """Count the characters that two texts begin with alike.

    >>> shared_start("the red fox", "the rat")
    5
    """
    together = zip(one, other, strict=False)
    return next(
        (place for place, (a, b) in enumerate(together) if a != b), min(len(one), len(other))
    )


def edit_distance(one: str, other: str) -> float:
    """Share of words to insert, delete or replace (Levenshtein), of the longer text.

    >>> edit_distance("a b c d", "a x c d")
    0.25
    """
    first, second = one.split(), other.split()
    longest = max(len(first), len(second))
    return _levenshtein(first, second) / longest if longest else 0.0


def _levenshtein(first: Sequence[str], second: Sequence[str]) -> int:
    row = list(range(len(second) + 1))
    for number, word in enumerate(first, start=1):
        steps = [number]
        for place, ((diagonal, above), other) in enumerate(zip(pairwise(row), second, strict=True)):
            steps.append(min(above + 1, steps[place] + 1, diagonal + (word != other)))
        row = steps
    return row[-1]
