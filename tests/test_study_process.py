"""Whole studies: autotune as a process, the simulated server as its child."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import optuna
import pandas as pd
import pytest
import yaml

from autotune.system.processes import Mark, find_members, free_port, port_answers
from tests.simulated import (
    autotune,
    environment,
    events,
    kill_group,
    start_autotune,
    wait_for,
    write_space,
)


def finished(folder: Path) -> list[optuna.trial.FrozenTrial]:
    study = optuna.load_study(study_name="small", storage=f"sqlite:///{folder}/study.db")
    return [trial for trial in study.get_trials() if trial.state.name in ("COMPLETE", "PRUNED")]


def leftovers(study: Path) -> list[int]:
    """Live processes of any trial of the study."""
    found = [json.loads(path.read_text()) for path in study.glob("trials/*/server.json")]
    marks = [Mark(token=i["token"], leader=i.get("pid"), started=i.get("started")) for i in found]
    return [pid for mark in marks for pid in find_members(mark)]


def in_the_middle_of_the_third_trial(seen: list[dict[str, object]]) -> bool:
    ended = sum(event["event"] == "trial_ended" for event in seen)
    return ended == 2 and seen[-1].get("phase") in ("warm_up", "measure", "gates")


def test_a_study_prints_a_front_and_leaves_every_file(tmp_path):
    space = write_space(tmp_path)

    ended = autotune(str(space), "--trials", "8", cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert "Pareto front of small" in ended.stdout
    assert "Traceback" not in ended.stderr
    study = tmp_path / "studies" / "small"
    front = json.loads((study / "front.json").read_text())
    assert front["schema_version"] == 1
    assert front["study"] == "small"
    assert front["objectives"] == [
        {"name": "output_tok_s", "unit": "tok/s", "direction": "maximize"},
        {"name": "ttft_ms.p50", "unit": "ms", "direction": "minimize"},
    ]
    assert any(member["class"] == "front" for member in front["members"])
    for member in [front["baseline"], *front["members"]]:
        for value in member["values"].values():
            assert 0 < value["low"] <= value["mean"] <= value["high"]
    trials = pd.read_csv(study / "trials.csv")
    assert list(trials["trial"]) == list(range(8))
    assert yaml.safe_load((study / "recipe.yaml").read_text())["recipe_version"] == "2"
    assert (study / "report.md").read_text().startswith("# small")
    assert len(finished(study)) == 8
    assert leftovers(study) == []
    ports = [json.loads(p.read_text())["port"] for p in study.glob("trials/*/server.json")]
    assert not any(port_answers(port) for port in ports)


def test_what_breaks_tool_calls_or_cannot_start_is_never_on_the_front(tmp_path):
    space = write_space(
        tmp_path,
        switches={
            "breaks_tools": {"moe_backend": ["cutlass"]},
            "fast": {"moe_backend": {"cutlass": 1.5}},
        },
    )

    autotune(str(space), "--trials", "14", cwd=tmp_path)

    study = tmp_path / "studies" / "small"
    trials = pd.read_csv(study / "trials.csv")
    cutlass = trials[trials["moe_backend"] == "cutlass"]
    triton = trials[trials["moe_backend"] == "triton"]
    assert len(cutlass) > 0
    assert set(cutlass["outcome"]) == {"rejected"}
    assert all("tool_calls" in reason for reason in cutlass["reason"])
    assert set(triton["outcome"]) <= {"failed"}
    assert set(triton["family"]) <= {"unsupported"}
    members = json.loads((study / "front.json").read_text())["members"]
    assert {member["config"]["moe_backend"] for member in members} == {"marlin"}
    front = optuna.load_study(study_name="small", storage=f"sqlite:///{study}/study.db").best_trials
    assert {trial.params["moe_backend"] for trial in front} == {"marlin"}


def test_after_kill_9_in_a_trial_the_orphan_is_stopped_and_nothing_counts_twice(tmp_path):
    space = write_space(tmp_path, time_scale=20)
    log = tmp_path / "events.jsonl"
    study = tmp_path / "studies" / "small"
    killed = start_autotune(str(space), "--trials", "5", "--events", str(log), cwd=tmp_path)
    try:
        wait_for(lambda: in_the_middle_of_the_third_trial(events(log)))
        killed.send_signal(signal.SIGKILL)
    finally:
        killed.wait()
    orphans = leftovers(study)
    assert orphans

    ended = autotune(str(space), "--trials", "5", "--events", str(log), cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert any(event["event"] == "reaped" for event in events(log))
    assert leftovers(study) == []
    assert len(finished(study)) == 5
    keys = [json.dumps(trial.params, sort_keys=True) for trial in finished(study)]
    assert len(set(keys)) == 5
    assert len(pd.read_csv(study / "trials.csv")) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_polite_end_stops_the_server_saves_and_exits_130(tmp_path, number):
    space = write_space(tmp_path, time_scale=10)
    log = tmp_path / "events.jsonl"
    study = tmp_path / "studies" / "small"
    running = start_autotune(str(space), "--trials", "4", "--events", str(log), cwd=tmp_path)
    try:
        wait_for(lambda: any(event.get("phase") == "measure" for event in events(log)))
        running.send_signal(number)

        assert running.wait(timeout=60) == 130
    finally:
        kill_group(running)

    assert leftovers(study) == []
    names = [event["event"] for event in events(log)]
    assert names[-1] == "trial_interrupted"
    assert "the same command goes on from here" in (tmp_path / "stderr").read_text()
    done = len(finished(study))
    assert done < 4


def test_the_dashboard_shows_the_study_while_it_runs(tmp_path):
    space = write_space(tmp_path, time_scale=10)
    log = tmp_path / "events.jsonl"
    study = tmp_path / "studies" / "small"
    running = start_autotune(str(space), "--trials", "30", "--events", str(log), cwd=tmp_path)
    port = free_port()
    dashboard = None
    try:
        wait_for(lambda: sum(event["event"] == "trial_ended" for event in events(log)) >= 2)
        command = Path(sys.executable).parent / "optuna-dashboard"
        dashboard = subprocess.Popen(
            [command, "--port", str(port), f"sqlite:///{study}/study.db"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment(),
        )
        wait_for(lambda: port_answers(port))
        base = f"http://127.0.0.1:{port}/api"
        with httpx.Client(trust_env=False, timeout=30) as client:
            summaries = client.get(f"{base}/studies").json()["study_summaries"]
            assert [summary["study_name"] for summary in summaries] == ["small"]
            detail = client.get(f"{base}/studies/{summaries[0]['study_id']}").json()

        assert running.poll() is None
        assert len(detail["trials"]) >= 2
        assert detail["objective_names"] == ["output_tok_s", "ttft_ms.p50"]
        fronts = {trial["number"] for trial in detail["best_trials"]}
        rejected = {t["number"] for t in detail["trials"] if t["state"] == "Pruned"}
        assert not fronts & rejected
    finally:
        for process in (dashboard, running):
            if process is not None:
                kill_group(process)
        autotune(str(space), "--trials", "1", cwd=tmp_path)  # reaps the server of the killed run
    assert leftovers(study) == []


def test_a_server_that_dies_under_load_is_a_failure_with_its_family_and_the_study_goes_on(tmp_path):
    space = write_space(
        tmp_path,
        switches={"dies_at_request": {"request": 30, "moe_backend": ["cutlass"]}},
    )

    ended = autotune(str(space), "--trials", "8", cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    trials = pd.read_csv(tmp_path / "studies" / "small" / "trials.csv")
    dead = trials[trials["moe_backend"] == "cutlass"]
    assert len(dead) > 0
    assert set(dead["family"]) == {"engine_died"}


def test_fresh_moves_the_old_study_aside_and_deletes_nothing(tmp_path):
    space = write_space(tmp_path)
    autotune(str(space), "--trials", "2", cwd=tmp_path)
    before = (tmp_path / "studies" / "small" / "front.json").read_text()

    ended = autotune(str(space), "--trials", "2", "--fresh", cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    (old,) = (tmp_path / "studies").glob("small.*")
    assert (old / "front.json").read_text() == before
    assert len(finished(tmp_path / "studies" / "small")) == 2


def test_a_baseline_that_cannot_start_ends_the_study_with_exit_1_and_the_remedy(tmp_path):
    space = write_space(tmp_path, switches={"fails_to_start": {"moe_backend": ["marlin"]}})

    ended = autotune(str(space), "--trials", "3", cwd=tmp_path)

    assert ended.returncode == 1
    assert ended.stderr.startswith("error: the baseline could not be measured")
    assert "hint:" in ended.stderr
    assert leftovers(tmp_path / "studies" / "small") == []
