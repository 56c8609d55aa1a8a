"""The trial folder: a JSON record written before Optuna is told, and every raw sample.

A record is whole or not there. `schema_version` says which form it has; a record of another version,
torn or edited into nonsense is treated as missing.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_never

from autotune.model.diagnosis import ServerFacts
from autotune.model.measurement import ClientCheck, LevelRun, Measurement
from autotune.model.outcome import (
    CaseResult,
    Failed,
    Interrupted,
    Measured,
    Outcome,
    Rejected,
    Trial,
    Verdict,
)
from autotune.system.files import read_json, write_json, write_whole

SCHEMA_VERSION = 1
RECORD = "record.json"
SAMPLES = "samples.jsonl"


def write_record(folder: Path, trial: Trial) -> None:
    """Write the samples, then the record: a record that is there has its samples.

    Raises:
        HostError: The disk is full or the folder cannot be written.
    """
    measurement = _measurement_of(trial.outcome)
    if measurement is not None:
        write_whole(folder / SAMPLES, _samples(measurement))
    write_json(folder / RECORD, as_json(trial))


def read_record(folder: Path) -> Trial | None:
    """Read a trial back, without its raw samples; None when the record is missing or corrupt."""
    return from_json(read_json(folder / RECORD))


def trial_folder(study: Path, number: int) -> Path:
    return study / "trials" / f"{number:04d}"


def read_records(study: Path) -> dict[int, Trial]:
    """Read every whole record of a study, by trial number."""
    folders = sorted(folder for folder in (study / "trials").glob("*") if folder.name.isdecimal())
    found = ((int(folder.name), read_record(folder)) for folder in folders)
    return {n: trial for n, trial in found if trial is not None and trial.number == n}


def as_json(trial: Trial) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "number": trial.number,
        "values": dict(trial.values),
        "argv": list(trial.argv),
        "environment": dict(trial.environment),
        "started_at": trial.started_at,
        "ended_at": trial.ended_at,
        "seconds": dict(trial.seconds),
        "outcome": _outcome_as_json(trial.outcome),
    }


def from_json(content: object) -> Trial | None:
    """Rebuild a trial; None when the content is not a record of this version."""
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        return None
    try:
        return Trial(
            number=int(content["number"]),
            values=dict(content["values"]),
            outcome=_outcome_from_json(content["outcome"]),
            argv=tuple(content["argv"]),
            environment=dict(content["environment"]),
            started_at=float(content["started_at"]),
            ended_at=float(content["ended_at"]),
            seconds=dict(content["seconds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    content: dict[str, Any]
    match outcome:
        case Measured():
            content = {
                "measurement": _measurement_as_json(outcome.measurement),
                "verdicts": [_verdict_as_json(verdict) for verdict in outcome.verdicts],
                "violations": dict(outcome.violations),
                "warnings": list(outcome.warnings),
                "facts": outcome.facts.as_dict(),
            }
        case Rejected():
            content = {
                "verdict": _verdict_as_json(outcome.verdict),
                "verdicts": [_verdict_as_json(verdict) for verdict in outcome.verdicts],
                "measurement": _measurement_as_json(outcome.measurement),
                "facts": outcome.facts.as_dict(),
            }
        case Failed():
            content = {
                "family": outcome.family,
                "message": outcome.message,
                "line": outcome.line,
                "remedy": outcome.remedy,
                "log": outcome.log,
                "facts": None if outcome.facts is None else outcome.facts.as_dict(),
            }
        case Interrupted():
            content = {"message": outcome.message}
        case _:
            assert_never(outcome)
    return {"kind": type(outcome).__name__.lower(), **content}


def _outcome_from_json(content: Mapping[str, Any]) -> Outcome:
    match content["kind"]:
        case "measured":
            measurement = _measurement_from_json(content["measurement"])
            if measurement is None:
                raise ValueError("a measured trial without a measurement")
            return Measured(
                measurement=measurement,
                facts=_facts(content["facts"]),
                verdicts=tuple(map(_verdict_from_json, content["verdicts"])),
                violations=dict(content["violations"]),
                warnings=tuple(content["warnings"]),
            )
        case "rejected":
            return Rejected(
                verdict=_verdict_from_json(content["verdict"]),
                verdicts=tuple(map(_verdict_from_json, content["verdicts"])),
                measurement=_measurement_from_json(content["measurement"]),
                facts=_facts(content["facts"]),
            )
        case "failed":
            facts = content["facts"]
            return Failed(
                **{key: content[key] for key in ("family", "message", "line", "remedy", "log")},
                facts=None if facts is None else _facts(facts),
            )
        case "interrupted":
            return Interrupted(message=content["message"])
        case kind:
            raise ValueError(f"there is no outcome {kind!r}")


def _facts(content: Mapping[str, Any]) -> ServerFacts:
    known = {item.name for item in dataclasses.fields(ServerFacts)}
    facts: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in content.items()
        if key in known and value is not None
    }
    return ServerFacts(**facts)


def _measurement_of(outcome: Outcome) -> Measurement | None:
    return outcome.measurement if isinstance(outcome, Measured | Rejected) else None


def _measurement_as_json(measurement: Measurement | None) -> dict[str, Any] | None:
    if measurement is None:
        return None
    return {
        "startup_s": measurement.startup_s,
        "runs": [
            {
                "workload": run.workload,
                "concurrency": run.concurrency,
                "repeat": run.repeat,
                "window_s": run.window_s,
                "metrics": {name: _finite(value) for name, value in run.metrics.items()},
                "warnings": list(run.warnings),
                "client": dataclasses.asdict(run.client),
            }
            for run in measurement.runs
        ],
    }


def _measurement_from_json(content: Mapping[str, Any] | None) -> Measurement | None:
    if content is None:
        return None
    return Measurement(
        startup_s=float(content["startup_s"]),
        runs=tuple(
            LevelRun(
                workload=run["workload"],
                concurrency=run["concurrency"],
                repeat=run["repeat"],
                requests=(),
                window_s=run["window_s"],
                metrics={name: _number(value) for name, value in run["metrics"].items()},
                warnings=tuple(run["warnings"]),
                client=ClientCheck(**run["client"]),
            )
            for run in content["runs"]
        ),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return dataclasses.asdict(verdict)


def _verdict_from_json(content: Mapping[str, Any]) -> Verdict:
    cases = tuple(CaseResult(**case) for case in content["cases"])
    return Verdict(**{**content, "cases": cases})


def _samples(measurement: Measurement) -> str:
    """Render one line a request, warm-ups not included."""
    return "".join(
        json.dumps(
            {
                "workload": run.workload,
                "concurrency": run.concurrency,
                "repeat": run.repeat,
                **dataclasses.asdict(sample),
            }
        )
        + "\n"
        for run in measurement.runs
        for sample in run.requests
    )
