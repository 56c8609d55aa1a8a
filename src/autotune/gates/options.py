"""The options that gates share, checked in words that name the option and what it may be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from autotune.gates.asking import Rule

Thinking: TypeAlias = bool | Literal["both"] | None

USUAL_MOMENTS = frozenset(("cold", "warm", "load", "after"))
LONG_CONTEXT_TOKENS = 4000
SAMPLED = 0.7
"""Temperature of the question that is sampled, once, under load."""
_SHARE = "it must be a number above 0 and up to 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What every gate that asks questions can be told.

    calls: rounds of its questions, each round in other words
    threshold: share of the questions that must pass
    not_worse_than_baseline: judge by the baseline instead: reject what is worse than it by more than
    this share (0.1 is ten points) beyond doubt, by an exact test at 5 %
    strict_cold: reject also where only the first requests after the start go wrong
    finalist_calls: rounds that are asked again of what would enter the front; 0: none
    thinking: turns thinking on or off by `enable_thinking` of the chat template, or asks `both`;
    left out, the template decides. Thoughts count against max_tokens.
    max_tokens: budget of an answer; one that is cut is asked for once more with four times that
    """

    calls: int = 1
    threshold: float = 1.0
    not_worse_than_baseline: float | None = None
    strict_cold: bool = False
    finalist_calls: int = 0
    thinking: Thinking = None
    max_tokens: int = 256

    def __post_init__(self) -> None:
        check_asking(self.calls, self.threshold, self.thinking, self.max_tokens)
        check_count("finalist_calls", self.finalist_calls, least=0)
        if self.not_worse_than_baseline is not None:
            check_share("not_worse_than_baseline", self.not_worse_than_baseline, zero=True)
        if not isinstance(self.strict_cold, bool):
            raise ValueError(f"strict_cold is {self.strict_cold!r}: it must be true or false")  # noqa: TRY004 - one error for a file

    @property
    def moments(self) -> frozenset[str]:
        return USUAL_MOMENTS | ({"final"} if self.finalist_calls else set())

    @property
    def rule(self) -> Rule:
        return Rule(threshold=self.threshold, margin=self.not_worse_than_baseline)

    def rounds(self, moment: str) -> int:
        return self.finalist_calls if moment == "final" else self.calls

    def thinking_modes(self) -> Sequence[tuple[str, bool | None]]:
        """Name the ways to ask, with what each adds to the name of a case."""
        if self.thinking == "both":
            return (("plain/", False), ("thinking/", True))
        return (("", self.thinking),)


def ways(streams: Sequence[bool], place: int, moment: str) -> Sequence[bool]:
    """Choose how a question is asked: whole, streamed or both.

    Under load every other question is asked whole and the rest streamed, after it the other way
    round: the two together ask everything once, in the time of one pass.
    """
    if moment not in ("load", "after"):
        return streams
    start = (place + (moment == "after")) % 2
    return streams[start : start + 1]


def check_asking(calls: object, threshold: object, thinking: object, max_tokens: object) -> None:
    """Check what every gate that asks questions has.

    Raises:
        ValueError: With the option and its legal values.
    """
    check_count("calls", calls)
    check_count("max_tokens", max_tokens)
    check_share("threshold", threshold)
    if thinking not in (None, "both") and not isinstance(thinking, bool):
        # A text would reach the chat template, where every text that is not empty is true.
        raise ValueError(f"thinking is {thinking!r}: it must be true, false, both or left out")


def check_share(name: str, value: object, *, zero: bool = False) -> None:
    """Refuse what is no share.

    Raises:
        ValueError: With the option and its legal values.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (0 < value <= 1 or (zero and value == 0)):  # type: ignore[operator]
        raise ValueError(f"{name} is {value!r}: {_SHARE}")


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Refuse what is no whole number from `least` up.

    Raises:
        ValueError: With the option and its legal values.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}: it must be a whole number from {least} up")


def thinking_option(thinking: bool | None) -> dict[str, object]:
    """Body fields that turn thinking on or off; none leaves it to the model's template."""
    return {} if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}}


def check_choices(name: str, values: object, known: Sequence[str]) -> None:
    """Refuse an empty list, and what is not among the known.

    Raises:
        ValueError: With the option and its legal values.
    """
    if not isinstance(values, tuple | list) or not values or not set(values) <= set(known):
        raise ValueError(f"{name} is {values!r}: it must be a list of {', '.join(known)}")
