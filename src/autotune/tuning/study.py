"""The study: ask, try, write down, tell, until the configurations or the hours are used up.

A study is a folder. It survives a crash at any moment: the trial in flight is the only thing that can
be lost, and the same command goes on from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.errors import HostError, StudyError
from autotune.model.host import HostFacts
from autotune.model.knob import Value
from autotune.model.measurement import geometric_mean
from autotune.model.outcome import Failed, Interrupted, Measured, Rejected, Trial
from autotune.model.results import Member, Results
from autotune.model.search_space import SearchSpace
from autotune.protocols import Exporter
from autotune.system.files import held, make_folder, read_json, write_json, write_whole
from autotune.tuning.baseline import baseline_trouble, reference_of
from autotune.tuning.records import (
    RECORD,
    as_json,
    read_record,
    read_records,
    trial_folder,
    write_record,
)
from autotune.tuning.search import (
    GridExhaustedError,
    OptunaSearch,
    Place,
    explained,
    open_search,
)
from autotune.tuning.statistics import judge
from autotune.tuning.trial import Bench, host_trouble, run_trial

HOST_FILE = "host.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """trials: configurations in all, those of earlier calls included; deadline: on the bench's clock."""

    trials: int
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One study on this host.

    place: its folder and storage; exporters: the files rewritten after every trial
    """

    place: Place
    bench: Bench
    host: HostFacts
    exporters: Sequence[Exporter]
    budget: Budget
    seed: int = 0
    attempt: Callable[[int, Mapping[str, Value], Bench, Path], Trial] = run_trial

    def run(self) -> Results:
        """Run or resume to the end of the budget.

        Raises:
            BaselineError: The baseline cannot be served or does not pass its gates.
            StudyError: The folder belongs to another space or host, or its storage is broken.
            HostError: No configuration can be served on this host.
            KeyboardInterrupt: Somebody stopped it; everything is saved and nothing is running.
        """
        make_folder(self.place.folder)
        with held(self.place.folder / "lock"), explained():
            return self._run()

    def _run(self) -> Results:
        self._claim()
        records = self._reap_and_read()
        search = open_search(
            self.place,
            self.bench.space,
            records,
            clock=self.bench.clock,
            host=self.host.hostname,
            seed=self.seed,
        )
        try:
            self._sign()
            self._recover(search)
            trials = self._finished(search)
            self._require_baseline(search, trials)
            self._announce(trials)
            self._loop(search, trials)
            return self._export(trials)
        finally:
            search.close()

    def _loop(self, search: OptunaSearch, trials: dict[int, Trial]) -> None:
        while len(trials) < self.budget.trials and not self._out_of_time():
            search.ensure_baseline()
            try:
                number, values = search.ask()
            except GridExhaustedError as error:
                self.bench.progress.emit("exhausted", reason=error.message)
                return
            trial = self._try(search, number, values, self._bench(search, trials))
            trials[number] = trial
            self._export(trials)
            self._require_baseline(search, trials)

    def _try(
        self, search: OptunaSearch, number: int, values: Mapping[str, Value], bench: Bench
    ) -> Trial:
        """Run one trial, write it down, then tell it."""
        folder = trial_folder(self.place.folder, number)
        make_folder(folder)
        config = self.bench.space.config(values)
        self.bench.progress.emit(
            "trial_started",
            trial=number,
            config=self.bench.space.shown(values),
            command=config.command(),
        )
        try:
            trial = self.attempt(number, values, bench, folder)
            trouble = host_trouble(trial)
            if trouble is not None:
                raise trouble
        except (KeyboardInterrupt, HostError) as error:
            self._put_back(search, number, values, str(error) or "interrupted")
            raise
        write_record(folder, trial)
        search.tell(trial)
        self.bench.progress.emit("trial_ended", **self._ending(trial))
        return trial

    def _put_back(
        self, search: OptunaSearch, number: int, values: Mapping[str, Value], why: str
    ) -> None:
        """Close a trial that says nothing about its configuration, and queue it again."""
        trial = Trial(number=number, values=dict(values), outcome=Interrupted(message=why))
        # In this order: killed in between, it is proposed again some day, and never run twice.
        search.tell(trial)
        search.again(trial)
        self.bench.progress.emit("trial_interrupted", trial=number)

    def _recover(self, search: OptunaSearch) -> None:
        """Close what a killed run left open: from its record where it is whole, else queue it again."""
        for number, values in search.left_running().items():
            record = read_record(trial_folder(self.place.folder, number))
            if record is not None and record.counts:
                search.tell(record)
            elif values:
                self._put_back(search, number, values, "the run was killed")
            else:
                search.abandon(number)
        search.ensure_baseline()

    def _reap_and_read(self) -> dict[int, Trial]:
        """Stop servers that a killed run left behind, then read the records."""
        for folder in sorted((self.place.folder / "trials").glob("*")):
            found = self.bench.launcher.reap(folder)
            if found is not None:
                self.bench.progress.emit("reaped", folder=folder.name, what=found)
        return read_records(self.place.folder)

    def _finished(self, search: OptunaSearch) -> dict[int, Trial]:
        """Collect the trials that count; a lost or corrupt record is written again from the storage."""
        trials: dict[int, Trial] = {}
        for number, stored in search.finished().items():
            folder = trial_folder(self.place.folder, number)
            record = read_record(folder)
            if record is None and stored is not None:
                self._restore(folder, stored)
            trial = record or stored
            if trial is not None:
                trials[number] = trial
        return trials

    def _restore(self, folder: Path, trial: Trial) -> None:
        corrupt = folder / RECORD
        if corrupt.exists():
            corrupt.replace(folder / f"{RECORD}.corrupt")
        # The record alone: the raw samples are still there.
        write_json(folder / RECORD, as_json(trial))
        self.bench.progress.emit("record_restored", trial=trial.number)

    def _claim(self) -> None:
        """Keep numbers of different hosts and spaces apart.

        Raises:
            StudyError: The folder was written on another kind of host.
        """
        path = self.place.folder / HOST_FILE
        known = read_json(path)
        own = self.host.comparable()
        if isinstance(known, dict) and isinstance(known.get("comparable"), dict):
            differing = [
                f"{key}: {known['comparable'].get(key)} then, {value} now"
                for key, value in own.items()
                if known["comparable"].get(key) != value
            ]
            if differing:
                raise StudyError(
                    f"{self.place.folder}: was measured on another host ({'; '.join(differing)})",
                    hint="Give the space another `name`, or start over with --fresh.",
                )
        database = self.place.folder / "study.db"
        lost = self.place.url is None and not database.exists()
        then = known.get("fingerprint") if isinstance(known, dict) else None
        if lost and then not in (None, self.bench.space.fingerprint()):
            raise StudyError(
                f"{self.place.folder}: its records were made from another search space",
                hint="Give the space another `name`, or start over with --fresh.",
            )

    def _sign(self) -> None:
        """Write down what the study is of, once it is sure that it is ours."""
        path = self.place.folder / HOST_FILE
        own = self.host.comparable()
        facts = {
            name: list(value) if isinstance(value, tuple) else value
            for name in self.host.__slots__
            if (value := getattr(self.host, name)) is not None
        }
        source = self.bench.space.source
        space = self.bench.space
        place = {"study": self.place.study_name, "fingerprint": space.fingerprint()}
        if source is not None:
            place["source_folder"] = str(source.resolve().parent)
        write_json(path, {"schema_version": 1, **facts, **place, "comparable": own})
        if source is not None:
            write_whole(self.place.folder / "search_space.yaml", source.read_text("utf-8"))

    def _require_baseline(self, search: OptunaSearch, trials: Mapping[int, Trial]) -> None:
        """Stop where the reference of everything is missing.

        Raises:
            BaselineError: The baseline failed or was rejected.
        """
        number = search.baseline_number()
        trial = None if number is None else trials.get(number)
        if trial is None:
            return
        trouble = baseline_trouble(trial, self.bench.space)
        if trouble is not None:
            raise trouble

    def _bench(self, search: OptunaSearch, trials: Mapping[int, Trial]) -> Bench:
        """Give the gates what is known already, read from the records after a restart."""
        number = search.baseline_number()
        usable = [trial.usable for trial in trials.values()]
        return replace(
            self.bench,
            reference=reference_of(None if number is None else trials.get(number)),
            rivals=tuple(outcome.measurement for outcome in usable if outcome is not None),
        )

    def _out_of_time(self) -> bool:
        deadline = self.budget.deadline
        return deadline is not None and self.bench.clock.now() >= deadline

    def results(self, trials: Mapping[int, Trial]) -> Results:
        return results_of(self.place.study_name, self.bench.space, trials, self.host)

    def _export(self, trials: Mapping[int, Trial]) -> Results:
        """Rewrite the files of results, so that a crash leaves the newest ones."""
        results = self.results(trials)
        for exporter in self.exporters:
            text = exporter.render(results)
            if text:
                write_whole(self.place.folder / exporter.filename, text)
        return results

    def _announce(self, trials: Mapping[int, Trial]) -> None:
        space = self.bench.space
        self.bench.progress.emit(
            "study_started",
            study=self.place.study_name,
            folder=str(self.place.folder),
            trials=self.budget.trials,
            done=len(trials),
            objectives=[objective.name for objective in space.objectives],
            units={objective.name: objective.unit for objective in space.objectives},
            directions={o.name: o.direction for o in space.objectives},
        )
        for trial in trials.values():
            self.bench.progress.emit("trial_known", **self._ending(trial))

    def _ending(self, trial: Trial) -> dict[str, object]:
        """Describe how a trial ended, for whoever is looking."""
        common: dict[str, object] = {
            "trial": trial.number,
            "outcome": type(trial.outcome).__name__.lower(),
            "config": self.bench.space.shown(trial.values),
            "seconds": dict(trial.seconds),
        }
        match trial.outcome:
            case Measured() as measured:
                values = {
                    objective.name: geometric_mean(samples)
                    for objective in self.bench.space.objectives
                    if (samples := measured.measurement.values(objective.quantity))
                }
                return {**common, "values": values, "violations": list(measured.violations)}
            case Rejected() as rejected:
                return {**common, "reason": rejected.verdict.reason}
            case Failed() as failed:
                return {**common, "family": failed.family, "reason": failed.message}
            case Interrupted():
                return common


def results_of(
    study: str, space: SearchSpace, trials: Mapping[int, Trial], host: HostFacts | None
) -> Results:
    """Judge what a study has measured so far."""
    ordered = tuple(trials[number] for number in sorted(trials))
    members = judge(ordered, space.objectives)
    return Results(
        study=study,
        space=space,
        trials=ordered,
        members=members,
        baseline=_baseline(ordered, members, space),
        host=host,
    )


def _baseline(
    trials: Sequence[Trial], members: Sequence[Member], space: SearchSpace
) -> Member | None:
    """Find the reference; it stays one although it may miss an SLO itself."""
    key = space.key(space.baseline)
    usable = next((m for m in members if space.key(m.trial.values) == key), None)
    if usable is not None:
        return usable
    for trial in trials:
        if isinstance(trial.outcome, Measured) and space.key(trial.values) == key:
            alone = replace(trial, outcome=replace(trial.outcome, violations={}))
            standing = judge([*(t for t in trials if t is not trial), alone], space.objectives)
            return next((member for member in standing if member.trial is alone), None)
    return None
