"""The baseline: the reference of every gain and every gate, and what is wrong where it is none."""

from collections.abc import Mapping

from autotune.errors import BaselineError, BaselineSetupError
from autotune.model.outcome import (
    Failed,
    Interrupted,
    Measured,
    Reference,
    Rejected,
    Trial,
    Verdict,
)
from autotune.model.search_space import SearchSpace

FLAG_OF: Mapping[str, str] = {
    "tool_parser_missing": "tool_call_parser",
    "tool_call_in_text": "tool_call_parser",
    "reasoning_in_content": "reasoning_parser",
    "chat_template_missing": "chat_template",
}
"""Findings that a fixed setting heals, and the setting."""


def reference_of(trial: Trial | None) -> Reference | None:
    """Keep what the gates found of the baseline for later trials, also those of a later run."""
    outcome = None if trial is None else trial.outcome
    return Reference(verdicts=outcome.verdicts) if isinstance(outcome, Measured) else None


def baseline_trouble(trial: Trial, space: SearchSpace) -> BaselineError | None:
    """Say why nothing can be compared with this baseline."""
    match trial.outcome:
        case Failed() as failed:
            return BaselineError(
                f"the baseline could not be measured ({failed.family}): {failed.message}",
                hint=_ways_out(failed),
            )
        case Rejected() as rejected:
            return _gate_trouble(rejected.verdict, trial, space)
        case Measured() as measured:
            # A gate that is relative to the baseline lets the baseline pass: a missing flag would
            # go unseen, and every configuration be as bad.
            lacking = (v for v in measured.verdicts if _lacks(v, trial, space))
            verdict = next(lacking, None)
            return None if verdict is None else _gate_trouble(verdict, trial, space)
        case Interrupted():
            return None


def _ways_out(failed: Failed) -> str:
    remedy = failed.remedy or "Its log says more."
    log = "" if failed.log is None or failed.log in remedy else f" Log: {failed.log}."
    return f"{remedy}{log} Then start over with --fresh."


def _gate_trouble(verdict: Verdict, trial: Trial, space: SearchSpace) -> BaselineError:
    remedy = verdict.remedy or "Correct the fixed settings, or judge less strictly under `gates`."
    kind = BaselineSetupError if _lacks(verdict, trial, space) else BaselineError
    why = verdict.note or verdict.reason
    return kind(
        f"the baseline does not pass its gate: {why}",
        hint=f"{remedy} Then start over with --fresh.",
    )


def _lacks(verdict: Verdict, trial: Trial, space: SearchSpace) -> bool:
    """Tell whether the answers show that a setting is missing, and it is."""
    settings = space.config(trial.values).settings
    flags = {FLAG_OF[case.reason] for case in verdict.cases if case.reason in FLAG_OF}
    return any(not settings.get(flag) for flag in flags)
