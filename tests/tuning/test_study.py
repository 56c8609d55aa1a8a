import json
import sqlite3
from pathlib import Path
from typing import Any

import optuna
import pytest

from autotune.errors import BaselineError, HostError, StudyError
from autotune.model.outcome import Failed, Measured, Rejected
from autotune.model.results import Results
from autotune.tuning.records import read_record, trial_folder
from autotune.tuning.search import Place
from autotune.tuning.study import Budget, Study
from tests.fakes.bench import HOST, Recorder, World, make_bench, make_space, varied_speed


def make_study(folder: Path, world: World, *, trials: int = 8, **changes) -> Study:
    space = changes.pop("space", None)
    bench = changes.pop("bench", None) or make_bench(world, space)
    return Study(
        **{
            "place": Place(folder=folder / "fake", study_name="fake"),
            "bench": bench,
            "host": HOST,
            "exporters": (),
            "budget": Budget(trials=trials),
            **changes,
        }
    )


def stored(folder: Path) -> list[optuna.trial.FrozenTrial]:
    study = optuna.load_study(study_name="fake", storage=f"sqlite:///{folder}/fake/study.db")
    return study.get_trials()


def finished(folder: Path) -> list[optuna.trial.FrozenTrial]:
    return [trial for trial in stored(folder) if trial.state.name in ("COMPLETE", "PRUNED")]


def numbers(results: Results) -> list[int]:
    return [trial.number for trial in results.trials]


def test_the_baseline_is_trial_zero_and_every_configuration_is_tried_once(tmp_path):
    world = World(speed=varied_speed)

    results = make_study(tmp_path, world, trials=12).run()

    assert numbers(results) == list(range(12))
    assert results.trials[0].values == make_space().baseline
    keys = [make_space().key(trial.values) for trial in results.trials]
    assert len(set(keys)) == 12
    assert world.running == 0


def test_a_configuration_that_breaks_a_rule_is_never_started(tmp_path):
    world = World(speed=varied_speed)

    make_study(tmp_path, world, trials=15).run()

    assert all(c["max_num_batched_tokens"] >= c["max_num_seqs"] for c in world.launched)


def test_a_grid_that_is_used_up_ends_the_study(tmp_path):
    world = World(speed=varied_speed)
    bench = make_bench(world)

    results = make_study(tmp_path, world, trials=500, bench=bench).run()

    # 4 * 3 * 3 points, less those where 8 batched tokens are fewer than the slots.
    assert len(results.trials) == 36 - 2 * 3
    assert isinstance(bench.progress, Recorder)
    assert bench.progress.named("exhausted")
    assert not [t for t in stored(tmp_path) if t.state.name == "RUNNING"]


def test_failed_and_rejected_trials_end_pruned_with_constraints_and_off_the_front(tmp_path):
    world = World(
        speed=varied_speed,
        fails=lambda c: "unsupported" if c["moe_backend"] == "triton" else None,
        broken=lambda c: c["moe_backend"] == "cutlass",
    )

    results = make_study(tmp_path, world, trials=20).run()

    by_number = {trial.number: trial for trial in finished(tmp_path)}
    for trial in results.trials:
        state = by_number[trial.number].state.name
        constraints = by_number[trial.number].constraints
        assert sorted(constraints) == ["quality", "slo", "startup"]
        if trial.values["moe_backend"] == "marlin":
            assert state == "COMPLETE"
            assert max(constraints.values()) < 0
        else:
            assert state == "PRUNED"
            assert max(constraints.values()) > 0
    assert {m.trial.values["moe_backend"] for m in results.members} == {"marlin"}
    study = optuna.load_study(study_name="fake", storage=f"sqlite:///{tmp_path}/fake/study.db")
    assert all(trial.params["moe_backend"] == "marlin" for trial in study.best_trials)
    assert study.metric_names == ["output_tok_s", "ttft_ms.p50"]


def test_a_trial_whose_gate_fails_is_never_timed(tmp_path):
    world = World(broken=lambda c: c["moe_backend"] == "cutlass", speed=varied_speed)

    results = make_study(tmp_path, world, trials=20).run()

    rejected = [t for t in results.trials if t.values["moe_backend"] == "cutlass"]
    assert rejected
    for trial in rejected:
        assert "measure" not in trial.seconds
        assert isinstance(trial.outcome, Rejected)
        assert "it is garbled" in trial.outcome.verdict.reason


