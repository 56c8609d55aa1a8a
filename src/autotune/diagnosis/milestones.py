"""Moments in a server's life that its log shows: ready, serving, asked to stop, stuck.

A line that reports the KV cache, or that the server is starting on a port, is no readiness: servers
have failed after both.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.diagnosis.log_text import LogLine, LogText

_ANNOUNCED = ("Application startup complete", "Uvicorn running on")
_ACCESS = re.compile(
    r'"(?:GET|POST) /(?:health|ping|v1/|version|metrics|tokenize|generate|load)\S* HTTP/[\d.]+" 200\b'
)
_GENERATED = re.compile(r"Avg generation throughput: (?!0\.0 )[\d.]+ tokens/s")
_BANNERS = ("API server version", "non-default args", "Starting vLLM...")

# uvicorn's words, and vLLM's own since 0.20. The engine's come with a signal of its own.
_ORDERLY = (
    "Shutting down",
    "Waiting for application shutdown",
    "[shutdown] API server: shutdown triggered",
)
_ANY_STOP = (
    *_ORDERLY,
    "trigger received signal=",
    "WorkerProc was terminated",
    "KeyboardInterrupt",
)

_STATS = re.compile(r"Running: (\d+) reqs, .*?Waiting: (\d+) reqs")
_SPEED = re.compile(r"Avg generation throughput: ([\d.]+) tokens/s")


@dataclass(frozen=True)
class Milestones:
    """Where in the log it happened; None where it did not.

    announced: the server's last word that it is up; answered: the first request it answered
    """

    announced: LogLine | None
    answered: LogLine | None

    @property
    def start(self) -> int:
        """Where the life after the start begins; what was before is over."""
        return 0 if self.announced is None else self.announced.start


def read_milestones(log: LogText) -> Milestones:
    announced = None
    for offset in log.offsets(_ANNOUNCED):
        announced = log.line(offset)
    return Milestones(announced=announced, answered=_answered(log))


def _answered(log: LogText) -> LogLine | None:
    for offset in log.offsets(("HTTP/", "Avg generation throughput: ")):
        line = log.line(offset)
        if _ACCESS.search(line.message) or _GENERATED.search(line.message):
            return line
    return None


def orderly_stop(log: LogText, start: int) -> LogLine | None:
    """Find where the API server began to shut down in order."""
    return _first(log, _ORDERLY, start)


def any_stop(log: LogText, start: int) -> LogLine | None:
    """Find the first sign that something is being stopped."""
    return _first(log, _ANY_STOP, start)


def banner(log: LogText, start: int) -> int | None:
    """Find the next place where a server introduces itself."""
    return next(log.offsets(_BANNERS, start), None)


def _first(log: LogText, phrases: tuple[str, ...], start: int) -> LogLine | None:
    offset = next(log.offsets(phrases, start), None)
    return None if offset is None else log.line(offset)


def stuck(log: LogText, start: int) -> LogLine | None:
    """Find the line that shows requests waiting while none runs and no token comes.

    The engine can die without a word while the API server goes on answering. One such moment
    happens to a healthy server, so where there are two reports or more, the last two must agree.
    """
    newest = list(_statistics(log, start))[-2:]
    if not newest or not all(idle for _, idle in newest):
        return None
    return newest[-1][0]


def _statistics(log: LogText, start: int) -> Iterator[tuple[LogLine, bool]]:
    speed = 0.0
    for offset in log.offsets(("Running: ", "Avg generation throughput: "), start):
        line = log.line(offset)
        if found := _SPEED.search(line.message):
            speed = float(found[1].rstrip(".") or 0)
        if counts := _STATS.search(line.message):
            idle = int(counts[1]) == 0 and int(counts[2]) > 0 and speed == 0.0
            yield line, idle
