"""Reading `vllm serve` arguments, defaults, refusals and backends."""

import pytest

from autotune.simulator.arguments import read_command_line, read_serve_arguments
from autotune.simulator.refusals import RefusedError
from autotune.simulator.switches import Condition, lookup, read_switches, speed_factor
from tests.simulator.virtual import MTP, backends_of, settings_of


def given(*argv):
    return dict(read_serve_arguments(["m", *argv]).given)


@pytest.mark.parametrize(
    ("argv", "read"),
    [
        (("--max-num-seqs", "8"), {"max_num_seqs": 8}),
        (("--max_num_batched_tokens=8K",), {"max_num_batched_tokens": 8192}),
        (("--max-num-batched-tokens", "25.6k"), {"max_num_batched_tokens": 25_600}),
        (("--max-model-len", "auto"), {"max_model_len": -1}),
        (("--no-async-scheduling",), {"async_scheduling": False}),
        (("--enable-prefix-caching",), {"enable_prefix_caching": True}),
        (("--no-enable-prefix-caching",), {"enable_prefix_caching": False}),
        (("--disable-prefix-caching",), {"enable_prefix_caching": False}),
        (("--disable-custom-all-reduce",), {"disable_custom_all_reduce": True}),
        (("--enable-custom-all-reduce",), {"disable_custom_all_reduce": False}),
        (("--served-model-name", "a", "b"), {"served_model_name": ["a", "b"]}),
        (("-sc", '{"method":"mtp"}'), {"speculative_config": {"method": "mtp"}}),
        (
            ("-sc.method", "mtp", "--speculative-config.num_speculative_tokens=2"),
            {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}},
        ),
        (
            ("-cc.cudagraph_capture_sizes+", "1", "-cc.cudagraph_capture_sizes+", "2"),
            {"compilation_config": {"cudagraph_capture_sizes": [1, 2]}},
        ),
        (("-O3",), {"optimization_level": "3"}),
    ],
    ids=" ".join,
)
def test_arguments_are_read_as_vllm_reads_them(argv, read):
    assert given(*argv) == read


PRACTITIONERS = """
    --port 8000 --tensor-parallel-size 1 -pp 1 --trust-remote-code --dtype auto --quantization modelopt
    --kv-cache-dtype fp8 --attention-backend flashinfer --moe-backend marlin
    --gpu-memory-utilization 0.85 --max-model-len 65536 --max-num-seqs 4 --max-num-batched-tokens 8192
    --enable-chunked-prefill --async-scheduling --enable-prefix-caching --language-model-only
    --reasoning-parser qwen3 --enable-auto-tool-choice --tool-call-parser qwen3_coder
    --load-format instanttensor --generation-config vllm --api-key secret
    --speculative-config {"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}
    --default-chat-template-kwargs {"preserve_thinking":true}
    --override-generation-config {"temperature":0.6,"top_k":20}
"""


def test_the_commands_of_practitioners_are_accepted():
    settings = settings_of(*PRACTITIONERS.split())

    assert settings.speculation is not None
    assert settings.speculation.draft_tokens == 3
    assert settings.api_keys == ("secret",)


def test_defaults_are_those_of_the_machine():
    settings = settings_of()

    assert settings.limits.max_num_seqs == 256
    assert settings.limits.max_num_batched_tokens == 2048
    assert settings.max_model_len == 262_144
    assert settings.host == "127.0.0.1"


def test_graphs_are_captured_for_whole_speculative_batches():
    assert {4, 8, 12, 28} <= set(settings_of(*MTP, "--max-num-seqs", "7").capture_sizes)
    assert settings_of("--enforce-eager").capture_sizes == ()


def test_the_compile_hash_ignores_what_vllm_ignores():
    hashes = {
        flags: settings_of(*flags).compile_hash
        for flags in [
            MTP,
            (*MTP, "--gpu-memory-utilization", "0.7", "--port", "1"),
            ("-sc", '{"method":"mtp","num_speculative_tokens":1}'),
            (),
            (*MTP, "--max-num-seqs", "8"),
        ]
    }

    assert len(set(hashes.values())) == 3
    assert hashes[MTP] == hashes["-sc", '{"method":"mtp","num_speculative_tokens":1}']


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--attention-backend", "FOO"), "ValueError: Unknown attention backend: 'FOO'. Valid"),
        (("--gpu-memory-utilization", "1.2"), "Input should be less than or equal to 1"),
        (
            ("--max-model-len", "300000"),
            "User-specified max_model_len (300000) is greater than the derived max_model_len",
        ),
        (("--quantization", "fp8"), "does not match the quantization method specified"),
        (("-tp", "2"), "World size (2) is larger than the number of available GPUs (1)"),
        (("-tp", "3"), "must be divisible by tensor parallel size (3)"),
        (("--max-num-active-seqs", "9", "--max-num-seqs", "8"), "cannot be greater than"),
        (
            ("--disable-chunked-prefill", "--max-num-batched-tokens", "512"),
            "max_num_batched_tokens (512) is smaller than max_model_len (262144)",
        ),
        (("-sc", '{"method":"mtp","nonsense":1}'), "Unexpected keyword argument"),
        (("-sc", '{"method":"nonsense"}'), "Input should be 'ngram', "),
        (("-sc", '{"method":"suffix"}'), "ImportError: Arctic Inference is required"),
        (("--enable-auto-tool-choice",), "requires --tool-call-parser"),
    ],
    ids=str,
)
def test_a_configuration_that_vllm_refuses_is_refused_in_its_words(flags, text):
    with pytest.raises(RefusedError) as refused:
        settings_of(*flags)

    assert text in str(refused.value)