def test_a_missed_slo_makes_a_trial_infeasible_and_keeps_its_numbers(tmp_path):
    from autotune.model.objective import Constraint, Quantity

    limit = Constraint(
        quantity=Quantity(metric="ttft_ms.p50", workload="agent", concurrency=8),
        operator="<=",
        bound=90.0,
    )
    world = World(speed=varied_speed)

    results = make_study(tmp_path, world, trials=15, space=make_space(constraints=(limit,))).run()

    missing = [
        t for t in results.trials if isinstance(t.outcome, Measured) and t.outcome.violations
    ]
    assert missing
    kept = [t.outcome.measurement for t in missing if isinstance(t.outcome, Measured)]
    assert all(measurement.values(limit.quantity)[0] > 90 for measurement in kept)
    assert not {t.number for t in missing} & {m.trial.number for m in results.members}
    states = {trial.number: trial for trial in finished(tmp_path)}
    assert all(states[t.number].state.name == "PRUNED" for t in missing)
    assert all(states[t.number].constraints["slo"] > 0 for t in missing)
    assert all(states[t.number].user_attrs["ttft_ms.p50"] > 90 for t in missing)


def test_a_start_that_failed_by_chance_is_tried_once_more(tmp_path):
    attempts: list[Any] = []

    def flaky(config):
        attempts.append(config)
        return "engine_died" if len(attempts) == 1 else None

    results = make_study(tmp_path, World(fails=flaky, speed=varied_speed), trials=1).run()

    assert len(attempts) == 2
    assert isinstance(results.trials[0].outcome, Measured)


@pytest.mark.parametrize(
    "world", [World(fails=lambda c: "unsupported"), World(broken=lambda c: True)]
)
def test_a_baseline_that_cannot_be_used_ends_the_study_with_the_remedy(tmp_path, world):
    with pytest.raises(BaselineError, match="the baseline") as error:
        make_study(tmp_path, world).run()

    assert error.value.exit_code == 1
    assert error.value.hint
    assert len(finished(tmp_path)) == 1
    with pytest.raises(BaselineError):
        make_study(tmp_path, world).run()
    assert len(finished(tmp_path)) == 1


def test_trouble_with_the_host_stops_the_study_and_blames_no_configuration(tmp_path):
    world = World(
        speed=varied_speed,
        fails=lambda c: "model_files" if c["moe_backend"] == "cutlass" else None,
    )

    with pytest.raises(HostError):
        make_study(tmp_path, world, trials=15).run()

    assert all(trial.params["moe_backend"] != "cutlass" for trial in finished(tmp_path))
    world.fails = lambda c: None
    results = make_study(tmp_path, world, trials=12).run()
    assert len(results.trials) == 12


def test_an_interrupted_study_goes_on_with_the_same_configuration(tmp_path):
    world = World(speed=varied_speed, interrupt_at=5)
    with pytest.raises(KeyboardInterrupt):
        make_study(tmp_path, world, trials=10).run()
    interrupted = world.launched[4]
    world.interrupt_at = None

    results = make_study(tmp_path, world, trials=10).run()

    assert world.launched[5] == interrupted
    assert len(results.trials) == 10
    assert len(finished(tmp_path)) == 10
    assert [t.state.name for t in stored(tmp_path)].count("FAIL") == 1


def test_the_interrupted_baseline_is_still_the_baseline(tmp_path):
    world = World(speed=varied_speed, interrupt_at=1)
    with pytest.raises(KeyboardInterrupt):
        make_study(tmp_path, world, trials=4).run()
    world.interrupt_at = None

    results = make_study(tmp_path, world, trials=4).run()

    assert results.baseline is not None
    assert results.baseline.trial.number == 1
    assert len(results.trials) == 4


def test_a_finished_study_prints_its_result_without_starting_anything(tmp_path):
    world = World(speed=varied_speed)
    first = make_study(tmp_path, world, trials=5).run()
    started = len(world.launched)

    again = make_study(tmp_path, world, trials=5).run()

    assert len(world.launched) == started
    assert again.members == first.members or [m.estimates for m in again.members] == [
        m.estimates for m in first.members
    ]


