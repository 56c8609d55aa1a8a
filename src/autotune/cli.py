"""Words in, exit code out. The only place that prints results.

Exit codes: 0 done, 1 nothing usable was measured or a gate failed, 2 the input file is wrong,
3 the host cannot run it, 130 interrupted with everything stopped and saved.
"""

import contextlib
import json
import math
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

from cyclopts import App, CycloptsError, Parameter

from autotune import __version__
from autotune.errors import AutotuneError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
USAGE = 2
CROWDED = (
    "warning: another autotune is measuring on this host; the two disturb each other's numbers"
)

app = App(
    name="autotune",
    version=__version__,
    help="Tune how vLLM serves a model: throughput against time to first token, proven.",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)


@app.default
def tune(
    space: Path,
    *,
    trials: Annotated[
        int | None, Parameter(help="configurations in all, baseline included")
    ] = None,
    hours: Annotated[float | None, Parameter(help="start no trial after this many hours")] = None,
    seed: Annotated[int, Parameter(help="of the search")] = 0,
    fresh: Annotated[
        bool, Parameter(negative="", help="move an old study of this name aside")
    ] = False,
    studies: Annotated[Path, Parameter(help="folder of all studies")] = Path("studies"),
    storage: Annotated[str | None, Parameter(help="Optuna storage URL that several share")] = None,
    events: Annotated[
        Path | None, Parameter(help="append progress as JSON lines to this file")
    ] = None,
    quiet: Annotated[bool, Parameter(negative="", help="no live view")] = False,
    json_output: Annotated[
        bool, Parameter(name="--json", negative="", help="print front.json instead of a table")
    ] = False,
) -> int:
    """Run the study of a search-space file, or go on with it.

    Parameters
    ----------
    space
        the search-space file, e.g. search_spaces/demo.yaml
    """
    from rich.console import Console

    from autotune import terminal, wiring
    from autotune.exporters import FrontJson
    from autotune.system.clock import SystemClock
    from autotune.system.files import alone_on_this_host

    _require_positive(trials=trials, hours=hours)
    options = wiring.Options(
        trials=trials, hours=hours, seed=seed, fresh=fresh, studies=studies, storage=storage
    )
    read = wiring.read_space(wiring.bundled_space(space))
    console = Console(stderr=True)
    with contextlib.ExitStack() as stack:
        listeners: list[terminal.LiveView | terminal.EventLog] = []
        if events is not None:
            stream = stack.enter_context(_appending(events))
            listeners.append(terminal.EventLog(stream, SystemClock()))
        if console.is_terminal and not quiet:
            view = terminal.LiveView(console, SystemClock())
            stack.enter_context(view.shown())
            listeners.append(view)
        _say(CROWDED if not stack.enter_context(alone_on_this_host()) else None)
        moved = wiring.clear_the_way(read, options)
        _say(None if moved is None else f"note: the old study is now {moved}")
        study = wiring.build_study(read, options, terminal.Fanout(listeners))
        results = study.run()
    if len(results.trials) < study.budget.trials:
        done = f"{len(results.trials)} of {study.budget.trials} configurations"
        _say(f"note: {done}: the time is up or the grid is; the same command goes on from here")
    if json_output:
        print(FrontJson().render(results), end="")
    else:
        terminal.print_results(results, _stdout(), study.place.folder)
    return 0 if results.members else 1


@app.command
def check(space: Path, *, vllm_version: str | None = None) -> int:
    """Validate a search-space file without starting anything.

    Parameters
    ----------
    space
        the search-space file
    vllm_version
        check against the shipped argument list of this version, not the installed vLLM
    """
    from autotune import wiring
    from autotune.checking import check_space

    found = check_space(wiring.read_space(wiring.bundled_space(space)), version=vllm_version)
    for fact in found.facts:
        print(fact)
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for mistake in found.mistakes:
        print(mistake, file=sys.stderr)
    return USAGE if found.mistakes else 0


