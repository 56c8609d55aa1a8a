"""Words in, messages and exit codes out."""

import json

import pytest
import yaml

from autotune.cli import run
from tests.simulated import write_space

FIVE_MISTAKES = """
name: small
model: nvidia/Qwen3.6-35B-A3B-NVFP4
server:
  launcher: podman
knobs:
  max_num_seqs: {type: int, low: 64, high: 4, doubling: true}
  moe_backend: {choices: [marlin, marlin]}
workloads:
  agent: {preset: agnet}
repeats: many
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def test_five_mistakes_give_five_messages_with_file_and_line_and_exit_code_2(tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(FIVE_MISTAKES)

    code = run(["check", str(path)])

    messages = [line for line in capsys.readouterr().err.splitlines() if "bad.yaml:" in line]
    assert code == 2
    assert len(messages) == 5
    lines = [int(message.split("bad.yaml:")[1].split(":")[0]) for message in messages]
    assert lines == [5, 7, 8, 10, 11]


def test_a_wrong_file_stops_a_study_before_any_server_starts(tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(FIVE_MISTAKES)

    assert run([str(path), "--trials", "3"]) == 2
    assert "podman" in capsys.readouterr().err
    assert not (tmp_path / "studies").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["missing.yaml"],
        ["check", "missing.yaml"],
        ["--trials", "3"],
        ["missing.yaml", "--trials", "0"],
        ["missing.yaml", "--hours", "nan"],
        ["missing.yaml", "--trials", "many"],
        ["missing.yaml", "--unknown"],
        ["export", "nothing"],
        ["report", "nothing"],
        ["diagnose", "missing.log"],
    ],
    ids=" ".join,
)
def test_what_the_user_got_wrong_is_exit_code_2_with_a_message(words, capsys):
    assert run(words) == 2

    captured = capsys.readouterr()
    assert captured.err.strip() or captured.out.strip()
    assert "Traceback" not in captured.err + captured.out


def test_a_study_can_be_reported_and_exported(tmp_path, capsys):
    space = write_space(tmp_path)
    assert run([str(space), "--trials", "4"]) == 0
    first = capsys.readouterr().out
    assert run(["report", "small"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == first.splitlines()[0]

    assert run(["export", "small", "--pick", "0", "--format", "command"]) == 0
    command = capsys.readouterr().out
    assert command.startswith("vllm serve nvidia/Qwen3.6-35B-A3B-NVFP4 ")
    record = json.loads((tmp_path / "studies/small/trials/0000/record.json").read_text())
    measured = record["argv"][record["argv"].index("--") + 1 :]
    assert "--max-num-seqs" in measured
    for word in measured:
        assert word in command

    assert run(["export", "studies/small", "-o", "mine.yaml"]) == 0
    assert yaml.safe_load((tmp_path / "mine.yaml").read_text())["recipe_version"] == "2"

    assert run(["export", "small", "--pick", "99"]) == 2
    assert "Trials that can be picked" in capsys.readouterr().err
    assert run(["export", "small", "--pick", "fastest"]) == 2
    assert "throughput, ttft, balanced" in capsys.readouterr().err


def test_events_that_cannot_be_written_are_told_before_anything_starts(tmp_path, capsys):
    space = write_space(tmp_path)

    assert run([str(space), "--events", "/dev/null/events"]) == 2

    assert "--events" in capsys.readouterr().err
    assert not (tmp_path / "studies").exists()


def test_json_output_is_the_front_and_nothing_else(tmp_path, capsys):
    space = write_space(tmp_path)

    assert run([str(space), "--trials", "2", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["study"] == "small"


def test_diagnose_prints_the_family_the_line_and_a_hint(tmp_path, capsys):
    log = tmp_path / "server.log"
    log.write_text("INFO start\nValueError: No available memory for the cache blocks. Try more\n")

    assert run(["diagnose", str(log)]) == 0
    text = capsys.readouterr().out
    assert "failed: kv_cache_too_small" in text
    assert "line 2:" in text
    assert "hint:" in text

    assert run(["diagnose", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["family"], found["line_number"]) == (
        "failed",
        "kv_cache_too_small",
        2,
    )


def test_check_prints_the_baselines_whole_command_and_the_grid(tmp_path, capsys):
    space = write_space(tmp_path)

    assert run(["check", str(space)]) == 0

    text = capsys.readouterr().out
    assert "vllm serve nvidia/Qwen3.6-35B-A3B-NVFP4 " in text
    assert "--max-num-batched-tokens 2048" in text
    assert '{"method":"mtp","num_speculative_tokens":1}' in text
    assert "192" in text


def test_check_names_an_unknown_flag_and_a_wrong_value_with_their_lines(tmp_path, capsys):
    space = write_space(tmp_path)
    text = space.read_text().replace("kv_cache_dtype: fp8", "kv_cash_dtype: fp8")
    text = text.replace("[marlin, cutlass, triton]", "[marlin, cutlas]")
    space.write_text(text)

    assert run(["check", str(space)]) == 2

    err = capsys.readouterr().err
    numbered = dict(enumerate(text.splitlines(), start=1))
    flag = next(n for n, line in numbered.items() if "kv_cash" in line)
    value = next(n for n, line in numbered.items() if "cutlas]" in line)
    assert f"small.yaml:{flag}: " in err
    assert "kv_cache_dtype" in err
    assert f"small.yaml:{value}: " in err


def test_a_folder_that_cannot_be_written_is_a_matter_of_the_host(tmp_path, capsys):
    space = write_space(tmp_path)

    assert run([str(space), "--trials", "2", "--studies", "/dev/null/studies"]) == 3

    assert "error: /dev/null/studies/small: this folder cannot be made" in capsys.readouterr().err


def test_fresh_does_not_pull_the_folder_from_under_a_live_run(tmp_path, capsys):
    from autotune.system.files import held

    space = write_space(tmp_path)
    assert run([str(space), "--trials", "1"]) == 0
    capsys.readouterr()

    with held(tmp_path / "studies" / "small" / "lock"):
        assert run([str(space), "--trials", "1", "--fresh"]) == 2

    assert "at work" in capsys.readouterr().err
    assert len(list((tmp_path / "studies").iterdir())) == 1


def test_an_attempt_that_measured_nothing_makes_way_for_the_corrected_file(tmp_path, capsys):
    space = write_space(tmp_path, switches={"fails_to_start": {"moe_backend": ["marlin"]}})
    assert run([str(space), "--trials", "2"]) == 1
    write_space(tmp_path)

    assert run([str(space), "--trials", "2"]) == 0

    assert "the old study is now" in capsys.readouterr().err
    assert len(list((tmp_path / "studies").iterdir())) == 2


def test_a_changed_file_is_refused_with_what_changed(tmp_path, capsys):
    space = write_space(tmp_path)
    assert run([str(space), "--trials", "1"]) == 0
    space.write_text(space.read_text().replace("repeats: 2", "repeats: 3"))

    assert run([str(space), "--trials", "1"]) == 2

    assert "another search space: repeats differ" in capsys.readouterr().err


def test_a_simulated_study_says_so_wherever_a_number_stands(tmp_path, capsys):
    space = write_space(tmp_path)
    assert run([str(space), "--trials", "1"]) == 0

    study = tmp_path / "studies" / "small"
    assert "SIMULATED" in capsys.readouterr().out
    assert "SIMULATED" in (study / "report.md").read_text()
    recipe = yaml.safe_load((study / "recipe.yaml").read_text())
    assert recipe["metadata"]["autotune"]["simulated"] is True


def test_a_knob_that_the_baseline_does_not_name_is_pointed_out(tmp_path, capsys):
    space = write_space(tmp_path)

    assert run(["check", str(space)]) == 0

    err = capsys.readouterr().err
    assert "baseline: not given" in err
    assert "moe_backend=marlin" in err
    assert "num_speculative_tokens" not in err


def test_a_log_can_come_from_standard_input(tmp_path, capsys, monkeypatch):
    import io
    import sys

    text = io.TextIOWrapper(io.BytesIO(b"ValueError: No available memory for the cache blocks\n"))
    monkeypatch.setattr(sys, "stdin", text)

    assert run(["diagnose", "-"]) == 0
    assert "kv_cache_too_small" in capsys.readouterr().out