def test_a_resumed_study_does_not_repeat_its_first_proposals(tmp_path):
    world = World(speed=varied_speed)
    make_study(tmp_path, world, trials=4).run()

    results = make_study(tmp_path, world, trials=8).run()

    keys = [make_space().key(trial.values) for trial in results.trials]
    assert len(set(keys)) == 8


def test_a_trial_whose_record_was_written_but_never_told_is_told_on_resume(tmp_path):
    world = World(speed=varied_speed)
    study = make_study(tmp_path, world, trials=6)
    told: list[int] = []

    def dies_before_the_third_tell(number, values, bench, folder):
        from autotune.tuning.records import write_record
        from autotune.tuning.trial import run_trial

        trial = run_trial(number, values, bench, folder)
        told.append(number)
        if len(told) == 3:
            write_record(folder, trial)
            raise RuntimeError("power failure")
        return trial

    broken = make_study(tmp_path, world, trials=6, attempt=dies_before_the_third_tell)
    with pytest.raises(RuntimeError):
        broken.run()
    assert len(finished(tmp_path)) == 2

    results = study.run()

    assert numbers(results) == list(range(6))
    assert len(world.launched) == 6


def test_a_lost_storage_is_built_again_from_the_records(tmp_path):
    world = World(
        speed=varied_speed, fails=lambda c: "unsupported" if c["moe_backend"] == "triton" else None
    )
    make_study(tmp_path, world, trials=8).run()
    before = {t.number: (t.state, t.values, t.params, t.constraints) for t in finished(tmp_path)}
    started = len(world.launched)
    for file in (tmp_path / "fake").glob("study.db*"):
        file.unlink()

    make_study(tmp_path, world, trials=8).run()

    after = {t.number: (t.state, t.values, t.params, t.constraints) for t in finished(tmp_path)}
    assert after == before
    assert len(world.launched) == started


def test_a_torn_storage_is_set_aside_and_built_again(tmp_path):
    world = World(speed=varied_speed)
    make_study(tmp_path, world, trials=5).run()
    (tmp_path / "fake" / "study.db").write_bytes(b"this is no database at all" * 100)
    for suffix in ("-wal", "-shm"):
        (tmp_path / "fake" / f"study.db{suffix}").unlink(missing_ok=True)

    results = make_study(tmp_path, world, trials=6).run()

    assert len(results.trials) == 6
    assert len(world.launched) == 6
    assert list((tmp_path / "fake").glob("study.db.broken-*"))


def test_a_corrupt_record_is_written_again_from_the_storage(tmp_path):
    world = World(speed=varied_speed)
    first = make_study(tmp_path, world, trials=5).run()
    folder = trial_folder(tmp_path / "fake", 3)
    (folder / "record.json").write_text('{"schema_version": 1, "number": 3, "val')

    results = make_study(tmp_path, world, trials=5).run()

    assert read_record(folder) == results.trials[3]
    assert [t.values for t in results.trials] == [t.values for t in first.trials]
    assert len(world.launched) == 5


def test_where_record_and_storage_disagree_a_whole_record_wins(tmp_path):
    world = World(speed=varied_speed)
    make_study(tmp_path, world, trials=5).run()
    path = trial_folder(tmp_path / "fake", 2) / "record.json"
    record = json.loads(path.read_text())
    for run in record["outcome"]["measurement"]["runs"]:
        run["metrics"]["output_tok_s"] = 4321.0
    path.write_text(json.dumps(record))

    make_study(tmp_path, world, trials=5).run()

    assert finished(tmp_path)[2].values[0] == pytest.approx(4321.0)
    assert list((tmp_path / "fake").glob("study.db.replaced-*"))


def test_another_search_space_under_the_same_name_is_refused(tmp_path):
    world = World(speed=varied_speed)
    make_study(tmp_path, world, trials=3).run()

    with pytest.raises(StudyError, match="another search space") as error:
        make_study(tmp_path, world, trials=3, space=make_space(repeats=5)).run()

    assert "--fresh" in str(error.value.hint)


