"""The gate that runs tool-eval-bench, of the extra `vllm-autotune[tool-eval]` or found on PATH.

Minutes a run, so only what would enter the front is asked, and the baseline, whose score is the
reference. Scores of different versions or sets are not compared: 2.x and 3.x count differently.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.gates.answers import parse_json
from autotune.gates.options import check_count, check_share
from autotune.model.outcome import CaseResult, CaseVerdict, Reference, Verdict
from autotune.protocols import Client
from autotune.system.commands import complete

COMMAND = "tool-eval-bench"
MODEL_MISSING = 3
INFRASTRUCTURE = frozenset(("timeout", "connection_error", "server_error"))
_VERDICTS: Mapping[str, CaseVerdict] = {"pass": "pass", "partial": "pass", "fail": "fail"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEvalGate:
    """The short set of tool-eval-bench, for the baseline and for what would enter the front.

    executable: the program; left out, `tool-eval-bench` beside this Python or on PATH
    scenarios: names such as TC-01; left out, its short set of 15
    not_worse_than_baseline: share of the points (0.1 is ten of 100) that the baseline may be ahead
    min_score: points of 100 that are due whatever the baseline has
    max_tokens: budget of an answer. Its own default of 16384 is more than a short max_model_len
    takes, and then every scenario is left out
    thinking: false turns thinking off
    parallel: scenarios at once; more than 1 makes scores less reproducible
    request_timeout_s: for one answer
    timeout_s: for all of it
    strict_cold: has no effect, cold servers are not asked
    """

    executable: str | None = None
    scenarios: tuple[str, ...] | None = None
    not_worse_than_baseline: float = 0.1
    min_score: float = 0.0
    max_tokens: int = 1024
    thinking: bool | None = None
    parallel: int = 1
    request_timeout_s: float = 120.0
    timeout_s: float = 1800.0
    strict_cold: bool = False

    def __post_init__(self) -> None:
        check_share("not_worse_than_baseline", self.not_worse_than_baseline, zero=True)
        check_count("max_tokens", self.max_tokens)
        check_count("parallel", self.parallel)
        self._find()

    @property
    def name(self) -> str:
        return "tool_eval"

    @property
    def moments(self) -> frozenset[str]:
        return frozenset(("final",))

    def _find(self) -> str:
        """Find the program.

        Raises:
            ValueError: It is not there.
        """
        wanted = self.executable or COMMAND
        beside = shutil.which(wanted, path=str(Path(sys.executable).parent))
        found = shutil.which(wanted) if self.executable else beside or shutil.which(wanted)
        if found is None:
            raise ValueError(
                f"executable: there is no {wanted}: pip install 'vllm-autotune[tool-eval]', or name "
                "its path"
            )
        return found

    async def check(
        self, client: Client, *, moment: str, reference: Reference | None = None
    ) -> Verdict:
        """Run it in a folder of its own: it leaves a data base and reports where it runs."""
        with tempfile.TemporaryDirectory(prefix="tool-eval-") as name:
            folder = Path(name)
            ended = await complete(
                self._argv(client, folder / "result.json"),
                folder=folder,
                timeout_s=self.timeout_s,
                environment={"TOOL_EVAL_API_KEY": client.server.api_key or "none"},
            )
            result = _read(folder / "result.json")
        if result is None:
            return self._broken(moment, ended.exit_code, ended.stderr)
        baseline = None if reference is None else reference.verdict(self.name, moment)
        return self._judge(moment, result, baseline)

    def _argv(self, client: Client, result: Path) -> list[str]:
        chosen = ["--short"] if self.scenarios is None else ["--scenarios", *self.scenarios]
        return [
            self._find(),
            "run",
            *("--base-url", f"{client.server.base_url}/v1"),
            *("--model", client.server.served_model),
            *chosen,
            *("--seed", "42", "--temperature", "0"),
            *(["--no-think"] if self.thinking is False else []),
            *("--backend", "vllm"),
            *("--backend-kwargs", json.dumps({"max_tokens": self.max_tokens})),
            *("--timeout", f"{self.request_timeout_s:g}", "--parallel", str(self.parallel)),
            *("--no-warmup", "--no-probe-engine", "--no-live", "--redact-url"),
            *("--json-file", str(result)),
        ]

    def _broken(self, moment: str, exit_code: int | None, stderr: str) -> Verdict:
        why = (
            f"not done after {self.timeout_s:g} s"
            if exit_code is None
            else f"{COMMAND} ended with {exit_code}: {stderr.strip()[-300:]}"
        )
        missing = exit_code == MODEL_MISSING
        case = CaseResult(
            id="run",
            verdict="setup_error" if missing else "request_failed",
            reason="model_not_found" if missing else "request_failed",
            why=why,
        )
        return Verdict(
            gate=self.name, moment=moment, passed=False, score=0.0, threshold=0.0, cases=(case,)
        )

    def _judge(self, moment: str, result: Mapping[str, Any], baseline: Verdict | None) -> Verdict:
        scores = result["scores"]
        score = float(result["final_score"]) / 100
        signals: dict[str, float | str] = {
            "version": str(result.get("tool_eval_bench_version")),
            "fingerprint": str(result.get("config", {}).get("config_fingerprint")),
            "final_score": float(result["final_score"]),
            "scenarios": float(result.get("total_scenarios") or 0),
        }
        comparable = baseline is not None and all(
            baseline.signals.get(key) == signals[key] for key in ("version", "scenarios")
        )
        due = self.min_score / 100
        note = f"tool-eval-bench {signals['version']}: {signals['final_score']:.0f} of 100"
        if baseline is not None and comparable:
            due = max(due, baseline.score - self.not_worse_than_baseline)
            note += f", the baseline {baseline.score:.0%}"
        elif baseline is not None:
            note += "; not compared with the baseline, which had another version or set"
        whole = scores.get("max_points", 0) > 0 and scores.get("completion_rate", 100) >= 100  # noqa: PLR2004 - percent
        return Verdict(
            gate=self.name,
            moment=moment,
            passed=bool(whole) and score >= due - 1e-9,
            score=score,
            threshold=max(0.0, due),
            cases=tuple(map(_case, scores.get("scenario_results", ()))),
            note=note,
            compared="" if whole else f"{note}: not every scenario could be run",
            signals=signals,
        )


def _case(entry: Mapping[str, Any]) -> CaseResult:
    kind = str(entry.get("failure_kind") or "")
    status = str(entry.get("status"))
    verdict = "request_failed" if kind in INFRASTRUCTURE else _VERDICTS.get(status, "fail")
    reason = kind or ("" if status == "pass" else status)
    return CaseResult(
        id=str(entry.get("scenario_id")),
        verdict=verdict,
        reason=reason,
        why="" if status == "pass" else str(entry.get("summary") or "")[:200],
    )


def _read(path: Path) -> Mapping[str, Any] | None:
    """Read the result; None where there is none that says anything."""
    try:
        result = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    scores = result.get("scores") if isinstance(result, dict) else None
    whole = isinstance(scores, dict) and isinstance(result.get("final_score"), int | float)
    return result if whole else None
