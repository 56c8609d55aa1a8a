"""Imaginary hosts for search benchmarks: the simulator's step model with hidden coefficients.

Each instance draws how fast every backend is, which one crashes, which one answers wrongly, and where
the memory ends; a search sees the grid and nothing else. Thirty-two users; a row of the grid gives
throughput and TTFT without noise, so that the true front is known.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autotune.model.knob import Knob
from autotune.model.objective import Objective, Quantity, Rule
from autotune.model.search_space import Part, SearchSpace, ServerSettings, WorkloadSpec
from autotune.simulator.hardware_profiles import DGX_SPARK
from autotune.simulator.model_profiles import QWEN_NVFP4
from autotune.simulator.performance import (
    PrefillChunk,
    StepLoad,
    StepModel,
    StepSettings,
    tokens_per_step,
)
from autotune.tuning.search.grid import Grid

USERS = 32
PROMPT, ANSWER = 1000, 200
DRAFT = "speculative_config.num_speculative_tokens"
DRAFT_BACKEND = "speculative_config.moe_backend"
STARTED, CRASHED, WRONG = 0, 1, 2

SEVEN = (
    Knob(name=DRAFT, values=(0, 1, 2, 3, 4), kind="linear"),
    Knob(name="moe_backend", values=("a", "b", "c", "d"), kind="categorical"),
    Knob(name="attention_backend", values=("a", "b", "c"), kind="categorical"),
    Knob(name=DRAFT_BACKEND, values=("a", "b", "c"), kind="categorical"),
    Knob(
        name="max_num_seqs",
        values=(2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64),
        kind="log",
    ),
    Knob(
        name="max_num_batched_tokens",
        values=(512, 1024, 1536, 2048, 4096, 6144, 8192, 12288, 16384),
        kind="log",
    ),
    Knob(
        name="gpu_memory_utilization",
        values=tuple(round(0.55 + 0.025 * step, 3) for step in range(17)),
        kind="linear",
    ),
)
ELEVEN = (
    *SEVEN,
    Knob(name="async_scheduling", values=(False, True), kind="categorical"),
    Knob(name="kv_cache_dtype", values=("auto", "fp8"), kind="categorical"),
    Knob(
        name="compilation_config.cudagraph_mode",
        values=("FULL_AND_PIECEWISE", "PIECEWISE", "NONE"),
        kind="categorical",
    ),
    Knob(name="max_num_partial_prefills", values=(1, 2, 4, 8), kind="log"),
)
GOOD = {"max_num_seqs": 12, "max_num_batched_tokens": 4096, "gpu_memory_utilization": 0.75}
POOR = {"max_num_seqs": 4, "max_num_batched_tokens": 512, "gpu_memory_utilization": 0.6}


def make_space(knobs: tuple[Knob, ...], *, poor: bool) -> SearchSpace:
    load: dict[str, Any] = {"workload": "agent", "concurrency": USERS}
    return SearchSpace(
        name="instance",
        model="imaginary",
        server=ServerSettings(launcher=Part(kind="simulated")),
        knobs=knobs,
        baseline={knob.name: knob.values[0] for knob in knobs} | (POOR if poor else GOOD),
        workloads=(
            WorkloadSpec(
                name="agent",
                input_tokens=PROMPT,
                output_tokens=ANSWER,
                concurrency=(USERS,),
                requests=(4 * USERS,),
            ),
        ),
        objectives=(
            Objective(
                name="output_tok_s",
                quantity=Quantity(metric="output_tok_s", **load),
                direction="maximize",
            ),
            Objective(
                name="ttft_ms.p50",
                quantity=Quantity(metric="ttft_ms.p50", **load),
                direction="minimize",
            ),
        ),
        rules=(Rule(left="max_num_batched_tokens", operator=">=", right="max_num_seqs"),),
        source=Path("instance.yaml"),
    )


class Instance:
    """One host with one model. `space` is all that a search may look at."""

    def __init__(self, seed: int, *, knobs: int = 11, poor: bool = False) -> None:
        self.space = make_space(SEVEN if knobs == 7 else ELEVEN, poor=poor)
        self.grid = Grid(self.space)
        self._names = [knob.name for knob in self.space.knobs]
        self._draw(np.random.default_rng([seed, knobs]))
        base = self.truth(self.grid.baseline[None])
        if base[0][0] != STARTED:
            raise AssertionError("the baseline must be feasible by construction")
        self.reference = (0.8 * base[1][0], 1.5 * base[2][0])

    # --- hidden coefficients

    def _draw(self, rng: np.random.Generator) -> None:
        def factor(spread: float, size: int | None = None):
            return np.exp(rng.normal(0.0, spread, size))

        self.hardware = dataclasses.replace(
            DGX_SPARK,
            bandwidth_gb_s=DGX_SPARK.bandwidth_gb_s * factor(0.2),
            step_overhead_ms=DGX_SPARK.step_overhead_ms * factor(0.3),
            decode_token_ms=DGX_SPARK.decode_token_ms * factor(0.3),
            prefill_token_ms=DGX_SPARK.prefill_token_ms * factor(0.25),
            eager_overhead_ms=DGX_SPARK.eager_overhead_ms * rng.uniform(0.1, 0.8),
            blocking_schedule_ms=DGX_SPARK.blocking_schedule_ms * rng.uniform(-0.5, 3.0),
        )
        chance = rng.uniform(0.6, 0.88)
        self.model = dataclasses.replace(
            QWEN_NVFP4,
            acceptance=tuple(chance ** (1.25 * place) for place in range(1, 6)),
            draft_read_gb=QWEN_NVFP4.draft_read_gb * factor(0.3),
            kv_bytes_per_token=QWEN_NVFP4.kv_bytes_per_token * 5 * factor(0.4),
        )
        self.moe = np.concatenate([[1.0], factor(0.16, 3)])
        self.attention = np.concatenate([[1.0], factor(0.09, 2)])
        self.attention_drafting = np.concatenate([[1.0], factor(0.10, 2)])
        self.attention_batch = np.concatenate([[0.0], rng.normal(0.0, 0.035, 2)])
        self.draft_backend = factor(0.5, 3)
        self.draft_slowing = rng.uniform(0.0, 0.06)
        self.kv_speed = np.array([1.0, factor(0.04)])
        self.kv_attention = np.stack([np.ones(3), factor(0.05, 3)])
        self.graph_speed = np.array([1.0, rng.uniform(0.9, 1.04)])
        self.partial = np.stack(
            [np.concatenate([[1.0], factor(0.05, 3)]), np.concatenate([[1.0], factor(0.15, 3)])]
        )
        self.queue_ms, self.queue_slots = rng.uniform(250, 700), rng.uniform(6, 14)
        self.batching = rng.uniform(0.05, 0.35)
        self.contention = rng.uniform(0.5, 1.5)
        self.weights_gib = rng.uniform(22, 45)
        self.activation_mib = rng.uniform(0.4, 1.6)
        self.memory_end = rng.uniform(0.84, 0.97)
        self._draw_failures(rng)
        self._tables()

    def _draw_failures(self, rng: np.random.Generator) -> None:
        """Draw which values and pairs crash or answer wrongly; never one of the baseline's alone."""
        order = 1 + rng.permutation(3)
        self.crashing = [("moe_backend", int(order[0]))]
        self.wrong = [("moe_backend", int(order[1]))]
        if rng.random() < 0.6:
            # What is wrong looks fast.
            self.moe[order[1]] = max(self.moe[order[1]], self.moe.max() * rng.uniform(1.0, 1.15))
        bad = int(rng.integers(1, 3))
        self.pairs = [
            (("attention_backend", bad), (DRAFT, int(rng.integers(2, 5)))),
            ((DRAFT_BACKEND, int(rng.integers(0, 3))), ("moe_backend", int(order[2]))),
            (("compilation_config.cudagraph_mode", int(rng.integers(0, 2))), (DRAFT, 4)),
            (("max_num_partial_prefills", 3), ("async_scheduling", 1)),
        ]
        if rng.random() < 0.4:
            self.pairs.append((("attention_backend", 3 - bad), ("kv_cache_dtype", 1)))
        self.wrong_pairs = [
            (("async_scheduling", 1), (DRAFT, int(rng.integers(3, 5)))),
        ]
        if rng.random() < 0.2:
            self.wrong.append(("kv_cache_dtype", 1))
        elif rng.random() < 0.2:
            self.crashing.append(("compilation_config.cudagraph_mode", 1))

    def _tables(self) -> None:
        """Ask the step model once for every batch, draft length and mode that can occur."""
        drafts, context = range(5), PROMPT + ANSWER / 2
        self.step = np.zeros((2, 3, 2, 3, 5, USERS + 1))
        for kv, graph, wait, backend in itertools.product(range(2), range(3), range(2), range(3)):
            model = StepModel(
                self.hardware,
                self.model,
                StepSettings(
                    draft_read_gb=self.model.draft_read_gb / self.draft_backend[backend],
                    kv_factor=0.5 if kv else 1.0,
                    eager=graph == 2,
                    blocking_schedule=not wait,
                    capture_sizes=(1, 2, 4, *range(8, 257, 8)),
                ),
            )
            for draft in drafts:
                for batch in range(1, USERS + 1):
                    load = StepLoad(
                        decodes=batch, draft_tokens=draft, context_tokens=int(batch * context)
                    )
                    self.step[kv, graph, wait, backend, draft, batch] = model.step_ms(load)
        self.tokens = np.array([tokens_per_step(self.model.acceptance, draft) for draft in drafts])
        self._prefill_tables()

    def _prefill_tables(self) -> None:
        budgets = self.space.knob("max_num_batched_tokens").values
        model = StepModel(self.hardware, self.model, StepSettings())
        self.chunks = np.zeros((len(budgets), USERS + 1, 5))
        self.extra = np.zeros_like(self.chunks)
        for place, budget in enumerate(budgets):
            for batch, draft in itertools.product(range(1, USERS + 1), range(5)):
                room = max(int(str(budget)) - batch * (1 + draft), 64)
                tokens = min(room, PROMPT)
                load = StepLoad(decodes=batch, draft_tokens=draft, context_tokens=batch * PROMPT)
                both = dataclasses.replace(
                    load, prefills=(PrefillChunk(tokens=tokens, position=0),)
                )
                self.chunks[place, batch, draft] = math.ceil(PROMPT / tokens)
                self.extra[place, batch, draft] = model.step_ms(both) - model.step_ms(load)

    # --- the truth

    def truth(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Give the state, tok/s and TTFT in ms of each row, without noise."""
        rows = self.grid.canonical(rows)
        at = {name: rows[:, place] for place, name in enumerate(self._names)}
        zero = np.zeros(len(rows), dtype=np.int64)
        for name in ("async_scheduling", "kv_cache_dtype", "max_num_partial_prefills"):
            at.setdefault(name, zero)
        at.setdefault("compilation_config.cudagraph_mode", zero)
        number = {
            knob.name: np.array(knob.values, dtype=float)[at[knob.name]]
            for knob in self.space.knobs
            if knob.kind != "categorical"
        }
        room = self._room(at, number)
        speed, ttft = self._performance(at, number, room)
        return self._state(at, number, room), speed, ttft

    def _room(self, at: Mapping[str, np.ndarray], number: Mapping[str, np.ndarray]) -> np.ndarray:
        """Count the sequences that the KV cache holds."""
        activation = self.activation_mib * number["max_num_batched_tokens"] / 1024
        graphs = np.where(at["compilation_config.cudagraph_mode"] == 2, 0.0, 2.0)
        draft = np.where(at[DRAFT] > 0, 4.0, 0.0)
        pool = number["gpu_memory_utilization"] * 122.0 - self.weights_gib - activation - graphs
        per_token = self.model.kv_bytes_per_token / 2**30 * np.where(at["kv_cache_dtype"], 0.5, 1)
        return (pool - draft - 25.0) / (per_token * (PROMPT + ANSWER) * 3.5)

    def _performance(
        self,
        at: Mapping[str, np.ndarray],
        number: Mapping[str, np.ndarray],
        room: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        wanted = np.minimum(number["max_num_seqs"], USERS)
        batch = np.clip(np.minimum(wanted, room), 1, USERS).astype(np.int64)
        draft, attention = at[DRAFT], at["attention_backend"]
        graph, kv = at["compilation_config.cudagraph_mode"], at["kv_cache_dtype"]
        backend = np.where(draft > 0, at[DRAFT_BACKEND], 0)
        speed = (
            self.moe[at["moe_backend"]]
            * self.attention[attention]
            * np.where(draft > 0, self.attention_drafting[attention], 1.0)
            * np.exp(self.attention_batch[attention] * np.log2(batch / 8))
            * self.kv_speed[kv]
            * self.kv_attention[kv, attention]
            * np.where(graph == 1, self.graph_speed[1], 1.0)
        )
        step = self.step[kv, graph, at["async_scheduling"], backend, draft, batch]
        step = step * (1 + self.draft_slowing * draft * np.log2(batch)) / speed
        budget = at["max_num_batched_tokens"]
        chunks, extra = self.chunks[budget, batch, draft], self.extra[budget, batch, draft]
        extra = extra / np.sqrt(speed)
        preempted = np.clip((wanted - room) / wanted, 0.0, 1.0)
        decode_ms = ANSWER / self.tokens[draft] * step
        prefill_ms = batch * chunks * extra
        cycle = (decode_ms + prefill_ms) * (1 + 0.6 * preempted)
        partial = at["max_num_partial_prefills"]
        throughput = 1000 * batch * ANSWER / cycle * self.partial[0][partial]
        share = prefill_ms / (decode_ms + prefill_ms)
        together = np.maximum(number["max_num_batched_tokens"] / PROMPT, 1.0)
        together = np.minimum(together, 1 + batch / 4)
        first = chunks * (step + extra) * (1 + self.contention * share / (1.05 - share))
        first *= 1 + self.batching * np.log2(together)
        queue = self.queue_ms * np.maximum(self.queue_slots / batch - 1, 0.0)
        ttft = first * self.partial[1][partial] + queue + 900 * preempted
        return throughput, ttft

    def _state(
        self,
        at: Mapping[str, np.ndarray],
        number: Mapping[str, np.ndarray],
        room: np.ndarray,
    ) -> np.ndarray:
        def holds(name: str, value: int) -> np.ndarray:
            if name == DRAFT:
                return np.asarray(at[name] >= value)
            if name == DRAFT_BACKEND:
                return np.asarray((at[name] == value) & (at[DRAFT] > 0))
            return np.asarray(at[name] == value)

        unseen = 0.02 + 0.06 * number["max_num_batched_tokens"] / 16384
        unseen += np.where(at["compilation_config.cudagraph_mode"] == 0, 0.015, 0.0)
        unseen += 0.03 * (at[DRAFT] > 0)
        crashed = (number["gpu_memory_utilization"] + unseen > self.memory_end + 0.05) | (room < 2)
        wrong = np.zeros(len(crashed), dtype=bool)
        for name, value in self.crashing:
            crashed |= holds(name, value)
        for one, other in self.pairs:
            crashed |= holds(*one) & holds(*other)
        for name, value in self.wrong:
            wrong |= holds(name, value)
        for one, other in self.wrong_pairs:
            wrong |= holds(*one) & holds(*other)
        return np.where(crashed, CRASHED, np.where(wrong, WRONG, STARTED))

    def front(self) -> list[tuple[float, float]]:
        """Give the true front: every row of the grid is looked at."""
        sizes = self.grid.sizes
        inner = [p for p, size in enumerate(sizes) if size > 3 and self._names[p] != "moe_backend"]
        outer = [place for place in range(len(sizes)) if place not in inner]
        block = np.stack(
            [axis.ravel() for axis in np.meshgrid(*(np.arange(sizes[p]) for p in inner))], axis=1
        )
        rows = np.zeros((len(block), len(sizes)), dtype=np.int64)
        rows[:, inner] = block
        front: list[tuple[float, float]] = []
        for values in itertools.product(*(range(sizes[place]) for place in outer)):
            rows[:, outer] = values
            # All of the rows share their backends: what never starts need not be computed.
            if self._hopeless(dict(zip((self._names[p] for p in outer), values, strict=True))):
                continue
            state, speed, ttft = self.truth(rows)
            good = state == STARTED
            front = pareto([*front, *zip(speed[good].tolist(), ttft[good].tolist(), strict=True)])
        return front

    def _hopeless(self, values: Mapping[str, int]) -> bool:
        return any(values.get(name) == value for name, value in (*self.crashing, *self.wrong))

    def feasible_share(self, rng: np.random.Generator) -> float:
        return float(np.mean(self.truth(self.grid.random(rng, 20000))[0] == STARTED))


def pareto(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep what nothing beats: throughput descending, TTFT falling."""
    if not points:
        return []
    array = np.array(points)
    ordered = array[np.lexsort((array[:, 1], -array[:, 0]))]
    before = np.minimum.accumulate(np.concatenate([[np.inf], ordered[:-1, 1]]))
    return [tuple(point) for point in ordered[ordered[:, 1] < before].tolist()]


def volume(points: list[tuple[float, float]], reference: tuple[float, float]) -> float:
    """Area between the points and the reference (throughput up, TTFT down)."""
    area, floor = 0.0, reference[1]
    for throughput, ttft in pareto(points):
        if throughput > reference[0] and ttft < floor:
            area += (throughput - reference[0]) * (floor - ttft)
            floor = ttft
    return area