def test_another_host_is_refused_with_the_fact_that_differs(tmp_path):
    import dataclasses

    world = World(speed=varied_speed)
    make_study(tmp_path, world, trials=2).run()
    other = dataclasses.replace(HOST, gpus=("NVIDIA H200",))

    with pytest.raises(StudyError, match=r"gpus: .* then, .*H200.* now"):
        make_study(tmp_path, world, trials=4, host=other).run()


def test_two_runs_of_one_study_at_a_time_are_refused(tmp_path):
    from autotune.system.files import held

    folder = tmp_path / "fake"
    folder.mkdir()

    with held(folder / "lock"), pytest.raises(StudyError, match="at work"):
        make_study(tmp_path, World()).run()


def test_a_deadline_lets_the_running_trial_end_and_starts_no_other(tmp_path):
    world = World(speed=varied_speed)
    bench = make_bench(world)
    deadline = bench.clock.now() + 0.05

    results = make_study(
        tmp_path, world, bench=bench, budget=Budget(trials=100, deadline=deadline)
    ).run()

    assert 1 <= len(results.trials) < 36


def test_the_storage_is_in_write_ahead_mode_so_that_a_dashboard_never_blocks_it(tmp_path):
    make_study(tmp_path, World(speed=varied_speed), trials=2).run()

    with sqlite3.connect(tmp_path / "fake" / "study.db") as connection:
        mode = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()

    assert mode == ("wal",)


def test_a_failure_is_an_outcome_with_family_line_and_log(tmp_path):
    world = World(
        speed=varied_speed,
        fails=lambda c: "out_of_memory" if c["moe_backend"] == "triton" else None,
    )

    results = make_study(tmp_path, world, trials=20).run()

    failed = [t.outcome for t in results.trials if isinstance(t.outcome, Failed)]
    assert failed
    for outcome in failed:
        assert outcome.family == "out_of_memory"
        assert outcome.line == "it is out_of_memory"
        assert outcome.remedy == "do something else"
        assert Path(outcome.log or "").is_file()


def test_events_tell_what_happens_in_order(tmp_path):
    bench = make_bench(World(speed=varied_speed))

    make_study(tmp_path, World(), bench=bench, trials=2).run()

    assert isinstance(bench.progress, Recorder)
    names = [name for name, _ in bench.progress.events if name != "phase"]
    assert names == ["study_started", *["trial_started", "trial_ended"] * 2]
    assert bench.progress.named("trial_ended")[0]["values"]["output_tok_s"] > 0


def test_a_storage_that_stays_locked_is_a_clear_message_and_loses_no_finished_trial(tmp_path):
    world = World(speed=varied_speed)
    make_study(tmp_path, world, trials=2).run()
    attempts: list[Any] = []

    def locks_the_storage(number, values, bench, folder):
        from autotune.tuning.trial import run_trial

        trial = run_trial(number, values, bench, folder)
        if not attempts:
            connection = sqlite3.connect(tmp_path / "fake" / "study.db")
            connection.execute("PRAGMA busy_timeout = 1")
            connection.execute("BEGIN EXCLUSIVE")
            attempts.append(connection)
        return trial

    impatient = Place(folder=tmp_path / "fake", study_name="fake", lock_timeout_s=0.05)
    study = make_study(tmp_path, world, trials=4, attempt=locks_the_storage, place=impatient)
    with pytest.raises(HostError, match="storage does not answer") as error:
        study.run()
    attempts[0].close()

    assert "Nothing is lost" in str(error.value.hint)
    results = make_study(tmp_path, world, trials=4).run()
    assert numbers(results) == [0, 1, 2, 3]
    assert len(world.launched) == 4


def test_a_pass_that_the_client_spoiled_is_taken_again_on_the_same_start(tmp_path):
    world = World(speed=varied_speed, lagging_passes=2)

    results = make_study(tmp_path, world, trials=1).run()

    assert len(world.launched) == 1
    assert isinstance(results.trials[0].outcome, Measured)
    assert len(results.trials[0].outcome.measurement.runs) == 3


def test_a_client_that_lags_again_and_again_yields_no_number_and_says_what_to_do(tmp_path):
    with pytest.raises(BaselineError, match="the client was the bottleneck") as error:
        make_study(tmp_path, World(speed=varied_speed, lagging_passes=99), trials=1).run()

    assert "core of its own" in str(error.value.hint)


