"""Prompts of exact length in natural text, the same for every configuration, none sent twice.

The text is a small corpus of our own (prose, code, JSON, chat), because a draft model accepts
random tokens at a rate that means nothing. It is tokenized once by the server; a prompt is a
stretch of it behind a head of a few random tokens. Since blocks of a prefix cache are keyed by
everything before them, the head alone keeps two prompts from sharing any.
"""

import hashlib
import json
import random
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import aiohttp

from autotune.load.streaming import HTTP_OK
from autotune.model.host import RunningServer

HEAD_TOKENS = 8
_KINDS = ("prose", "code", "json", "chat")
_CHARACTERS_PER_TOKEN = 4
_GOLDEN_RATIO = 0.6180339887498949


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptKey:
    """What makes a prompt fresh: every field that differs gives another text."""

    seed: int
    workload: str
    phase: str
    concurrency: int
    repeat: int
    index: int = 0

    @property
    def level(self) -> str:
        return f"{self.seed}/{self.workload}/{self.phase}/{self.concurrency}/{self.repeat}"

    @property
    def salt(self) -> str:
        """Name the request for `cache_salt`, vLLM's own way to keep prefixes apart."""
        return hashlib.sha256(f"{self.level}/{self.index}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The text as the served tokenizer sees it; without tokens prompts are text of a rough length.

    start: what the tokenizer puts before every text, such as a BOS token
    """

    tokens: tuple[int, ...] = ()
    start: tuple[int, ...] = ()

    @property
    def exact(self) -> bool:
        return bool(self.tokens)

    def prompt(self, key: PromptKey, length: int) -> list[int] | str:
        """Cut one prompt: token ids, or text where the server does not tokenize."""
        if not self.exact:
            text = corpus_text()
            size = max(1, length * _CHARACTERS_PER_TOKEN - len(key.salt) - 1)
            return f"{key.salt} {_stretch(text, _offset(key, len(text)), size)}"
        head = [*self.start, *self._head(key)][:length]
        offset = _offset(key, len(self.tokens))
        return [*head, *_stretch(self.tokens, offset, length - len(head))]

    def _head(self, key: PromptKey) -> list[int]:
        source = _source(f"{key.level}/{key.index}")
        return source.choices(self.tokens, k=HEAD_TOKENS)


@cache
def corpus_text() -> str:
    """Read all kinds of text, one after the other."""
    folder = files("autotune.load") / "corpus"
    return "\n\n".join((folder / f"{kind}.txt").read_text(encoding="utf-8") for kind in _KINDS)


async def tokenize_corpus(session: aiohttp.ClientSession, server: RunningServer) -> Corpus:
    """Have the server tokenize the corpus, and learn what it puts before a text."""
    tokens = await _tokenize(session, server, corpus_text(), special=False)
    plain = await _tokenize(session, server, "a", special=False)
    full = await _tokenize(session, server, "a", special=True)
    if not tokens or not plain or full is None:
        return Corpus()
    start = full[: len(full) - len(plain)] if full[-len(plain) :] == plain else ()
    return Corpus(tokens=tokens, start=start)


async def _tokenize(
    session: aiohttp.ClientSession, server: RunningServer, text: str, *, special: bool
) -> tuple[int, ...] | None:
    """Ask `/tokenize`; None where there is no such thing."""
    question = {"model": server.served_model, "prompt": text, "add_special_tokens": special}
    try:
        async with session.post("/tokenize", json=question) as response:
            if response.status != HTTP_OK:
                await response.read()
                return None
            answer = json.loads(await response.read())
    except (aiohttp.ClientError, OSError, ValueError):
        return None
    return _token_ids(answer)


def _token_ids(answer: Any) -> tuple[int, ...] | None:
    tokens = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        return None
    return tuple(tokens)


def _offset(key: PromptKey, size: int) -> int:
    """Place a prompt so that the requests of one level cover all kinds of text evenly.

    Independent random places would give every level its own mix, and with it its own acceptance.
    """
    share = _source(key.level).random() + key.index * _GOLDEN_RATIO
    return int(share % 1.0 * size)


Text = TypeVar("Text", str, tuple[int, ...])


def _stretch(text: Text, offset: int, size: int) -> Text:
    """Take a stretch of the text, which goes on at its beginning where it ends.

    A prompt longer than the text has to repeat some. Its end is still text that stands nowhere
    else in it: otherwise the answer would copy what followed the first time, which is a gift to
    every draft model.
    """
    turned = text[offset:] + text[:offset]
    if size <= len(text):
        return turned[:size]
    kept = len(text) // 4
    repeated, end = turned[:-kept], turned[-kept:]
    rounds = size // len(repeated) + 1
    return (repeated * rounds)[: size - kept] + end


def _source(key: str) -> random.Random:
    return random.Random(key)  # noqa: S311 - the same prompts for everybody, not secrets
