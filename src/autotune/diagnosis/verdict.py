"""Reads a whole log: ready, failed or still starting, with the decisive line and what to do.

A log knows less than whoever holds the process: what the exit code adds is given as an argument.
Watching a live server (a hang, a guard on the host's memory) is somebody else's job.
"""

from dataclasses import dataclass, replace

from autotune.diagnosis.evidence import Window, find_reason, went_on
from autotune.diagnosis.exits import Explanation, explain_exit
from autotune.diagnosis.facts import read_facts, sentences
from autotune.diagnosis.log_text import LogLine, LogText
from autotune.diagnosis.milestones import (
    Milestones,
    any_stop,
    banner,
    orderly_stop,
    read_milestones,
    stuck,
)
from autotune.diagnosis.signatures import Hit, hits, load_signatures
from autotune.diagnosis.startup import progress
from autotune.model.diagnosis import Diagnosis, Limit, LogOutcome, ServerFacts

_COMPLAINTS = (
    "spec_decode_collapse",
    "jit_in_service",
    "performance_warning",
    "preemption",
)
_MEMORY_QUERIES = ("mem_get_info", "cudaMemGetInfo")
_MAX_LINE = 2000
_LAST_LINES = 200
# How far above an exception its traceback reaches.
_TRACEBACK = 6000

# The newest of these that was reached names the step that ran out of memory.
_MEMORY_STEPS = (
    ("Capturing ", "oom_graph_capture"),
    ("KV cache size: ", "oom_kv_cache"),
    ("GPU blocks: ", "oom_kv_cache"),
    ("Loading weights took", "oom_profiling"),
    ("Loading model weights took", "oom_profiling"),
)
# On unified memory even asking for the free memory fails while the page cache holds it.
_PAGE_CACHE = Explanation(
    family="memory_occupied",
    failure_class="uma_accounting_oom",
    remedy="Wait until the host's memory is available again, or drop the page cache: it failed before any weight was loaded.",
)
_SILENT_DEATH = Explanation(
    family="engine_died",
    failure_class="engine_silent_death",
    remedy="Restart the server: requests wait, none runs and no token comes, although it still answers.",
)
_CUT_OFF = Explanation(
    family="unknown",
    failure_class="unknown",
    remedy="Get the rest of the log: it ends inside a traceback, before the exception.",
)
_STOPPED = Explanation(
    family="interrupted",
    failure_class="terminated",
    remedy="Start it again: somebody asked the server to stop.",
)


@dataclass(frozen=True)
class _Log:
    """A log with what every diagnosis of it carries."""

    text: LogText
    milestones: Milestones
    facts: ServerFacts
    warnings: tuple[str, ...]


def diagnose(
    text: str | bytes, *, exit_code: int | None = None, stopped_by_us: bool = False
) -> Diagnosis:
    """Say what a vLLM server log means. Takes any bytes, and never raises.

    exit_code: of the process or container, None while it runs or where nobody knows
    stopped_by_us: what the log says about being stopped is then no failure
    """
    log = _read(LogText(text))
    reason, served = _reason(log, stopped_by_us=stopped_by_us)
    if reason is not None:
        return _failed_by(log, reason, served=served is not None, exit_code=exit_code)
    return _without_reason(log, served, exit_code=None if stopped_by_us else exit_code)


def _read(text: LogText) -> _Log:
    milestones = read_milestones(text)
    start, failure = _newest_run(text, milestones)
    found = [] if failure is None else [f"before it was ready: {failure.line.message.strip()}"]
    for failure_class in _COMPLAINTS:
        found += sentences(text, failure_class, start=start)
    for signature in load_signatures():
        if signature.level == "clue" and (hit := next(hits(text, signature, start=start), None)):
            found.append(hit.line.message.strip())
    return _Log(
        text=text,
        milestones=milestones,
        facts=read_facts(text, start=start),
        warnings=tuple(sentence[:_MAX_LINE] for sentence in found),
    )


def _newest_run(log: LogText, milestones: Milestones) -> tuple[int, Hit | None]:
    """Find where the run that became ready begins, if an earlier one in the same log failed."""
    if milestones.announced is None:
        return 0, None
    failure = find_reason(log, Window(start=0, end=milestones.start, served=False))
    if failure is None:
        return 0, None
    start = banner(log, failure.line.start)
    return (start if start is not None and start < milestones.start else 0), failure


