"""A study on a real vLLM, on a CPU, with a small real model. `.ci/run` builds both."""

import json
import os
import signal
from pathlib import Path

import optuna
import pytest
import yaml

from autotune.system.processes import Mark, find_members, port_answers
from tests.simulated import autotune, events, start_autotune, wait_for

pytestmark = pytest.mark.vllm

SPACE = Path(__file__).parents[2] / "search_spaces" / "cpu-smollm2.yaml"
TRIALS = 4


def write_space(folder: Path) -> Path:
    """Take the shipped space with a grid of four servers: one cannot start, one speculates."""
    content = yaml.safe_load(SPACE.read_text())
    content["model"] = os.environ["AUTOTUNE_TEST_MODEL"]
    content["server"]["executable"] = os.environ["AUTOTUNE_TEST_VLLM"]
    content["knobs"] = {
        "speculative_config.num_speculative_tokens": {"choices": [0, 3]},
        "max_model_len": {"choices": [2048, 16384]},
    }
    content["baseline"] = {
        "speculative_config.num_speculative_tokens": 0,
        "max_model_len": 2048,
    }
    content["server"]["args"] |= {"max_num_seqs": 4, "max_num_batched_tokens": 1024}
    content["rules"] = []
    path = folder / "cpu.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def leftovers(study: Path) -> list[int]:
    found = [json.loads(path.read_text()) for path in study.glob("trials/*/server.json")]
    marks = [Mark(token=i["token"], leader=i.get("pid"), started=i.get("started")) for i in found]
    return [pid for mark in marks for pid in find_members(mark)]


def test_a_study_on_a_real_vllm_survives_kill_9_and_leaves_a_front_and_nothing_running(tmp_path):
    space = write_space(tmp_path)
    log = tmp_path / "events.jsonl"
    study = tmp_path / "studies" / "cpu-smollm2"
    command = (str(space), "--trials", str(TRIALS), "--events", str(log))
    killed = start_autotune(*command, cwd=tmp_path)
    wait_for(lambda: any(event.get("phase") == "measure" for event in events(log)), seconds=600)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert leftovers(study)

    ended = autotune(*command, cwd=tmp_path, seconds=1500)

    assert ended.returncode == 0, ended.stderr
    assert any(event["event"] == "reaped" for event in events(log))
    assert leftovers(study) == []
    intents = [json.loads(path.read_text()) for path in study.glob("trials/*/server.json")]
    assert not any(port_answers(intent["port"]) for intent in intents)

    records = [json.loads(path.read_text()) for path in sorted(study.glob("trials/*/record.json"))]
    assert len(records) == TRIALS
    failed = [record for record in records if record["outcome"]["kind"] == "failed"]
    assert {record["outcome"]["family"] for record in failed} == {"invalid_config"}
    assert {record["values"]["max_model_len"] for record in failed} == {16384}
    assert all("max_model_len" in record["outcome"]["message"] for record in failed)

    # Structured answers with drafts may break under load in this vLLM: measured all the same, and
    # then rejected for it.
    measured = [record for record in records if record["outcome"].get("measurement")]
    assert len(measured) == 2
    for record in measured:
        speculates = record["values"]["speculative_config.num_speculative_tokens"] > 0
        for run in record["outcome"]["measurement"]["runs"]:
            assert run["metrics"]["output_tok_s"] > 0
            assert (run["metrics"]["acceptance_rate"] is not None) == speculates
            assert run["metrics"]["queue_ms.mean"] is not None
        facts = record["outcome"]["facts"]
        assert facts["vllm_version"].startswith("0.32")
        assert facts["max_model_len"] == 2048
        gates = {verdict["gate"] for verdict in record["outcome"]["verdicts"]}
        assert gates == {"json_schema"}

    stored = optuna.load_study(study_name="cpu-smollm2", storage=f"sqlite:///{study}/study.db")
    states = [trial.state.name for trial in stored.get_trials()]
    assert states.count("COMPLETE") >= 1
    assert states.count("COMPLETE") + states.count("PRUNED") == TRIALS
    assert json.loads((study / "front.json").read_text())["members"]
    recipe = yaml.safe_load((study / "recipe.yaml").read_text())
    assert recipe["model"] == os.environ["AUTOTUNE_TEST_MODEL"]


def test_check_asks_the_installed_vllm_itself(tmp_path):
    space = write_space(tmp_path)

    good = autotune("check", str(space), cwd=tmp_path)
    space.write_text(space.read_text().replace("enforce_eager:", "enforce_eagre:"))
    bad = autotune("check", str(space), cwd=tmp_path)

    assert good.returncode == 0, good.stderr
    assert "0.32" in good.stdout
    assert bad.returncode == 2
    assert "enforce_eagre" in bad.stderr
    assert "enforce_eager" in bad.stderr
