"""The table of known messages: read from `signatures.yaml`, compiled one by one when first needed.

A pattern is searched in the message of a line, behind every prefix. Five levels:

root          says why it failed
general       an exception that only its type explains; counts where no root is found
clue          explains a failure that other lines report, and proves none by itself
consequence   says that it failed, not why
warning       the server goes on; kept with the facts
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import yaml

from autotune.diagnosis.log_text import LogLine, LogText
from autotune.diagnosis.phrases import literal_phrases
from autotune.model.diagnosis import Limit, LimitOperator

SignatureLevel: TypeAlias = Literal["root", "general", "clue", "consequence", "warning"]


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A message and what it means.

    order: the place in the table, which decides between two that match the same line
    any_level: an INFO or WARNING line counts as well
    before_engine: counts only while no engine has been started: it is the configuration's check
    source_line: matches program text that a traceback quotes
    unless: a text on the same line that makes it something else
    """

    order: int
    pattern: str
    failure_class: str
    family: str | None
    level: SignatureLevel
    remedy: str | None
    seen: str
    any_level: bool
    before_engine: bool
    source_line: bool
    unless: str | None
    knob: str | None
    op: LimitOperator | None

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @cached_property
    def phrases(self) -> tuple[str, ...]:
        """Plain text to find candidates by."""
        return literal_phrases(self.pattern)


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A signature found in a log."""

    signature: Signature
    line: LogLine
    match: re.Match[str]

    @property
    def rank(self) -> tuple[int, int]:
        """Earlier lines first, then the more specific signature."""
        return (self.line.start, self.signature.order)

    @property
    def limit(self) -> Limit | None:
        """The bound that the message carries."""
        knob, op = self.signature.knob, self.signature.op
        text = self.match.groupdict().get("limit")
        if knob is None or op is None or text is None:
            return None
        number = float(text.replace(",", "").rstrip("."))
        return Limit(knob=knob, op=op, number=number) if number > 0 else None


@functools.cache
def load_signatures() -> tuple[Signature, ...]:
    """Read the table once."""
    # The C loader is ten times faster, and not part of every PyYAML build.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = files("autotune.diagnosis").joinpath("signatures.yaml").read_text("utf-8")
    rows = yaml.load(text, Loader=loader)  # noqa: S506 - both loaders are the safe ones
    return tuple(_signature(order, row) for order, row in enumerate(rows))


def _signature(order: int, row: Mapping[str, Any]) -> Signature:
    limit = row.get("limit") or {}
    level = row["level"]
    return Signature(
        order=order,
        pattern=row["pattern"],
        failure_class=row["class"],
        family=row.get("family"),
        level=level,
        remedy=row.get("remedy"),
        seen=row["seen"],
        any_level=row.get("any_level", level not in {"root", "general"}),
        before_engine=row.get("before_engine", False),
        source_line=row.get("source_line", False),
        unless=row.get("unless"),
        knob=limit.get("knob"),
        op=limit.get("op"),
    )


def hits(
    log: LogText, signature: Signature, *, start: int = 0, end: int | None = None
) -> Iterator[Hit]:
    """Find a signature in a part of a log, in order."""
    for offset in log.offsets(signature.phrases, start, end):
        line = log.line(offset)
        if line.harmless and not signature.any_level:
            continue
        if signature.unless is not None and signature.unless in line.raw:
            continue
        match = _match(log, signature, line)
        if match is not None:
            yield Hit(signature=signature, line=line, match=match)


def _match(log: LogText, signature: Signature, line: LogLine) -> re.Match[str] | None:
    """Match a line; a longer reading is taken where only that one carries the limit."""
    if not signature.source_line and _is_source(line.message):
        return None
    best = None
    for reading in log.readings(line):
        found = signature.regex.search(reading)
        if found is None:
            continue
        if signature.knob is None or found.groupdict().get("limit") is not None:
            return found
        best = best or found
    return best


def _is_source(message: str) -> bool:
    """Tell the lines of a traceback that quote program text."""
    stripped = message.lstrip()
    return stripped.startswith(("raise ", 'File "', "assert "))
