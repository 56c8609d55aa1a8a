"""Which line is the reason: the first root cause, never its consequences.

One failure prints dozens of lines: the exception in a worker, again in the engine, `failed to start`
around them, and an exception of the API server that only points upwards.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autotune.diagnosis.log_text import LogLine, LogText
from autotune.diagnosis.signatures import Hit, Signature, SignatureLevel, hits, load_signatures
from autotune.diagnosis.startup import progress

# A configuration is checked before the first request; later the same words are about a request.
_ONLY_AT_START = {"invalid_config", "model_files", "kv_cache_too_small", "memory_occupied"}
_ENGINE_STARTED = (
    "EngineCore",
    "(Worker",
    "Initializing an LLM engine",
    "Initializing a V",
    "Starting to load model",
    "Loading model weights",
)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# Of the lines that may be noise: as many as anybody will look at.
_MOST = 200
_TRACEBACK = 4_000
# An exception that ended a serving engine stands close to the line that says so.
_NEAR = 20_000


@dataclass(frozen=True)
class Window:
    """The part of a log that is judged. `served`: it was ready where the part begins."""

    start: int
    end: int | None
    served: bool


def find_reason(log: LogText, window: Window) -> Hit | None:
    """Find what explains a failure best; None where nothing says that it failed."""
    consequence = _first(log, _of_level("consequence"), window)
    roots = _of_level("root")
    if window.served and consequence is None:
        roots = (signature for signature in roots if signature.family not in _ONLY_AT_START)
    root = _first(log, roots, window)
    if consequence is not None and consequence.signature.failure_class == "ctrl_c":
        return _after_interrupt(log, window, consequence, root)
    return root or _without_root(log, window, consequence)


def _after_interrupt(log: LogText, window: Window, ctrl_c: Hit, root: Hit | None) -> Hit:
    """Judge what follows a Ctrl-C as caused by it."""
    if root is not None and root.rank < ctrl_c.rank:
        return root
    for general in _generals(log, window):
        if general.signature.family == "interrupted":
            return general
    return ctrl_c


def _without_root(log: LogText, window: Window, consequence: Hit | None) -> Hit | None:
    if consequence is None:
        if window.served:
            return None
        general = next(iter(_generals(log, window)), None)
        return None if general is None or went_on(log, general.line) else general
    near = Window(
        start=max(window.start, consequence.line.start - _NEAR) if window.served else window.start,
        end=window.end,
        served=window.served,
    )
    generals = _generals(log, near)
    if window.served:
        # While it serves, the API server's own exceptions are about single requests.
        generals = [hit for hit in generals if "(APIServer" not in hit.line.raw]
    later = (hit for hit in generals if hit.line.start >= consequence.line.start)
    general = next(later, generals[-1] if generals else None)
    return general or _first(log, _of_level("clue"), window) or consequence


def _of_level(level: SignatureLevel) -> Iterator[Signature]:
    return (signature for signature in load_signatures() if signature.level == level)


def _first(log: LogText, signatures: Iterable[Signature], window: Window) -> Hit | None:
    """Find the earliest hit; each one found narrows the part that the rest is searched in."""
    best: Hit | None = None
    end = window.end
    for signature in signatures:
        for hit in hits(log, signature, start=window.start, end=end):
            if not _counts(log, hit):
                continue
            if best is None or hit.rank < best.rank:
                best = hit
                end = log.line_end(hit.line)
            break
    return None if best is None else _with_limit(log, best, window)


def _with_limit(log: LogText, hit: Hit, window: Window) -> Hit:
    """Prefer a repetition of the same line that carries the number, where the first is cut off."""
    if hit.signature.knob is None or hit.limit is not None:
        return hit
    for other in hits(log, hit.signature, start=hit.line.start, end=window.end):
        if other.limit is not None:
            return Hit(signature=hit.signature, line=hit.line, match=other.match)
    return hit


def _counts(log: LogText, hit: Hit) -> bool:
    if not hit.signature.before_engine:
        return True
    first_engine = next(log.offsets(_ENGINE_STARTED, 0, log.line_end(hit.line)), None)
    return first_engine is None


def _generals(log: LogText, window: Window) -> list[Hit]:
    """Collect exceptions that only their type explains: one a line, none that is a consequence."""
    best: dict[int, Hit] = {}
    for signature in _of_level("general"):
        for count, hit in enumerate(hits(log, signature, start=window.start, end=window.end)):
            if count >= _MOST:
                break
            if hit.line.start not in best and _counts(log, hit) and not _points_elsewhere(log, hit):
                best[hit.line.start] = hit
    return [best[start] for start in sorted(best)]


def _points_elsewhere(log: LogText, hit: Hit) -> bool:
    """Tell an exception that reports another one, or that another one replaced."""
    message = hit.line.message
    if hit.signature.failure_class == "python_exception" and any(
        signature.regex.search(message) for signature in _of_level("consequence")
    ):
        return True
    if _while_cleaning_up(log, hit):
        return True
    following = log.after(hit.line)
    return following is not None and following.message.startswith(_CHAINED)


def _while_cleaning_up(log: LogText, hit: Hit) -> bool:
    """Tell an exception in a finalizer: objects that were never complete complain when they go."""
    above = log.text[max(0, hit.line.start - _TRACEBACK) : hit.line.start]
    _, ignored, traceback = above.rpartition("Exception ignored in")
    return bool(ignored) and traceback.count("Traceback (most recent call last)") == 1


def went_on(log: LogText, exception: LogLine) -> bool:
    """Say whether the start went on after an exception: then somebody handled it."""
    line = log.after(exception)
    for _ in range(_MOST):
        if line is None:
            return False
        if line.level == "INFO" and progress(line.raw) not in {None, "stopping"}:
            return True
        line = log.after(line)
    return False
