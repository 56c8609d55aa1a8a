import pytest

from autotune.space_file.argv import (
    ArgvError,
    grouped,
    json_mapping,
    setting_of,
    split_item,
    split_line,
    word_value,
)


def settings_of(*words):
    return dict(setting_of(group) for _, group in grouped(words))


def test_pasted_words_become_settings_by_name():
    assert settings_of(
        *("--max-model-len", "65536", "--enable-prefix-caching", "--no-async-scheduling"),
        *("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}'),
        *("--gpu-memory-utilization=0.85", "--lora-modules", "a=b", "c=d", "--offset", "-1"),
    ) == {
        "max_model_len": 65536,
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
        "gpu_memory_utilization": 0.85,
        "lora_modules": ["a=b", "c=d"],
        "offset": -1,
    }


def test_short_forms_become_their_long_names():
    assert settings_of(
        *("-tp", "2", "-pp=1", "-dp", "4", "-ep", "-q", "fp8", "-O3"),
        *("-sc.method", "mtp", "-cc.mode", "3", "-ac.use_cudnn", "true"),
    ) == {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 4,
        "enable_expert_parallel": True,
        "quantization": "fp8",
        "optimization_level": 3,
        "speculative_config.method": "mtp",
        "compilation_config.mode": 3,
        "attention_config.use_cudnn": True,
    }


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("65536", 65536),
        ("-1", -1),
        ("0.85", 0.85),
        ("0.90", "0.90"),
        ("1e5", "1e5"),
        ("007", "007"),
        ("-0", "-0"),
        ("nan", "nan"),
        ("64k", "64k"),
        ("{{ jinja }}", "{{ jinja }}"),
        ("[1]", "[1]"),
    ],
)
def test_a_word_becomes_a_number_only_if_it_would_be_written_back_alike(word, value):
    read = word_value(word)

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("serve", "model"), "serve is not a flag"),
        (("--no-x", "3"), "--no-x switches off and takes no value"),
        (("-zz",), "-zz is not a short form"),
    ],
)
def test_words_that_are_no_setting_are_refused(words, problem):
    with pytest.raises(ArgvError, match=problem):
        settings_of(*words)


def test_a_line_continues_after_a_backslash():
    assert split_line("--a 1 \\\n  --b '{\"x\": 2}'") == ["--a", "1", "--b", '{"x": 2}']


def test_an_open_quote_is_refused():
    with pytest.raises(ArgvError, match="cannot be split into words"):
        split_line("--a 'open")


def test_an_item_may_hold_a_flag_and_its_value():
    assert split_item("--max-model-len 65536") == ["--max-model-len", "65536"]
    assert split_item('--speculative-config {"method": "mtp"}') == [
        "--speculative-config",
        '{"method": "mtp"}',
    ]
    assert split_item("two words") == ["two words"]
    assert split_item("") == [""]


@pytest.mark.parametrize(
    "text",
    ['{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', "{", "[1]", '{"a":' * 50 + "1" + "}" * 50],
)
def test_what_is_not_one_clean_json_object_is_none(text):
    assert json_mapping(text) is None
