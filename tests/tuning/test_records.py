import json

import pytest

from autotune.model.diagnosis import ServerFacts
from autotune.model.measurement import ClientCheck, LevelRun, Measurement, RequestSample
from autotune.model.outcome import (
    CaseResult,
    Failed,
    Interrupted,
    Measured,
    Rejected,
    Trial,
    Verdict,
)
from autotune.tuning.records import as_json, from_json, read_record, write_record

FACTS = ServerFacts(vllm_version="0.33.0", kv_cache_tokens=1000, unknown_env=("VLLM_TYPO",))
VERDICT = Verdict(
    gate="tool_calls",
    moment="after",
    passed=False,
    score=0.5,
    threshold=1.0,
    cases=(CaseResult(id="named", verdict="fail", reason="wrong_tool", why="it called another"),),
    remedy="choose another backend",
)
RUN = LevelRun(
    workload="agent",
    concurrency=8,
    repeat=0,
    requests=(
        RequestSample(
            scheduled_s=0.0,
            sent_s=0.1,
            first_token_s=0.2,
            last_token_s=0.9,
            prompt_tokens=10,
            output_tokens=5,
        ),
    ),
    metrics={"output_tok_s": 12.5, "ttft_ms.p95": None},
    window_s=2.0,
    warnings=("a warning",),
    client=ClientCheck(cpu=0.1),
)
MEASUREMENT = Measurement(startup_s=255.0, runs=(RUN,))
OUTCOMES = [
    Measured(measurement=MEASUREMENT, facts=FACTS, verdicts=(VERDICT,), violations={"x <= 1": 0.5}),
    Rejected(verdict=VERDICT, facts=FACTS, verdicts=(VERDICT,), measurement=MEASUREMENT),
    Rejected(verdict=VERDICT, facts=FACTS),
    Failed(family="out_of_memory", message="no", line="no", remedy="less", log="l", facts=FACTS),
    Failed(family="unknown", message="no"),
    Interrupted(message="Ctrl-C"),
]


def trial(outcome):
    return Trial(
        number=7,
        values={"max_num_seqs": 4, "flag": True, "backend": None},
        outcome=outcome,
        argv=("vllm", "serve", "m"),
        environment={"A": "1"},
        started_at=1.5,
        ended_at=2.5,
        seconds={"start": 1.0},
    )


@pytest.mark.parametrize("outcome", OUTCOMES, ids=range(len(OUTCOMES)))
def test_a_trial_reads_back_as_it_was_but_for_its_raw_samples(tmp_path, outcome):
    write_record(tmp_path, trial(outcome))

    read = read_record(tmp_path)

    assert read is not None
    assert as_json(read) == as_json(trial(outcome))
    assert type(read.outcome) is type(outcome)


def test_every_raw_sample_is_kept_beside_the_record(tmp_path):
    write_record(tmp_path, trial(OUTCOMES[0]))

    (line,) = (tmp_path / "samples.jsonl").read_text().splitlines()

    assert json.loads(line)["first_token_s"] == 0.2
    assert json.loads(line)["workload"] == "agent"


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"schema_version": 99},
        {**as_json(trial(OUTCOMES[0])), "schema_version": 2},
        {k: v for k, v in as_json(trial(OUTCOMES[0])).items() if k != "outcome"},
        {**as_json(trial(OUTCOMES[0])), "outcome": {"kind": "triumph"}},
        {**as_json(trial(OUTCOMES[0])), "outcome": {"kind": "measured", "measurement": None}},
        {**as_json(trial(OUTCOMES[0])), "number": "seven"},
        {**as_json(trial(OUTCOMES[0])), "values": 3},
    ],
    ids=range(10),
)
def test_what_is_no_record_of_this_version_counts_as_missing(content):
    assert from_json(content) is None


def test_a_torn_record_counts_as_missing(tmp_path):
    write_record(tmp_path, trial(OUTCOMES[0]))
    text = (tmp_path / "record.json").read_text()
    (tmp_path / "record.json").write_text(text[: len(text) // 2])

    assert read_record(tmp_path) is None


def test_a_number_that_is_not_finite_never_reaches_a_record(tmp_path):
    import dataclasses

    run = dataclasses.replace(RUN, metrics={"output_tok_s": float("nan")})
    bad = Measured(measurement=Measurement(startup_s=1.0, runs=(run,)), facts=FACTS)

    write_record(tmp_path, trial(bad))

    assert "NaN" not in (tmp_path / "record.json").read_text()
