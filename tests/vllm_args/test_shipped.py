"""The lists that come along, and the search spaces that come along with them."""

import re
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.space_file import read_search_space
from autotune.vllm_args import problems, shipped_arguments
from autotune.vllm_args.shipped import VERSIONS, nearest
from tests.vllm_args.spaces import SHIPPED_SPACES


@pytest.mark.parametrize("version", VERSIONS)
def test_a_shipped_list_is_whole(version: str):
    arguments = shipped_arguments(version)
    assert arguments.version == f"{version}.0"
    assert arguments.origin == f"shipped list for {version}"
    assert len(arguments.by_name) > 300
    assert {"moe_backend", "max_num_seqs", "speculative_config"} <= arguments.by_name.keys()
    assert "num_speculative_tokens" in arguments.speculative_keys
    assert arguments.variables is not None
    assert "VLLM_CACHE_ROOT" in arguments.variables


def test_the_newest_list_is_taken_when_nobody_says_which():
    assert shipped_arguments().version == "0.33.0"


@pytest.mark.parametrize(
    ("version", "list_of"), [("0.26.1rc1.dev693", "0.26"), ("v0.30", "0.32"), ("0.9", "0.26")]
)
def test_the_nearest_list_stands_in_for_a_version_that_has_none(version: str, list_of: str):
    assert nearest(version) == list_of
    assert shipped_arguments(version).origin.startswith(f"shipped list for {list_of}")


def test_a_list_that_stands_in_says_so():
    assert shipped_arguments("0.30").origin == "shipped list for 0.32, the nearest to 0.30"


@pytest.mark.parametrize("version", ["newest", "", "0", "0.x"])
def test_what_is_no_version_is_an_error(version: str):
    with pytest.raises(UsageError, match="not a version"):
        shipped_arguments(version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", SHIPPED_SPACES, ids=lambda path: path.name)
def test_no_shipped_search_space_has_a_flag_or_value_that_vllm_lacks(path: Path, version: str):
    found = problems(read_search_space(path), shipped_arguments(version))
    assert [problem for problem in found if problem.kind == "error"] == []


def test_all_search_spaces_ship():
    assert {path.stem for path in SHIPPED_SPACES} == {
        "cpu-smollm2",
        "demo",
        "jetson-thor",
        "rtx-pro-6000",
        "spark",
        "spark-fp8",
    }


# As published for all three machines; the order of flags means nothing.
THREAD = """
--tensor-parallel-size 1 --trust-remote-code --dtype auto --quantization modelopt
--kv-cache-dtype fp8 --attention-backend flashinfer --moe-backend marlin
--gpu-memory-utilization 0.85 --max-model-len 65536 --max-num-seqs 4
--max-num-batched-tokens 8192 --enable-chunked-prefill --async-scheduling --enable-prefix-caching
--speculative-config {"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}
"""
FOR_AGENTS = """
--enable-auto-tool-choice --tool-call-parser qwen3_coder --reasoning-parser qwen3
"""
# As in the recipe of the blog post.
BLOG = """
--quantization fp8 --language-model-only --max-model-len 262144 --gpu-memory-utilization 0.7
--max-num-batched-tokens 16384 --max-num-seqs 4 --kv-cache-dtype fp8 --enable-prefix-caching
--enable-auto-tool-choice --tool-call-parser qwen3_coder --reasoning-parser qwen3
--speculative-config {"method":"mtp","num_speculative_tokens":1} --attention-backend flashinfer
"""


@pytest.mark.parametrize(
    ("stem", "published"),
    [
        ("spark", THREAD + FOR_AGENTS),
        ("jetson-thor", THREAD + FOR_AGENTS),
        ("rtx-pro-6000", THREAD + FOR_AGENTS),
        ("demo", THREAD + FOR_AGENTS),
        ("spark-fp8", BLOG),
    ],
)
def test_the_baseline_is_the_published_command(stem: str, published: str):
    path = next(path for path in SHIPPED_SPACES if path.stem == stem)
    read = read_search_space(path)
    assert sorted(_flags(" ".join(read.config(read.baseline).flags()))) == sorted(_flags(published))


def _flags(command: str) -> list[str]:
    return [flag.strip() for flag in re.split(r"\s(?=--)", " " + " ".join(command.split()))[1:]]
