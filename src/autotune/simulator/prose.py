"""Plain text to answer with: sentences in an order that depends on the prompt, endless on demand."""

import random
import re

from autotune.simulator.tokenizer import Tokenizer

_SENTENCES = tuple(
    f" {line.strip()}"
    for line in """
    A batch that grows keeps the weights busy for longer than a single request can.
    The first answer is rarely the best one, so it pays to look at a second.
    Memory moves at a fixed pace, and every byte that is not read is time saved.
    Small models answer quickly, while larger ones tend to be right more often.
    When a queue forms, the waiting time says more about the queue than about the engine.
    It helps to write down what was measured, where, and with which settings.
    A cache is only useful when the same words come back.
    Several drafts can be checked at once because reading the weights is the costly part.
    Long prompts take their share of every step until they have been read in full.
    One number without its spread is a story and not yet a result.
    The river was calm in the morning and the boats left the harbor one after another.
    An old map of the town shows a market where the library stands today.
    Most gardens need less water than people think and more patience than they have.
    The train to the coast leaves early, and the seats by the window go first.
    Good bread takes flour, water, salt and time, and time is what is missing most often.
    Stars that look close together may be very far apart along the line of sight.
    A careful reader notices the footnotes before the headlines.
    In winter the lake freezes from the shore to the middle, slowly and then all at once.
    The letter arrived a week late, yet it changed the plan completely.
    Each tool in the shop has its place, and each place has a tool.
    Music from the square could be heard as far as the bridge.
    The experiment was repeated on three days to see whether the weather mattered.
    Cold air sinks, warm air rises, and the room is never quite still.
    People remember the end of a journey better than its middle.
    A short note was pinned to the door with the hours and a telephone number.
    The engineer listened to the machine for a while before touching anything.
    Nobody could say who had planted the tree, but everybody had a story about it.
    It is easier to add a feature than to remove one that a single person uses.
    The answer depends on the question, and the question depends on who asks.
    By the evening the snow had covered the path and the signs beside it.
    Coffee was served at ten, and the discussion began shortly before.
    The second edition corrected the errors of the first and added new ones.
    """.strip().splitlines()
)
_PIECES: tuple[tuple[str, ...], ...] = tuple(
    tuple(Tokenizer.split(sentence)) for sentence in _SENTENCES
)
_ADD = re.compile(r"(-?\d+)\s*(\+|-|\*|x|times|plus|minus)\s*(\d+)")
_ECHO = re.compile(
    r"\b(?:say|reply|respond|answer|repeat|write|output|print)\b[^\"'“]{0,60}[\"'“]([^\"'”]+)[\"'”]",
    flags=re.IGNORECASE,
)
_ECHO_WORD = re.compile(
    r"\b(?:reply|respond|answer|say)\b[^:]{0,60}?(?::\s*|\bthe word\s+)([A-Za-z0-9]+)",
    flags=re.IGNORECASE,
)
_NATURAL_LENGTH = (60, 220)


def prose(content: int, tokens: int) -> list[str]:
    """Return exactly so many pieces; the same content gives the same text, longer or shorter."""
    order = list(range(len(_PIECES)))
    random.Random(content).shuffle(order)
    pieces: list[str] = []
    turn = 0
    while len(pieces) < tokens:
        pieces.extend(_PIECES[order[turn % len(order)]])
        turn += 1
    pieces = pieces[:tokens]
    if pieces:
        pieces[0] = pieces[0].lstrip()
    return pieces


def natural_length(content: int) -> int:
    """Choose how long the answer would be if nothing else decided."""
    return random.Random(content + 1).randint(*_NATURAL_LENGTH)


def short_answer(text: str) -> str | None:
    """Answer what has one right answer: sums, and requests to repeat something."""
    echo = _ECHO.search(text) or _ECHO_WORD.search(text)
    if echo is not None:
        return echo[1]
    sum_ = _ADD.search(text)
    if sum_ is None:
        return None
    left, sign, right = int(sum_[1]), sum_[2], int(sum_[3])
    if sign in {"+", "plus"}:
        value = left + right
    elif sign in {"-", "minus"}:
        value = left - right
    else:
        value = left * right
    return f"The result is {value}."
