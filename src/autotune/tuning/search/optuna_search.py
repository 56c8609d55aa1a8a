"""Ask and tell against an Optuna study that can be lost, torn or killed at any moment.

The storage is the study's truth and each trial folder's record is the truth of its trial: where they
disagree a whole record wins, a corrupt one is restored from the storage, and a lost storage is built
again from the records.
"""

import functools
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.errors import StudyError
from autotune.model.knob import Value, same
from autotune.model.outcome import Trial
from autotune.model.search_space import SearchSpace
from autotune.protocols import Clock
from autotune.tuning.records import from_json
from autotune.tuning.search.distributions import distributions
from autotune.tuning.search.experimental import knowingly
from autotune.tuning.search.proposal import GridExhaustedError
from autotune.tuning.search.sampler import build_sampler
from autotune.tuning.search.storage import (
    LOCK_TIMEOUT_S,
    STORAGE_TROUBLE,
    close_storage,
    open_storage,
    set_aside,
    sqlite_url,
)
from autotune.tuning.search.told import RECORD_ATTRIBUTE, told

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
TELL_ATTEMPTS = 6
ROLE, BASELINE, RETRY_OF, WORKER = "role", "baseline", "retry_of", "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a study lives: its folder, and a storage URL where several share it.

    lock_timeout_s: how long one access waits for a locked SQLite file
    """

    folder: Path
    study_name: str
    url: str | None = None
    lock_timeout_s: float = LOCK_TIMEOUT_S

    def open(self) -> RDBStorage:
        return open_storage(self.storage_url, lock_timeout_s=self.lock_timeout_s)

    @property
    def storage_url(self) -> str:
        return self.url or sqlite_url(self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Who opens trials: a host and a folder, which a lock keeps to one process at a time.

    alone: whether nobody else can have opened a trial in this storage
    """

    name: str
    alone: bool

    def owns(self, name: object) -> bool:
        """Tell whether a trial is this worker's; in a storage of one's own all are."""
        return self.alone or name == self.name


