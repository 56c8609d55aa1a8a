"""A long conversation before a question: draft heads and kernels that fail only far from the start."""

from collections.abc import Mapping
from typing import Any

from autotune.model.host import RunningServer

CHARACTERS_A_TOKEN = 4
_SENTENCES = (
    "Entry {n}: the delivery of {n} boxes arrived in the morning and was stored in hall {hall}.",
    "Entry {n}: the inspection of machine {hall} found nothing unusual; the next one is due in spring.",
    "Entry {n}: a visitor asked for the way to room {n}, and was shown the stairs behind hall {hall}.",
)


def long_context(tokens: int, server: RunningServer) -> Mapping[str, Any]:
    """Write a system message of so many tokens, or of a third of what the server takes."""
    room = server.max_model_len
    wanted = tokens if room is None else min(tokens, room // 3)
    lines = ["A log book follows. It has nothing to do with the question after it."]
    size = 0
    while size < wanted * CHARACTERS_A_TOKEN:
        number = len(lines)
        line = _SENTENCES[number % len(_SENTENCES)].format(n=number, hall=number % 7 + 1)
        lines.append(line)
        # Digits are tokens of their own with most tokenizers: counted twice.
        size += len(line) + sum(character.isdigit() for character in line) * 2
    return {"role": "system", "content": "\n".join(lines)}