@app.command
def export(
    study: str,
    *,
    pick: str = "balanced",
    format: Literal["recipe", "command"] = "recipe",  # noqa: A002  the option's name
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    studies: Path = Path("studies"),
) -> int:
    """Print a measured configuration as a recipe or a command.

    Parameters
    ----------
    study
        name or folder of a study
    pick
        throughput, ttft, balanced or the number of a trial
    format
        recipe (version 2, for sparkrun and others) or a vllm serve command
    output
        write to this file instead of stdout
    studies
        folder of all studies
    """
    from autotune import wiring
    from autotune.exporters import FORMATS
    from autotune.system.files import write_whole

    text = FORMATS[format](pick=pick).render(wiring.load_pick(study, studies, pick))
    if output is None:
        print(text, end="")
    else:
        write_whole(output, text)
    return 0


@app.command
def report(study: str, *, studies: Path = Path("studies")) -> int:
    """Print the results of a study.

    Parameters
    ----------
    study
        name or folder of a study
    studies
        folder of all studies
    """
    from autotune import terminal, wiring

    results = wiring.load_results(study, studies)
    terminal.print_results(results, _stdout(), wiring.find_study(study, studies))
    return 0 if results.members else 1


@app.command
def diagnose(
    log: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    *,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Say what a vLLM log means: ready, failed and why, or still starting.

    Parameters
    ----------
    log
        the log file, - for standard input
    json_output
        print a JSON object
    """
    from autotune.diagnosis import diagnose as read_log

    found = read_log(_bytes_of(log))
    if json_output:
        print(json.dumps(found.as_dict(), indent=1))
        return 0
    print(found.outcome if found.family is None else f"{found.outcome}: {found.family}")
    if found.line is not None:
        printable = "".join(c if c.isprintable() else " " for c in found.line)
        print(f"line {found.line_number}: {printable}")
    if found.remedy is not None:
        print(f"hint: {found.remedy}")
    for name, value in found.facts.as_dict().items():
        print(f"  {name}: {value}")
    return 0


@app.command
def gate(
    *,
    url: str,
    model: str | None = None,
    gates: str | None = None,
    fixtures: Path | None = None,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Ask a running server whether tool calls and JSON come out right.

    Exit code: 0 all gates passed, 1 one did not, 3 the server is not there or set up wrong. A key is
    taken from the environment variable VLLM_API_KEY.

    Parameters
    ----------
    url
        of the server, e.g. http://127.0.0.1:8000
    model
        name to ask by; left out, the first that the server lists
    gates
        names, joined by commas; left out, json_schema and tool_calls
    fixtures
        your own questions, one JSON object a line; alone, only these are asked
    json_output
        print a JSON object
    """
    from autotune.gating import gate_server

    found = gate_server(url, model=model, gates=gates, fixtures=fixtures)
    if json_output:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        from autotune.terminal import print_verdicts

        print_verdicts(found.verdicts, _stdout())
    return found.exit_code


def run(argv: Sequence[str]) -> int:
    """Run one command and turn what it raises into a message and an exit code."""
    with _terminating_like_ctrl_c():
        try:
            result = app(list(argv), exit_on_error=False, print_error=True)
        except CycloptsError:
            return USAGE
        except AutotuneError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            print(
                "interrupted: everything is stopped and saved; the same command goes on from here",
                file=sys.stderr,
            )
            return INTERRUPTED
        except BrokenPipeError:
            # Whoever read our output (head, less) has seen enough.
            sys.stderr.close()
            return 0
    return result if isinstance(result, int) else 0


@contextlib.contextmanager
def _terminating_like_ctrl_c() -> Iterator[None]:
    """Treat a polite end (SIGTERM, a closed terminal) like Ctrl-C: stop the server, save, go."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        # Whoever handles Ctrl-C now (an event loop cancels its task) handles this as well; an
        # exception raised here could be lost in somebody's callback.
        del number
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    # Under nohup SIGHUP is ignored, and stays so.
    wanted = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    previous = {number: signal.signal(number, interrupt) for number in wanted}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _say(text: str | None) -> None:
    if text is not None:
        print(text, file=sys.stderr)


def _require_positive(**numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{name} {value:g}: must be above 0")


def _bytes_of(path: Path) -> bytes:
    """Read a file, or standard input for `-`."""
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[TextIO]:
    try:
        stream = path.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--events {path}: cannot be written: {error.strerror}") from error
    with stream:
        yield stream


def _stdout() -> "Console":
    from rich.console import Console

    wide_enough = 160
    return Console(width=None if sys.stdout.isatty() else wide_enough)
