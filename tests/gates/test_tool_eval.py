"""Against a program that leaves a result as tool-eval-bench 3 does; it is run for real by hand."""

import json
import stat
import sys
from dataclasses import replace

import pytest

from autotune.gates.tool_eval import ToolEvalGate
from autotune.model.outcome import Reference
from tests.fakes.replay_server import Said
from tests.gates.asking_gates import check

PROGRAM = """#!{python}
import json, pathlib, sys
arguments = sys.argv[1:]
pathlib.Path({asked!r}).write_text(json.dumps([arguments, str(pathlib.Path.cwd())]))
pathlib.Path("litter.sqlite").write_text("x")
result = {result}
if result is not None:
    pathlib.Path(arguments[arguments.index("--json-file") + 1]).write_text(json.dumps(result))
sys.exit({code})
"""


def outcome(score=80, version="3.0.0", **scores):
    entries = [
        {"scenario_id": "TC-01", "status": "pass", "points": 2},
        {
            "scenario_id": "TC-02",
            "status": "fail",
            "summary": "It was the wrong one.",
            "failure_kind": "wrong_tool",
        },
    ]
    return {
        "schema_version": "1",
        "tool_eval_bench_version": version,
        "final_score": score,
        "total_scenarios": 2,
        "config": {"config_fingerprint": "abc"},
        "scores": {"max_points": 4, "scenario_results": entries, **scores},
    }


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "tool-eval-bench"

    def write(result, *, code=0, **options):
        text = PROGRAM.format(
            python=sys.executable, asked=str(tmp_path / "asked.json"), result=result, code=code
        )
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return ToolEvalGate(executable=str(path), **options)

    return write


def run(gate, reference=None):
    return check(gate, Said(content="x").whole(), moment="final", reference=reference)


def test_the_result_is_in_the_verdict(program, tmp_path):
    verdict = run(program(outcome(), thinking=False))

    assert (verdict.passed, verdict.score) == (True, 0.8)
    assert [(case.id, case.verdict, case.reason) for case in verdict.cases] == [
        ("TC-01", "pass", ""),
        ("TC-02", "fail", "wrong_tool"),
    ]
    assert verdict.signals["version"] == "3.0.0"
    asked, folder = json.loads((tmp_path / "asked.json").read_text())
    assert asked[0] == "run"
    assert {"--short", "--no-think"} <= set(asked)
    assert asked[asked.index("--backend-kwargs") + 1] == '{"max_tokens": 1024}'
    assert not list(tmp_path.glob("litter*"))
    assert str(tmp_path) != folder


def test_it_is_asked_of_finalists_only(program):
    assert program(outcome()).moments == {"final"}


@pytest.mark.parametrize(("score", "passed"), [(80, True), (71, True), (69, False)])
def test_the_score_is_held_against_the_baselines(program, score, passed):
    reference = Reference(verdicts=(run(program(outcome(80))),))

    verdict = run(program(outcome(score)), reference)

    assert verdict.passed is passed
    assert verdict.threshold == pytest.approx(0.7)


def test_another_version_is_not_compared(program):
    reference = Reference(verdicts=(run(program(outcome(90, version="2.8.0"))),))

    verdict = run(program(outcome(20)), reference)

    assert verdict.passed
    assert "another version" in verdict.note


@pytest.mark.parametrize("scores", [{"max_points": 0}, {"completion_rate": 60.0}])
def test_scenarios_that_could_not_be_run_are_no_score(program, scores):
    assert not run(program(outcome(100, **scores))).passed


@pytest.mark.parametrize(
    ("code", "verdict"), [(1, "request_failed"), (2, "request_failed"), (3, "setup_error")]
)
def test_a_run_that_broke_says_how(program, code, verdict):
    found = run(program(None, code=code))

    assert not found.passed
    assert found.cases[0].verdict == verdict
    assert f"ended with {code}" in found.cases[0].why


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no /no/such/program"):
        ToolEvalGate(executable="/no/such/program")


def test_a_verdict_survives_its_record(program):
    from autotune.tuning.records import _verdict_as_json, _verdict_from_json

    verdict = run(program(outcome()))

    assert _verdict_from_json(json.loads(json.dumps(_verdict_as_json(verdict)))) == replace(verdict)
