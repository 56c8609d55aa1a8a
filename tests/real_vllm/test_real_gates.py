"""Gates on a real vLLM: a small model whose JSON is right and whose forced calls are not.

Asked for a call by `required`, SmolLM2-135M ends up with arguments that are a JSON string where an
object is due. That is the model's doing, so a gate that is relative to the baseline lets it pass.
"""

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.simulated import autotune

pytestmark = pytest.mark.vllm

SPACE = Path(__file__).parents[2] / "search_spaces" / "cpu-smollm2.yaml"


def run_study(folder, **options):
    content = yaml.safe_load(SPACE.read_text())
    content["model"] = os.environ["AUTOTUNE_TEST_MODEL"]
    content["server"]["executable"] = os.environ["AUTOTUNE_TEST_VLLM"]
    content["server"]["args"] |= {
        "max_num_seqs": 4,
        "max_model_len": 2048,
        "enable_auto_tool_choice": True,
        "tool_call_parser": "hermes",
    }
    del content["server"]["args"]["speculative_config"]
    content["knobs"] = {"max_num_batched_tokens": {"choices": [1024, 2048]}}
    content["baseline"] = {"max_num_batched_tokens": 1024}
    content["rules"] = []
    content["repeats"] = 1
    content["gates"] = {
        "json_schema": {"max_tokens": 128, "long_context": 200},
        "tool_calls": {"kinds": ["required"], "max_tokens": 64, "long_context": 0, **options},
    }
    path = folder / "cpu.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    ended = autotune(str(path), "--trials", "2", cwd=folder, seconds=1500)
    found = sorted((folder / "studies" / "cpu-smollm2" / "trials").glob("*/record.json"))
    return ended, [json.loads(record.read_text()) for record in found]


def verdicts(record, gate):
    return [v for v in record["outcome"]["verdicts"] if v["gate"] == gate]


def warm_note(record):
    return next(v for v in verdicts(record, "tool_calls") if v["moment"] == "warm")["note"]


def test_required_calls_with_a_string_for_arguments_reject_and_json_passes(tmp_path):
    ended, records = run_study(tmp_path)

    assert ended.returncode == 1
    assert "the arguments of get_weather are a string" in ended.stderr
    (record,) = records
    assert record["outcome"]["kind"] == "rejected"
    assert all(verdict["passed"] for verdict in verdicts(record, "json_schema"))
    (case, *_) = verdicts(record, "tool_calls")[-1]["cases"]
    assert (case["verdict"], case["reason"]) == ("fail", "arguments_not_object")


def test_relative_to_the_baseline_the_same_calls_pass_with_the_reason_shown(tmp_path):
    ended, records = run_study(tmp_path, not_worse_than_baseline=0.1)

    assert ended.returncode == 0, ended.stderr
    assert [record["outcome"]["kind"] for record in records] == ["measured", "measured"]
    for record in records:
        assert all(verdict["passed"] for verdict in verdicts(record, "json_schema"))
        assert all(verdict["passed"] for verdict in verdicts(record, "tool_calls"))
        assert any("are a string" in warning for warning in record["outcome"]["warnings"])
    notes = [warm_note(record) for record in records]
    assert all("the arguments of get_weather are a string" in note for note in notes)
    assert "on the baseline" in notes[0]
    assert "against the baseline's 0%" in notes[1]
    report = (tmp_path / "studies" / "cpu-smollm2" / "report.md").read_text()
    assert "are a string" in report
