"""A server log as text that can be searched: colors gone, prefixes peeled, lines found by offset.

Nothing is split into lines up front: a log may be megabytes of progress bars, and only the few
lines that hold a phrase of interest are ever looked at.
"""

import heapq
import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, cast

Level: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|ESC\[[\d;]*m"
)

# `ERROR 08-14 08:00:55 [core.py:1330] `; before 0.7 without the opening bracket.
_VLLM_PREFIX = re.compile(
    r"\b(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? "
    r"\[?[\w./<>-]+:\d+\](?: |$)"
)
_UVICORN_PREFIX = re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL): {2,}")
_TORCH_PREFIX = re.compile(r"\[(?P<level>[IWEF])\d{3,4} [\d:.]+ [^\]]*\] ?")
_PYTHON_WARNING = re.compile(r"(?:\S+:\d+: )?\w*Warning: ")
_TORCH_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}

# What stands before a line that has no prefix of vLLM's: a traceback, native output, uvicorn.
_OUTER_PREFIX = re.compile(
    r"""
    (?:
        [A-Z][a-z]{2}\ [ \d]\d\ \d\d:\d\d:\d\d\ \S+\ [^\s:]+:\ ?          # journald, syslog
      | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?\s  # ISO time
      | (?:\d+\ )?(?:stdout|stderr)(?:\ [FP]|:)\ ?                       # kubernetes, sidecars
      | [a-zA-Z][\w.-]*\s*\|\ ?                                          # docker compose
      | \((?:[A-Za-z][\w=]*\ ){0,3}pid=[^)]*\)\ ?                        # (EngineCore pid=1)
      | \([A-Z]\w*\)\ ?
      | \[(?![IWEF]\d{3,4}\ )(?!Errno|shutdown|Autotuner|FP4)[\w./:@\ -]{1,120}\]:?\ ?  # [rank0]:
      | [>│|]\ ?                                                         # quoted, in a terminal frame
      | -\ [\w.]+\ -\ (?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\ -\ ?        # a Python logger around it
    )
    """,
    re.VERBOSE,
)

# Long enough for nested prefixes; a phrase further inside a line is its message.
_PREFIX_REACH = 300
# A line that a terminal may have broken is at least this long.
_WRAPPED_FROM = 40
_MAX_LINE = 4000
_JSON_KEYS = ("log", "message", "msg", "MESSAGE")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: where it starts, as it stands, the message without prefixes, its own level."""

    start: int
    raw: str
    message: str
    level: Level | None

    @property
    def harmless(self) -> bool:
        """Whether its own logger says that it is no error."""
        return self.level in {"DEBUG", "INFO", "WARNING"}


class LogText:
    """A log that is searched by phrase."""

    def __init__(self, source: str | bytes) -> None:
        text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
        # Somebody's clipboard or pager spells the escape character out.
        if "\x1b" in text or "ESC[" in text:
            text = _ANSI.sub("", text)
        self._numbered = text
        # A progress bar redraws with \r: each drawing is a line, all of them one numbered line.
        self.text = text.replace("\r", "\n") if "\r" in text else text
        # One byte a character at the same offsets: a banner of block characters would make every
        # search twice as slow.
        self._plain = self.text.encode("ascii", "replace").decode("ascii")
        self._lines: dict[int, LogLine] = {}

    @cached_property
    def _breaks(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self._numbered)]

    def line_number(self, offset: int) -> int:
        """Count from 1, as an editor does."""
        return bisect_right(self._breaks, offset - 1) + 1

    def offsets(
        self, phrases: tuple[str, ...], start: int = 0, end: int | None = None
    ) -> Iterator[int]:
        """Find where the lines start that hold one of the phrases, in order."""
        if len(phrases) == 1:
            yield from self._offsets(phrases[0], start, end)
            return
        previous = -1
        for offset in heapq.merge(*(self._offsets(phrase, start, end) for phrase in phrases)):
            if offset != previous:
                yield offset
            previous = offset

    def _offsets(self, phrase: str, start: int, end: int | None) -> Iterator[int]:
        stop = len(self.text) if end is None else end
        found = self._plain.find(phrase, start, stop)
        while found >= 0:
            yield self._plain.rfind("\n", 0, found) + 1
            line_end = self._plain.find("\n", found)
            if line_end < 0:
                return
            found = self._plain.find(phrase, line_end + 1, stop)

    def line(self, start: int) -> LogLine:
        """Give the line that starts at an offset."""
        known = self._lines.get(start)
        if known is None:
            end = self.text.find("\n", start)
            raw = self.text[start : len(self.text) if end < 0 else end].rstrip()
            known = self._lines[start] = read_line(raw, start)
        return known

    def line_end(self, line: LogLine) -> int:
        """Give the offset behind a line."""
        end = self.text.find("\n", line.start)
        return len(self.text) if end < 0 else end

    def after(self, line: LogLine) -> LogLine | None:
        """Give the next line that says anything."""
        position = line.start
        while (end := self.text.find("\n", position)) >= 0:
            following = self.line(end + 1)
            if following.message.strip():
                return following
            position = end + 1
        return None

    def readings(self, line: LogLine) -> Iterator[str]:
        """Give the message, then the message with what a terminal may have broken off it."""
        yield line.message
        if len(line.raw) < _WRAPPED_FROM:
            return
        following = self.after(line)
        if following is None or following.level is not None:
            return
        if following.raw[:1] == "(" and following.message != following.raw:
            return
        rest = following.message.lstrip()
        yield line.message + rest
        yield f"{line.message} {rest}"


def read_line(raw: str, start: int = 0) -> LogLine:
    """Peel what containers, supervisors and loggers put before a message."""
    text = _unpack(raw)[:_MAX_LINE] if raw[:1] == "{" else raw[:_MAX_LINE]
    if nested := list(_VLLM_PREFIX.finditer(text[:_PREFIX_REACH])):
        level = cast("Level", nested[-1]["level"])
        return LogLine(start, raw, text[nested[-1].end() :], level)
    text = _peel(text)
    if own := _UVICORN_PREFIX.match(text):
        return LogLine(start, raw, text[own.end() :], cast("Level", own["level"]))
    if own := _TORCH_PREFIX.match(text):
        level = cast("Level", _TORCH_LEVELS[own["level"]])
        return LogLine(start, raw, text[own.end() :], level)
    return LogLine(start, raw, text, "WARNING" if _PYTHON_WARNING.match(text) else None)


def _peel(text: str) -> str:
    position = 0
    for _ in range(8):
        found = _OUTER_PREFIX.match(text, position)
        if found is None:
            break
        position = found.end()
    return text[position:]


def _unpack(raw: str) -> str:
    """Take the message out of a JSON line (docker json-file, structured journald)."""
    if not raw.endswith("}"):
        return raw
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    if not isinstance(parsed, dict):
        return raw
    for key in _JSON_KEYS:
        if isinstance(parsed.get(key), str):
            return str(parsed[key]).rstrip()
    return raw


def message_of(line: str) -> str:
    """Take the prefixes of processes, containers and loggers off a line.

    >>> message_of("(EngineCore pid=7) ERROR 08-14 08:00:55 [core.py:1330] ValueError: no")
    'ValueError: no'
    """
    return read_line(line).message.strip()