class OptunaSearch:
    """What to try next. Open it with `open_search`."""

    def __init__(
        self,
        study: optuna.Study,
        storage: RDBStorage,
        space: SearchSpace,
        clock: Clock,
        worker: "Worker",
    ) -> None:
        self._study = study
        self._storage = storage
        self._space = space
        self._clock = clock
        self._worker = worker
        self._open: dict[int, optuna.Trial] = {}
        self._baseline: int | None = None

    def close(self) -> None:
        close_storage(self._storage)

    def ask(self) -> tuple[int, dict[str, Value]]:
        """Open the next trial.

        Raises:
            GridExhaustedError: There is nothing left to try.
        """
        grid = distributions(self._space)
        try:
            trial = self._persistently(lambda: self._study.ask(fixed_distributions=grid))
        except GridExhaustedError:
            for number, values in self.left_running().items():
                if not values:
                    self.abandon(number)
            raise
        self._open[trial.number] = trial
        trial.set_user_attr(WORKER, self._worker.name)
        return trial.number, {name: trial.params[name] for name in grid}

    def tell(self, trial: Trial) -> None:
        """Tell Optuna how a trial ended; a storage that is busy is asked again for a while."""
        end = told(trial, self._space)
        running = self._open.pop(trial.number, None) or self._running(trial.number)
        for name, value in end.attributes.items():
            self._persistently(functools.partial(running.set_user_attr, name, value))
        if end.state != TrialState.FAIL:
            for name, value in end.constraints.items():
                running.set_constraint(name, value)
        values = None if end.values is None else list(end.values)
        self._persistently(lambda: self._study.tell(trial.number, values=values, state=end.state))

    def again(self, trial: Trial) -> None:
        """Put a configuration that was interrupted back at the head of the queue."""
        attributes: dict[str, Any] = {RETRY_OF: trial.number}
        if self._role(trial.number) == BASELINE:
            attributes[ROLE] = BASELINE
        self._study.enqueue_trial(dict(trial.values), user_attrs=attributes)

    def finished(self) -> dict[int, Trial | None]:
        """Every trial that counts, with the record that the storage holds of it."""
        return {
            trial.number: _stored_record(trial)
            for trial in self._study.get_trials(deepcopy=False, states=FINISHED)
        }

    def left_running(self) -> dict[int, dict[str, Value]]:
        """Trials that an earlier run in this folder left open: their numbers and values.

        A trial whose values were never completed (killed while asking) has none.
        """
        return {
            trial.number: dict(trial.params) if self._is_whole(trial) else {}
            for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if self._worker.owns(trial.user_attrs.get(WORKER)) and trial.number not in self._open
        }

    def abandon(self, number: int) -> None:
        """Close a trial that never got as far as a configuration."""
        self._study.tell(number, state=TrialState.FAIL)

    def ensure_baseline(self) -> None:
        """Queue the baseline unless it is queued, running or done."""
        live = (*FINISHED, TrialState.WAITING, TrialState.RUNNING)
        trials = self._study.get_trials(deepcopy=False, states=live)
        if not any(trial.user_attrs.get(ROLE) == BASELINE for trial in trials):
            values = self._space.canonical(self._space.baseline)
            self._study.enqueue_trial(values, user_attrs={ROLE: BASELINE})

    def baseline_number(self) -> int | None:
        """Find the finished baseline; once found it stays."""
        if self._baseline is None:
            finished = self._study.get_trials(deepcopy=False, states=FINISHED)
            found = (t.number for t in finished if t.user_attrs.get(ROLE) == BASELINE)
            self._baseline = next(found, None)
        return self._baseline

    def is_baseline(self, number: int) -> bool:
        return self._role(number) == BASELINE

    def _role(self, number: int) -> str | None:
        trial = next(
            (t for t in self._study.get_trials(deepcopy=False) if t.number == number), None
        )
        role = None if trial is None else trial.user_attrs.get(ROLE)
        return role if isinstance(role, str) else None

    def _is_whole(self, trial: FrozenTrial) -> bool:
        return trial.params.keys() >= {knob.name for knob in self._space.knobs}

    def _running(self, number: int) -> optuna.Trial:
        stored = next(t for t in self._study.get_trials(deepcopy=False) if t.number == number)
        return optuna.Trial(self._study, stored._trial_id)  # noqa: SLF001  no public way to reopen

    def _persistently(self, action: Callable[[], Any]) -> Any:
        """Try again where a storage is locked or away: the trial behind this call took minutes."""
        for attempt in range(TELL_ATTEMPTS):
            try:
                return action()
            except STORAGE_TROUBLE:
                if attempt == TELL_ATTEMPTS - 1:
                    raise
                self._clock.sleep(0.5 * 2**attempt)
        raise AssertionError("unreachable")  # pragma: no cover


def open_search(
    place: Place,
    space: SearchSpace,
    records: Mapping[int, Trial],
    *,
    clock: Clock,
    host: str,
    seed: int,
) -> OptunaSearch:
    """Open or create the study and make it agree with the records.

    Raises:
        StudyError: The storage holds another search space, or cannot be opened.
    """
    storage, study = _open_or_rebuild(place, space, records, clock)
    if not _agree(study, records):
        if place.url is not None:
            raise StudyError(
                f"the storage of study {place.study_name!r} disagrees with the records in "
                f"{place.folder / 'trials'}",
                hint="Another host may have written there: use a folder of its own for each host.",
            )
        merged = {**_known(study), **records}
        close_storage(storage)
        storage, study = _rebuild(place, space, merged, clock)
    past = len(study.get_trials(deepcopy=False))
    # The same seed would repeat its first draws after a resume; the history's length tells them apart.
    study.sampler = build_sampler(space, seed=zlib.crc32(f"{seed}:{past}".encode()))
    worker = Worker(name=f"{host}:{place.folder.resolve()}", alone=place.url is None)
    return OptunaSearch(study, storage, space, clock, worker)


def _open_or_rebuild(
    place: Place, space: SearchSpace, records: Mapping[int, Trial], clock: Clock
) -> tuple[RDBStorage, optuna.Study]:
    try:
        storage = place.open()
        study = _load_or_create(storage, place, space)
    except (StudyError, *STORAGE_TROUBLE) as error:
        broken_file = place.url is None and _is_corrupt(error)
        if not broken_file or not (place.folder / "study.db").exists():
            raise
        set_aside(place.folder, f"broken-{int(clock.wall())}")
        return _rebuild(place, space, records, clock)
    if records and not study.get_trials(deepcopy=False):
        _fill(study, space, records)
    return storage, study


