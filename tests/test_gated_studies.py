"""Studies whose fastest backend breaks its answers on some occasions only."""

import json

import pytest
import yaml

from tests.simulated import autotune, write_space

BACKENDS = {"marlin", "cutlass"}


def run_study(folder, switches, *, trials=2, gates=None, args=None, time_scale=100):
    """Measure two backends, one of which is faster and wrong."""
    fast = {"fast": {"moe_backend": {"cutlass": 1.4}}}
    path = write_space(folder, switches={**fast, **switches}, time_scale=time_scale)
    content = yaml.safe_load(path.read_text())
    content["knobs"] = {"moe_backend": {"choices": ["marlin", "cutlass"]}}
    content["baseline"] = {"moe_backend": "marlin"}
    content["server"]["args"]["speculative_config"]["num_speculative_tokens"] = 1
    content["server"]["args"] |= args or {}
    content["repeats"] = 1
    if gates is not None:
        content["gates"] = gates
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return autotune(str(path), "--trials", str(trials), cwd=folder)


def records(folder):
    found = sorted((folder / "studies" / "small" / "trials").glob("*/record.json"))
    return {r["values"]["moe_backend"]: r["outcome"] for r in map(read, found)}


def read(path):
    return json.loads(path.read_text())


def front(folder):
    members = read(folder / "studies" / "small" / "front.json")["members"]
    return {member["config"]["moe_backend"] for member in members}


@pytest.mark.parametrize("only", ["speculation", "streaming", "concurrency>=4"])
def test_the_fastest_backend_that_breaks_tools_on_occasion_is_never_on_the_front(tmp_path, only):
    ended = run_study(tmp_path, {"breaks_tools": {"moe_backend": ["cutlass"], "only": only}})

    assert ended.returncode == 0, ended.stderr
    outcome = records(tmp_path)["cutlass"]
    assert outcome["kind"] == "rejected"
    assert outcome["verdict"]["gate"] == "tool_calls"
    assert all(case["why"] for case in outcome["verdict"]["cases"] if case["verdict"] == "fail")
    assert front(tmp_path) == {"marlin"}


def test_what_breaks_only_under_load_is_rejected_under_load(tmp_path):
    # A pass without load puts 8 questions at once; 5 of them come on top of the load's 8 requests.
    switches = {"breaks_json": {"moe_backend": ["cutlass"], "only": "concurrency>=9"}}

    ended = run_study(
        tmp_path,
        switches,
        gates={"json_schema": {}},
        args={"max_num_seqs": 32},
        time_scale=10,
    )

    assert ended.returncode == 0, ended.stderr
    outcome = records(tmp_path)["cutlass"]
    assert outcome["kind"] == "rejected"
    assert outcome["verdict"]["moment"] == "load"
    assert outcome["measurement"] is not None
    assert front(tmp_path) == {"marlin"}


def test_relative_to_the_baseline_only_what_is_worse_is_rejected(tmp_path):
    gates = {"tool_calls": {"not_worse_than_baseline": 0.1, "calls": 2}}

    ended = run_study(tmp_path, {"breaks_tools": {"moe_backend": ["cutlass"]}}, gates=gates)

    assert ended.returncode == 0, ended.stderr
    outcome = records(tmp_path)["cutlass"]
    assert outcome["kind"] == "rejected"
    assert "against the baseline's 100%" in outcome["verdict"]["compared"]
    assert front(tmp_path) == {"marlin"}


def test_a_resumed_study_holds_answers_against_the_baseline_of_its_records(tmp_path):
    gates = {"equivalence": {}, "tool_calls": {"not_worse_than_baseline": 0.1, "calls": 2}}
    switches = {"breaks_tools": {"moe_backend": ["cutlass"]}}

    run_study(tmp_path, switches, trials=1, gates=gates)
    run_study(tmp_path, switches, trials=2, gates=gates)

    verdicts = records(tmp_path)["cutlass"]["verdicts"]
    alike = next(verdict for verdict in verdicts if verdict["gate"] == "equivalence")
    assert alike["signals"]["identical"] == 1.0
    assert records(tmp_path)["cutlass"]["kind"] == "rejected"


@pytest.mark.parametrize(
    "gates", [{"tool_calls": {}}, {"tool_calls": {"not_worse_than_baseline": 0.1}}]
)
def test_a_baseline_without_a_tool_parser_stops_the_study_with_the_remedy(tmp_path, gates):
    missing = {"enable_auto_tool_choice": False, "tool_call_parser": None}

    ended = run_study(tmp_path, {}, gates=gates, args=missing)

    assert ended.returncode == 2
    assert "the baseline does not pass its gate" in ended.stderr
    assert "enable_auto_tool_choice: true" in ended.stderr


def test_thorough_asks_what_enters_the_front_longer(tmp_path):
    run_study(tmp_path, {"breaks_tools": {"moe_backend": ["cutlass"]}}, gates="thorough")

    verdicts = records(tmp_path)["marlin"]["verdicts"]
    final = {v["gate"]: len(v["cases"]) for v in verdicts if v["moment"] == "final"}
    assert final == {"json_schema": 48, "tool_calls": 48}