def test_inactive_knobs_are_stored_at_their_first_value(tmp_path):
    from tests.model.test_search_space import DRAFT, conditional_space

    space = conditional_space()
    world = World(speed=lambda config: (100.0, 50.0))

    results = make_study(tmp_path, world, space=space, trials=10).run()

    off = [trial for trial in finished(tmp_path) if trial.params[DRAFT] == 0]
    assert off
    assert {trial.params["speculative_config.moe_backend"] for trial in off} == {"triton"}
    assert all(trial.values == space.canonical(trial.values) for trial in results.trials)


def test_two_folders_that_share_a_storage_share_a_study_and_try_nothing_twice(tmp_path):
    world = World(speed=varied_speed)
    url = f"sqlite:///{tmp_path}/shared.db"
    places = [
        Place(folder=tmp_path / name, study_name="fake", url=url) for name in ("left", "right")
    ]
    make_study(tmp_path, world, trials=4, place=places[0]).run()

    results = make_study(tmp_path, world, trials=8, place=places[1]).run()

    keys = [make_space().key(trial.values) for trial in results.trials]
    assert len(set(keys)) == len(keys) == 8
    again = make_study(tmp_path, world, trials=8, place=places[0]).run()
    assert [t.values for t in again.trials] == [t.values for t in results.trials]
    assert len(world.launched) == 8


def test_a_trial_that_another_worker_is_running_is_left_alone(tmp_path):
    world = World(speed=varied_speed)
    url = f"sqlite:///{tmp_path}/shared.db"
    left, right = (
        Place(folder=tmp_path / name, study_name="fake", url=url) for name in ("left", "right")
    )
    seen: list[int] = []

    def look_from_the_other_side(number, values, bench, folder):
        from autotune.tuning.trial import run_trial

        if not seen:
            seen.append(number)
            make_study(tmp_path, world, trials=2, place=right).run()
        return run_trial(number, values, bench, folder)

    results = make_study(
        tmp_path, world, trials=4, place=left, attempt=look_from_the_other_side
    ).run()

    study = optuna.load_study(study_name="fake", storage=url)
    assert "FAIL" not in [trial.state.name for trial in study.get_trials()]
    assert results.baseline is not None


def test_a_refused_run_leaves_the_study_as_it_was(tmp_path):
    world = World(speed=varied_speed)
    source = tmp_path / "space.yaml"
    source.write_text("then")
    make_study(tmp_path, world, trials=2, space=make_space(source=source)).run()
    source.write_text("now")

    with pytest.raises(StudyError):
        make_study(tmp_path, world, trials=2, space=make_space(source=source, repeats=9)).run()

    assert (tmp_path / "fake" / "search_space.yaml").read_text() == "then"


def test_records_of_another_space_do_not_fill_a_lost_storage(tmp_path):
    world = World(speed=varied_speed)
    make_study(tmp_path, world, trials=2).run()
    for file in (tmp_path / "fake").glob("study.db*"):
        file.unlink()

    with pytest.raises(StudyError, match="another search space"):
        make_study(tmp_path, world, trials=2, space=make_space(repeats=9)).run()


def test_a_restored_record_leaves_the_raw_samples_alone(tmp_path):
    world = World(speed=varied_speed)
    make_study(tmp_path, world, trials=2).run()
    folder = trial_folder(tmp_path / "fake", 1)
    (folder / "samples.jsonl").write_text("precious\n")
    (folder / "record.json").write_text("{")

    make_study(tmp_path, world, trials=2).run()

    assert (folder / "samples.jsonl").read_text() == "precious\n"


def test_a_trial_left_running_is_found_again_when_the_folder_was_moved(tmp_path):
    world = World(speed=varied_speed, interrupt_at=None)

    def dies(number, values, bench, folder):
        raise RuntimeError("power failure")

    with pytest.raises(RuntimeError):
        make_study(tmp_path, world, trials=2, attempt=dies).run()
    (tmp_path / "fake").rename(tmp_path / "moved")
    place = Place(folder=tmp_path / "moved", study_name="fake")

    results = make_study(tmp_path, world, trials=2, place=place).run()

    assert results.baseline is not None
    study = optuna.load_study(study_name="fake", storage=f"sqlite:///{tmp_path}/moved/study.db")
    assert "RUNNING" not in [trial.state.name for trial in study.get_trials()]