def _reason(log: _Log, *, stopped_by_us: bool) -> tuple[Hit | None, LogLine | None]:
    """Find why it failed, and the line that shows that it served before."""
    text, milestones = log.text, log.milestones
    stopped = any_stop(text, milestones.start) if stopped_by_us else None
    end = None if stopped is None else stopped.start
    announced = milestones.announced is not None
    reason = find_reason(text, Window(start=milestones.start, end=end, served=announced))
    served = _served(milestones, reason)
    if reason is not None and served is not None and not announced:
        # No announcement in this excerpt, but it answered before anything went wrong.
        reason = find_reason(text, Window(start=served.start, end=end, served=True))
    if reason is not None and stopped_by_us and reason.signature.family == "interrupted":
        reason = None
    if reason is not None and served is not None and _ended_in_order(text, served, reason):
        reason = None
    return reason, served


def _served(milestones: Milestones, reason: Hit | None) -> LogLine | None:
    if milestones.announced is not None:
        return milestones.announced
    answered = milestones.answered
    if answered is None or (reason is not None and reason.line.start <= answered.start):
        return None
    return answered


def _ended_in_order(log: LogText, served: LogLine, reason: Hit) -> bool:
    """Tell a server that was asked to stop from one that died: both shut down in the end."""
    stop = orderly_stop(log, served.start)
    signature = reason.signature
    if stop is None or signature.failure_class == "ctrl_c":
        return False
    # The engine may hear the signal before the API server does.
    if signature.failure_class == "terminated":
        return True
    return signature.level in {"general", "consequence"} and stop.start < reason.line.start


def _failed_by(log: _Log, reason: Hit, *, served: bool, exit_code: int | None) -> Diagnosis:
    signature = reason.signature
    why = Explanation(
        family=signature.family or "unknown",
        failure_class=signature.failure_class,
        remedy=signature.remedy,
    )
    by_exit = explain_exit(exit_code)
    if signature.level == "consequence" and by_exit is not None and by_exit.tells_more:
        why = by_exit
    if signature.failure_class == "oom":
        why = _which_memory(log.text.text[: reason.line.start], why, served=served)
    return _diagnosis(log, "failed", reason.line, why, reason.limit)


def _which_memory(before: str, why: Explanation, *, served: bool) -> Explanation:
    """Tell by what stands before it which step ran out of memory."""
    if served:
        return replace(why, failure_class="oom_runtime")
    traceback = before[-_TRACEBACK:]
    if "Loading weights" not in before and any(query in traceback for query in _MEMORY_QUERIES):
        return _PAGE_CACHE
    steps = (found for phrase, found in _MEMORY_STEPS if phrase in before)
    return replace(why, failure_class=next(steps, "oom_weights"))


def _without_reason(log: _Log, served: LogLine | None, *, exit_code: int | None) -> Diagnosis:
    text, start = log.text, log.milestones.start
    by_exit = explain_exit(exit_code)
    if by_exit is not None:
        if served is not None and (line := orderly_stop(text, start)):
            return _diagnosis(log, "failed", line, _STOPPED)
        return _diagnosis(log, "failed", _last(text), by_exit)
    if line := stuck(text, start):
        return _diagnosis(log, "failed", line, _SILENT_DEATH)
    if served is not None:
        return _diagnosis(log, "ready", served)
    if line := _cut_off(text):
        return _diagnosis(log, "failed", line, _CUT_OFF)
    return _diagnosis(log, "incomplete", _last(text, telling=True))


def _diagnosis(
    log: _Log,
    outcome: LogOutcome,
    line: LogLine | None,
    why: Explanation | None = None,
    limit: Limit | None = None,
) -> Diagnosis:
    return Diagnosis(
        outcome=outcome,
        family=None if why is None else why.family,
        failure_class=None if why is None else why.failure_class,
        remedy=None if why is None else why.remedy,
        line=None if line is None else line.raw.strip()[:_MAX_LINE],
        line_number=None if line is None else log.text.line_number(line.start),
        limit=limit,
        facts=log.facts,
        warnings=log.warnings,
    )


def _cut_off(log: LogText) -> LogLine | None:
    """Find a traceback; asked only where no exception was found."""
    for offset in log.offsets(("Traceback (most recent call last)",)):
        line = log.line(offset)
        if not line.harmless and not went_on(log, line):
            return line
    return None


def _last(log: LogText, *, telling: bool = False) -> LogLine | None:
    """Give the newest line; `telling`: the newest that names a phase, where there is one."""
    newest, end = None, len(log.text)
    for _ in range(_LAST_LINES):
        start = log.text.rfind("\n", 0, end) + 1
        line = log.line(start)
        if line.raw.strip():
            newest = newest or line
            if not telling or progress(line.raw) is not None:
                return line
        if start == 0:
            break
        end = start - 1
    return newest
