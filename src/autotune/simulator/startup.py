"""The way from a command line to a ready engine: vLLM's phases, log lines and refusals.

Durations are virtual seconds, about 255 in all for the NVFP4 model on a DGX Spark with cold caches.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.simulator import backends, memory, vllm_log
from autotune.simulator.arguments import ServeArguments
from autotune.simulator.backends import Backends
from autotune.simulator.memory import MemoryPlan
from autotune.simulator.profiles import HardwareProfile, ModelProfile
from autotune.simulator.refusals import Refusal, RefusedError
from autotune.simulator.settings import ServeSettings
from autotune.simulator.switches import Condition, Switches
from autotune.simulator.vllm_log import log

_IMPORT_S = 13.0
_ENGINE_PROCESS_S = 9.0
_DYNAMO_S = 11.0
_COMPILE_S = 52.0
_DRAFT_COMPILE_S = 9.0
_CACHED_COMPILE_S = 4.0
_PROFILE_S = 12.0
_AUTOTUNE_S = 14.0
_CAPTURE_S_PER_SIZE = 0.35
_WARM_UP_S = 17.0
_API_S = 9.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What the engine turned out to be."""

    backends: Backends
    memory: MemoryPlan
    startup_s: float


class Startup:
    """One start; `run` takes the scaled time and prints the log."""

    def __init__(
        self,
        *,
        settings: ServeSettings,
        hardware: HardwareProfile,
        model: ModelProfile,
        switches: Switches,
        scale: float,
        seed: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._hardware = hardware
        self._model = model
        self._switches = switches
        self._scale = scale
        self._seed = seed
        self._sleep = sleep
        self._spent_s = 0.0

    def run(self) -> Started:
        """Start the engine.

        Raises:
            RefusedError: It does not start, for one of vLLM's reasons.
        """
        settings = self._settings
        self._pass(_IMPORT_S)
        self._announce()
        self._pass(_ENGINE_PROCESS_S)
        log("EngineCore", "core.py:140", self._engine_line())
        memory.check_free(settings, self._hardware)
        chosen = self._choose_backends()
        self._load_weights()
        if _matches(self._switches.never_ready, settings.given):
            while True:
                self._sleep(3600.0)
        compile_s = self._compile()
        plan = self._profile()
        self._capture(plan)
        self._fail_if_switched(chosen)
        engine_s = self._spent_s - _IMPORT_S
        log(
            "EngineCore",
            "core.py:396",
            f"init engine (profile, create kv cache, warmup model) took {engine_s:.2f} s "
            f"(compilation: {compile_s:.2f} s)",
        )
        self._pass(_API_S)
        log("APIServer", "api_server.py:598", "Supported tasks: ['generate']")
        return Started(backends=chosen, memory=plan, startup_s=self._spent_s)

    def _pass(self, seconds: float) -> None:
        seconds *= self._hardware.startup_factor
        self._spent_s += seconds
        self._sleep(seconds / self._scale)

    def _announce(self) -> None:
        settings, model = self._settings, self._model
        log("APIServer", "model.py:744", f"Resolved architecture: {model.architecture}")
        log("APIServer", "model.py:2170", f"Using max model len {settings.max_model_len}")
        limits = settings.limits
        if limits.chunked_prefill:
            log(
                "APIServer",
                "scheduler.py:311",
                "Chunked prefill is enabled with max_num_batched_tokens="
                f"{limits.max_num_batched_tokens}.",
            )
        if settings.async_scheduling:
            log("APIServer", "vllm.py:834", "Asynchronous scheduling is enabled.")
        self._warn_about_speculation()

    def _warn_about_speculation(self) -> None:
        speculation = self._settings.speculation
        if speculation is None:
            return
        if speculation.method == "mtp" and speculation.draft_tokens > self._model.predict_layers:
            log(
                "APIServer",
                "speculative.py:611",
                "Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP "
                "layer, which may result in lower acceptance rate",
                level="WARNING",
            )
        batched = self._settings.limits.max_num_batched_tokens
        if batched < 8192:  # noqa: PLR2004 - vLLM's own threshold for this warning
            log(
                "APIServer",
                "vllm.py:2361",
                f"max_num_scheduled_tokens is set to {batched} based on the speculative decoding "
                "settings. This may lead to suboptimal performance. Consider increasing "
                "max_num_batched_tokens to accommodate the additional draft token slots, or decrease "
                "num_speculative_tokens or max_num_seqs.",
                level="WARNING",
            )
        log(
            "EngineCore",
            "__init__.py:206",
            "min_p and logit_bias parameters won't work with speculative decoding.",
            level="WARNING",
        )

    def _engine_line(self) -> str:
        settings = self._settings
        speculation = settings.speculation
        drafts = (
            f"SpeculativeConfig(method='{speculation.method}', model=None, "
            f"num_spec_tokens={speculation.draft_tokens})"
            if speculation
            else "None"
        )
        return (
            f"Initializing a V1 LLM engine (v{vllm_log.VERSION}) with config: "
            f"model='{settings.model}', speculative_config={drafts}, "
            f"max_seq_len={settings.max_model_len}, load_format={settings.load_format}, "
            f"quantization={self._model.quantization}, enforce_eager={settings.enforce_eager}, "
            f"kv_cache_dtype={settings.kv_cache_dtype}, device_config=cuda, "
            f"served_model_name={settings.served_names[0]}"
        )

    def _choose_backends(self) -> Backends:
        log(
            "EngineCore", "model_runner.py:402", f"Starting to load model {self._settings.model}..."
        )
        chosen = backends.choose(
            self._settings.given, self._hardware, self._model, self._settings.kv_cache_dtype
        )
        if chosen.attention_was_asked:
            log(
                "EngineCore",
                "cuda.py:450",
                f"Using AttentionBackendEnum.{chosen.attention} backend.",
            )
        else:
            log(
                "EngineCore",
                "cuda.py:509",
                f"Using {chosen.attention} attention backend out of potential backends: "
                f"{list(chosen.potential_attention)}.",
            )
        if chosen.moe is not None:
            log(
                "EngineCore",
                f"{(self._model.quantization or 'unquantized')}.py:241",
                f"Using '{chosen.moe_log_name}' {self._model.moe_label} MoE backend out of potential "
                f"backends: {list(chosen.potential_moe)}.",
            )
        return chosen

    def _load_weights(self) -> None:
        hardware, model = self._hardware, self._model
        memory.check_weights(hardware, model)
        rate = hardware.load_gb_s.get(self._settings.load_format)
        if rate is None:
            raise RefusedError(
                Refusal(
                    process="engine",
                    exception="ValueError",
                    message=f"Load format `{self._settings.load_format}` is not supported",
                )
            )
        log(
            "EngineCore",
            "weight_utils.py:1108",
            f"Filesystem type for checkpoints: EXT4. Checkpoint size: {model.checkpoint_gib:.2f} GiB. "
            f"Available RAM: {hardware.free_at_start_gib:.2f} GiB.",
        )
        seconds = model.checkpoint_gib * 1.0737 / rate
        self._pass(seconds)
        log("EngineCore", "default_loader.py:507", f"Loading weights took {seconds:.2f} seconds")
        log(
            "EngineCore",
            "model_runner.py:429",
            f"Model loading took {model.weights_gib:.2f} GiB memory and {seconds + 2.4:.6f} seconds",
        )

    def _compile(self) -> float:
        settings = self._settings
        if settings.enforce_eager:
            log(
                "EngineCore",
                "vllm.py:900",
                "Enforce eager set, disabling torch.compile and CUDA graphs.",
            )
            return 0.0
        folder = _compile_cache(settings.compile_hash)
        batched = settings.limits.max_num_batched_tokens
        if folder is not None:
            log(
                "EngineCore",
                "backends.py:1126",
                f"Using cache directory: {folder} for vLLM's torch.compile",
            )
        if folder is not None and folder.is_dir():
            self._pass(_CACHED_COMPILE_S)
            log(
                "EngineCore",
                "backends.py:273",
                f"Directly load the compiled graph(s) for compile range (1, {batched}) from the cache, "
                f"took {_CACHED_COMPILE_S - 1:.2f} s",
            )
            seconds = _CACHED_COMPILE_S
        else:
            drafts = _DRAFT_COMPILE_S if settings.speculation else 0.0
            self._pass(_DYNAMO_S)
            log(
                "EngineCore",
                "backends.py:1188",
                f"Dynamo bytecode transform time: {_DYNAMO_S:.2f} s",
            )
            self._pass(_COMPILE_S + drafts)
            log(
                "EngineCore",
                "backends.py:311",
                f"Compiling a graph for compile range (1, {batched}) takes {_COMPILE_S:.2f} s",
            )
            seconds = _DYNAMO_S + _COMPILE_S + drafts
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        log("EngineCore", "monitor.py:48", f"torch.compile took {seconds:.2f} s in total")
        return seconds

    def _profile(self) -> MemoryPlan:
        settings = self._settings
        self._pass(_PROFILE_S)
        chance = random.Random(f"{self._seed}/{settings.port}/{settings.served_names}").uniform(
            0, 1
        )
        if chance < self._switches.flaky_start:
            free = self._hardware.free_at_start_gib
            raise RefusedError(
                Refusal(
                    process="engine",
                    exception="AssertionError",
                    message=(
                        f"Error in memory profiling. Initial free memory {free - 9.1:.2f} GiB, current "
                        f"free memory {free - 3.4:.2f} GiB. This happens when other processes sharing "
                        "the same container release GPU memory while vLLM is profiling during "
                        "initialization."
                    ),
                )
            )
        plan = memory.plan(settings, self._hardware, self._model)
        log(
            "EngineCore",
            "gpu_model_runner.py:6410",
            f"Initial profiling/warmup run took {_PROFILE_S:.2f} s",
        )
        if plan.graphs_gib:
            log(
                "EngineCore",
                "gpu_model_runner.py:6009",
                f"Estimated CUDA graph memory: {plan.graphs_gib:.2f} GiB total",
            )
        log("EngineCore", "gpu_worker.py:773", f"Available KV cache memory: {plan.kv_gib:.2f} GiB")
        log(
            "EngineCore",
            "kv_cache_utils.py:1148",
            f"GPU KV cache size: {plan.kv_tokens:,} tokens, Maximum concurrency for "
            f"{plan.max_model_len:,} tokens per request: {plan.kv_tokens / plan.max_model_len:.2f}x",
        )
        return plan

    def _capture(self, plan: MemoryPlan) -> None:
        settings = self._settings
        if settings.given.get("enable_flashinfer_autotune", True) and not settings.enforce_eager:
            log(
                "EngineCore",
                "kernel_warmup.py:179",
                f"Running FlashInfer autotune with {settings.limits.max_num_batched_tokens} tokens...",
            )
            self._pass(_AUTOTUNE_S)
        sizes = len(settings.capture_sizes)
        if sizes:
            seconds = 1 + sizes * _CAPTURE_S_PER_SIZE
            self._pass(seconds)
            log(
                "EngineCore",
                "model_runner.py:1164",
                f"Graph capturing finished in {seconds:.0f} secs, took {plan.graphs_gib:.2f} GiB",
            )
        self._pass(_WARM_UP_S)

    def _fail_if_switched(self, chosen: Backends) -> None:
        condition = self._switches.fails_to_start
        if condition is None or not condition.matches(effective_settings(self._settings, chosen)):
            return
        written = condition.message or (
            "RuntimeError: CUDA error: an illegal memory access was encountered"
        )
        exception, _, message = written.partition(": ")
        raise RefusedError(
            Refusal(process="engine", exception=exception, message=message or written)
        )


def announce_version(arguments: ServeArguments) -> None:
    """Write the two lines that come before anything is checked."""
    log("APIServer", "utils.py:299", f" vLLM API server version {vllm_log.VERSION}")
    given: dict[str, Any] = {
        "model_tag": arguments.model,
        **arguments.given,
        "model": arguments.model,
    }
    if "api_key" in given:
        given["api_key"] = ["***"]
    log("APIServer", "startup.py:96", f"non-default args: {given}")


def effective_settings(settings: ServeSettings, chosen: Backends) -> dict[str, Any]:
    """Name what switches can match: the given arguments, with what the engine made of them."""
    speculation = settings.speculation
    return {
        **{name: value for name, value in settings.given.items() if name != "api_key"},
        "model": settings.model,
        "moe_backend": chosen.moe,
        "attention_backend": chosen.attention,
        "max_num_seqs": settings.limits.max_num_seqs,
        "max_num_batched_tokens": settings.limits.max_num_batched_tokens,
        "enable_prefix_caching": settings.prefix_caching,
        "async_scheduling": settings.async_scheduling,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "enforce_eager": settings.enforce_eager,
        "speculation": speculation is not None,
        "speculative_config": (
            {
                **(settings.given.get("speculative_config") or {}),
                "method": speculation.method,
                "num_speculative_tokens": speculation.draft_tokens,
            }
            if speculation
            else None
        ),
    }


def _matches(condition: Condition | None, given: Any) -> bool:
    return condition is not None and condition.matches(given)


def _compile_cache(compile_hash: str) -> Path | None:
    """Locate the folder of this configuration's compiled graphs; no cache without VLLM_CACHE_ROOT."""
    root = os.environ.get("VLLM_CACHE_ROOT")
    if not root or os.environ.get("VLLM_DISABLE_COMPILE_CACHE") == "1":
        return None
    return Path(root) / "torch_compile_cache" / compile_hash
