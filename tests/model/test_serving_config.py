import json
import shlex

import pytest

from autotune.model.serving_config import ServingConfig


def argv(**settings):
    names = {name.replace("__", "."): value for name, value in settings.items()}
    return list(ServingConfig(model="m", settings=names).argv())[1:]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_num_seqs": 4}, ["--max-num-seqs", "4"]),
        ({"gpu_memory_utilization": 0.85}, ["--gpu-memory-utilization", "0.85"]),
        ({"async_scheduling": True}, ["--async-scheduling"]),
        ({"async_scheduling": False}, ["--no-async-scheduling"]),
        ({"attention_backend": None}, []),
        ({"cudagraph_capture_sizes": [1, 2, 4]}, ["--cudagraph-capture-sizes", "1", "2", "4"]),
        ({"hf_overrides": {"a": {"b": True}}}, ["--hf-overrides", '{"a":{"b":true}}']),
        ({"env__VLLM_X": "1"}, []),
    ],
    ids=str,
)
def test_each_kind_of_setting_has_its_form(settings, words):
    assert argv(**settings) == words


def test_keys_of_a_json_flag_are_merged_into_what_is_held_fixed():
    words = argv(
        speculative_config={"method": "mtp", "moe_backend": "triton"},
        speculative_config__num_speculative_tokens=3,
        speculative_config__moe_backend="marlin",
    )

    assert words[0] == "--speculative-config"
    assert json.loads(words[1]) == {
        "method": "mtp",
        "moe_backend": "marlin",
        "num_speculative_tokens": 3,
    }


def test_nested_keys_reach_into_a_json_flag_without_touching_what_was_given():
    fixed = {"pass_config": {"fuse": True}}

    words = argv(compilation_config=fixed, compilation_config__pass_config__level=2)

    assert json.loads(words[1]) == {"pass_config": {"fuse": True, "level": 2}}
    assert fixed == {"pass_config": {"fuse": True}}


def test_zero_draft_tokens_mean_no_speculative_config_at_all():
    config = ServingConfig(
        model="m",
        settings={
            "speculative_config": {"method": "mtp"},
            "speculative_config.num_speculative_tokens": 0,
        },
    )

    assert config.argv() == ("m",)
    assert not config.speculates()


def test_the_environment_is_text_and_stays_out_of_argv():
    config = ServingConfig(model="m", settings={"env.A": 1, "env.B": True, "env.C": None})

    assert config.environment() == {"A": "1", "B": "1"}


def test_the_command_can_be_pasted_into_a_shell():
    config = ServingConfig(
        model="a model", settings={"env.X": "a b", "speculative_config": {"method": "it's"}}
    )

    words = shlex.split(config.command())

    assert words[:4] == ["X=a b", "vllm", "serve", "a model"]
    assert json.loads(words[-1]) == {"method": "it's"}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("VLLM_API_KEY", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWORD", True),
        ("MAX_TOKENS", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("VLLM_USE_DEEP_GEMM", False),
    ],
)
def test_secrets_reach_the_server_and_nothing_that_is_shown(name, secret):
    config = ServingConfig(model="m", settings={f"env.{name}": "hush"})

    assert config.environment() == {name: "hush"}
    assert (name not in config.shown_environment()) == secret
    assert ("hush" not in config.command()) == secret
