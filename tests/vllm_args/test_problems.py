"""Settings that vLLM refuses or ignores are found before a server is started for them."""

import pytest

from autotune.vllm_args import problems, shipped_arguments
from tests.vllm_args.spaces import found, messages, space


def test_settings_of_a_working_server_are_no_problem():
    args = {
        "tensor_parallel_size": 1,
        "max_model_len": "64k",
        "max_num_batched_tokens": "8K",
        "enable_prefix_caching": False,
        "disable_log_stats": True,
        "quantization": "modelopt",
        "kv_cache_dtype": "fp8",
        "compilation_config": {"cudagraph_mode": "PIECEWISE"},
        "structured_outputs_config.backend": "xgrammar",
        "hf_overrides": '{"a": 1}',
        "cudagraph_capture_sizes": [1, 2, 4],
        "api_server_count": "2",
        "speculative_config": {"method": "mtp", "moe_backend": "triton"},
    }
    knobs = {
        "speculative_config.num_speculative_tokens": (0, 2),
        "gpu_memory_utilization": (0.7, 1.0),
        "gdn_prefill_backend": (None, "triton"),
    }
    for version in ("0.26", "0.32", "0.33"):
        assert messages(version, args=args, knobs=knobs) == []


def test_an_unknown_flag_comes_with_the_one_that_was_meant():
    assert messages(args={"max_num_sequences": 4}) == [
        "max_num_sequences: vLLM 0.33.0 has no such flag; did you mean max_num_seqs?"
    ]


def test_a_flag_that_is_gone_is_named_as_gone_with_what_took_its_place():
    (text,) = messages(args={"swap_space": 4})
    assert text.startswith("swap_space: vLLM 0.33.0 has no such flag; it is gone: preempted")
    assert "cudagraph_capture_sizes" in messages(args={"cuda_graph_sizes": [1]})[0]


def test_a_flag_is_judged_by_the_version_that_will_run():
    assert messages("0.26", args={"max_num_partial_prefills": 2}) == []
    assert "it is gone" in messages("0.33", args={"max_num_partial_prefills": 2})[0]
    assert "has no such flag" in messages("0.26", args={"max_num_active_seqs": 2})[0]
    # 0.33 learned `--disable-x`; 0.32 knows `--no-enable-x` alone.
    assert messages("0.33", args={"disable_chunked_prefill": True}) == []
    assert "has no such flag" in messages("0.32", args={"disable_chunked_prefill": True})[0]


def test_each_wrong_value_of_a_knob_is_a_problem_of_its_own():
    values = ("marlin", "marlim", "turbo")
    (first, second) = found(model="some/model-NVFP4", knobs={"moe_backend": values})
    assert (first.value, second.value) == ("marlim", "turbo")
    assert "did you mean marlin?" in first.message
    assert first.name == second.name == "moe_backend"


@pytest.mark.parametrize("word", ["FLASHINFER", "flashinfer", "Triton_Attn", "auto"])
def test_case_is_not_held_against_words_that_vllm_folds(word: str):
    assert messages(args={"attention_backend": word}) == []
    assert messages(args={"moe_backend": "Flashinfer-Cutlass"}) == []
    assert "does not take" in messages(args={"kv_cache_dtype": "FP8"})[0]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("enable_prefix_caching", "on", "is a switch: write true or false, not 'on'"),
        ("enable_prefix_caching", 1, "is a switch: write true or false, not 1"),
        ("max_num_seqs", True, "takes a whole number, not true"),
        ("max_num_seqs", 2.5, "takes a whole number, not 2.5"),
        ("max_num_seqs", "many", "takes a whole number, not 'many'"),
        ("max_num_seqs", 0, "must be at least 1, not 0"),
        ("max_num_seqs", [1, 2], "takes one value, not a list of 2"),
        ("max_num_batched_tokens", "8q", "takes a whole number such as 8192 or 8k, not '8q'"),
        ("gpu_memory_utilization", "0,9", "takes a number, not '0,9'"),
        ("gpu_memory_utilization", 1.2, "must be above 0 and at most 1, not 1.2"),
        ("cudagraph_capture_sizes", [1, "x"], "takes a whole number, not 'x'"),
        ("kv_cache_dtype", {"a": 1}, "takes plain text, not JSON"),
        ("speculative_config", "mtp", "takes a mapping of JSON keys, not 'mtp'"),
        ("tool_call_parser", "qwen3_code", "did you mean qwen3_coder?"),
        ("quantization", "nvfp5", "does not take 'nvfp5'"),
        ("disable_log_stats", False, "can only be switched on"),
    ],
)
def test_a_value_of_the_wrong_kind_is_a_problem(name: str, value: object, message: str):
    (text,) = messages(args={name: value})
    assert message in text


