"""Prints what autotune itself costs: seconds a trial, seconds for --help, megabytes for a long study.

Usage: python benchmarks/overhead.py [--trials 40] [--json]

Runs the demo's study in a temporary folder. Overhead of a trial is the time from its start to the
start of the next one, without the server's start and without warm-up and load: gates, stopping,
records, exports and the search are in it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOAD_PHASES = ("start", "warm_up", "measure")
HELP_RUNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {"help_s": help_seconds(), **study_figures(options.trials)}
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        limit = LIMITS.get(name)
        print(f"{name:32} {value:10.3f}" + ("" if limit is None else f"   (limit {limit:g})"))


LIMITS = {"help_s": 0.5, "overhead_s_median": 0.5, "memory_mb": 300}


def help_seconds() -> float:
    """Take the fastest of a few: the rest is what else the machine does."""
    return min(timed([sys.executable, "-m", "autotune", "--help"]) for _ in range(HELP_RUNS))


def timed(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def study_figures(trials: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "events.jsonl"
        space = ROOT / "search_spaces" / "demo.yaml"
        argv = [sys.executable, "-m", "autotune", str(space), "--trials", str(trials)]
        seconds = timed([*argv, "--studies", folder, "--events", str(log)])
        events = [json.loads(line) for line in log.read_text().splitlines()]
    overheads = overhead_by_trial(events)
    return {
        "trials": trials,
        "study_s": seconds,
        "overhead_s_median": statistics.median(overheads),
        "overhead_s_largest": max(overheads),
        "memory_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        "cores": float(os.cpu_count() or 1),
    }


def overhead_by_trial(events: list[dict[str, Any]]) -> list[float]:
    """Take each trial's phases of load off the time until the next one starts."""
    starts = [event["at"] for event in events if event["event"] == "trial_started"]
    ends = [event for event in events if event["event"] == "trial_ended"]
    following = [*starts[1:], ends[-1]["at"]]
    return [
        after - before - sum(ended["seconds"].get(phase, 0.0) for phase in LOAD_PHASES)
        for before, after, ended in zip(starts, following, ends, strict=True)
    ]


if __name__ == "__main__":
    main()
