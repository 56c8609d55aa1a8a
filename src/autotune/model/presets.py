"""Loads that practitioners quote, by name: exact lengths in tokens and the levels to try.

`ppN` is a prompt of N tokens, `tgN` an answer of N tokens, `dN` a context of N tokens before the
prompt, as llama-bench and llama-benchy name them. A depth is simply a longer prompt here: every
prompt is fresh, so nothing of it comes from a cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass

LADDER = (1, 2, 4, 8, 16, 32)

REQUESTS_PER_SLOT = 8
"""With 8 requests a slot a steady window is within 0.2 % of the truth (sd 1.5 %, simulated)."""

FEWEST_REQUESTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Lengths in tokens; concurrency: requests in flight, one level each."""

    input_tokens: int
    output_tokens: int
    concurrency: tuple[int, ...]


PRESETS: Mapping[str, Preset] = {
    "prompt-heavy": Preset(input_tokens=8000, output_tokens=1000, concurrency=(1, 4, 16)),
    "decode-heavy": Preset(input_tokens=1000, output_tokens=8000, concurrency=(1, 4, 16)),
    "balanced": Preset(input_tokens=1000, output_tokens=1000, concurrency=(1, 4, 16)),
    "agent": Preset(input_tokens=1000, output_tokens=200, concurrency=(1, 8)),
    "chat": Preset(input_tokens=500, output_tokens=250, concurrency=(1, 16)),
    "tg32": Preset(input_tokens=32, output_tokens=32, concurrency=LADDER),
    "tg128": Preset(input_tokens=32, output_tokens=128, concurrency=LADDER),
    "tg256": Preset(input_tokens=32, output_tokens=256, concurrency=LADDER),
    "tg512": Preset(input_tokens=32, output_tokens=512, concurrency=LADDER),
    "pp2048-tg128": Preset(input_tokens=2048, output_tokens=128, concurrency=LADDER),
    "pp2048-tg128-d4096": Preset(input_tokens=6144, output_tokens=128, concurrency=LADDER),
    "pp2048-tg128-d8192": Preset(input_tokens=10240, output_tokens=128, concurrency=LADDER),
}


def default_requests(concurrency: int) -> int:
    """How many requests a level sends where nobody said so.

    >>> [default_requests(level) for level in (1, 4, 32)]
    [8, 32, 256]
    """
    return max(FEWEST_REQUESTS, REQUESTS_PER_SLOT * concurrency)