def test_leaving_a_flag_to_vllm_is_never_a_problem():
    assert messages(knobs={"moe_backend": (None, "marlin")}, args={"max_num_seqs": None}) == []


def test_a_parser_that_a_plugin_brings_is_not_judged():
    args = {"tool_call_parser": "mine", "tool_parser_plugin": "mine.py"}
    assert messages(args=args) == []


def test_a_misspelt_key_of_the_speculative_config_is_found_in_both_spellings():
    expected = "vLLM 0.33.0 knows no key num_spec_tokens of speculative_config"
    inside = messages(args={"speculative_config": {"method": "mtp", "num_spec_tokens": 1}})
    dotted = messages(knobs={"speculative_config.num_spec_tokens": (1, 2)})
    assert [expected in text for text in (*inside, *dotted)] == [True] * 3
    (far,) = messages(args={"speculative_config": {"zzz": 1}})
    assert "choose from: " in far


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("method", "mpt", "did you mean mtp?"),
        ("moe_backend", "tritton", "did you mean triton?"),
        ("num_speculative_tokens", -1, "must not be below 0, not -1"),
        ("num_speculative_tokens", "two", "takes a whole number, not 'two'"),
    ],
)
def test_values_of_the_speculative_config_are_looked_at(key: str, value: object, message: str):
    (held,) = messages(args={"speculative_config": {key: value}})
    (turned,) = messages(knobs={f"speculative_config.{key}": (value,)})
    assert message in held
    assert message in turned


def test_a_key_of_a_flag_that_takes_no_json_is_a_problem():
    assert messages(args={"kv_cache_dtype.bits": 8}) == [
        "kv_cache_dtype.bits: kv_cache_dtype takes no JSON, so it has no key bits"
    ]


def test_a_variable_that_vllm_dropped_is_a_warning_with_the_flag_to_use():
    (problem,) = found(env={"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    assert (problem.kind, problem.name) == ("warning", "env.VLLM_ATTENTION_BACKEND")
    assert problem.message == "vLLM 0.33.0 ignores this variable: use the flag attention_backend"


def test_a_misspelt_variable_is_a_warning_unless_vllm_refuses_it():
    knobs = {"env.VLLM_MARLIN_USE_ATOMIC_ADDS": ("0", "1")}
    (ignored,) = found(knobs=knobs)
    (refused,) = found(knobs=knobs, args={"fail_on_environ_validation": True})
    assert (ignored.kind, refused.kind) == ("warning", "error")
    assert ignored.message.endswith("did you mean VLLM_MARLIN_USE_ATOMIC_ADD?")


def test_variables_of_others_are_not_judged():
    assert messages(env={"CUTE_DSL_ARCH": "sm_121a", "VLLM_USE_DEEP_GEMM": "0"}) == []


def test_the_variable_of_internal_ports_is_warned_about():
    (problem,) = found(env={"VLLM_PORT": "8000"})
    assert problem.kind == "warning"
    assert "internal ports" in problem.message


@pytest.mark.parametrize(
    ("model", "quantization", "refused"),
    [
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", "modelopt", {"triton"}),
        ("Qwen/Qwen3.6-35B-A3B-FP8", "fp8", {"flashinfer_b12x"}),
        ("some/model-AWQ", None, {"flashinfer_b12x"}),
        ("some/model", None, set()),
    ],
)
def test_a_moe_backend_that_the_quantization_refuses_is_a_warning(
    model: str, quantization: str | None, refused: set[str]
):
    knobs = {"moe_backend": (None, "auto", "marlin", "triton", "flashinfer_b12x")}
    warnings = found(model=model, args={"quantization": quantization}, knobs=knobs)
    assert {problem.value for problem in warnings} == refused
    assert all(problem.kind == "warning" for problem in warnings)


def test_problems_come_in_the_order_of_the_file():
    mixed = space(args={"b_flag": 1, "a_flag": 1}, env={"VLLM_USE_V1": "1"}, knobs={"c_flag": (1,)})
    names = [problem.name for problem in problems(mixed, shipped_arguments())]
    assert names == ["b_flag", "a_flag", "env.VLLM_USE_V1", "c_flag"]
