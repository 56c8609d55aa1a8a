"""The composition root: names in a search-space file become objects, and objects meet each other."""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

from autotune.errors import SearchSpaceError, StudyError, UsageError
from autotune.exporters import STUDY_FILES
from autotune.gates import GATES
from autotune.launchers import LAUNCHERS
from autotune.load import closed_loop
from autotune.model.host import HostFacts
from autotune.model.outcome import Measured
from autotune.model.results import Results
from autotune.model.search_space import Part, SearchSpace
from autotune.protocols import Gate, Launcher, Progress
from autotune.space_file import Vocabulary, read_search_space
from autotune.system.clock import SystemClock
from autotune.system.files import held, read_json
from autotune.system.host import read_host
from autotune.system.openai_client import connect
from autotune.tuning.records import read_records
from autotune.tuning.search import SAMPLERS, Place
from autotune.tuning.study import HOST_FILE, Budget, Study, results_of
from autotune.tuning.trial import Bench

DEFAULT_TRIALS = 40
PICKS = ("throughput", "ttft", "balanced")
SPACE_FILE = "search_space.yaml"
NOT_OPTIONS = {"clock", "startup_timeout_s"}
"""Fields of launchers that a file does not set as options: effects, and keys of `server` itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says about a run; None leaves it to the file."""

    trials: int | None = None
    hours: float | None = None
    seed: int = 0
    fresh: bool = False
    studies: Path = Path("studies")
    storage: str | None = None

    def folder(self, space: SearchSpace) -> Path:
        return self.studies / space.name


def vocabulary() -> Vocabulary:
    """Name every plug-in and its options, so that a misspelt one is an error with a line."""
    return Vocabulary(
        launchers={name: _option_names(kind) for name, kind in LAUNCHERS.items()},
        gates={name: _option_names(kind) for name, kind in GATES.items()},
        samplers={name: frozenset() for name in SAMPLERS},
    )


def read_space(path: Path, *, relative_to: Path | None = None) -> SearchSpace:
    """Read a search-space file and try out the options of its plug-ins.

    Raises:
        SearchSpaceError: With every mistake in the file.
    """
    space = read_search_space(path, vocabulary=vocabulary(), relative_to=relative_to)
    problems: list[str] = []
    for table, part in [
        (LAUNCHERS, space.server.launcher),
        *((GATES, gate) for gate in space.gates),
    ]:
        try:
            _build(table[part.kind], part)
        except SearchSpaceError as error:
            problems += error.problems
    if problems:
        raise SearchSpaceError(problems)
    return space


def build_launcher(space: SearchSpace) -> Launcher:
    server = space.server
    part = dataclasses.replace(
        server.launcher,
        options={**server.launcher.options, "startup_timeout_s": server.startup_timeout_s},
    )
    launcher: Launcher = _build(LAUNCHERS[part.kind], part)
    return launcher


def gate_names() -> tuple[str, ...]:
    return tuple(GATES)


def build_gate(part: Part) -> Gate:
    """Make a gate of its options.

    Raises:
        SearchSpaceError: An option is wrong, or a file of the gate has mistakes.
    """
    gate: Gate = _build(GATES[part.kind], part)
    return gate


def build_bench(space: SearchSpace, progress: Progress) -> Bench:
    return Bench(
        space=space,
        launcher=build_launcher(space),
        connect=connect,
        gates=tuple(map(build_gate, space.gates)),
        workloads=tuple(closed_loop(spec) for spec in space.workloads),
        clock=SystemClock(),
        progress=progress,
    )


def build_study(space: SearchSpace, options: Options, progress: Progress) -> Study:
    """Put a study together."""
    clock = SystemClock()
    hours = options.hours or space.limits.hours
    limits = [] if hours is None else [clock.now() + hours * 3600]
    if space.limits.until is not None:
        limits.append(clock.now() + clock.seconds_until(space.limits.until))
    return Study(
        place=Place(folder=options.folder(space), study_name=space.name, url=options.storage),
        bench=build_bench(space, progress),
        host=read_host(),
        exporters=STUDY_FILES,
        budget=Budget(
            trials=options.trials or space.limits.trials or DEFAULT_TRIALS,
            deadline=min(limits, default=None),
        ),
        seed=options.seed,
    )


