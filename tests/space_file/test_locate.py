import pytest

from autotune.space_file.locate import line_of

TEXT = """\
model: m
server:
  args:
    kv_cache_dtype: fp8
    speculative_config: {method: mtp}
  env:
    VLLM_X: "1"
knobs:
  moe_backend:
    choices:
      - marlin
      - cutlas
  speculative_config.num_speculative_tokens: {choices: [0, 9]}
"""


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("kv_cache_dtype", None, 4),
        ("kv_cache_dtype", "fp8", 4),
        ("moe_backend", None, 9),
        ("moe_backend", "cutlas", 12),
        ("moe_backend", "elsewhere", 9),
        ("speculative_config.method", "mtp", 5),
        ("speculative_config.num_speculative_tokens", 9, 13),
        ("env.VLLM_X", None, 7),
        ("unknown", None, 3),
    ],
)
def test_a_setting_or_its_value_is_found_where_it_stands(tmp_path, name, value, line):
    path = tmp_path / "space.yaml"
    path.write_text(TEXT)

    assert line_of(path, name, value) == line


def test_arguments_written_as_words_are_found_at_their_list(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text('model: m\nserver:\n  args: ["--max-num-seqs", "4"]\nknobs: {}\n')

    assert line_of(path, "max_num_seqs") == 3