def _is_corrupt(error: Exception) -> bool:
    """Tell a file that is no database any more from one that is locked, or on a full disk."""
    return any(word in str(error) for word in ("not a database", "malformed"))


class _OtherSpaceError(StudyError):
    """The study in the storage was made from another search space."""


def _load_or_create(storage: RDBStorage, place: Place, space: SearchSpace) -> optuna.Study:
    study = optuna.create_study(
        storage=storage,
        study_name=place.study_name,
        directions=[objective.direction for objective in space.objectives],
        load_if_exists=True,
    )
    known = study.user_attrs.get("fingerprint")
    if known is None:
        with knowingly():
            study.set_metric_names([objective.name for objective in space.objectives])
        study.set_user_attr("units", {o.name: o.unit for o in space.objectives})
        study.set_user_attr("model", space.model)
        study.set_user_attr("meaning", json.dumps(space.meaning()))
        study.set_user_attr("fingerprint", space.fingerprint())
    elif known != space.fingerprint():
        raise _OtherSpaceError(
            f"study {place.study_name!r} was made from another search space: "
            f"{_differing(study, space)} differ",
            hint="Numbers of different spaces must not be mixed. Give the space another `name`, or "
            "start over with --fresh (the old folder is moved aside, never deleted).",
        )
    return study


def _differing(study: optuna.Study, space: SearchSpace) -> str:
    """Name the sections of the file that changed since the study began."""
    then = json.loads(study.user_attrs.get("meaning", "{}"))
    now = json.loads(json.dumps(space.meaning()))
    return ", ".join(key for key in now if now[key] != then.get(key)) or "the objectives"


def _agree(study: optuna.Study, records: Mapping[int, Trial]) -> bool:
    """Tell whether every whole record is in the storage, as it is or still running."""
    stored = {trial.number: trial for trial in study.get_trials(deepcopy=False)}
    for number, record in records.items():
        trial = stored.get(number)
        if trial is None:
            return False
        if trial.state == TrialState.RUNNING or not record.counts:
            continue
        if trial.state not in FINISHED or _stored_record(trial) != record:
            return False
        if any(not same(trial.params.get(k), v) for k, v in record.values.items()):
            return False
    return True


def _known(study: optuna.Study) -> dict[int, Trial]:
    """Read what the storage itself knows of its finished trials."""
    found = {trial.number: _stored_record(trial) for trial in study.get_trials(states=FINISHED)}
    return {number: trial for number, trial in found.items() if trial is not None}


def _rebuild(
    place: Place, space: SearchSpace, records: Mapping[int, Trial], clock: Clock
) -> tuple[RDBStorage, optuna.Study]:
    """Start a new storage from the records; the old file, if any, is kept beside it."""
    if (place.folder / "study.db").exists():
        set_aside(place.folder, f"replaced-{int(clock.wall())}")
    storage = place.open()
    study = _load_or_create(storage, place, space)
    _fill(study, space, records)
    return storage, study


def _fill(study: optuna.Study, space: SearchSpace, records: Mapping[int, Trial]) -> None:
    """Add the records under their own numbers; a number without a record was an interrupted trial."""
    grid = distributions(space)
    baseline = min((n for n, t in records.items() if _is_baseline(t, space)), default=None)
    for number in range(max(records, default=-1) + 1):
        record = records.get(number)
        if record is None:
            study.add_trial(create_trial(state=TrialState.FAIL))
            continue
        end = told(record, space)
        role = {ROLE: BASELINE} if number == baseline else {}
        study.add_trial(
            create_trial(
                state=end.state,
                params=dict(record.values),
                distributions=dict(grid),
                values=None if end.values is None else list(end.values),
                constraints=end.constraints,
                user_attrs={**end.attributes, **role},
            )
        )


def _is_baseline(trial: Trial, space: SearchSpace) -> bool:
    return trial.counts and space.key(trial.values) == space.key(space.baseline)


def _stored_record(trial: FrozenTrial) -> Trial | None:
    text = trial.user_attrs.get(RECORD_ATTRIBUTE)
    try:
        return from_json(json.loads(text)) if isinstance(text, str) else None
    except ValueError:
        return None
