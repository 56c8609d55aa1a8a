"""The steady window: the part of a closed-loop pass that a longer pass would be made of.

Whole-run throughput is low by the ramp and the drain: 13 % at 4 requests a slot, 3 % at 16
(simulated). The window ends when the last request is handed out, since from then on slots fall
idle, and leaves out the ramp. It spans a whole number of rounds, a round being as many hand-outs
as there are slots: with equal lengths slots march in step, and a window that cuts a round open
holds more decoding than prefill, or less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

RAMP = 0.10
"""Share of the pass that is left out at its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Seconds since the pass began. kind: how much of the pass could be left out."""

    start: float
    end: float
    kind: Literal["steady", "with_ramp", "whole_run"]

    @property
    def length(self) -> float:
        return self.end - self.start

    @property
    def warning(self) -> str | None:
        if self.kind == "steady":
            return None
        if self.kind == "with_ramp":
            return "too few requests for a steady window: it holds the ramp at the start"
        return "fewer than 2 requests a slot: throughput is that of the whole run"


def steady_window(
    hand_outs: Sequence[float],
    *,
    concurrency: int,
    first_tokens: Sequence[float],
    sent: float,
    end: float,
) -> Window:
    """Choose the window of a complete pass.

    hand_outs: when each request was given to a slot, in order; first_tokens: of those requests
    sent, end: first request on the wire, last token of all
    """
    slots = min(concurrency, len(hand_outs))
    last = len(hand_outs) - 1
    rounds = (last + 1) // slots - 1
    if rounds < 1:
        return Window(start=sent, end=end, kind="whole_run")
    settled = max(sent + RAMP * (end - sent), *first_tokens[:slots])
    for number in range(rounds, 0, -1):
        start = hand_outs[last - number * slots]
        if start >= settled:
            return Window(start=start, end=hand_outs[last], kind="steady")
    start = max(sent, hand_outs[last - rounds * slots])
    return Window(start=start, end=hand_outs[last], kind="with_ramp")
