import pytest

from autotune.diagnosis import progress


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("(APIServer pid=1) INFO 11-21 09:29:40 [a.py:3] vLLM API server version 0.33.0", "reading the configuration"),
        ("(EngineCore pid=3) INFO 11-21 09:29:40 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with", "starting the engine"),
        ("model-00001-of-00007.safetensors:  12%|█▏        | 1.2G/9.9G [00:11<01:20, 108MB/s]", "downloading 12%"),
        ("Fetching 7 files:  43%|████      | 3/7 [00:00<00:00]", "downloading 3/7"),
        ("\rLoading safetensors checkpoint shards:  14% Completed | 1/7 [00:05]\rLoading safetensors checkpoint shards:  29% Completed | 2/7 [00:09]", "loading weights 2/7"),
        ("(EngineCore pid=3) INFO 11-21 09:29:40 [l.py:384] Loading weights took 47.05 seconds", "loading weights"),
        ("(EngineCore pid=3) INFO 11-21 09:29:40 [b.py:387] Compiling a graph for compile range (1, 2048) takes 5.05 s", "compiling"),
        ("(EngineCore pid=3) 2026-11-21 09:29:40,525 - INFO - autotuner.py:824 - flashinfer.jit: [Autotuner]: Autotuning process starts ...", "autotuning kernels"),
        ("(EngineCore pid=3) INFO 11-21 09:29:40 [g.py:440] Available KV cache memory: 103.39 GiB", "profiling memory"),
        ("\x1b[32mCapturing CUDA graphs (decode, FULL):  60%|██████    | 21/35 [00:01<00:00]\x1b[0m", "capturing graphs 21/35"),
        ("(APIServer pid=1) INFO 11-21 09:29:40 [base.py:247] Multi-modal warmup completed in 10.0s", "warming up"),
        ("(APIServer pid=1) INFO 11-21 09:29:40 [e.py:139] Starting vLLM server on http://127.0.0.1:8000", "opening the port"),
        ("(APIServer pid=1) INFO:     Application startup complete.", "ready"),
        ("(APIServer pid=1) INFO:     Shutting down", "stopping"),
        ("(APIServer pid=1)     return await main", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_line_names_what_the_server_is_doing(line, phase):
    assert progress(line) == phase