def test_mtp_needs_a_model_that_has_it():
    with pytest.raises(RefusedError, match=r"NotImplementedError: Unsupported speculative method"):
        settings_of(*MTP, model="Qwen/Qwen3-8B")


def test_backends_are_chosen_for_the_quantization_and_the_cache():
    assert backends_of().moe == "marlin"
    assert backends_of().attention == "FLASH_ATTN"
    assert backends_of("--kv-cache-dtype", "fp8").attention == "FLASHINFER"
    assert backends_of(model="Qwen/Qwen3.6-35B-A3B-FP8").moe == "triton"
    assert backends_of(model="Qwen/Qwen3-8B").moe is None
    assert backends_of("--moe-backend", "flashinfer_b12x").speed == 0.96


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ("--moe-backend", "emulation"),
            "moe_backend='emulation' is not supported for NvFP4 MoE. Expected one of ['b12x', ",
        ),
        (
            ("--moe-backend", "flashinfer_trtllm"),
            "NvFp4 MoE backend 'FLASHINFER_TRTLLM' does not support the deployment configuration",
        ),
        (
            ("--attention-backend", "flash_attn", "--kv-cache-dtype", "fp8"),
            "FLASH_ATTN is not valid for this configuration. Reason: ['kv_cache_dtype not supported']",
        ),
    ],
    ids=str,
)
def test_a_backend_that_cannot_serve_is_refused_in_vllms_words(flags, text):
    with pytest.raises(RefusedError) as refused:
        backends_of(*flags)

    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (
            ("--moe-backend", "foo"),
            "vllm serve: error: argument --moe-backend: invalid choice: 'foo'",
        ),
        (("-sc", "{a"), "argument --speculative-config/-sc: Value {a cannot be converted to"),
        (("--no-such-flag", "2"), "vllm: error: unrecognized arguments: --no-such-flag 2"),
    ],
    ids=str,
)
def test_what_cannot_be_read_ends_with_code_2_and_vllms_words(capsys, argv, text):
    with pytest.raises(SystemExit) as ended:
        read_serve_arguments(["m", *argv])

    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("only", "moment", "holds"),
    [
        (None, (False, False, 1), True),
        ("speculation", (True, False, 1), True),
        ("speculation", (False, True, 9), False),
        ("streaming", (False, True, 1), True),
        ("streaming", (True, False, 9), False),
        ("concurrency>=4", (False, False, 4), True),
        ("concurrency>=4", (True, True, 3), False),
    ],
)
def test_a_switch_can_depend_on_the_moment(only, moment, holds):
    speculation, streaming, concurrency = moment
    condition = Condition(only=only)

    assert holds == condition.holds(
        speculation=speculation, streaming=streaming, concurrency=concurrency
    )


def test_own_options_stand_before_the_dashes():
    options, arguments = read_command_line(
        ["--hardware", "h200", "--time-scale", "60", "--switches", '{"noise": 0}', "--", "m"]
    )

    assert (options.hardware, options.time_scale, options.startup_scale) == ("h200", 60, 60)
    assert options.switches.noise == 0
    assert arguments.model == "m"


@pytest.mark.parametrize(
    "written",
    [
        [],
        {"no_such_switch": 1},
        {"noise": "much"},
        {"breaks_tools": {"only": "sometimes"}},
        {"fast": {"moe_backend": 2}},
    ],
    ids=str,
)
def test_wrong_switches_are_refused(written):
    with pytest.raises(ValueError, match=r"."):
        read_switches(written)


def test_switches_match_settings_by_path_and_in_any_case():
    effective = {"moe_backend": "marlin", "speculative_config": {"num_speculative_tokens": 3}}
    switches = read_switches(
        {
            "fast": {"moe_backend": {"MARLIN": 2}, "max_num_seqs": {"8": 3}},
            "breaks_json": {"speculative_config.num_speculative_tokens": [2, 3]},
            "dies_at_request": 4,
        }
    )

    assert lookup(effective, "speculative_config.num_speculative_tokens") == 3
    assert speed_factor(switches, effective) == 2
    assert switches.breaks_json is not None
    assert switches.breaks_json.matches(effective)
    assert switches.dies_at_request is not None
    assert switches.dies_at_request.request == 4
