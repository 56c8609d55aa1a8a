"""How exact the load generator is, against a server whose timing is known.

    python benchmarks/client_accuracy.py [--asyncio] [--concurrency 1,16,64]

The truth is what the server itself noted: when a request arrived and when each chunk was written
to its socket, on the same clock. Run it on an idle machine: with two cores the server, the client
and whatever else runs share them.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

import httpx
import uvloop

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from autotune.load import ClientLimits, closed_loop  # noqa: E402 - found by the path above
from autotune.load.driver import Patience, drive  # noqa: E402
from autotune.load.plan import Plan  # noqa: E402
from autotune.load.prompts import Corpus, PromptKey  # noqa: E402
from autotune.load.sse import events  # noqa: E402
from autotune.load.streaming import Recording, open_connections, open_session  # noqa: E402
from autotune.model.host import RunningServer  # noqa: E402
from autotune.model.search_space import WorkloadSpec  # noqa: E402
from tests.fakes.timed_server import timed_server  # noqa: E402

TTFT_MS, CADENCE_MS, PER_CHUNK, OUTPUT = 100.0, 20.0, 2, 64
CHUNKS = OUTPUT // PER_CHUNK
ANYTHING = ClientLimits(stamp_error_floor_ms=1e9, lag_p99_ms=1e9, cpu=1e9)


def server_at(base_url: str, slots: int) -> RunningServer:
    model = f"timed,ttft_ms={TTFT_MS},cadence_ms={CADENCE_MS},per_chunk={PER_CHUNK},slots={slots}"
    return RunningServer(base_url=base_url, served_model=model, log="", startup_s=0.0)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def told_truth(base_url: str) -> list[dict[str, float]]:
    async with httpx.AsyncClient() as client:
        requests: list[dict[str, float]] = (await client.get(base_url + "/truth")).json()[
            "requests"
        ]
        return requests


async def accuracy(base_url: str, concurrency: int, slots: int, per_slot: int) -> str:
    spec = WorkloadSpec(
        name="accuracy",
        input_tokens=200,
        output_tokens=OUTPUT,
        concurrency=(concurrency,),
        requests=(concurrency * per_slot,),
    )
    await told_truth(base_url)
    run = await closed_loop(spec, limits=ANYTHING).run(
        server_at(base_url, slots), concurrency=concurrency, repeat=0
    )
    if run.problem is not None:
        return f"{concurrency:>4}  {run.problem}"
    truth = await told_truth(base_url)
    found = {name: value or 0.0 for name, value in run.metrics.items()}
    ttft = statistics.median((one["first"] - one["arrived"]) * 1e3 for one in truth)
    tpot = statistics.median(
        (one["last"] - one["first"]) / (one["tokens"] - one["first_tokens"]) * 1e3 for one in truth
    )
    # In step, every slot repeats the same round, so a round's tokens over its length is the rate.
    service_s = statistics.mean(one["last"] - one["admitted"] for one in truth)
    rate = min(slots, concurrency) * OUTPUT / service_s
    queue = sum(one["admitted"] - one["arrived"] for one in truth)
    waited = sum(one["first"] - one["arrived"] for one in truth)
    share = found["queue_ms.mean"] / found["ttft_ms.mean"] - queue / waited
    return (
        f"{concurrency:>4} {slots:>5}"
        f" {found['ttft_ms.p50']:>9.2f} {found['ttft_ms.p50'] - ttft:>+7.2f}"
        f" {found['output_tok_s']:>8.1f} {found['output_tok_s'] / rate - 1:>+8.2%}"
        f" {found['tpot_ms.p50']:>7.3f} {found['tpot_ms.p50'] / tpot - 1:>+8.3%}"
        f" {found['queue_ms.mean'] / found['ttft_ms.mean']:>7.1%} {share:>+7.2%}"
        f" {run.client.lag_p99_ms or 0:>7.2f} {run.client.cpu or 0:>5.0%}"
    )


async def stamps(base_url: str, concurrency: int, per_slot: int) -> str:
    server = server_at(base_url, 1000)
    key = PromptKey(seed=0, workload="stamps", phase="run", concurrency=concurrency, repeat=0)
    plan = Plan(key=key, requests=concurrency * per_slot, input_tokens=200, output_tokens=OUTPUT)
    bodies = plan.bodies(Corpus(tokens=tuple(range(5000))), server.served_model)
    recordings = [Recording(body=body) for body in bodies]
    async with open_session(server) as session:
        await open_connections(session, concurrency)
        busy = time.process_time()
        result = await drive(
            session,
            recordings,
            concurrency=concurrency,
            patience=Patience(stall_s=30, deadline_s=300),
            poll=lambda: asyncio.sleep(0),
        )
        busy = time.process_time() - busy
    errors, skew = [], []
    for recording in recordings:
        skew.append(((recording.sent_s or 0.0) - (recording.scheduled_s or 0.0)) * 1e3)
        for at, payload in events(recording.stamps, recording.reads):
            written = None if payload == "[DONE]" else json.loads(payload).get("at")
            if written is not None:
                errors.append((at - written) * 1e3)
    return (
        f"{concurrency:>4} {len(errors):>8}"
        f" {percentile(errors, 0.5):>8.3f} {percentile(errors, 0.99):>8.3f}"
        f" {busy / len(errors) * 1e6:>10.1f}"
        f" {percentile(skew, 0.5):>8.2f} {max(skew):>8.2f}"
        f" {(result.client.lag_p99_ms or 0):>7.2f}"
    )


async def report(levels: list[int], per_slot: int) -> None:
    with timed_server() as base_url:
        print(
            "conc slots  TTFT p50   error    tok/s    error    TPOT    error   queue   error",
            end="",
        )
        print("     lag   CPU")
        for concurrency in levels:
            print(await accuracy(base_url, concurrency, 1000, per_slot))
        print(await accuracy(base_url, 16, 4, per_slot))
        print("\nconc   chunks  error p50, p99 ms  us CPU/chunk  send p50, max ms   lag p99")
        for concurrency in levels:
            print(await stamps(base_url, concurrency, per_slot))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", default="1,16,64")
    parser.add_argument("--per-slot", type=int, default=8)
    parser.add_argument("--asyncio", action="store_true", help="without uvloop")
    options = parser.parse_args()
    levels = [int(level) for level in options.concurrency.split(",")]
    factory = None if options.asyncio else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(report(levels, options.per_slot))


if __name__ == "__main__":
    main()