def clear_the_way(space: SearchSpace, options: Options) -> Path | None:
    """Move an old study of this name aside; say where to, None when there was nothing to move.

    That happens when it is asked for, and when the file was changed before anything was measured: a
    first attempt that could not start is in nobody's way. Nothing is ever deleted.

    Raises:
        StudyError: Another process is at work there.
    """
    folder = options.folder(space)
    if not folder.exists() or not (options.fresh or _is_a_failed_attempt(folder, space)):
        return None
    with held(folder / "lock"):
        launcher = build_launcher(space)
        for trial in sorted((folder / "trials").glob("*")):
            # Nobody would look for a server of a killed run there once the folder is moved.
            launcher.reap(trial)
        return move_aside(folder, int(SystemClock().wall()))


def _is_a_failed_attempt(folder: Path, space: SearchSpace) -> bool:
    """Tell whether the folder holds another space's study in which nothing was measured."""
    known = read_json(folder / HOST_FILE)
    if not isinstance(known, dict) or known.get("fingerprint") in (None, space.fingerprint()):
        return False
    return not any(isinstance(t.outcome, Measured) for t in read_records(folder).values())


def move_aside(folder: Path, stamp: int) -> Path:
    """Rename a study's folder to a name that is free."""
    target = folder.with_name(f"{folder.name}.{stamp}")
    count = 0
    while target.exists():
        count += 1
        target = folder.with_name(f"{folder.name}.{stamp}.{count}")
    return folder.rename(target)


def load_results(study: str, studies: Path) -> Results:
    """Read a study back from its folder; `study` is a name or a path.

    Raises:
        StudyError: There is no such study.
    """
    folder = find_study(study, studies)
    known = read_json(folder / HOST_FILE)
    place = known if isinstance(known, dict) else {}
    source = place.get("source_folder")
    space = read_space(
        folder / SPACE_FILE, relative_to=Path(source) if isinstance(source, str) else None
    )
    # The copy's file name says nothing; a file without `name` is called after the original.
    space = dataclasses.replace(space, name=str(place.get("study", folder.name)))
    trials = {number: trial for number, trial in read_records(folder).items() if trial.counts}
    return results_of(space.name, space, trials, _host(place))


def load_pick(study: str, studies: Path, pick: str) -> Results:
    """Read a study of which a configuration is to be exported.

    Raises:
        StudyError: There is no such study, or nothing in it can be picked.
        UsageError: The pick is neither a trial nor one of the words.
    """
    results = load_results(study, studies)
    if pick not in PICKS and not pick.isdecimal():
        raise UsageError(
            f"--pick {pick}: there is no such pick",
            hint=f"Choose {', '.join(PICKS)} or the number of a trial.",
        )
    if results.pick(pick) is None:
        usable = ", ".join(str(member.trial.number) for member in results.members)
        raise StudyError(
            f"study {results.study!r} has no usable trial for --pick {pick}",
            hint=f"Trials that can be picked: {usable or 'none'}.",
        )
    return results


def find_study(study: str, studies: Path) -> Path:
    candidates = (Path(study), studies / study)
    for folder in candidates:
        if (folder / SPACE_FILE).is_file():
            return folder
    known = sorted(path.parent.name for path in studies.glob(f"*/{SPACE_FILE}"))
    raise StudyError(
        f"there is no study {study!r}",
        hint=f"Studies in {studies}: {', '.join(known) or 'none yet'}.",
    )


def _host(content: Mapping[str, Any]) -> HostFacts | None:
    names = {item.name for item in dataclasses.fields(HostFacts)}
    known = {name: value for name, value in content.items() if name in names}
    try:
        return HostFacts(**{**known, "gpus": tuple(known.get("gpus", ()))})
    except TypeError:
        return None


def _option_names(kind: type[Any]) -> frozenset[str]:
    return frozenset(item.name for item in dataclasses.fields(kind)) - NOT_OPTIONS


def _build(kind: type[Any], part: Part) -> Any:
    """Make a plug-in of its options; each one is checked against the field's type.

    Raises:
        SearchSpaceError: An option has a wrong type or value.
    """
    hints = typing.get_type_hints(kind)
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name, value in part.options.items():
        try:
            values[name] = pydantic.TypeAdapter(hints[name]).validate_python(value)
        except pydantic.ValidationError as error:
            problems.append(f"{part.where}: {name}: {error.errors()[0]['msg']}, not {value!r}")
    if problems:
        raise SearchSpaceError(problems)
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise SearchSpaceError([f"{part.where}: {error}"]) from error


def bundled_space(path: Path) -> Path:
    """Find a shipped search space where the named file does not exist but one of its name ships."""
    if path.exists():
        return path
    for folder in (Path(__file__).parent / "search_spaces", _repository_spaces()):
        if folder is not None and (folder / path.name).is_file():
            return folder / path.name
    return path


def _repository_spaces() -> Path | None:
    folder = Path(__file__).parents[2] / "search_spaces"
    return folder if folder.is_dir() else None
