import pytest

from autotune.diagnosis.facts import read_facts
from autotune.diagnosis.log_text import LogText
from tests.diagnosis.samples import API, BANNER, ENGINE, STARTED

AT = "INFO 11-21 09:30:00 [module.py:7] "


def facts_of(*lines: str):
    return read_facts(LogText("\n".join(lines)))


def test_a_whole_start_gives_its_facts():
    found = facts_of(
        BANNER + STARTED,
        f"{API}{AT}Using max model len 49152",
        f"{API}{AT}Chunked prefill is enabled with max_num_batched_tokens=8192.",
        f"{ENGINE}{AT}Using V2 Model Runner",
        f"{ENGINE}{AT}Using FLASHINFER attention backend out of potential backends: ['FLASHINFER'].",
        f"{ENGINE}{AT}Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'].",
        f"{ENGINE}{AT}Selected CutlassFP8ScaledMMLinearKernel for Fp8LinearMethod",
        f"{ENGINE}{AT}Using fp8_e4m3 data type to store kv cache. It reduces",
        f"{ENGINE}{AT}Time spent downloading weights for acme/tiny: 61.250000 seconds",
        f"{ENGINE}{AT}Loading weights took 12.50 seconds",
        f"{ENGINE}{AT}Model loading took 7.43 GiB memory and 74.900000 seconds",
        f"{ENGINE}{AT}Directly load the compiled graph(s) for compile range (1, 8192) from the cache, took 1.1 s",
        f"{ENGINE}{AT}torch.compile took 3.50 s in total",
        f"{ENGINE}{AT}torch.compile took 1.25 s in total",
        f"{ENGINE}{AT}Available KV cache memory: 17.36 GiB",
        f"{ENGINE}{AT}GPU KV cache size: 188,640 tokens, Maximum concurrency for 49,152 tokens per request: 3.84x",
        f"{ENGINE}{AT}Graph capturing finished in 6 secs, took 0.46 GiB",
        f"{ENGINE}{AT}init engine (profile, create kv cache, warmup model) took 41.11 s (compilation: 4.75 s)",
    )

    assert found.as_dict() == {
        "vllm_version": "0.33.0",
        "model": "acme/tiny",
        "model_runner": "V2",
        "attention_backend": "FLASHINFER",
        "moe_backend": "MARLIN",
        "linear_backend": "CutlassFP8ScaledMMLinearKernel",
        "kv_cache_dtype": "fp8_e4m3",
        "max_model_len": 49152,
        "max_num_batched_tokens": 8192,
        "kv_cache_tokens": 188640,
        "max_concurrency": 3.84,
        "max_concurrency_tokens": 49152,
        "kv_cache_gib": 17.36,
        "model_memory_gib": 7.43,
        "graph_memory_gib": 0.46,
        "download_s": 61.25,
        "weights_s": 12.5,
        "compile_s": 4.75,
        "compile_cache_hit": True,
        "graph_capture_s": 6.0,
        "init_engine_s": 41.11,
    }


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("INFO 10-24 18:12:26 api_server.py:585] vLLM API server version 0.6.4.post1", "vllm_version", "0.6.4.post1"),
        ("INFO 10-24 18:12:26 m.py:1067] Loading model weights took 19.8557 GB", "model_memory_gib", 19.8557),
        ("INFO 10-24 18:12:26 k.py:395] # GPU blocks: 1381", "kv_cache_tokens", 22096),
        ("INFO 10-24 18:12:26 [monitor.py:31] torch.compile takes 54.73 s in total", "compile_s", 54.73),
        ("INFO 10-24 18:12:26 [b.py:3] Compiling a graph for general shape takes 41.86 s", "compile_cache_hit", False),
        ("INFO 10-24 18:12:26 [cuda.py:1] Using Flash Attention backend on V1 engine.", "attention_backend", "FLASH_ATTN"),
        ("INFO 10-24 18:12:26 [cuda.py:1] Using AttentionBackendEnum.TRITON_ATTN backend.", "attention_backend", "TRITON_ATTN"),
        ("INFO 10-24 18:12:26 [u.py:9] Using FlashInfer CUTLASS Unquantized MoE backend out of potential", "moe_backend", "FLASHINFER_CUTLASS"),
        ("INFO 10-24 18:12:26 [c.py:9] init engine (profile, create kv cache, warmup model) took 2.60 seconds", "init_engine_s", 2.6),
        ("WARNING 10-24 18:12:26 [v.py:9] Model Runner V2 requires Triton; using the V1 model runner instead.", "model_runner", "V1"),
    ],
)  # fmt: skip
def test_wordings_of_many_versions_are_known(line, name, value):
    assert getattr(facts_of(line), name) == value


def test_a_line_broken_by_a_terminal_is_read_whole():
    found = facts_of(
        f"(EngineCore_0 pid=1) (RayWorkerWrapper pid=38) {AT}Graph capturing finished in 11",
        " secs, took 1.00 GiB",
        f"(EngineCore_0 pid=1) (RayWorkerWrapper pid=38) {AT}Loading weights took 19",
        "4.90 seconds",
    )

    assert (found.graph_capture_s, found.weights_s) == (11.0, 194.9)


def test_a_number_without_its_unit_is_no_fact():
    found = facts_of(
        f"{ENGINE}{AT}GPU KV cache size: 268", f"{ENGINE}{AT}Available KV cache memory: 1"
    )

    assert (found.kv_cache_tokens, found.kv_cache_gib) == (None, None)


def test_of_several_engines_the_smallest_cache_counts():
    found = facts_of(
        f"(EngineCore_DP0 pid=1) {AT}GPU KV cache size: 9,000 tokens",
        f"(EngineCore_DP1 pid=2) {AT}GPU KV cache size: 8,000 tokens",
    )

    assert found.kv_cache_tokens == 8000


def test_compilation_is_not_counted_once_per_worker():
    found = facts_of(
        f"(Worker_TP0 pid=1) {AT}torch.compile took 4.00 s in total",
        f"(Worker_TP1 pid=2) {AT}torch.compile took 4.10 s in total",
    )

    assert found.compile_s == 4.0


def test_what_was_not_heeded_is_kept_in_the_servers_words():
    warning = f"{API}WARNING 11-21 09:30:00 [module.py:7] "
    found = facts_of(
        f"{warning}Unknown vLLM environment variable detected: VLLM_TYPO",
        f"{warning}Unknown vLLM environment variable detected: VLLM_OTHER",
        f"{warning}Unknown vLLM environment variable detected: VLLM_TYPO",
        f"{warning}Async scheduling not supported with ngram-based speculative decoding and will be disabled.",
        f"{warning}Capping cudagraph capture sizes from max 512 to 352 to fit Mamba cache blocks (361 blocks available).",
        f"{warning}method `deepseek_mtp` is deprecated and replaced with mtp.",
        "/opt/x.py:9: FutureWarning: The pynvml package is deprecated.",
    )

    assert found.unknown_env == ("VLLM_TYPO", "VLLM_OTHER")
    assert found.ignored_settings == (
        "Async scheduling not supported with ngram-based speculative decoding and will be disabled.",
    )
    assert found.caps == (
        "Capping cudagraph capture sizes from max 512 to 352 to fit Mamba cache blocks (361 blocks available).",
    )
    assert found.deprecations == ("method `deepseek_mtp` is deprecated and replaced with mtp.",)
